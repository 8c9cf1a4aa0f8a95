// A mapped probe of a window finds what to copy. The copy then gives the answer of a lookup, or
// none.

#include "index/reader/mapped_probe.h"

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "index/layout/item.h"
#include "index/layout/record.h"
#include "index/reader/lookup.h"
#include "index/segments/line_editor.h"
#include "tests/index/index_test_util.h"
#include "tests/index/reader/lookup_fixture.h"

namespace osprey::index {
namespace {

constexpr uint32_t kReadBytesMax = 1024;

class MappedProbeTest : public LookupTest {
 protected:
  DirectoryCache::Window WindowOf(absl::string_view key) {
    return map_.WindowOf(HashKey(key, kTestSeed));
  }
  bool Look(absl::string_view key) {
    return mapped_probe_.Look(memory_.data() + HomeLineOf(key), map_, WindowOf(key),
                              HashKey(key, kTestSeed), key, kReadBytesMax);
  }
  std::vector<std::byte> Copy() {
    return ReadRegion(memory_.data(), mapped_probe_.read().offset, mapped_probe_.read().length);
  }
  MappedProbe::Found Judge(absl::string_view key, const std::vector<std::byte>& bytes) {
    return mapped_probe_.Judge(bytes, kTestIncarnation, key);
  }
  // The answer of a lookup.
  bool IsThere(absl::string_view key) {
    Lookup lookup(map_, key);
    Lookup::Step step = lookup.Start();
    while (step.kind == Lookup::Kind::kRead) step = lookup.Resume(LookupTest::Copy(step));
    return step.kind == Lookup::Kind::kHit;
  }

