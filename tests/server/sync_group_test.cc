// For which requests an engine waits before a sync.

#include "server/engine/sync_group.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace osprey::server {
namespace {

class SyncGroupTest : public ::testing::Test {
 protected:
  // A turn in which so many requests have come, which are executed.
  void Turn(size_t requests, absl::Duration round = absl::Microseconds(400)) {
    group_.BeginTurn();
    while (group_.Awaits(requests)) Wait();
    Execute(requests, round);
  }
  void Execute(size_t requests, absl::Duration round = absl::Microseconds(400)) {
    group_.BeginRound();
    time_ += round;
    group_.EndRound(requests);
  }
  void Wait() { time_ += absl::Microseconds(1); }
  // How long it waits with so many requests.
  absl::Duration WaitWith(size_t requests) {
    const absl::Time began = time_;
    while (group_.Awaits(requests)) Wait();
    return time_ - began;
  }

  absl::Time time_ = absl::UnixEpoch();
  SyncGroup group_{[this] { return time_; }};
};

TEST_F(SyncGroupTest, WaitsForAnswersOfTheLastRound) {
  Turn(60);
  group_.BeginTurn();
  EXPECT_TRUE(group_.Awaits(60));
  EXPECT_TRUE(group_.Awaits(119));
  EXPECT_FALSE(group_.Awaits(120));
}

TEST_F(SyncGroupTest, AllThatIsInFlightNeedNotWait) {
  Turn(120);
  group_.BeginTurn();
  EXPECT_FALSE(group_.Awaits(0));  // it came later
  group_.BeginTurn();
  EXPECT_TRUE(group_.Awaits(50));
  EXPECT_FALSE(group_.Awaits(120));
}

TEST_F(SyncGroupTest, ALoneRequestNeverWaits) {
  for (const size_t at_once : {0, 1}) {
    Turn(1);
    group_.BeginTurn();
    EXPECT_FALSE(group_.Awaits(at_once));
    group_.BeginTurn();
    EXPECT_FALSE(group_.Awaits(1));
    Execute(1);
  }
}

TEST_F(SyncGroupTest, WaitsForAPartOfARoundAtMost) {
  Turn(60);
  group_.BeginTurn();
  EXPECT_EQ(WaitWith(60), absl::Microseconds(400) / SyncGroup::kWaitPart);
  Execute(100, absl::Seconds(1));
  group_.BeginTurn();
  EXPECT_EQ(WaitWith(60), SyncGroup::kWaitMax());
}

TEST_F(SyncGroupTest, AWaitInVainIsNotRepeatedAtOnce) {
  Turn(60);
  Turn(60);  // waits for 120, and nothing comes
  for (int round = 0; round < SyncGroup::kRoundsWithoutWait; ++round) {
    group_.BeginTurn();
    EXPECT_FALSE(group_.Awaits(60)) << round;
    Execute(60);
  }
  group_.BeginTurn();
  EXPECT_TRUE(group_.Awaits(60));
}

TEST_F(SyncGroupTest, NothingIsAwaitedAfterARoundOfTheTurn) {
  Turn(60);
  group_.BeginTurn();
  EXPECT_TRUE(group_.Awaits(60));
  Execute(70);  // another request needs the answers at once
  EXPECT_FALSE(group_.Awaits(1));
  Execute(10);
  group_.BeginTurn();
  EXPECT_TRUE(group_.Awaits(50));  // of 50 + 80
  EXPECT_TRUE(group_.Awaits(129));
  EXPECT_FALSE(group_.Awaits(130));
}

TEST_F(SyncGroupTest, NeverWaitsWithoutAClock) {
  SyncGroup group(nullptr);
  for (int round = 0; round < 3; ++round) {
    group.BeginTurn();
    EXPECT_FALSE(group.Awaits(60));
    group.BeginRound();
    group.EndRound(60);
  }
}

}  // namespace
}  // namespace osprey::server
