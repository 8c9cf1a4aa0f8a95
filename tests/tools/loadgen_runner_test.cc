// A whole run of kvbench: several threads, each with its own store that does nothing.

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/loadgen/runner.h"
#include "tools/loadgen/store.h"
#include "tools/loadgen/workload/workload.h"

namespace osprey::loadgen {
namespace {

using ::testing::HasSubstr;

RunnerOptions Options(const Properties& more) {
  absl::StatusOr<Properties> properties = PresetWorkload("d");
  EXPECT_TRUE(properties.ok());
  (*properties)["recordcount"] = "1000";
  (*properties)["threadcount"] = "3";
  for (const auto& [name, value] : more) (*properties)[name] = value;
  std::vector<std::string> notes;
  absl::StatusOr<Workload> workload = ParseWorkload(*properties, notes);
  EXPECT_TRUE(workload.ok()) << workload.status();
  RunnerOptions options;
  options.workload = *workload;
  options.depth = 4;
  options.seed = 1;
  options.connect = [] { return NullStore(); };
  return options;
}

TEST(RunnerTest, ThreadsTogetherDoExactlyWhatWasAsked) {
  for (const char* operations : {"1", "2", "3", "100", "20001"}) {
    const absl::StatusOr<RunResult> result = RunWorkload(Options({{"operationcount", operations}}));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->measured.operations, std::stoull(operations));
    EXPECT_EQ(result->measured.Returned(absl::StatusCode::kOk), std::stoull(operations));
    uint64_t in_series = 0;
    for (const SeriesRow& row : result->series) in_series += row.operations;
    EXPECT_EQ(in_series, std::stoull(operations));
    EXPECT_FALSE(result->interrupted);
  }
}

TEST(RunnerTest, ALoadInsertsEveryRecordOnce) {
  RunnerOptions options = Options({{"recordcount", "10000"}});
  options.phase = OperationSource::Phase::kLoad;
  const absl::StatusOr<RunResult> result = RunWorkload(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->measured.of(OperationKind::kInsert).service.count(), 10'000u);
  EXPECT_EQ(result->phase, "load");
  EXPECT_EQ(result->environment[0].second, "null");
}

TEST(RunnerTest, ARunEndsInTimeAndReportsItsResult) {
  RunnerOptions options = Options({{"maxexecutiontime", "1.5"}, {"target", "3000"}});
  options.warm_up = absl::Milliseconds(200);
  std::vector<std::string> lines;
  options.status = [&](const std::string& line) { lines.push_back(line); };
  const absl::StatusOr<RunResult> result = RunWorkload(options);
  ASSERT_TRUE(result.ok()) << result.status();
  // Operations that were due at the end but not begun, since the machine stood still, are reported
  // as being behind.
  const double behind_s = static_cast<double>(result->behind_ns) / 1e9;
  EXPECT_GE(result->seconds, 1.3 - behind_s);
  EXPECT_LE(result->seconds, 10);
  const auto operations = static_cast<double>(result->measured.operations);
  EXPECT_GE(operations, 4000 - 3000 * behind_s);
  EXPECT_LE(operations, 3000 * result->seconds + 1000);
  EXPECT_TRUE(result->show_intended);
  ASSERT_GE(lines.size(), 1u);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("1 s: "), HasSubstr("/s, p50 "), HasSubstr(" left")));
}

TEST(RunnerTest, AnInterruptionEndsARunThatHasNoEnd) {
  std::atomic<bool> interrupted = false;
  RunnerOptions options = Options({});
  options.interrupted = &interrupted;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    interrupted = true;
  });
  const absl::StatusOr<RunResult> result = RunWorkload(options);
  later.join();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->interrupted);
  EXPECT_GT(result->measured.operations, 0u);
}

TEST(RunnerTest, WithoutAConnectionNothingRuns) {
  RunnerOptions options = Options({});
  int connected = 0;
  options.connect = [&]() -> absl::StatusOr<std::unique_ptr<Store>> {
    if (++connected == 3) return absl::UnavailableError("no server");
    return NullStore();
  };
  EXPECT_EQ(RunWorkload(options).status().message(), "no server");
}

}  // namespace
}  // namespace osprey::loadgen
