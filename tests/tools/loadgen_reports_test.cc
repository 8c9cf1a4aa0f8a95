// kvbench's reports: YCSB's lines, JSON and its merge, HdrHistogram's text, CSV and the picture.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"
#include "tests/support/volume.h"
#include "tools/loadgen/environment.h"
#include "tools/loadgen/reports/hdr_text.h"
#include "tools/loadgen/reports/json.h"
#include "tools/loadgen/reports/outputs.h"
#include "tools/loadgen/reports/svg_plot.h"
#include "tools/loadgen/reports/text.h"
#include "tools/loadgen/result.h"
#include "tools/loadgen/workload/random.h"

namespace osprey::loadgen {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

RunResult Result() {
  RunResult result;
  result.phase = "run";
  result.environment = {{"transport", "shm"}, {"device", "none"}, {"cpu", "Some CPU"}};
  result.settings = {{"workload", "a"}, {"records", "10"}};
  result.notes = {"UPDATE: writes the whole value"};
  result.began = absl::FromUnixSeconds(1'795'312'800);
  result.seconds = 2;
  result.percentiles = {50, 99.9};
  Measurements& measured = result.measured;
  KindMeasurements& read = measured.of(OperationKind::kRead);
  for (const uint64_t nanos : {100, 120, 140, 250}) read.Record(absl::StatusCode::kOk, nanos);
  read.Record(absl::StatusCode::kNotFound, 90);
  KindMeasurements& update = measured.of(OperationKind::kUpdate);
  update.Record(absl::StatusCode::kOk, 200);
  update.Record(absl::StatusCode::kDeadlineExceeded, 255);
  update.Record(absl::StatusCode::kUnavailable, 255);
  measured.cleanup.Record(absl::StatusCode::kOk, 50);
  measured.operations = 8;
  measured.gets = 5;
  measured.reads = 6;
  measured.torn = 1;
  measured.retries = 2;
  measured.messages = 3;
  measured.checked = 4;
  measured.wrong = 1;
  measured.first_wrong = "key user1: <torn> & \"worse\"";
  result.series = {{0, 5, 100, 200, 250, 250}, {1, 3, 110, 140, 140, 140}};
  return result;
}

TEST(YcsbTextTest, LinesAreYcsbs) {
  EXPECT_EQ(YcsbText(Result()),
            "# kvbench run: workload=a records=10\n"
            "# transport=shm device=none cpu=\"Some CPU\"\n"
            "# UPDATE: writes the whole value\n"
            "[OVERALL], RunTime(ms), 2000\n"
            "[OVERALL], Throughput(ops/sec), 4.000\n"
            "[OVERALL], Operations, 8\n"
            "[CLIENT], ReadsPerGet, 1.200\n"
            "[CLIENT], TornReads, 1\n"
            "[CLIENT], TornReadsPerOperation, 0.125000\n"
            "[CLIENT], Retries, 2\n"
            "[CLIENT], RetriesPerOperation, 0.250000\n"
            "[CLIENT], RpcGets, 0\n"
            "[CLIENT], Messages, 3\n"
            "[READ], Operations, 4\n"
            "[READ], AverageLatency(us), 0.152\n"
            "[READ], MinLatency(us), 0.100\n"
            "[READ], MaxLatency(us), 0.250\n"
            "[READ], 50thPercentileLatency(us), 0.120\n"
            "[READ], 99.9PercentileLatency(us), 0.250\n"
            "[READ], Return=OK, 4\n"
            "[READ], Return=NOT_FOUND, 1\n"
            "[READ-FAILED], Operations, 1\n"
            "[READ-FAILED], AverageLatency(us), 0.090\n"
            "[READ-FAILED], MinLatency(us), 0.090\n"
            "[READ-FAILED], MaxLatency(us), 0.090\n"
            "[READ-FAILED], 50thPercentileLatency(us), 0.090\n"
            "[READ-FAILED], 99.9PercentileLatency(us), 0.090\n"
            "[UPDATE], Operations, 1\n"
            "[UPDATE], AverageLatency(us), 0.200\n"
            "[UPDATE], MinLatency(us), 0.200\n"
            "[UPDATE], MaxLatency(us), 0.200\n"
            "[UPDATE], 50thPercentileLatency(us), 0.200\n"
            "[UPDATE], 99.9PercentileLatency(us), 0.200\n"
            "[UPDATE], Return=OK, 1\n"
            "[UPDATE], Return=ERROR, 2\n"
            "[UPDATE-FAILED], Operations, 2\n"
            "[UPDATE-FAILED], AverageLatency(us), 0.255\n"
            "[UPDATE-FAILED], MinLatency(us), 0.255\n"
            "[UPDATE-FAILED], MaxLatency(us), 0.255\n"
            "[UPDATE-FAILED], 50thPercentileLatency(us), 0.255\n"
            "[UPDATE-FAILED], 99.9PercentileLatency(us), 0.255\n"
            "[CLEANUP], Operations, 1\n"
            "[CLEANUP], AverageLatency(us), 0.050\n"
            "[CLEANUP], MinLatency(us), 0.050\n"
            "[CLEANUP], MaxLatency(us), 0.050\n"
            "[CLEANUP], 50thPercentileLatency(us), 0.050\n"
            "[CLEANUP], 99.9PercentileLatency(us), 0.050\n"
            "[VERIFY], Operations, 4\n"
            "[VERIFY], Return=OK, 3\n"
            "[VERIFY], Return=UNEXPECTED_STATE, 1\n");
}

TEST(YcsbTextTest, AnOpenLoopShowsTheIntendedTimesWithYcsbsName) {
  RunResult result = Result();
  result.open_loop = result.show_intended = true;
  result.behind_ns = 1'500'000;
  result.measured.of(OperationKind::kRead).RecordIntended(absl::StatusCode::kOk, 128);
  EXPECT_THAT(YcsbText(result), AllOf(HasSubstr("[OVERALL], BehindAtEnd(ms), 1.500\n"),
                                      HasSubstr("[READ], Return=OK, 4\n"),
                                      HasSubstr("[Intended-READ], Operations, 1\n"),
                                      HasSubstr("[Intended-READ], MaxLatency(us), 0.128\n")));
  result.show_service = false;
  EXPECT_THAT(YcsbText(result), AllOf(Not(HasSubstr("[READ], Operations")),
                                      HasSubstr("[Intended-READ], Return=OK, 4\n")));
}

TEST(YcsbTextTest, OfARunThatDidNothingThereIsAReport) {
  RunResult result;
  result.phase = "run";
  result.interrupted = true;
  EXPECT_THAT(YcsbText(result), AllOf(HasSubstr("[OVERALL], Throughput(ops/sec), 0.000\n"),
                                      HasSubstr("# interrupted")));
}

TEST(YcsbTextTest, OrdinalsAreEnglish) {
  const std::vector<std::pair<double, const char*>> expected = {
      {0, "0th"},   {1, "1st"},   {2, "2nd"},   {3, "3rd"},     {11, "11th"},   {12, "12th"},
      {13, "13th"}, {21, "21st"}, {95, "95th"}, {100, "100th"}, {99.9, "99.9"}, {99.99, "99.99"}};
  for (const auto& [number, word] : expected) EXPECT_EQ(Ordinal(number), word);
}

// The result of HdrHistogram's own iterator for these values.
TEST(HdrTextTest, MatchesTheOutputOfHdrHistogram) {
  Histogram nanos;
  for (uint64_t value = 10; value <= 100; value += 10) nanos.Record(value);
  EXPECT_EQ(HdrPercentileText(nanos),
            "       Value     Percentile TotalCount 1/(1-Percentile)\n"
            "\n"
            "       0.010 0.000000000000          1           1.00\n"
            "       0.010 0.100000000000          1           1.11\n"
            "       0.020 0.200000000000          2           1.25\n"
            "       0.030 0.300000000000          3           1.43\n"
            "       0.040 0.400000000000          4           1.67\n"
            "       0.050 0.500000000000          5           2.00\n"
            "       0.060 0.550000000000          6           2.22\n"
            "       0.060 0.600000000000          6           2.50\n"
            "       0.070 0.650000000000          7           2.86\n"
            "       0.070 0.700000000000          7           3.33\n"
            "       0.080 0.750000000000          8           4.00\n"
            "       0.080 0.775000000000          8           4.44\n"
            "       0.080 0.800000000000          8           5.00\n"
            "       0.090 0.825000000000          9           5.71\n"
            "       0.090 0.850000000000          9           6.67\n"
            "       0.090 0.875000000000          9           8.00\n"
            "       0.090 0.887500000000          9           8.89\n"
            "       0.090 0.900000000000          9          10.00\n"
            "       0.100 0.912500000000         10          11.43\n"
            "       0.100 1.000000000000         10\n"
            "#[Mean    =        0.055, StdDeviation   =        0.029]\n"
            "#[Max     =        0.100, Total count    =           10]\n"
            "#[Buckets =           57, SubBuckets     =          256]\n");
}

TEST(HdrTextTest, LevelsRiseToOneAndCountEverything) {
  Random random(1);
  Histogram nanos;
  for (int i = 0; i < 100'000; ++i) nanos.Record(random.Below(1 << random.Below(30)));
  const std::vector<PercentileLevel> levels = PercentileLevels(nanos);
  for (size_t i = 1; i < levels.size(); ++i) {
    EXPECT_GE(levels[i].value, levels[i - 1].value);
    EXPECT_GT(levels[i].level, levels[i - 1].level);
    EXPECT_GE(levels[i].count, levels[i - 1].count);
    EXPECT_GE(static_cast<double>(levels[i].count), levels[i].level * 100'000 - 1e-6);
  }
  EXPECT_EQ(levels.back().level, 1);
  EXPECT_EQ(levels.back().count, 100'000u);
  EXPECT_TRUE(PercentileLevels(Histogram()).empty());
  EXPECT_THAT(HdrPercentileText(Histogram()), HasSubstr("Total count    =            0]"));
}

TEST(JsonTest, AResultComesBackAsItWas) {
  const RunResult result = Result();
  const std::string json = ToJson(result);
  const absl::StatusOr<RunResult> back = FromJson(json);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToJson(*back), json);
  EXPECT_EQ(YcsbText(*back), YcsbText(result));
  EXPECT_EQ(SeriesCsv(*back), SeriesCsv(result));
  EXPECT_EQ(SvgPlot(*back), SvgPlot(result));
  EXPECT_EQ(back->began, result.began);
}

// Otherwise the next levels differ by less than a double can represent, without an end.
TEST(HdrTextTest, MoreThanADoubleCountsHaveLevelsToo) {
  Histogram nanos;
  nanos.RecordMany(1, uint64_t{1} << 60);
  nanos.Record(5);
  const std::vector<PercentileLevel> levels = PercentileLevels(nanos);
  EXPECT_LE(levels.size(), 400u);
  EXPECT_EQ(levels.back().count, (uint64_t{1} << 60) + 1);
  EXPECT_EQ(levels.back().value, 5u);
}

TEST(YcsbTextTest, WordsOfAFileStayOnTheirLines) {
  RunResult result = Result();
  result.phase = "run\n[OVERALL], RunTime(ms), 1";
  result.notes = {"a\nnote"};
  result.settings = {{"work\nload", "a\x1b"}};
  const std::string text = YcsbText(result);
  EXPECT_THAT(text, HasSubstr("# kvbench run\\n[OVERALL], RunTime(ms), 1: work\\nload=a\\x1b\n"));
  EXPECT_THAT(text, HasSubstr("# a\\nnote\n"));
}

TEST(JsonTest, WhatIsNotKvbenchsIsRefused) {
  const std::string json = ToJson(Result());
  const auto refused = [](const std::string& text) {
    const absl::StatusOr<RunResult> result = FromJson(text);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(result.status().message());
  };
  EXPECT_THAT(refused(""), HasSubstr("no JSON"));
  EXPECT_THAT(refused(json.substr(0, json.size() / 2)), HasSubstr("no JSON"));
  EXPECT_THAT(refused("[]"), HasSubstr("no result of kvbench"));
  EXPECT_THAT(refused("{\"format\": 7}"), HasSubstr("no result of kvbench"));
  for (const auto& [from, to] : std::vector<std::pair<const char*, const char*>>{
           {"\"operations\"", "\"operation\""},
           {"\"seconds\": 2.0", "\"seconds\": \"2\""},
           {"\"seconds\": 2.0", "\"seconds\": -2.0"},
           {"\"gets\": 5", "\"gets\": -5"},
           {"\"gets\": 5", "\"gets\": 5.5"},
           {"\"gets\": 5", "\"gets\": 1e300"},
           {"\"gets\": 5", "\"gets\": 9007199254740993"},
           {"\"UNAVAILABLE\"", "\"UNAVAILING\""},
           {"\"sum_ns\": 610.0", "\"sum_ns\": 1e308"},
           {"\"began\": \"2026", "\"began\": \"x"},
           {"\"buckets\": [", "\"buckets\": [[99999999,1],"},
           {"\"buckets\": [", "\"buckets\": [[1,0],"},
           {"\"max_ns\": 250", "\"max_ns\": 25000"},
           {"99.9", "199.9"}}) {
    const std::string changed = absl::StrReplaceAll(json, {{from, to}});
    ASSERT_NE(changed, json) << from;
    EXPECT_THAT(refused(changed), HasSubstr("no result of kvbench")) << from;
  }
}

TEST(JsonTest, DamagedFilesAreRefusedOrReadAndNothingWorse) {
  const std::string json = ToJson(Result());
  Random random(2);
  for (int i = 0; i < 3000 / kVolumeParts; ++i) {
    std::string damaged = json;
    for (uint64_t n = 1 + random.Below(3); n > 0; --n) {
      static constexpr absl::string_view kBytes = "0123456789-\"[]{},:.eE x";
      damaged[random.Below(damaged.size())] = kBytes[random.Below(kBytes.size())];
    }
    if (const absl::StatusOr<RunResult> result = FromJson(damaged); result.ok()) {
      YcsbText(*result);
      SvgPlot(*result);
    }
  }
}

TEST(MergeTest, AddsOperationsAndHistogramsAndKeepsTheLongestTime) {
  RunResult second = Result();
  second.seconds = 4;
  second.environment[1].second = "rxe0";
  second.series.push_back({2, 7, 1, 2, 3, 4});
  second.measured.of(OperationKind::kRead).Record(absl::StatusCode::kOk, 254);
  const absl::StatusOr<RunResult> merged = Merge({Result(), second});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->processes, 2u);
  EXPECT_EQ(merged->measured.operations, 16u);
  EXPECT_EQ(merged->throughput(), 4);
  const Histogram& reads = merged->measured.of(OperationKind::kRead).service;
  EXPECT_EQ(reads.count(), 9u);
  EXPECT_EQ(reads.max(), 254u);
  EXPECT_EQ(merged->measured.Returned(absl::StatusCode::kNotFound), 2u);
  EXPECT_EQ(merged->environment[0].second, "shm");
  EXPECT_EQ(merged->environment[1].second, "none (differs)");
  EXPECT_EQ(SeriesCsv(*merged),
            "second,operations,p50_us,p99_us,p99.9_us,max_us\n"
            "0,10,0.100,0.200,0.250,0.250\n"
            "1,6,0.110,0.140,0.140,0.140\n"
            "2,7,0.001,0.002,0.003,0.004\n");
  EXPECT_EQ(merged->notes.size(), 1u);
}

TEST(MergeTest, SaysWhenTheProcessesWereNotSideBySideAndRefusesALoadWithARun) {
  RunResult later = Result();
  later.began += absl::Seconds(60);
  const absl::StatusOr<RunResult> merged = Merge({Result(), later});
  ASSERT_TRUE(merged.ok());
  EXPECT_THAT(merged->notes, testing::Contains(HasSubstr("60.0 s apart")));
  later.phase = "load";
  EXPECT_FALSE(Merge({Result(), later}).ok());
  EXPECT_FALSE(Merge({}).ok());
}

// The file could not be read again.
TEST(MergeTest, RefusesCountsThatAreTooGreatTogether) {
  RunResult most = Result();
  most.measured.torn = kCountMax - Result().measured.torn;
  EXPECT_TRUE(Merge({Result(), most}).ok());
  ++most.measured.torn;
  EXPECT_THAT(Merge({Result(), most}).status().message(),
              HasSubstr("more than 9007199254740992 of something"));

  RunResult many = Result();
  many.measured.of(OperationKind::kRead).service.RecordMany(1, kCountMax);
  EXPECT_FALSE(Merge({Result(), many}).ok());
}

TEST(SeriesTest, SecondsWithoutOperationsAreThereAndLateReportsAreKept) {
  Series series;
  Histogram one;
  one.Record(1000);
  series.Add(2, one);
  series.Add(0, one);
  series.Add(2, one);
  const std::vector<SeriesRow> rows = series.Rows();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].operations, 1u);
  EXPECT_EQ(rows[1].operations, 0u);
  EXPECT_EQ(rows[2].operations, 2u);
  // Long after a second is closed, nothing is lost.
  for (uint64_t second = 3; second < 100; ++second) series.Add(second, one);
  series.Add(1, one);
  uint64_t total = 0;
  for (const SeriesRow& row : series.Rows()) total += row.operations;
  EXPECT_EQ(total, 3u + 97 + 1);
}

// Checked by another program's parser.
void ExpectXml(const std::string& svg) {
  ProgramOptions options;
  options.input = svg;
  const ProgramResult parsed =
      RunProgram({"python3", "-c",
                  "import sys, xml.dom.minidom as x; d = x.parse(sys.stdin.buffer); "
                  "print(d.documentElement.tagName, len(d.getElementsByTagName('polyline')))"},
                 options);
  EXPECT_EQ(parsed.exit_status, 0) << parsed.err;
  EXPECT_THAT(parsed.out, HasSubstr("svg "));
}

TEST(SvgTest, IsXmlAndNamesItsAxesAndLines) {
  RunResult result = Result();
  result.settings[0].second = "<a & \"b\">\x01";
  const std::string svg = SvgPlot(result);
  ExpectXml(svg);
  for (const char* text : {">READ<", ">UPDATE<", ">UPDATE-FAILED<", "percentile of operations",
                           ">seconds<", ">90 %<", " µs<", "transport=shm"})
    EXPECT_THAT(svg, HasSubstr(text));
}

TEST(SvgTest, OfNothingAndOfVeryLongRunsThereIsAPictureToo) {
  RunResult nothing;
  ExpectXml(SvgPlot(nothing));
  RunResult longest = Result();
  for (uint64_t second = 2; second < 600'000; ++second)
    longest.series.push_back({second, second % 1000, 1, second, 3, UINT64_MAX});
  longest.seconds = 600'000;
  const std::string svg = SvgPlot(longest);
  ExpectXml(svg);
  EXPECT_LT(svg.size(), 200'000u);
}

TEST(OutputsTest, EachKindHasAPercentileFileOfItsOwn) {
  EXPECT_EQ(HdrPath("/tmp/x/out.hdr", "READ"), "/tmp/x/out.READ.hdr");
  EXPECT_EQ(HdrPath("out", "READ"), "out.READ");
  const std::string folder = NewTemporaryDirectory();
  OutputPaths paths = {folder + "/r.json", folder + "/r.hdr", folder + "/r.csv", folder + "/r.svg"};
  ASSERT_TRUE(CheckOutputs(paths).ok());
  ASSERT_TRUE(WriteOutputs(Result(), paths).ok());
  for (const char* name :
       {"r.json", "r.READ.hdr", "r.UPDATE.hdr", "r.READ-FAILED.hdr", "r.csv", "r.svg"})
    EXPECT_TRUE(std::ifstream(absl::StrCat(folder, "/", name)).good()) << name;
  const absl::StatusOr<RunResult> back = ReadResult(paths.json);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(YcsbText(*back), YcsbText(Result()));
  paths.plot = "/absent/r.svg";
  EXPECT_THAT(std::string(CheckOutputs(paths).message()), HasSubstr("/absent/r.svg"));
  EXPECT_THAT(std::string(ReadResult(folder).status().message()), HasSubstr(folder));
  EXPECT_THAT(std::string(ReadResult("/absent/r.json").status().message()),
              HasSubstr("/absent/r.json"));
}

TEST(OutputsTest, NothingIsWrittenThroughALinkOrFifo) {
  const std::string folder = NewTemporaryDirectory();
  const std::string path = folder + "/r.json";
  std::ofstream(folder + "/precious") << "precious";
  OutputPaths paths;
  paths.json = path;
  ASSERT_EQ(symlink("precious", path.c_str()), 0);
  EXPECT_THAT(std::string(CheckOutputs(paths).message()),
              AllOf(HasSubstr(path), HasSubstr("is no regular file; remove it")));
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0666), 0);
  EXPECT_FALSE(CheckOutputs(paths).ok());
  unlink(path.c_str());
  // What comes there while the load runs is not written through either.
  ASSERT_TRUE(CheckOutputs(paths).ok());
  ASSERT_EQ(symlink("precious", path.c_str()), 0);
  ASSERT_EQ(symlink("precious", (path + ".part").c_str()), 0);
  ASSERT_TRUE(WriteOutputs(Result(), paths).ok());
  EXPECT_TRUE(ReadResult(path).ok());
  struct stat status = {};
  ASSERT_EQ(lstat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode, S_IFREG | 0600u);
  std::string precious;
  std::ifstream(folder + "/precious") >> precious;
  EXPECT_EQ(precious, "precious");
}

TEST(EnvironmentTest, HasTheMachineAndSplitsWhatTheClientSays) {
  EXPECT_THAT(FactsOf("transport=shm device=none word server=shm:///a=b"),
              ElementsAre(testing::Pair("transport", "shm"), testing::Pair("device", "none"),
                          testing::Pair("server", "shm:///a=b")));
  std::string names;
  for (const auto& [name, value] : DescribeMachine()) {
    absl::StrAppend(&names, name, " ");
    EXPECT_FALSE(value.empty()) << name;
  }
  EXPECT_THAT(names, testing::StartsWith("host cpu cpus kernel compiler "));
}

}  // namespace
}  // namespace osprey::loadgen
