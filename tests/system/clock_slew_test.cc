// Keys expire by clocks that are not slewed. In this process the test replaces CLOCK_MONOTONIC. It
// can move it ahead of CLOCK_MONOTONIC_RAW, as a slew does over time.

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "server/clock.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

// The total by which slews have moved the clock ahead.
std::atomic<int64_t> slewed_seconds{0};

// A slew of 10 % over 40 s. The client uses an estimate of the server's clock for 10 s and renews
// it after 5 s, by its own clock. A client that used this clock would have an estimate that is
// wrong by 4 s.
constexpr int64_t kSlewSeconds = 4;

void Slew() { slewed_seconds += kSlewSeconds; }

// The real clock of the test, whatever clock the tested code uses.
absl::Duration TrueClock() {
  timespec now = {};
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC_RAW, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace
}  // namespace osprey

// Replaces that of the C library, for all code of this process.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE)
    time->tv_sec += osprey::slewed_seconds;
  return result;
}

namespace osprey {
namespace {

TEST(ClockSlewTest, TheTestSlewsTheMonotonicClock) {
  const auto before = std::chrono::steady_clock::now();
  Slew();
  EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::seconds(kSlewSeconds));
}

TEST(ClockSlewTest, TheServersClockIsNotSlewed) {
  const server::Clock clock;
  const absl::Duration raw_before = TrueClock();
  const absl::Time before = clock.Now();
  Slew();
  const absl::Time after = clock.Now();
  EXPECT_GE(after, before);
  EXPECT_LE(after - before, TrueClock() - raw_before);
}

TEST(ClockSlewTest, AClientsEstimateOfTheServersClockIsNotSlewed) {
  constexpr absl::Duration kTtl = absl::Hours(1);
  const auto server = ServerProcess::Start(NewListenAddress());
  ASSERT_TRUE(server.ok()) << server.status();
  const auto client = Client::Connect((*server)->uri(), {});
  ASSERT_TRUE(client.ok()) << client.status();
  WriteOptions options;
  options.ttl = kTtl;
  const absl::Duration put_begins = TrueClock();
  ASSERT_TRUE((*client)->Put("key", "value", options).ok());
  const absl::Duration put_ends = TrueClock();
  Slew();
  const absl::Duration get_begins = TrueClock();
  const absl::StatusOr<Value> value = (*client)->Get("key");
  const absl::Duration get_ends = TrueClock();
  ASSERT_TRUE(value.ok()) << value.status();
  // The estimate is as uncertain as the PUT's round trip was long, and drifts. An expiry is rounded
  // by less than 0.1 ms. On a slow machine the bounds grow equally.
  const absl::Duration slack =
      absl::Milliseconds(1) + (put_ends - put_begins) + (get_ends - put_begins) / 500;
  EXPECT_GE(value->ttl, kTtl - (get_ends - put_begins) - slack);
  EXPECT_LE(value->ttl, kTtl - (get_begins - put_ends) + slack);
}

}  // namespace
}  // namespace osprey
