// A load thread of kvbench in virtual time, on a store whose latency the test sets.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/allocation_count.h"
#include "tools/loadgen/driver.h"
#include "tools/loadgen/workload/pacing.h"

namespace osprey::loadgen {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kSecond = 1'000'000'000;

class VirtualClock : public Clock {
 public:
  int64_t NowNs() override { return now_ns; }
  int64_t now_ns = 0;
};

// Stores all writes; time passes only while a caller waits.
class VirtualStore : public Store {
 public:
  explicit VirtualStore(VirtualClock& clock) : clock_(clock) {}

  absl::Status StartRead(absl::string_view key, Token token) override {
    return Start([this, token, name = std::string(key)] {
      absl::StatusOr<Value> value = absl::NotFoundError("no such key");
      if (const auto found = values.find(name); found != values.end()) value = found->second;
      listener_->ReadEnded(token, value);
    });
  }
  absl::Status StartWrite(absl::string_view key, absl::string_view value, Token token) override {
    ++writes;
    return Start([this, token, name = std::string(key), bytes = std::string(value)] {
      if (!write_status.ok()) return listener_->WriteEnded(token, write_status);
      Value& stored = values[name];
      stored.bytes = bytes;
      stored.version = ++version;
      listener_->WriteEnded(token, stored.version);
    });
  }
  absl::Status StartScan(absl::string_view cursor, uint64_t limit, Token token) override {
    cursors.emplace_back(cursor);
    return Start([this, token, limit] {
      ScanPage page;
      page.items.resize(limit);
      page.cursor = absl::StrCat("after ", ++scans);
      listener_->ScanEnded(token, page);
    });
  }

  void Poll() override {
    while (!ending_.empty() && ending_.begin()->first <= clock_.now_ns) {
      const std::function<void()> end = std::move(ending_.begin()->second);
      ending_.erase(ending_.begin());
      end();
    }
  }
  void Wait(int64_t timeout_ns) override {
    int64_t until_ns = clock_.now_ns + timeout_ns;
    if (!ending_.empty()) until_ns = std::min(until_ns, ending_.begin()->first);
    clock_.now_ns = std::max(clock_.now_ns, until_ns);
    Poll();
  }

  Counters counters() const override {
    Counters counters;
    counters.connects = connects;
    counters.gets = started;
    return counters;
  }
  std::string Describe() const override { return "transport=virtual"; }

  // The duration of an operation that starts now.
  std::function<int64_t(int64_t)> takes = [](int64_t) { return kMillisecond / 10; };
  absl::Status start_status, write_status;
  std::map<std::string, Value> values;
  std::vector<std::string> cursors;
  uint64_t version = 0, scans = 0, started = 0, writes = 0, connects = 1;
  size_t in_flight_most = 0;

 private:
  absl::Status Start(std::function<void()> end) {
    if (!start_status.ok()) return start_status;
    ++started;
    ending_.emplace(clock_.now_ns + takes(clock_.now_ns), std::move(end));
    in_flight_most = std::max(in_flight_most, ending_.size());
    return absl::OkStatus();
  }

  VirtualClock& clock_;
  std::multimap<int64_t, std::function<void()>> ending_;
};

class DriverTest : public ::testing::Test {
 protected:
  DriverTest() : store_(clock_) {
    properties_ = {{"recordcount", "100"}, {"readproportion", "1"}, {"updateproportion", "0"}};
  }

  // Runs to the end; the workload and all other objects live as long as the test.
  Measurements& Run(const DriverOptions& options) {
    std::vector<std::string> notes;
    absl::StatusOr<Workload> workload = ParseWorkload(properties_, notes);
    EXPECT_TRUE(workload.ok()) << workload.status();
    workload_ = *workload;
    keys_ = std::make_unique<SharedKeys>(workload_);
    driver_ = std::make_unique<Driver>(options, workload_, *keys_, store_, clock_, state_);
    driver_->Run();
    return driver_->measurements();
  }

