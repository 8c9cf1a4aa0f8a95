// A client's bounds of the server's clock; the test controls both clocks.

#include "client/common/server_clock.h"

#include <optional>
#include <random>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace osprey::client {
namespace {

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(5);

// The server's clock as a function of the client's: it is off by `offset` at kStart and gains
// `gain_ppm` since then.
struct Truth {
  absl::Duration offset;
  int64_t gain_ppm = 0;
  absl::Time At(absl::Time ours) const {
    return ours + offset + (ours - kStart) * gain_ppm / 1000000;
  }
};

void ExpectTrue(const ServerClock& clock, const Truth& truth, absl::Time at) {
  const std::optional<ServerClock::Bounds> bounds = clock.At(at);
  ASSERT_TRUE(bounds.has_value());
  EXPECT_LE(bounds->earliest, truth.At(at));
  EXPECT_GE(bounds->latest, truth.At(at));
}

TEST(ServerClockTest, HasNoTimeBeforeTheFirstReply) {
  ServerClock clock;
  EXPECT_EQ(clock.At(kStart), std::nullopt);
  clock.Observe(kStart, kStart, kStart);
  EXPECT_NE(clock.At(kStart), std::nullopt);
  clock.Reset();
  EXPECT_EQ(clock.At(kStart), std::nullopt);
}

TEST(ServerClockTest, AnHourBetweenTheClocksMakesNoDifference) {
  for (const absl::Duration offset : {-absl::Hours(1), absl::ZeroDuration(), absl::Hours(1)}) {
    ServerClock clock;
    const Truth truth{offset};
    clock.Observe(kStart, kStart + absl::Microseconds(50),
                  truth.At(kStart + absl::Microseconds(10)));
    const absl::Time now = kStart + absl::Microseconds(60);
    ExpectTrue(clock, truth, now);
    // As wide as the round trip, and a little for the drift.
    EXPECT_LT(clock.At(now)->latest - clock.At(now)->earliest, absl::Microseconds(51));
  }
}

TEST(ServerClockTest, ServerTimeOfAnyMomentOfTheRoundTripIsWithinBounds) {
  const Truth truth{absl::Minutes(7)};
  for (const int64_t micros : {0, 1, 25, 49, 50}) {
    ServerClock clock;
    clock.Observe(kStart, kStart + absl::Microseconds(50),
                  truth.At(kStart + absl::Microseconds(micros)));
    ExpectTrue(clock, truth, kStart + absl::Microseconds(50));
    ExpectTrue(clock, truth, kStart + absl::Seconds(9));
    ExpectTrue(clock, truth, kStart - absl::Seconds(1));  // of a READ posted before the answer
  }
}

TEST(ServerClockTest, TheErrorGrowsWithTimeUntilTheEstimateIsNotUsed) {
  ServerClock clock;
  clock.Observe(kStart, kStart, kStart);
  const auto width = [&](absl::Time at) { return clock.At(at)->latest - clock.At(at)->earliest; };
  EXPECT_LT(width(kStart), absl::Microseconds(1));
  EXPECT_GE(width(kStart + absl::Seconds(1)), absl::Milliseconds(2));
  EXPECT_GE(width(kStart + absl::Seconds(10)), absl::Milliseconds(20));
  EXPECT_LT(width(kStart + absl::Seconds(10)), absl::Milliseconds(21));
  EXPECT_EQ(clock.At(kStart + absl::Seconds(10) + absl::Nanoseconds(1)), std::nullopt);
}

TEST(ServerClockTest, ClocksThatRunApartWithinTheBoundStayWithinTheBounds) {
  for (const int64_t gain_ppm : {-1000, -300, 300, 1000}) {
    const Truth truth{absl::Seconds(3), gain_ppm};
    ServerClock clock;
    for (absl::Time now = kStart; now < kStart + absl::Minutes(2); now += absl::Seconds(7)) {
      clock.Observe(now, now + absl::Microseconds(40), truth.At(now + absl::Microseconds(33)));
      for (int seconds = 0; seconds <= 10; ++seconds)
        ExpectTrue(clock, truth, now + absl::Seconds(seconds));
    }
  }
}

TEST(ServerClockTest, ASlowAnswerDoesNotSpoilAGoodEstimate) {
  const Truth truth{-absl::Hours(2)};
  ServerClock clock;
  clock.Observe(kStart, kStart + absl::Microseconds(20), truth.At(kStart));
  // Sent, then this process was stopped for half a second.
  const absl::Time later = kStart + absl::Milliseconds(600);
  clock.Observe(kStart + absl::Milliseconds(100), later,
                truth.At(kStart + absl::Milliseconds(101)));
  ExpectTrue(clock, truth, later);
  EXPECT_LT(clock.At(later)->latest - clock.At(later)->earliest, absl::Milliseconds(2));
  // And the slow answer has renewed it.
  EXPECT_NE(clock.At(kStart + absl::Milliseconds(10500)), std::nullopt);
}

TEST(ServerClockTest, NeedsNoUpdateForAMillisecondOnceBoundsAreClose) {
  ServerClock clock;
  const Truth truth{absl::Seconds(7)};
  EXPECT_TRUE(clock.WantsNews(kStart));
  // Far apart: the next answer counts at once.
  const absl::Time slow = kStart + absl::Milliseconds(3);
  clock.Observe(kStart, slow, truth.At(kStart));
  EXPECT_TRUE(clock.WantsNews(slow));
  const absl::Time quick = slow + absl::Microseconds(100);
  clock.Observe(slow, quick, truth.At(slow));
  EXPECT_FALSE(clock.WantsNews(quick));
  EXPECT_FALSE(clock.WantsNews(quick + absl::Microseconds(999)));
  EXPECT_TRUE(clock.WantsNews(quick + absl::Milliseconds(1)));
  clock.Reset();
  EXPECT_TRUE(clock.WantsNews(quick));
}

TEST(ServerClockTest, WhenAClockJumpsOnlyTheLastAnswerCounts) {
  ServerClock clock;
  clock.Observe(kStart, kStart + absl::Microseconds(20), kStart);
  const Truth after{absl::Seconds(30)};  // a virtual machine was stopped, and its clock with it
  const absl::Time now = kStart + absl::Seconds(1);
  clock.Observe(now, now + absl::Microseconds(20), after.At(now));
  ExpectTrue(clock, after, now + absl::Microseconds(20));
}

TEST(ServerClockTest, NoTimeThatAServerNamesDoesHarm) {
  for (const int64_t nanos : {INT64_MIN, int64_t{-1}, int64_t{0}, INT64_MAX}) {
    ServerClock clock;
    clock.Observe(kStart, kStart + absl::Seconds(1), absl::FromUnixNanos(nanos));
    clock.Observe(kStart, kStart + absl::Seconds(1), absl::FromUnixNanos(-(nanos / 2)));
    const std::optional<ServerClock::Bounds> bounds = clock.At(kStart + absl::Seconds(2));
    ASSERT_TRUE(bounds.has_value());
    EXPECT_LE(bounds->earliest, bounds->latest);
  }
}

TEST(ServerClockTest, AnyAnswersOfHonestClocksKeepTheTruthWithinTheBounds) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto micros = [&](int64_t most) {
    return absl::Microseconds(std::uniform_int_distribution<int64_t>(0, most)(random));
  };
  for (int run = 0; run < 100; ++run) {
    const Truth truth{micros(int64_t{7200} * 1000000) - absl::Hours(1),
                      std::uniform_int_distribution<int64_t>(-1000, 1000)(random)};
    ServerClock clock;
    absl::Time now = kStart;
    for (int answer = 0; answer < 50; ++answer) {
      const absl::Time sent = now;
      const absl::Time looked = sent + micros(run % 2 == 0 ? 30 : 300000);
      now = looked + micros(run % 3 == 0 ? 30 : 300000);
      clock.Observe(sent, now, truth.At(looked));
      ExpectTrue(clock, truth, now);
      ExpectTrue(clock, truth, sent);
      now += micros(9000000);
      ExpectTrue(clock, truth, now);
    }
  }
}

}  // namespace
}  // namespace osprey::client
