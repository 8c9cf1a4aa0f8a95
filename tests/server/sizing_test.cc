#include "server/sizing.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace osprey::server {
namespace {

// At a multiple of what is filled: the estimate is of the keys asked for, not of those filled.
TEST(SizingTest, TheKeysTakeWhatIsSaidWithinATenth) {
  for (const Pairs& pairs : std::vector<Pairs>{{600'000, 8, 8},
                                               {700'000, 11, 16},
                                               {540'000, 16, 24},
                                               {600'000, 16, 100},
                                               {300'000, 23, 1000},
                                               {40, 16, 5'000'000}}) {
    SCOPED_TRACE(absl::StrCat(pairs.keys, " of ", pairs.key_bytes, " + ", pairs.value_bytes));
    const absl::StatusOr<uint64_t> least = LeastMemoryFor(pairs);
    ASSERT_TRUE(least.ok()) << least.status();
    EXPECT_TRUE(*HoldsPairs(*least * 11 / 10, pairs));
    EXPECT_FALSE(*HoldsPairs(*least * 9 / 10, pairs));
    EXPECT_EQ(*MemoryFor(pairs) >> 20, (*least * 10 / 9 >> 20) + 1);
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
      const absl::StatusOr<uint64_t> least = LeastMemoryFor(pairs);
      ASSERT_TRUE(least.ok()) << least.status();
      most = std::max(most, static_cast<double>(*least) / keys);
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
}

}  // namespace
}  // namespace osprey::server
