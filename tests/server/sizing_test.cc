#include "server/config/sizing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "rdma/host_memory.h"
#include "server/engine/pollers.h"
#include "server/requests/tables.h"

namespace osprey::server {
namespace {

// Whether tables in such a region take all of them, as a server's do.
bool Holds(uint64_t bytes, const Pairs& pairs, uint32_t partitions, uint64_t seed) {
  rdma::HostMemory memory = *rdma::HostMemory::Create("sizing", bytes);
  index::TableOptions options;
  options.incarnation = 1;
  options.hash_seed = seed;
  const std::unique_ptr<Tables> tables =
      *Tables::Create({memory.data(), bytes}, partitions, options);
  TableAccess access(*tables);
  const std::vector<std::byte> value(pairs.value_bytes);
  std::string key(pairs.key_bytes, 'k');
  for (uint64_t i = 0; i < pairs.keys; ++i) {
    std::memcpy(key.data(), &i, std::min<uint64_t>(sizeof(i), key.size()));
    const LockedTable table = access.For(key);
    if (!table->Put(key, value, {}, absl::UnixEpoch()).status.ok()) return false;
    if (table->GrowthWanted()) table->GrowStep(absl::UnixEpoch());
  }
  return true;
}

// At a multiple of what is filled: the estimate is of the keys asked for, not of those filled.
TEST(SizingTest, AServerOfThatMemoryTakesAll) {
  for (const Pairs& pairs : std::vector<Pairs>{{600'000, 8, 8},
                                               {300'000, 11, 16},
                                               {350'000, 11, 16},
                                               {300'000, 23, 16},
                                               {100'000, 16, 16},
                                               {540'000, 16, 24},
                                               {600'000, 16, 100},
                                               {300'000, 23, 1000},
                                               {40, 16, 5'000'000}}) {
    SCOPED_TRACE(absl::StrCat(pairs.keys, " of ", pairs.key_bytes, " + ", pairs.value_bytes));
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      EXPECT_TRUE(Holds(*MemoryFor(pairs, 1), pairs, 1, seed)) << "seed " << seed;
      EXPECT_TRUE(Holds(*MemoryFor(pairs, 2), pairs, PartitionsFor(2), seed)) << "seed " << seed;
    }
    EXPECT_FALSE(Holds(*BytesTaken(pairs) / 2, pairs, 1, 1));
  }
}

// "| 8 + 16 | 62 |" of OPERATING: bytes a pair, at the number of keys at which it takes most.
TEST(SizingTest, ThePageSaysWhatPairsTakeWithinATenth) {
  int rows = 0;
  std::ifstream page("server/OPERATING.md");
  for (std::string line; std::getline(page, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    Pairs pairs;
    double said = 0;
    if (words.size() != 7 || words[2] != "+" || !absl::SimpleAtoi(words[1], &pairs.key_bytes) ||
        !absl::SimpleAtoi(words[3], &pairs.value_bytes) || !absl::SimpleAtod(words[5], &said)) {
      continue;
    }
    ++rows;
    SCOPED_TRACE(line);
    double most = 0;
    for (double keys = 100'000; keys < 199'000; keys *= std::sqrt(std::sqrt(2))) {
      pairs.keys = static_cast<uint64_t>(keys);
      const absl::StatusOr<uint64_t> taken = BytesTaken(pairs);
      ASSERT_TRUE(taken.ok()) << taken.status();
      most = std::max(most, static_cast<double>(*taken) / keys);
    }
    EXPECT_NEAR(said, most, most / 10);
  }
  EXPECT_GE(rows, 6);
}

TEST(SizingTest, WhatIsNoNumberOfPairsIsRefused) {
  for (const char* const wrong :
       {"", "1", "1,2", "1,2,3,4", "x,8,8", "1,-8,8", "0,8,8", "10,0,8", "10,4097,8",
        "10,8,1073741825", "257,1,8", "18446744073709551615,4096,1073741824", "1, 2,3e9"}) {
    const absl::StatusOr<Pairs> pairs = ParsePairs(wrong);
    ASSERT_FALSE(pairs.ok()) << wrong;
    EXPECT_TRUE(absl::StrContains(pairs.status().message(), "--memory-for=1000000,16,100"));
  }
  const absl::StatusOr<Pairs> pairs = ParsePairs("256,1,0");
  ASSERT_TRUE(pairs.ok());
  EXPECT_EQ(pairs->keys, 256u);
  const absl::Status much = MemoryFor({100'000'000'000, 16, 100}, 1).status();
  EXPECT_TRUE(absl::StrContains(much.message(), "a server has at most 2 TiB")) << much;
}

}  // namespace
}  // namespace osprey::server