  MappedProbe mapped_probe_;
};

TEST_F(MappedProbeTest, OfAnInlineKeyOnlyItsLineIsCopied) {
  const std::vector<std::string> keys = FillBothLines();
  for (const uint64_t own : {0, 1}) {
    const uint64_t version = Put(keys[own], "another").version;
    ASSERT_TRUE(Look(keys[own]));
    EXPECT_FALSE(mapped_probe_.is_item());
    EXPECT_EQ(mapped_probe_.read().offset, HomeLineOf(keys[own]) + own * kLineBytes);
    EXPECT_EQ(mapped_probe_.read().length, kLineBytes);
    const std::vector<std::byte> bytes = Copy();
    const MappedProbe::Found found = Judge(keys[own], bytes);
    ASSERT_TRUE(found.hit);
    EXPECT_EQ(TextOf(found.value), "another");
    EXPECT_EQ(found.cas_version, version);
    const AccessHint access = mapped_probe_.access(HashKey(keys[own], kTestSeed));
    EXPECT_EQ(access.kind, WordKind::kInline);
    EXPECT_EQ(access.offset, mapped_probe_.read().offset);
    EXPECT_EQ(access.fingerprint, HashKey(keys[own], kTestSeed).fingerprint());
  }
}

TEST_F(MappedProbeTest, OfAKeyOutOfLineOnlyItsItemIsCopied) {
  const std::string value(500, 'v');
  const WriteResult put = Put("planet", value);
  ASSERT_TRUE(Look("planet"));
  EXPECT_TRUE(mapped_probe_.is_item());
  EXPECT_EQ(mapped_probe_.read().offset, Slot::Unpack(put.slot).offset);
  EXPECT_GE(mapped_probe_.read().length, ItemBytes(6, 500));
  const std::vector<std::byte> bytes = Copy();
  const MappedProbe::Found found = Judge("planet", bytes);
  ASSERT_TRUE(found.hit);
  EXPECT_EQ(TextOf(found.value), value);
  EXPECT_EQ(found.cas_version, put.version);
  EXPECT_EQ(mapped_probe_.access(HashKey("planet", kTestSeed)).kind, WordKind::kSlot);
}

TEST_F(MappedProbeTest, EveryByteOfTheCopyCounts) {
  const std::vector<std::string> keys = FillBothLines();
  Put("planet", std::string(70, 'v'));
  for (const std::string& key : {keys[0], keys[1], std::string("planet")}) {
    ASSERT_TRUE(Look(key));
    const std::vector<std::byte> good = Copy();
    const uint64_t counted = mapped_probe_.is_item() ? ItemBytes(key.size(), 70) : kLineBytes;
    for (uint64_t at = 0; at < counted; ++at) {
      for (const std::byte mask : {std::byte{0x01}, std::byte{0x80}}) {
        std::vector<std::byte> bytes = good;
        bytes[at] ^= mask;
        EXPECT_FALSE(Judge(key, bytes).hit) << key << " byte " << at;
      }
    }
    EXPECT_TRUE(Judge(key, good).hit);
  }
}

TEST_F(MappedProbeTest, CopyOfAnotherIncarnationOrSegmentIsRejected) {
  const std::vector<std::string> keys = FillBothLines();
  Put("planet", std::string(70, 'v'));
  for (const std::string& key : {keys[0], keys[1], std::string("planet")}) {
    ASSERT_TRUE(Look(key));
    const std::vector<std::byte> bytes = Copy();
    EXPECT_TRUE(mapped_probe_.Judge(bytes, kTestIncarnation, key).hit);
    EXPECT_FALSE(mapped_probe_.Judge(bytes, kTestIncarnation + 1, key).hit);
  }
  // The line belongs to another segment now, and is whole.
  for (const std::string& key : keys) {
    ASSERT_TRUE(Look(key));
    Rewrite(mapped_probe_.read().offset, [](Line& line) { ++line.record.tag; });
    const std::vector<std::byte> bytes = Copy();
    ASSERT_TRUE(RecordIsWhole(bytes, {mapped_probe_.read().offset, kTestIncarnation}));
    EXPECT_FALSE(Judge(key, bytes).hit);
  }
}

TEST_F(MappedProbeTest, WhatHappensBetweenLookAndCopyIsSeenInTheCopy) {
  Put("planet", std::string(500, 'o'));
  ASSERT_TRUE(Look("planet"));
  Put("planet", std::string(700, 'n'));  // its old item is dead
  EXPECT_FALSE(Judge("planet", Copy()).hit);
  ASSERT_TRUE(Look("planet"));
  std::vector<std::byte> bytes = Copy();
  EXPECT_EQ(TextOf(Judge("planet", bytes).value), std::string(700, 'n'));
  Delete("planet");
  EXPECT_FALSE(Judge("planet", Copy()).hit);
  Put("star", "vega");
  ASSERT_TRUE(Look("star"));
  Put("star", "deneb");
  bytes = Copy();
  EXPECT_EQ(TextOf(Judge("star", bytes).value), "deneb");
  Delete("star");
  EXPECT_FALSE(Judge("star", Copy()).hit);
}

// A slot shows whether its item has an expiry, but the item decides.
TEST_F(MappedProbeTest, AnExpiryThatOnlyTheItemHasIsNoHit) {
  ASSERT_TRUE(table_
                  ->Put("mayfly", BytesOf(std::string(100, 'm')), {}, TestTime(0),
                        Lifetime::For(absl::Hours(1)))
                  .status.ok());
  EXPECT_FALSE(Look("mayfly"));
  uint64_t changed = 0;
  for (const uint64_t line : {HomeLineOf("mayfly"), HomeLineOf("mayfly") + kLineBytes}) {
    Rewrite(line, [&](Line& words) {
      if (KindOf(words.words[0]) == WordKind::kSlot) words.words[0] &= ~uint64_t{1}, ++changed;
    });
  }
  ASSERT_EQ(changed, 1u);
  ASSERT_TRUE(Look("mayfly"));
  const std::vector<std::byte> bytes = Copy();
  ASSERT_EQ(ReadItem(bytes, {mapped_probe_.read().offset, kTestIncarnation}, "mayfly").verdict,
            ItemVerdict::kLive);
  EXPECT_FALSE(Judge("mayfly", bytes).hit);
}

TEST_F(MappedProbeTest, KeysWithACommonPrefixAreDistinguished) {
  const std::vector<std::string> keys = {"s", "st", "star", "starlight", "starlights", "starling"};
  for (const std::string& key : keys) {
    Put(key, key);
    for (const std::string& other : keys) {
      if (!Look(other)) continue;
      const std::vector<std::byte> bytes = Copy();
      const MappedProbe::Found found = Judge(other, bytes);
      EXPECT_TRUE(!found.hit || TextOf(found.value) == other) << other;
    }
    ASSERT_TRUE(Look(key));
    const std::vector<std::byte> bytes = Copy();
    EXPECT_EQ(TextOf(Judge(key, bytes).value), key);
  }
  // Two of one window whose first eight bytes are the same.
  const std::vector<std::string> alike = KeysOfHome(9, 40, /*same_fingerprint=*/false);
  for (const std::string& key : alike) {
    Put(key, key);
    if (!Look(key)) break;  // it does not fit the window
    const std::vector<std::byte> bytes = Copy();
    EXPECT_EQ(TextOf(Judge(key, bytes).value), key);
  }
}

TEST_F(MappedProbeTest, TheRestIsALookups) {
  EXPECT_FALSE(Look("absent"));
  Put("long", std::string(2000, 'l'));
  EXPECT_FALSE(Look("long"));
  EXPECT_TRUE(IsThere("long"));
  ASSERT_TRUE(table_
                  ->Put("mayfly", BytesOf(std::string(100, 'm')), {}, TestTime(0),
                        Lifetime::For(absl::Hours(1)))
                  .status.ok());
  EXPECT_FALSE(Look("mayfly"));
  EXPECT_FALSE(mapped_probe_.Look(memory_.data(), map_, DirectoryCache::Window(), KeyHash(),
                                  "planet", kReadBytesMax));
  // In a chain.
  size_t seen = 0;
  const std::vector<std::string> keys = KeysOfHome(11, 45, /*same_fingerprint=*/false);
  for (const std::string& key : keys) Put(key, std::string(60, 'c'));
  for (const std::string& key : keys) {
    EXPECT_TRUE(IsThere(key));
    if (Look(key) && Judge(key, Copy()).hit) ++seen;
  }
  EXPECT_GT(seen, 0u);
  EXPECT_LT(seen, keys.size());
}

// The window holds remote bytes: none lead outside the region.
TEST_F(MappedProbeTest, ASlotThatLeadsOutOfTheRegionIsNotSeen) {
  const KeyHash hash = HashKey("planet", kTestSeed);
  const uint64_t home = HomeLineOf("planet");
  const auto slot_to = [&](uint64_t offset, uint64_t bytes) {
    Rewrite(home, [&](Line& line) {
      line.words[0] = Slot{offset, LengthClassOf(bytes), hash.fingerprint(), false}.Pack();
    });
    return Look("planet");
  };
  EXPECT_TRUE(slot_to(kBytes - 1024, 1024));
  EXPECT_FALSE(slot_to(kBytes - 1024 + 16, 1024));
  EXPECT_FALSE(slot_to(kBytes, 32));
  EXPECT_FALSE(slot_to(kRegionBytesMax - 16, 32));
  EXPECT_FALSE(slot_to(0, 64));  // the header
  EXPECT_FALSE(slot_to(kBytes - 4096, 1025));
  EXPECT_TRUE(slot_to(kBytes - 4096, 1));
  EXPECT_EQ(mapped_probe_.read().length, sizeof(ItemHeader));
}

// On the heap with its exact length, for the address sanitizer. It has words of every kind, most of
// them invalid, whose items end after the line.
TEST_F(MappedProbeTest, AnyWindowIsLookedAtWithinItsBytes) {
  std::mt19937_64 random(7);
  const std::string key = "planet";
  const KeyHash hash = HashKey(key, kTestSeed);
  const auto window = std::make_unique<std::byte[]>(kWindowBytes);
  uint64_t seen = 0;
  for (int round = 0; round < 100000; ++round) {
    for (uint64_t at = 0; at < kWindowBytes; at += kWordBytes) {
      uint64_t word = random();
      if (random() % 2 == 0)
        word = InlineHead{static_cast<uint32_t>(random() % 8), static_cast<uint32_t>(random() % 40),
                          random() & kCasVersionMax}
                   .Pack();
      if (random() % 16 == 0)
        word = Slot{random() % kRegionBytesMax & ~uint64_t{15},
                    static_cast<uint32_t>(random() % 80), hash.fingerprint(), false}
                   .Pack();
      if (random() % 8 == 0) std::memcpy(&word, key.data(), key.size());
      std::memcpy(window.get() + at, &word, sizeof(word));
    }
    if (!mapped_probe_.Look(window.get(), map_, WindowOf(key), hash, key, kReadBytesMax)) continue;
    ++seen;
    ASSERT_LE(mapped_probe_.read().length, kReadBytesMax);
    ASSERT_LE(mapped_probe_.read().offset + mapped_probe_.read().length, kBytes);
    const auto copy = std::make_unique<std::byte[]>(mapped_probe_.read().length);
    for (uint32_t i = 0; i < mapped_probe_.read().length; ++i)
      copy[i] = static_cast<std::byte>(random());
    EXPECT_FALSE(
        mapped_probe_.Judge({copy.get(), mapped_probe_.read().length}, kTestIncarnation, key).hit);
  }
  EXPECT_GT(seen, 100u);
}

}  // namespace
}  // namespace osprey::index
