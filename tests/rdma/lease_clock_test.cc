#include "rdma/lease_clock.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;

constexpr double kTicksPerSecond = 3e9;

// The true time, and each clock as a function of it that the test bends.
struct FakeMachine {
  void Pass(absl::Duration time) {
    if (boot_runs) boot_time += time * boot_rate;
    if (raw_runs) raw_time += time;
    if (tsc_runs) tsc += static_cast<int64_t>(absl::ToDoubleSeconds(time) * ticks_per_second);
  }

  absl::Duration boot_time = absl::Hours(7), raw_time = absl::Hours(5);
  int64_t tsc = 123456789;
  double boot_rate = 1, ticks_per_second = kTicksPerSecond;
  bool boot_runs = true, raw_runs = true, tsc_runs = true, is_invariant = true;
  int sleeps = 0;
  int pause_in_sleep = -1;  // the guest is paused in that one: only the TSC runs
  int64_t tsc_reads = 0;
};

class FakeSources final : public ClockSources {
 public:
  explicit FakeSources(FakeMachine& machine) : machine_(machine) {}

  int64_t BootTimeNs() override { return absl::ToInt64Nanoseconds(machine_.boot_time); }
  int64_t RawTimeNs() override {
    machine_.Pass(absl::Nanoseconds(20));
    return absl::ToInt64Nanoseconds(machine_.raw_time);
  }
  uint64_t Tsc() override {
    ++machine_.tsc_reads;
    return static_cast<uint64_t>(machine_.tsc);
  }
  bool HasInvariantTsc() override { return machine_.is_invariant; }
  void Sleep(absl::Duration time) override {
    machine_.Pass(time);
    if (machine_.sleeps++ == machine_.pause_in_sleep)
      machine_.tsc += static_cast<int64_t>(10 * machine_.ticks_per_second);
  }

 private:
  FakeMachine& machine_;
};

class LeaseClockTest : public ::testing::Test {
 protected:
  std::unique_ptr<LeaseClock> NewClock() {
    return std::make_unique<LeaseClock>(std::make_unique<FakeSources>(machine_));
  }
  // What the clock shows of so much true time, read at such intervals.
  absl::Duration Measured(LeaseClock& clock, absl::Duration time, absl::Duration interval) {
    const absl::Time before = clock.Now();
    absl::Time last = before;
    for (; time > absl::ZeroDuration(); time -= interval) {
      machine_.Pass(std::min(time, interval));
      const absl::Time now = clock.Now();
      EXPECT_GE(now, last);
      last = now;
    }
    return last - before;
  }
  static void MustBeNear(absl::Duration measured, absl::Duration time) {
    EXPECT_GE(measured, time * 0.999);
    EXPECT_LE(measured, time * 1.001);
  }

  FakeMachine machine_;
};

TEST_F(LeaseClockTest, MeasuresTimeAtAnyInterval) {
  const auto clock = NewClock();
  EXPECT_EQ(clock->warning(), "");
  MustBeNear(Measured(*clock, absl::Seconds(10), absl::Milliseconds(1)), absl::Seconds(10));
  MustBeNear(Measured(*clock, absl::Hours(100), absl::Hours(1)), absl::Hours(100));
  EXPECT_EQ(Measured(*clock, absl::ZeroDuration(), absl::Seconds(1)), absl::ZeroDuration());
}

TEST_F(LeaseClockTest, OneThatStandsStillDoesNotStopIt) {
  for (bool* runs : {&machine_.boot_runs, &machine_.tsc_runs}) {
    const auto clock = NewClock();
    *runs = false;
    for (const absl::Duration interval : {absl::Milliseconds(10), absl::Seconds(3)})
      MustBeNear(Measured(*clock, absl::Seconds(30), interval), absl::Seconds(30));
    *runs = true;
    MustBeNear(Measured(*clock, absl::Seconds(30), absl::Milliseconds(10)), absl::Seconds(30));
  }
}

// What one has gained in the past does not hide that it stands still now.
TEST_F(LeaseClockTest, AnOldLeadCountsForNothing) {
  const auto clock = NewClock();
  machine_.boot_rate = 1.05;
  (void)Measured(*clock, absl::Hours(10), absl::Seconds(10));
  machine_.boot_runs = false;
  MustBeNear(Measured(*clock, absl::Seconds(30), absl::Milliseconds(100)), absl::Seconds(30));
  machine_.boot_runs = true;
  machine_.boot_rate = 0.95;
  (void)Measured(*clock, absl::Hours(10), absl::Seconds(10));
  machine_.tsc_runs = false;
  EXPECT_GE(Measured(*clock, absl::Seconds(30), absl::Milliseconds(100)), absl::Seconds(28));
}

TEST_F(LeaseClockTest, AJumpIsTimeThatHasPassed) {
  const auto clock = NewClock();
  absl::Time before = clock->Now();
  machine_.tsc += static_cast<int64_t>(100 * kTicksPerSecond);  // the guest was paused
  MustBeNear(clock->Now() - before, absl::Seconds(100));
  before = clock->Now();
  machine_.boot_time += absl::Seconds(50);  // the machine was suspended
  MustBeNear(clock->Now() - before, absl::Seconds(50));
  MustBeNear(Measured(*clock, absl::Seconds(10), absl::Seconds(1)), absl::Seconds(10));
}

