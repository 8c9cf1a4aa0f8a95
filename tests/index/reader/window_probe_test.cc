// An window probe of a window gives the answer of a lookup for the same bytes, or none.

#include "index/reader/window_probe.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "index/layout/access_hint.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"
#include "index/reader/lookup.h"
#include "index/segments/line_editor.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/index/reader/lookup_fixture.h"

namespace osprey::index {
namespace {

class WindowProbeTest : public LookupTest {
 protected:
  DirectoryCache::Window WindowOf(absl::string_view key) {
    return map_.WindowOf(HashKey(key, kTestSeed));
  }
  WindowProbe WindowProbeFor(absl::string_view key, const std::vector<std::byte>& bytes) {
    return WindowProbe(bytes, map_, WindowOf(key), {key, HashKey(key, kTestSeed)});
  }
  static bool IsHit(const WindowProbe& probe) { return probe.kind() == WindowProbe::Kind::kHit; }
  // The line of the window in which a probe finds the key; 2: it does not.
  uint64_t LineOf(absl::string_view key) {
    const std::vector<std::byte> bytes = WindowBytesOf(key);
    const WindowProbe window_probe = WindowProbeFor(key, bytes);
    return IsHit(window_probe) ? (window_probe.line() - WindowOf(key).offset) / kLineBytes : 2;
  }
};

TEST_F(WindowProbeTest, ReturnsValueVersionAndLine) {
  const std::vector<std::string> keys = FillBothLines();
  for (const uint64_t own : {0, 1}) {
    const uint64_t version = Put(keys[own], "another").version;
    const std::vector<std::byte> bytes = WindowBytesOf(keys[own]);
    const WindowProbe window_probe = WindowProbeFor(keys[own], bytes);
    ASSERT_TRUE(IsHit(window_probe));
    EXPECT_EQ(TextOf(window_probe.item().value), "another");
    EXPECT_EQ(window_probe.item().cas_version, version);
    EXPECT_EQ(window_probe.line(), HomeLineOf(keys[own]) + own * kLineBytes);
  }
}

TEST_F(WindowProbeTest, NeedsEveryByteOfItsOwnLineAndNoneOfTheOther) {
  const std::vector<std::string> keys = FillBothLines();
  const std::vector<std::byte> good = WindowBytesOf(keys[0]);
  for (const uint64_t own : {0, 1}) {
    for (uint64_t at = 0; at < kWindowBytes; ++at) {
      for (const std::byte mask : {std::byte{0x01}, std::byte{0x80}}) {
        std::vector<std::byte> bytes = good;
        bytes[at] ^= mask;
        const WindowProbe window_probe = WindowProbeFor(keys[own], bytes);
        if (at / kLineBytes == own) {
          ASSERT_FALSE(IsHit(window_probe)) << "line " << own << ", byte " << at;
          continue;
        }
        // To reach the second line's key it passes the words of the first, some of which it may
        // leave to a lookup.
        const bool goes_over = own == 1 && at >= sizeof(RecordHeader);
        ASSERT_TRUE(IsHit(window_probe) || goes_over) << "line " << own << ", byte " << at;
        if (IsHit(window_probe)) {
          ASSERT_EQ(TextOf(window_probe.item().value), "value");
        }
      }
    }
  }
}

TEST_F(WindowProbeTest, NeedsTheRightGenerationOfItsOwnLineAlone) {
  const std::vector<std::string> keys = FillBothLines();
  for (const uint64_t which : {0, 1}) {
    const uint64_t line = HomeLineOf(keys[0]) + which * kLineBytes;
    const uint32_t generation = writer_.Header(line).tag;
    Rewrite(line, [](Line& l) { l.record.tag += 1000; });
    EXPECT_EQ(LineOf(keys[which]), 2u);
    EXPECT_EQ(LineOf(keys[1 - which]), 1 - which);
    active_mutant = Mutant::kGenerationUnchecked;
    EXPECT_EQ(LineOf(keys[which]), which);
    active_mutant = Mutant::kGenerationOfOneLine;
    EXPECT_EQ(LineOf(keys[which]), which == 0 ? 2 : 1);
    active_mutant = Mutant::kNone;
    Rewrite(line, [&](Line& l) { l.record.tag = generation; });
  }
}

TEST_F(WindowProbeTest, ReturnsSlotsBeforeTheKeyIfTheirLineIsValid) {
  const std::vector<std::string> keys = FillBothLines();
  const WriteResult result = Put(keys[0], std::string(200, 'x'));  // in its line still, as a slot
  EXPECT_EQ(LineOf(keys[0]), 2u);
  const std::vector<std::byte> good = WindowBytesOf(keys[1]);
  for (uint64_t at = 0; at <= kLineBytes; ++at) {
    std::vector<std::byte> bytes = good;
    if (at < kLineBytes) bytes[at] ^= std::byte{0x01};
    const WindowProbe window_probe = WindowProbeFor(keys[1], bytes);
    if (!IsHit(window_probe)) continue;  // the words before it are invalid
    ASSERT_EQ(window_probe.slots_seen().size(), at < kLineBytes ? 0 : 1) << "byte " << at;
    if (at < kLineBytes) continue;
    EXPECT_EQ(window_probe.slots_seen()[0].slot, result.slot);
    EXPECT_EQ(window_probe.slots_seen()[0].line, HomeLineOf(keys[1]));
  }
  EXPECT_TRUE(IsHit(WindowProbeFor(keys[1], good)));
}

// As a lookup, which accepts slots of a window only if the home line is valid.
TEST_F(WindowProbeTest, ReturnsSecondLineSlotsOnlyIfTheHomeLineIsValid) {
  const std::string key = FillBothLines()[1];
  const uint64_t slot = Slot{kDirectoryOffset, 0, 7}.Pack();
  Rewrite(HomeLineOf(key) + kLineBytes, [&](Line& l) {
    std::memmove(&l.words[1], &l.words[0], (kLineWordsUsable - 1) * kWordBytes);
    l.words[0] = slot;
  });
  for (const bool torn : {false, true}) {
    std::vector<std::byte> bytes = WindowBytesOf(key);
    if (torn) bytes[0] ^= std::byte{0x01};
    const WindowProbe window_probe = WindowProbeFor(key, bytes);
    Lookup lookup(map_, key);
    lookup.Start();
    ASSERT_EQ(lookup.Resume(bytes).kind, Lookup::Kind::kHit);
    ASSERT_TRUE(IsHit(window_probe));
    EXPECT_EQ(window_probe.slots_seen().size(), torn ? 0 : 1);
    EXPECT_EQ(lookup.slots_seen().size(), torn ? 0 : 1);
  }
}

TEST_F(WindowProbeTest, ReturnsThatAnAbsentKeyIsAbsent) {
  FillBothLines();
  const std::string key = KeysOfHome(7, 60, /*same_fingerprint=*/false).back();
  const std::vector<std::byte> good = WindowBytesOf(key);
  EXPECT_EQ(WindowProbeFor(key, good).kind(), WindowProbe::Kind::kMiss);
  for (uint64_t at = 0; at < kWindowBytes; ++at) {
    std::vector<std::byte> bytes = good;
    bytes[at] ^= std::byte{0x01};
    ASSERT_EQ(WindowProbeFor(key, bytes).kind(), WindowProbe::Kind::kOther) << "byte " << at;
  }
}

TEST_F(WindowProbeTest, LeavesToALookupAnAbsentKeyOfAHomeWithAChain) {
  const std::vector<std::string> keys = KeysOfHome(7, 40, /*same_fingerprint=*/false);
  for (size_t i = 0; i + 1 < keys.size(); ++i) Put(keys[i], std::string(100, 'v'));
  EXPECT_EQ(WindowProbeFor(keys.back(), WindowBytesOf(keys.back())).kind(),
            WindowProbe::Kind::kOther);
}

TEST_F(WindowProbeTest, LeavesToALookupAnAbsentKeyOfASlotsFingerprint) {
  const std::vector<std::string> keys = KeysOfHome(7, 2, /*same_fingerprint=*/true);
  EXPECT_EQ(WindowProbeFor(keys[1], WindowBytesOf(keys[1])).kind(), WindowProbe::Kind::kMiss);
  Put(keys[0], std::string(100, 'v'));
  EXPECT_EQ(WindowProbeFor(keys[1], WindowBytesOf(keys[1])).kind(), WindowProbe::Kind::kOther);
}

// Any words under valid checksums, and valid words under wrong ones.
TEST_F(WindowProbeTest, SaysWhatALookupSaysOfAnyBytes) {
  std::mt19937_64 random(7);
  const std::vector<std::string> keys = KeysOfHome(30, 12, /*same_fingerprint=*/false);
  for (const std::string& key : keys) Put(key, std::string(random() % 12, 'v'));
  const std::vector<std::byte> good = WindowBytesOf(keys[0]);
  const uint64_t home = WindowOf(keys[0]).offset;
  int counts[3] = {};
  int with_slots = 0;
  for (int round = 0; round < 30000; ++round) {
    const std::string key = random() % 4 == 0 ? "absent" : keys[random() % keys.size()];
    const uint32_t fingerprint = HashKey(key, kTestSeed).fingerprint();
    for (uint64_t line = 0; line < 2; ++line) {
      Rewrite(home + line * kLineBytes, [&](Line& l) {
        std::memcpy(&l, good.data() + line * kLineBytes, sizeof(l));
        for (uint64_t i = random() % 3; i > 0; --i) {
          const bool first = random() % 2 == 0;  // a key's own head is replaced often
          uint64_t& word = l.words[first ? 0 : random() % kLineWords];
          const auto key_length = static_cast<uint32_t>(random() % 3 == 0 ? random() % 128 : 8);
          const auto value_length = static_cast<uint32_t>(random() % 128);
          const uint32_t any = random() % 2 == 0 ? 7 : fingerprint;
          const uint64_t slot = Slot{random() % kBytes / 16 * 16, 0, any}.Pack();
          word = random() % 3 == 0   ? random()
                 : random() % 3 == 0 ? slot
                 : random() % 4 == 0 ? PackLink(random() % kBytes)
                                     : InlineHead{key_length, value_length, 1}.Pack();
        }
        if (random() % 4 == 0) l.words[kLinkWord] = 0;
      });
    }
    // The window of the keys' home, for the absent key too.
    std::vector<std::byte> bytes = WindowBytesOf(keys[0]);
    if (random() % 4 == 0) bytes[random() % bytes.size()] ^= std::byte{0x04};
    const HashedKey hashed{key, HashKey(key, kTestSeed)};
    const WindowProbe probe(bytes, map_, WindowOf(keys[0]), hashed);
    ++counts[static_cast<int>(probe.kind())];
    if (probe.kind() == WindowProbe::Kind::kOther) continue;
    Lookup lookup(map_, key, hashed.hash, WindowOf(keys[0]));
    ASSERT_EQ(lookup.Start().kind, Lookup::Kind::kRead);
    const Lookup::Step step = lookup.Resume(bytes);
    ASSERT_EQ(lookup.slots_seen().size(), probe.slots_seen().size());
    for (size_t i = 0; i < probe.slots_seen().size(); ++i) {
      ASSERT_EQ(lookup.slots_seen()[i].slot, probe.slots_seen()[i].slot);
      ASSERT_EQ(lookup.slots_seen()[i].line, probe.slots_seen()[i].line);
    }
    with_slots += probe.slots_seen().empty() ? 0 : 1;
    if (probe.kind() == WindowProbe::Kind::kMiss) {
      ASSERT_EQ(step.kind, Lookup::Kind::kMiss);
    } else {
      ASSERT_EQ(step.kind, Lookup::Kind::kHit);
      ASSERT_EQ(step.slot, 0u);
      ASSERT_EQ(step.value.data(), probe.item().value.data());
      ASSERT_EQ(step.value.size(), probe.item().value.size());
      ASSERT_LE(probe.item().value.data() + probe.item().value.size(), bytes.data() + bytes.size());
      ASSERT_EQ(step.version, probe.item().cas_version);
      ASSERT_EQ(step.expiry_ns, 0u);
      ASSERT_EQ(AccessHint::Unpack(lookup.AccessOf(step)).offset, probe.line());
    }
  }
  for (const int count : counts) EXPECT_GT(count, 500);
  EXPECT_GT(with_slots, 200);
}

}  // namespace
}  // namespace osprey::index
