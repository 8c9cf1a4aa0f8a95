// An inline probe of a window gives the answer of a lookup for the same bytes, or none.

#include "index/reader/inline_probe.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "index/layout/access_hint.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"
#include "index/reader/lookup.h"
#include "index/writer/line_editor.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/index/lookup_fixture.h"

namespace osprey::index {
namespace {

class InlineProbeTest : public LookupTest {
 protected:
  DirectoryCache::Window WindowOf(absl::string_view key) {
    return map_.WindowOf(HashKey(key, kTestSeed));
  }
  InlineProbe InlineProbeFor(absl::string_view key, const std::vector<std::byte>& bytes) {
    return InlineProbe(bytes, WindowOf(key), kTestIncarnation, key);
  }
  // The line of the window in which a probe finds the key; 2: it does not.
  uint64_t LineOf(absl::string_view key) {
    const std::vector<std::byte> bytes = WindowBytesOf(key);
    const InlineProbe inline_probe = InlineProbeFor(key, bytes);
    return inline_probe.hit() ? (inline_probe.line() - WindowOf(key).offset) / kLineBytes : 2;
  }
};

TEST_F(InlineProbeTest, TellsValueVersionAndLine) {
  const std::vector<std::string> keys = FillBothLines();
  for (const uint64_t own : {0, 1}) {
    const uint64_t version = Put(keys[own], "another").version;
    const std::vector<std::byte> bytes = WindowBytesOf(keys[own]);
    const InlineProbe inline_probe = InlineProbeFor(keys[own], bytes);
    ASSERT_TRUE(inline_probe.hit());
    EXPECT_EQ(TextOf(inline_probe.value()), "another");
    EXPECT_EQ(inline_probe.cas_version(), version);
    EXPECT_EQ(inline_probe.line(), HomeLineOf(keys[own]) + own * kLineBytes);
  }
}

TEST_F(InlineProbeTest, NeedsEveryByteOfItsOwnLineAndNoneOfTheOther) {
  const std::vector<std::string> keys = FillBothLines();
  const std::vector<std::byte> good = WindowBytesOf(keys[0]);
  for (const uint64_t own : {0, 1}) {
    for (uint64_t at = 0; at < kWindowBytes; ++at) {
      for (const std::byte mask : {std::byte{0x01}, std::byte{0x80}}) {
        std::vector<std::byte> bytes = good;
        bytes[at] ^= mask;
        const InlineProbe inline_probe = InlineProbeFor(keys[own], bytes);
        if (at / kLineBytes == own) {
          ASSERT_FALSE(inline_probe.hit()) << "line " << own << ", byte " << at;
          continue;
        }
        // To reach the second line's key it passes the words of the first, some of which it may
        // leave to a lookup.
        const bool goes_over = own == 1 && at >= sizeof(RecordHeader);
        ASSERT_TRUE(inline_probe.hit() || goes_over) << "line " << own << ", byte " << at;
        if (inline_probe.hit()) {
          ASSERT_EQ(TextOf(inline_probe.value()), "value");
        }
      }
    }
  }
}

TEST_F(InlineProbeTest, NeedsTheRightGenerationOfItsOwnLineAlone) {
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

TEST_F(InlineProbeTest, ReturnsSlotsBeforeTheKeyIfTheirLineIsValid) {
  const std::vector<std::string> keys = FillBothLines();
  const WriteResult result = Put(keys[0], std::string(200, 'x'));  // in its line still, as a slot
  EXPECT_EQ(LineOf(keys[0]), 2u);
  const std::vector<std::byte> good = WindowBytesOf(keys[1]);
  for (uint64_t at = 0; at <= kLineBytes; ++at) {
    std::vector<std::byte> bytes = good;
    if (at < kLineBytes) bytes[at] ^= std::byte{0x01};
    const InlineProbe inline_probe = InlineProbeFor(keys[1], bytes);
    if (!inline_probe.hit()) continue;  // the words before it are invalid
    ASSERT_EQ(inline_probe.slots_seen().size(), at < kLineBytes ? 0 : 1) << "byte " << at;
    if (at < kLineBytes) continue;
    EXPECT_EQ(inline_probe.slots_seen()[0].slot, result.slot);
    EXPECT_EQ(inline_probe.slots_seen()[0].line, HomeLineOf(keys[1]));
  }
  EXPECT_TRUE(InlineProbeFor(keys[1], good).hit());
}

// As a lookup, which accepts slots of a window only if the home line is valid.
TEST_F(InlineProbeTest, ReturnsSecondLineSlotsOnlyIfTheHomeLineIsValid) {
  const std::string key = FillBothLines()[1];
  const uint64_t slot = Slot{kDirectoryOffset, 0, 7}.Pack();
  Rewrite(HomeLineOf(key) + kLineBytes, [&](Line& l) {
    std::memmove(&l.words[1], &l.words[0], (kLineWordsUsable - 1) * kWordBytes);
    l.words[0] = slot;
  });
  for (const bool torn : {false, true}) {
    std::vector<std::byte> bytes = WindowBytesOf(key);
    if (torn) bytes[0] ^= std::byte{0x01};
    const InlineProbe inline_probe = InlineProbeFor(key, bytes);
    Lookup lookup(map_, key, 0);
    lookup.Start();
    ASSERT_EQ(lookup.Resume(bytes).kind, Lookup::Kind::kHit);
    ASSERT_TRUE(inline_probe.hit());
    EXPECT_EQ(inline_probe.slots_seen().size(), torn ? 0 : 1);
    EXPECT_EQ(lookup.slots_seen().size(), torn ? 0 : 1);
  }
}

TEST_F(InlineProbeTest, SaysNothingOfAKeyThatIsNotThere) {
  FillBothLines();
  EXPECT_EQ(LineOf("absent"), 2u);
}

// Any words under valid checksums, and valid words under wrong ones.
TEST_F(InlineProbeTest, SaysWhatALookupSaysOfAnyBytes) {
  std::mt19937_64 random(7);
  const std::vector<std::string> keys = KeysOfHome(30, 12, /*same_fingerprint=*/false);
  for (const std::string& key : keys) Put(key, std::string(random() % 12, 'v'));
  const std::vector<std::byte> good = WindowBytesOf(keys[0]);
  const uint64_t home = WindowOf(keys[0]).offset;
  int seen = 0, not_seen = 0, with_slots = 0;
  for (int round = 0; round < 20000; ++round) {
    for (uint64_t line = 0; line < 2; ++line) {
      Rewrite(home + line * kLineBytes, [&](Line& l) {
        std::memcpy(&l, good.data() + line * kLineBytes, sizeof(l));
        for (uint64_t i = random() % 3; i > 0; --i) {
          uint64_t& word = l.words[random() % kLineWords];
          const auto key_length = static_cast<uint32_t>(random() % 3 == 0 ? random() % 128 : 8);
          const auto value_length = static_cast<uint32_t>(random() % 128);
          const uint64_t slot = Slot{random() & kOffsetMask, 0, 7}.Pack();
          word = random() % 3 == 0   ? random()
                 : random() % 3 == 0 ? slot
                                     : InlineHead{key_length, value_length, 1}.Pack();
        }
      });
    }
    const std::string& key = keys[random() % keys.size()];
    std::vector<std::byte> bytes = WindowBytesOf(key);
    if (random() % 4 == 0) bytes[random() % bytes.size()] ^= std::byte{0x04};
    const InlineProbe inline_probe = InlineProbeFor(key, bytes);
    if (!inline_probe.hit()) {
      ++not_seen;
      continue;
    }
    ++seen;
    Lookup lookup(map_, key, 0);
    ASSERT_EQ(lookup.Start().kind, Lookup::Kind::kRead);
    const Lookup::Step step = lookup.Resume(bytes);
    ASSERT_EQ(step.kind, Lookup::Kind::kHit);
    ASSERT_EQ(step.slot, 0u);
    ASSERT_EQ(lookup.slots_seen().size(), inline_probe.slots_seen().size());
    for (size_t i = 0; i < inline_probe.slots_seen().size(); ++i) {
      ASSERT_EQ(lookup.slots_seen()[i].slot, inline_probe.slots_seen()[i].slot);
      ASSERT_EQ(lookup.slots_seen()[i].line, inline_probe.slots_seen()[i].line);
    }
    with_slots += inline_probe.slots_seen().empty() ? 0 : 1;
    ASSERT_EQ(step.value.data(), inline_probe.value().data());
    ASSERT_EQ(step.value.size(), inline_probe.value().size());
    ASSERT_LE(inline_probe.value().data() + inline_probe.value().size(),
              bytes.data() + bytes.size());
    ASSERT_EQ(step.version, inline_probe.cas_version());
    ASSERT_EQ(step.expiry_ns, 0u);
    ASSERT_EQ(AccessHint::Unpack(lookup.AccessOf(step)).offset, inline_probe.line());
  }
  EXPECT_GT(seen, 2000);
  EXPECT_GT(not_seen, 2000);
  EXPECT_GT(with_slots, 200);
}

}  // namespace
}  // namespace osprey::index
