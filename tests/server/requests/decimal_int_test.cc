#include "server/requests/decimal_int.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace osprey::server {
namespace {

TEST(NumberTest, EveryNumberIsReadAsItIsWritten) {
  for (int64_t number : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{10}, int64_t{-99}, INT64_MAX,
                         INT64_MIN, INT64_MAX - 1, INT64_MIN + 1}) {
    EXPECT_EQ(ParseNumber(absl::StrCat(number)), number);
  }
}

TEST(NumberTest, WhatIsWrittenOtherwiseIsNoNumber) {
  for (const char* text : {"",
                           "-",
                           "+1",
                           " 1",
                           "1 ",
                           "1\n",
                           "01",
                           "00",
                           "-0",
                           "-01",
                           "--1",
                           "1-",
                           "0x1",
                           "1e3",
                           "1.0",
                           "abc",
                           "9223372036854775808",
                           "-9223372036854775809",
                           "99999999999999999999",
                           "100000000000000000000"}) {
    EXPECT_EQ(ParseNumber(text), absl::nullopt) << "'" << text << "'";
  }
  EXPECT_EQ(ParseNumber(absl::string_view("1\0", 2)), absl::nullopt);
  EXPECT_EQ(ParseNumber(std::string(1 << 20, '1')), absl::nullopt);
}

TEST(NumberTest, ASumThatDoesNotFitIsNone) {
  EXPECT_EQ(Sum(2, -3), -1);
  EXPECT_EQ(Sum(INT64_MAX, INT64_MIN), -1);
  EXPECT_EQ(Sum(INT64_MAX, 1), absl::nullopt);
  EXPECT_EQ(Sum(INT64_MIN, -1), absl::nullopt);
  EXPECT_EQ(Sum(INT64_MIN, INT64_MIN), absl::nullopt);
}

}  // namespace
}  // namespace osprey::server
