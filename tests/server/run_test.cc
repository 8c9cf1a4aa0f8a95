// Whether pollers let other threads run.

#include "server/run.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/monitoring/poller_heartbeat.h"
#include "tests/server/server_harness.h"

static std::atomic<int> yields{0};

// Replaces that of libc.
extern "C" int sched_yield() {
  ++yields;
  return 0;
}

namespace osprey::server {
namespace {

constexpr int kTurns = 1000;

// Lets a poller take turns of a microsecond until the bell rings, at the latest after kTurns, and
// returns how often it let others run.
int YieldsOf(PollMode mode, StopBell& bell) {
  ServerHarness server;
  Engine* const engine = &server.engine();
  PollerHeartbeat heartbeat;
  int turns = 0;
  absl::Time now = server.now();
  yields = 0;
  const auto clock = [&] {
    if (++turns == kTurns) bell.Ring();
    return now += absl::Microseconds(1);
  };
  EXPECT_TRUE(
      RunEngines(
          {&engine, 1}, {&heartbeat, 1}, mode, clock, [] {}, [](const absl::Status&) {}, bell)
          .ok());
  return yields;
}

// A system call each turn would delay requests.
TEST(RunEnginesTest, ASpinningPollerLetsOthersRunEveryTenMicroseconds) {
  StopBell bell;
  const int count = YieldsOf(PollMode::kBusy, bell);
  EXPECT_GE(count, kTurns / 20);
  EXPECT_LE(count, kTurns / 5);
}

TEST(RunEnginesTest, APollerThatSleepsDoesNotBefore) {
  StopBell bell;
  std::thread ringer([&bell] {
    absl::SleepFor(absl::Milliseconds(100));
    bell.Ring();
  });
  EXPECT_EQ(YieldsOf(PollMode::kEvent, bell), 0);
  ringer.join();
}

}  // namespace
}  // namespace osprey::server