TEST_F(LeaseClockTest, AJumpOfAnySizeIsTaken) {
  const auto clock = NewClock();
  const absl::Time before = clock->Now();
  machine_.tsc = INT64_MIN;  // 2^63 without a sign
  EXPECT_GT(clock->Now(), before + absl::Hours(24 * 365));
  MustBeNear(Measured(*clock, absl::Seconds(10), absl::Seconds(1)), absl::Seconds(10));
}

TEST_F(LeaseClockTest, OneThatGoesBackIsIgnored) {
  const auto clock = NewClock();
  (void)Measured(*clock, absl::Seconds(10), absl::Milliseconds(300));
  absl::Time before = clock->Now();
  machine_.tsc -= static_cast<int64_t>(5 * kTicksPerSecond);  // migrated to another machine
  EXPECT_EQ(clock->Now(), before);
  MustBeNear(Measured(*clock, absl::Seconds(10), absl::Milliseconds(300)), absl::Seconds(10));
  machine_.boot_runs = false;
  MustBeNear(Measured(*clock, absl::Seconds(10), absl::Milliseconds(300)), absl::Seconds(10));
  machine_.boot_runs = true;
  before = clock->Now();
  machine_.boot_time -= absl::Seconds(3);
  EXPECT_EQ(clock->Now(), before);
  machine_.tsc_runs = false;
  MustBeNear(Measured(*clock, absl::Seconds(10), absl::Milliseconds(300)), absl::Seconds(10));
}

TEST_F(LeaseClockTest, WithoutAnInvariantTscItWarns) {
  machine_.is_invariant = false;
  machine_.tsc = 0;
  const auto clock = NewClock();
  EXPECT_THAT(clock->warning(), HasSubstr("no invariant TSC"));
  EXPECT_THAT(clock->warning(), HasSubstr("drain"));
  machine_.ticks_per_second = 9e9;
  MustBeNear(Measured(*clock, absl::Seconds(10), absl::Milliseconds(300)), absl::Seconds(10));
  EXPECT_EQ(machine_.tsc_reads, 0);
}

TEST_F(LeaseClockTest, APauseWhileItMeasuresTheTscIsNoticed) {
  machine_.pause_in_sleep = 1;
  const auto clock = NewClock();
  EXPECT_EQ(clock->warning(), "");
  machine_.boot_runs = false;
  MustBeNear(Measured(*clock, absl::Seconds(10), absl::Milliseconds(300)), absl::Seconds(10));
}

TEST_F(LeaseClockTest, ATscThatCannotBeMeasuredDoesNotCount) {
  const auto breaks = std::vector<std::pair<const char*, void (*)(FakeMachine&)>>{
      {"the raw clock stands still", [](FakeMachine& one) { one.raw_runs = false; }},
      {"the TSC stands still", [](FakeMachine& one) { one.tsc_runs = false; }},
      {"the TSC is far too slow", [](FakeMachine& one) { one.ticks_per_second = 1e6; }},
      {"the TSC is far too fast", [](FakeMachine& one) { one.ticks_per_second = 1e12; }},
  };
  for (const auto& [name, breaks_it] : breaks) {
    machine_ = FakeMachine();
    breaks_it(machine_);
    const auto clock = NewClock();
    EXPECT_THAT(clock->warning(), HasSubstr("cannot be measured")) << name;
    const absl::Time before = clock->Now();
    machine_.tsc += int64_t{1} << 50;
    EXPECT_EQ(clock->Now(), before) << name;
    machine_.boot_time += absl::Seconds(1);
    EXPECT_EQ(clock->Now() - before, absl::Seconds(1)) << name;
  }
}

TEST(SaysInvariantTscTest, AllProcessorsMustSaySo) {
  const std::string with = "processor\t: 0\nflags\t\t: fpu constant_tsc rep_good nonstop_tsc\n\n";
  EXPECT_TRUE(SaysInvariantTsc(with));
  EXPECT_TRUE(SaysInvariantTsc(with + with));
  EXPECT_FALSE(SaysInvariantTsc(with + "flags\t\t: fpu constant_tsc\n"));
  EXPECT_FALSE(SaysInvariantTsc(with + "flags\t\t: fpu nonstop_tsc_s3 constant_tsc\n"));
  EXPECT_FALSE(SaysInvariantTsc("processor\t: 0\nFeatures\t: fp asimd\n"));
  EXPECT_FALSE(SaysInvariantTsc(""));
}

// The clocks of the machine that runs the test: they agree with another, and never go back.
TEST(LeaseClockMachineTest, RunsAsTheMachinesClocksDo) {
  using Steady = std::chrono::steady_clock;
  SharedLeaseClock clock(MachineClocks());
  const auto before_started = Steady::now();
  const absl::Time started = clock.Now();
  const auto after_started = Steady::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      absl::Time last = clock.Now();
      for (int j = 0; j < 20000; ++j) {
        const absl::Time now = clock.Now();
        ASSERT_GE(now, last);
        last = now;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  absl::SleepFor(absl::Milliseconds(200));
  const auto before_ended = Steady::now();
  const absl::Duration passed = clock.Now() - started;
  const auto after_ended = Steady::now();
  // However long the thread stood still between two readings.
  EXPECT_GE(passed, absl::FromChrono(before_ended - after_started) * 0.85);
  EXPECT_LE(passed, absl::FromChrono(after_ended - before_started) * 1.15 + absl::Milliseconds(50));
}

}  // namespace
}  // namespace osprey