  void Load() {
    DriverOptions options;
    options.phase = OperationSource::Phase::kLoad;
    EXPECT_EQ(Run(options).operations, 100u);
    EXPECT_EQ(store_.values.size(), 100u);
  }

  void SetMix(const char* read, const char* update, const char* insert, const char* scan,
              const char* read_modify_write) {
    properties_["readproportion"] = read;
    properties_["updateproportion"] = update;
    properties_["insertproportion"] = insert;
    properties_["scanproportion"] = scan;
    properties_["readmodifywriteproportion"] = read_modify_write;
  }

  static uint64_t CountAbove(const Histogram& histogram, int64_t nanos) {
    uint64_t count = 0;
    for (const Histogram::Bucket& bucket : histogram.Buckets())
      if (bucket.highest > static_cast<uint64_t>(nanos)) count += bucket.count;
    return count;
  }

  Properties properties_;
  VirtualClock clock_;
  VirtualStore store_;
  RunState state_;
  Workload workload_;
  std::unique_ptr<SharedKeys> keys_;
  std::unique_ptr<Driver> driver_;
};

TEST_F(DriverTest, AClosedLoopKeepsItsDepthInFlightAndDoesWhatWasAsked) {
  Load();
  DriverOptions options;
  options.depth = 8;
  options.operations = 1000;
  const Measurements& measured = Run(options);
  EXPECT_EQ(measured.operations, 1000u);
  EXPECT_EQ(store_.in_flight_most, 8u);
  const KindMeasurements& reads = measured.of(OperationKind::kRead);
  EXPECT_EQ(reads.returns.at(absl::StatusCode::kOk), 1000u);
  EXPECT_EQ(reads.service.max(), 100'000u);
  EXPECT_EQ(reads.intended.count(), 0u) << "a closed loop intends nothing";
  // 8 at a time, 0.1 ms each; after the load's 100, one at a time.
  EXPECT_EQ(clock_.now_ns, 100 * kMillisecond / 10 + 125 * kMillisecond / 10);
}

// The store stops for the second from 1 s to 2 s.
TEST_F(DriverTest, AStalledSecondShowsInIntendedTimesAndHardlyInServiceTimes) {
  Load();
  clock_.now_ns = 0;
  store_.takes = [](int64_t now_ns) {
    const bool stalled = now_ns >= kSecond && now_ns < 2 * kSecond;
    return (stalled ? 2 * kSecond - now_ns : 0) + kMillisecond / 10;
  };
  DriverOptions options;
  options.pacer.emplace(Arrivals::kFixed, 1000, 0, 1, 0);
  options.end_ns = 4 * kSecond;
  const Measurements& measured = Run(options);
  EXPECT_EQ(measured.operations, 4000u);
  const KindMeasurements& reads = measured.of(OperationKind::kRead);
  EXPECT_EQ(CountAbove(reads.service, 10 * kMillisecond), 1u) << "the one that was in flight";
  EXPECT_LT(reads.service.ValueAt(0.99), 200'000u);
  // A thousand operations were due in that second, and later ones waited for them. Each took a
  // tenth of the millisecond until the next. That makes 1000 × 1/0.9, less those of the last 10 ms.
  EXPECT_NEAR(static_cast<double>(CountAbove(reads.intended, 10 * kMillisecond)), 1100, 5);
  EXPECT_GT(reads.intended.max(), 990'000'000u);
  EXPECT_GT(reads.intended.ValueAt(0.99), 900'000'000u);
  // In the series, the next second did the work of two.
  EXPECT_GT(state_.series.Row(2).p99_ns, 900'000'000u);
  EXPECT_NEAR(static_cast<double>(state_.series.Row(2).operations), 2000, 2);
  EXPECT_EQ(state_.series.Row(1).operations, 0u);
}

TEST_F(DriverTest, AnOpenLoopThatCannotKeepUpReportsHowFarItIsBehind) {
  Load();
  const int64_t start_ns = clock_.now_ns;
  store_.takes = [](int64_t) { return 2 * kMillisecond; };
  DriverOptions options;
  options.start_ns = start_ns;
  options.end_ns = start_ns + kSecond;
  options.pacer.emplace(Arrivals::kFixed, 1000, 0, 1, start_ns);
  EXPECT_EQ(Run(options).operations, 500u);
  EXPECT_NEAR(static_cast<double>(driver_->behind_ns()), 0.5e9, 5e6);
}

TEST_F(DriverTest, TheWarmUpIsDoneAndNotMeasured) {
  Load();
  store_.started = 0;
  DriverOptions options;
  options.start_ns = clock_.now_ns + 500 * kMillisecond;
  options.operations = 100;
  const Measurements& measured = Run(options);
  EXPECT_EQ(measured.operations, 100u);
  EXPECT_EQ(measured.gets, 100u);
  EXPECT_EQ(store_.started, 5100u);
  EXPECT_EQ(driver_->ended_ns(), options.start_ns + 10 * kMillisecond);
}

TEST_F(DriverTest, ReadModifyWriteIsMeasuredInTotalAndInParts) {
  SetMix("0", "0", "0", "0", "1");
  Load();
  DriverOptions options;
  options.operations = 50;
  const Measurements& measured = Run(options);
  EXPECT_EQ(measured.operations, 50u);
  EXPECT_EQ(measured.of(OperationKind::kRead).service.max(), 100'000u);
  EXPECT_EQ(measured.of(OperationKind::kUpdate).service.count(), 50u);
  EXPECT_EQ(measured.of(OperationKind::kReadModifyWrite).service.min(), 200'000u);
}

TEST_F(DriverTest, AnUpdateWritesTheWholeValueOrReadsItFirstAndChangesAField) {
  SetMix("0", "1", "0", "0", "0");
  Load();
  store_.started = store_.writes = 0;
  DriverOptions options;
  options.operations = 50;
  EXPECT_EQ(Run(options).of(OperationKind::kUpdate).service.max(), 100'000u);
  EXPECT_EQ(store_.started, 50u);
  properties_["writeallfields"] = "false";
  const Measurements& measured = Run(options);
  EXPECT_EQ(measured.of(OperationKind::kUpdate).service.min(), 200'000u);
  EXPECT_EQ(measured.of(OperationKind::kRead).service.count(), 0u);
  EXPECT_EQ(store_.started, 150u);
  EXPECT_EQ(store_.writes, 100u);
  for (const auto& [key, value] : store_.values) EXPECT_TRUE(IsRecordOf(key, value.bytes));
}

TEST_F(DriverTest, KeysThatWereInsertedAreReadLater) {
  SetMix("0.5", "0", "0.5", "0", "0");
  properties_["requestdistribution"] = "latest";
  Load();
  DriverOptions options;
  options.depth = 4;
  options.operations = 2000;
  const Measurements& measured = Run(options);
  EXPECT_EQ(measured.Returned(absl::StatusCode::kOk), 2000u) << "nothing was asked for too early";
  EXPECT_NEAR(static_cast<double>(store_.values.size()), 1100, 120);
}

TEST_F(DriverTest, AScanGoesOnWhereTheLastOneEnded) {
  SetMix("0", "0", "0", "1", "0");
  Load();
  DriverOptions options;
  options.operations = 3;
  const Measurements& measured = Run(options);
  EXPECT_THAT(store_.cursors, testing::ElementsAre("", "after 1", "after 2"));
  EXPECT_GE(measured.scanned, 3u);
}

TEST_F(DriverTest, FailuresAreCountedAndTheFirstIsReported) {
  SetMix("0", "1", "0", "0", "0");
  Load();
  store_.write_status = absl::DeadlineExceededError("too late");
  DriverOptions options;
  options.operations = 20;
  const Measurements& measured = Run(options);
  EXPECT_EQ(measured.failed(), 20u);
  EXPECT_EQ(measured.of(OperationKind::kUpdate).service.count(), 0u);
  EXPECT_EQ(measured.of(OperationKind::kUpdate).service_failed.count(), 20u);
  EXPECT_THAT(measured.first_failure, HasSubstr("DEADLINE_EXCEEDED: too late"));
}

TEST_F(DriverTest, ALoadEndsWhenAnInsertFailed) {
  store_.write_status = absl::ResourceExhaustedError("full");
  DriverOptions options;
  options.phase = OperationSource::Phase::kLoad;
  options.depth = 2;
  const Measurements& measured = Run(options);
  EXPECT_EQ(measured.failed(), measured.operations);
  EXPECT_LE(measured.operations, 4u);
}

TEST_F(DriverTest, OperationsThatCannotBeStartedDoNotHoldTheEndUp) {
  store_.start_status = absl::InvalidArgumentError("no");
  state_.stop = false;
  DriverOptions options;
  options.operations = 7;
  options.depth = 3;
  EXPECT_EQ(Run(options).failed(), 7u);
}

TEST_F(DriverTest, AStopEndsTheRunWithWhatWasDone) {
  Load();
  store_.takes = [this](int64_t now_ns) {
    if (now_ns > kSecond) state_.stop = true;
    return kMillisecond;
  };
  const Measurements& measured = Run(DriverOptions());
  EXPECT_GT(measured.operations, 900u);
  EXPECT_EQ(measured.operations, measured.Returned(absl::StatusCode::kOk));
  EXPECT_TRUE(driver_->stopped());
  // A run that had finished when the stop came is complete.
  state_.stop = false;
  DriverOptions options;
  options.operations = 10;
  store_.takes = [this](int64_t) {
    state_.stop = store_.started % 10 == 0;
    return kMillisecond;
  };
  store_.started = 0;
  EXPECT_EQ(Run(options).operations, 10u);
  EXPECT_FALSE(driver_->stopped());
}

// Eight operations are in flight at the end, and take longer than any before.
TEST_F(DriverTest, WhatIsInFlightAtTheEndIsNoSecondOfItsOwn) {
  store_.takes = [](int64_t now_ns) {
    return now_ns >= 2 * kSecond - kMillisecond / 10 ? 5 * kMillisecond : kMillisecond / 10;
  };
  DriverOptions options;
  options.depth = 8;
  options.end_ns = 2 * kSecond;
  const Measurements& measured = Run(options);
  ASSERT_EQ(state_.series.Rows().size(), 2u);
  EXPECT_LT(state_.series.Row(1).p99_ns, 200'000u);
  EXPECT_EQ(state_.series.Row(0).operations + state_.series.Row(1).operations, measured.operations)
      << "they are counted nevertheless";
}

TEST_F(DriverTest, WhatIsInFlightAtAStopIsNoSecondOfItsOwn) {
  store_.takes = [this](int64_t now_ns) {
    state_.stop = now_ns >= 2 * kSecond - kMillisecond / 10;
    return state_.stop ? 5 * kMillisecond : kMillisecond / 10;
  };
  Run(DriverOptions());
  EXPECT_EQ(state_.series.Rows().size(), 2u);
}

TEST_F(DriverTest, AWrongValueIsFound) {
  Load();
  DriverOptions options;
  options.verify = true;
  options.operations = 500;
  EXPECT_EQ(Run(options).checked, 500u);
  EXPECT_EQ(driver_->measurements().wrong, 0u);
  // Another key's value, though whole.
  const auto first = store_.values.begin();
  const auto second = std::next(first);
  first->second.bytes = second->second.bytes;
  const Measurements& measured = Run(options);
  EXPECT_GT(measured.wrong, 0u);
  EXPECT_EQ(measured.stale, 0u);
  EXPECT_THAT(measured.first_wrong, HasSubstr(first->first));
}

TEST_F(DriverTest, AValueOlderThanOneSeenBeforeIsFoundUnlessTheServerIsAnother) {
  properties_["recordcount"] = "1";
  properties_["requestdistribution"] = "uniform";
  DriverOptions load;
  load.phase = OperationSource::Phase::kLoad;
  Run(load);
  Value& stored = store_.values.begin()->second;
  for (const bool reconnects : {false, true}) {
    stored.version = 9;
    const uint64_t half = store_.started + 100;
    store_.takes = [&, half, reconnects](int64_t) {
      if (store_.started == half) {
        stored.version = 8;
        store_.connects += reconnects ? 1 : 0;
      }
      return kMillisecond;
    };
    DriverOptions options;
    options.verify = true;
    options.operations = 200;
    const Measurements& measured = Run(options);
    EXPECT_EQ(measured.wrong, 0u);
    if (reconnects) {
      EXPECT_EQ(measured.stale, 0u);
    } else {
      EXPECT_GE(measured.stale, 99u);
      EXPECT_THAT(measured.first_wrong, HasSubstr("version 8 although version 9"));
    }
  }
}

// The rest belongs to the store: its copies of key and value.
TEST_F(DriverTest, AnOperationTakesNoMemory) {
  SetMix("0.6", "0.2", "0", "0", "0.2");
  std::unique_ptr<Store> nothing = NullStore();
  std::vector<std::string> notes;
  workload_ = *ParseWorkload(properties_, notes);
  keys_ = std::make_unique<SharedKeys>(workload_);
  std::vector<uint64_t> taken;
  for (const uint64_t operations : {1000, 20'000}) {
    DriverOptions options;
    options.operations = operations;
    options.depth = 4;
    options.seed = 5;
    driver_ = std::make_unique<Driver>(options, workload_, *keys_, *nothing, clock_, state_);
    const uint64_t before = AllocationsSoFar();
    driver_->Run();
    taken.push_back(AllocationsSoFar() - before);
    EXPECT_EQ(driver_->measurements().operations, operations);
  }
  EXPECT_LE(taken[1], taken[0] + 2);
}

TEST(PacerTest, FixedArrivalsAreEvenlySpacedAndThreadsTakeTurns) {
  Pacer first(Arrivals::kFixed, 1000, 0, 1, 5);
  Pacer second(Arrivals::kFixed, 1000, 0.5, 1, 5);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(first.due_ns(), 5 + i * kMillisecond);
    EXPECT_EQ(second.due_ns(), 5 + i * kMillisecond + kMillisecond / 2);
    first.Advance();
    second.Advance();
  }
}

TEST(PacerTest, PoissonGapsHaveTheirMeanAndTheirSpread) {
  constexpr int kGaps = 200'000;
  Pacer pacer(Arrivals::kPoisson, 1000, 0, 2, 0);
  int64_t last_ns = 0;
  double squares = 0;
  int above_mean = 0;
  for (int i = 0; i < kGaps; ++i) {
    const auto gap_ms = static_cast<double>(pacer.due_ns() - last_ns) / kMillisecond;
    squares += gap_ms * gap_ms;
    above_mean += gap_ms > 1 ? 1 : 0;
    last_ns = pacer.due_ns();
    pacer.Advance();
  }
  EXPECT_NEAR(static_cast<double>(last_ns) / kMillisecond / kGaps, 1, 0.012);
  EXPECT_NEAR(squares / kGaps, 2, 0.06);  // an exponential distribution's second moment
  EXPECT_NEAR(above_mean, kGaps * std::exp(-1), 5 * std::sqrt(kGaps * 0.37 * 0.63));
}

TEST(PacerTest, EtcGapsHaveTheTargetsMean) {
  constexpr int kGaps = 200'000;
  Pacer pacer(Arrivals::kEtc, 1000, 0, 3, 0);
  for (int i = 0; i < kGaps; ++i) pacer.Advance();
  EXPECT_NEAR(static_cast<double>(pacer.due_ns()) / kMillisecond / kGaps, 1, 0.02);
}

}  // namespace
}  // namespace osprey::loadgen
