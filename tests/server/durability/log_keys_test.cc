#include "server/durability/log_keys.h"

#include <cstdint>
#include <string>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/split_mix64.h"

namespace osprey::server {
namespace {

TEST(LogKeysTest, KeepsTheLastEntryOfEachKey) {
  LogKeys keys(5);
  std::unordered_map<std::string, uint64_t> model;
  SplitMix64 random(1);
  for (uint64_t entry = 1; entry <= 60000; ++entry) {
    const std::string key = absl::StrCat("key-", random.Below(30000));
    const LogKeys::Digest digest = keys.DigestOf(key);
    const auto [last, is_new] = keys.FindOrAdd(digest);
    ASSERT_EQ(is_new, !model.contains(key));
    ASSERT_EQ(last.entry, is_new ? 0 : model[key]);
    last = {entry, false, entry + 1, 0};
    model[key] = entry;
  }
  EXPECT_EQ(keys.size(), model.size());
  for (const auto& [key, entry] : model) {
    const LogKeys::Last* const last = keys.Find(keys.DigestOf(key));
    ASSERT_NE(last, nullptr);
    EXPECT_EQ(last->entry, entry);
    EXPECT_EQ(last->version, entry + 1);
  }
  for (int i = 0; i < 30000; ++i)
    EXPECT_EQ(keys.Find(keys.DigestOf(absl::StrCat("other-", i))), nullptr);
}

// A slot has a part of the digest, and the record all of it.
TEST(LogKeysTest, DigestsThatDifferInOneBitAreOtherKeys) {
  LogKeys keys(5);
  const LogKeys::Digest first{77, 88};
  keys.FindOrAdd(first).first.entry = 1;
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_EQ(keys.Find({first.low ^ uint64_t{1} << bit, first.high}), nullptr) << bit;
    EXPECT_EQ(keys.Find({first.low, first.high ^ uint64_t{1} << bit}), nullptr) << bit;
  }
  EXPECT_TRUE(keys.FindOrAdd({first.low, first.high ^ 1}).second);
  EXPECT_EQ(keys.Find(first)->entry, 1u);
}

TEST(LogKeysTest, CountsPutsThatDoNotExpire) {
  LogKeys keys(5);
  keys.FindOrAdd(keys.DigestOf("put")).first = {1, false, 10, 0};
  keys.FindOrAdd(keys.DigestOf("expires")).first = {2, false, 11, 99};
  keys.FindOrAdd(keys.DigestOf("deleted")).first = {3, false, 0, 0};
  keys.FindOrAdd(keys.DigestOf("of the checkpoint")).first = {4, true, 12, 0};
  EXPECT_EQ(keys.CountLasting(), 1u);
}

}  // namespace
}  // namespace osprey::server
