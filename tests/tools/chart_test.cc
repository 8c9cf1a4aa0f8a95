// kvcli's drawings: histograms, progress, lines of statistics, and numbers with units.

#include "tools/terminal/chart.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/cli/commands/stat.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/units.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

size_t Characters(const std::string& line) {
  size_t count = 0;
  for (const char c : line) count += (c & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

size_t ColumnOf(const std::string& line, const std::string& text) {
  return Characters(line.substr(0, line.find(text)));
}

TEST(KvcliChartTest, MoreValuesAreHigherAndLongerOnesStandMoreToTheRight) {
  Histogram fast, slow;
  for (int i = 0; i < 1000; ++i) fast.Record(20'000);
  fast.Record(160'000);
  for (int i = 0; i < 10; ++i) slow.Record(80'000);
  const std::vector<std::string> lines = Chart({{"GET", &fast}, {"PUT", &slow}}, 60);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], StartsWith("GET  █"));
  EXPECT_THAT(lines[1], StartsWith("PUT  "));
  EXPECT_THAT(lines[1], HasSubstr("█"));
  EXPECT_GT(ColumnOf(lines[1], "█"), 20u);
  EXPECT_THAT(lines[2], HasSubstr(" µs"));
  for (const std::string& line : lines) EXPECT_LE(Characters(line), 60u) << line;
  // Each axis label is below its bar, to within a column.
  EXPECT_NEAR(static_cast<double>(ColumnOf(lines[1], "█")),
              static_cast<double>(ColumnOf(lines[2], "64")) + 6, 6);
}

TEST(KvcliChartTest, WithoutValuesNothingIsDrawnAndOneValueIsEnough) {
  Histogram none, one;
  EXPECT_TRUE(Chart({{"GET", &none}}, 80).empty());
  EXPECT_TRUE(Chart({}, 80).empty());
  one.Record(0);
  EXPECT_EQ(Chart({{"GET", &one}, {"PUT", &none}}, 1).size(), 3u);
}

TEST(KvcliChartTest, TheProgressShowsPartRateAndTimeLeft) {
  Progress::State state;
  state.part = 0.25;
  state.records = 10'000;
  state.bytes = 2 << 20;
  state.elapsed = absl::Seconds(2);
  const std::string line = Progress::Line("import", state);
  EXPECT_THAT(line, HasSubstr("[######..................]  25 %"));
  EXPECT_THAT(line, HasSubstr("10.0k records  5.00k/s  1.00MiB/s  6 s left"));
  state.part = 3;  // more arrived than was counted
  EXPECT_THAT(Progress::Line("import", state), HasSubstr("100 %"));
  state.part = -1;
  EXPECT_THAT(Progress::Line("import", state), ::testing::Not(HasSubstr("%")));
  state.records = 0;
  EXPECT_EQ(Progress::Line("backup", state), "backup  2.00MiB  1.00MiB/s");
}

TEST(KvcliChartTest, NumbersAreShortenedWithTheirUnit) {
  EXPECT_EQ(ShortNumber(0), "0");
  EXPECT_EQ(ShortNumber(987), "987");
  EXPECT_EQ(ShortNumber(0.25), "0.25");
  EXPECT_EQ(ShortNumber(12'345), "12.3k");
  EXPECT_EQ(ShortNumber(999'999), "1.00M");
  EXPECT_EQ(ShortBytes(1023), "1023B");
  EXPECT_EQ(ShortBytes(1024), "1.00KiB");
  EXPECT_EQ(ShortBytes(3.5 * 1024 * 1024 * 1024), "3.50GiB");
  EXPECT_EQ(ShortTime(6.2), "7 s");
  EXPECT_EQ(ShortTime(185), "3:05");
  EXPECT_EQ(ShortTime(7800), "2:10:00");
  EXPECT_EQ(ShortTime(-1), "0 s");
}

std::string Stats(const std::string& incarnation, int keys, int puts, double uptime) {
  return absl::StrCat("incarnation=", incarnation, "\nkeys=", keys, "\nrequests_put=", puts,
                      "\nuptime_seconds=", uptime, "\nindex_bytes=1024\nitem_bytes=1024\n",
                      "process_cpu_us=", uptime * 500'000, "\nweird=nan\n");
}

double Of(const std::vector<double>& row, const std::string& name) {
  for (size_t i = 0; i < row.size(); ++i) {
    if (StatColumns()[i].name == name) return row[i];
  }
  ADD_FAILURE() << "no column " << name;
  return -1;
}

TEST(KvcliChartTest, WhatNoServerCountsToIsNoFigure) {
  const std::vector<double> row =
      StatRow("",
              "incarnation=a\nuptime_seconds=1\nkeys=-5\nindex_bytes=1e300\nitem_bytes=7\n"
              "connections=nan\nrequests_put=inf\n");
  EXPECT_EQ(row[0], 0);
  EXPECT_EQ(row[1], 7);
  EXPECT_EQ(row[2], 0);
  EXPECT_EQ(row[3], 0);
}

TEST(KvcliChartTest, AStatLineHasRatesByTheServersClock) {
  const std::vector<double> row = StatRow(Stats("a", 5, 100, 10), Stats("a", 7, 150, 12));
  EXPECT_EQ(Of(row, "keys"), 7);
  EXPECT_EQ(Of(row, "put/s"), 25);
  EXPECT_EQ(Of(row, "memory"), 2048);
  EXPECT_NEAR(Of(row, "cpu%"), 50, 0.01);
  EXPECT_EQ(Characters(StatHeader()), Characters(StatLine(row)));
  EXPECT_THAT(StatLine(row), HasSubstr("2.00KiB"));
}

TEST(KvcliChartTest, TheRestartOfAShardRestartsTheRates) {
  const auto stats = [](const std::string& incarnation, int puts, double uptime) {
    return absl::StrCat("requests_put=", puts, "\nuptime_seconds=", uptime,
                        "\nshard0.incarnation=a\nshard1.incarnation=", incarnation, "\n");
  };
  EXPECT_EQ(Of(StatRow(stats("b", 100, 10), stats("b", 150, 12)), "put/s"), 25);
  EXPECT_EQ(Of(StatRow(stats("b", 100, 10), stats("c", 60, 12)), "put/s"), 5);
}

TEST(KvcliChartTest, GetsAreWhatClientsReportAndElseNotKnown) {
  const std::string unreported = Stats("a", 5, 100, 10) + "requests_get=1000\n";
  std::vector<double> row = StatRow(Stats("a", 5, 100, 8), unreported);
  EXPECT_TRUE(std::isnan(Of(row, "get/s")));
  EXPECT_EQ(Of(row, "other/s"), 500) << "GETs that came as messages";
  EXPECT_THAT(StatLine(row), HasSubstr("       -"));
  EXPECT_EQ(Characters(StatHeader()), Characters(StatLine(row)));
  row =
      StatRow(unreported, Stats("a", 5, 100, 12) + "client_get_hits=900\nclient_get_misses=100\n");
  EXPECT_EQ(Of(row, "get/s"), 500);
}

TEST(KvcliChartTest, AfterARestartOfTheServerRatesBeginAtZero) {
  const std::vector<double> row = StatRow(Stats("a", 5, 100, 10), Stats("b", 1, 20, 2));
  EXPECT_EQ(Of(row, "put/s"), 10);
}

}  // namespace
}  // namespace osprey
