// The order of calls of many timers.

#include "server/engine/connection/timer_queue.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace osprey::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

absl::Time At(int ms) { return absl::UnixEpoch() + absl::Milliseconds(ms); }

struct Thing {
  char name;
  Timer its_timer = {};
  Timer& timer() { return its_timer; }
};

class TimerQueueTest : public ::testing::Test {
 protected:
  std::vector<char> DueAt(int ms) {
    std::vector<char> names;
    while (Thing* const due = timers_.TakeDue(At(ms))) names.push_back(due->name);
    return names;
  }

  TimerQueue<Thing> timers_{absl::Milliseconds(20)};
  Thing a_{'a'}, b_{'b'}, c_{'c'};
};

TEST_F(TimerQueueTest, TimersComeInOrderOfTheirTimesThenOfInsertion) {
  timers_.Set(b_, At(40));
  timers_.Set(c_, At(40));
  timers_.Set(a_, At(20));
  EXPECT_THAT(DueAt(19), IsEmpty());
  EXPECT_THAT(DueAt(40), ElementsAre('a', 'b', 'c'));
  EXPECT_THAT(DueAt(1000), IsEmpty());
}

TEST_F(TimerQueueTest, ATimeMovesToEarlierAndNotToLater) {
  timers_.Set(a_, At(100));
  timers_.Set(a_, At(200));
  EXPECT_EQ(timers_.next(), At(100));
  timers_.Set(a_, At(60));
  EXPECT_EQ(timers_.next(), At(60));
  EXPECT_THAT(DueAt(1000), ElementsAre('a'));
}

TEST_F(TimerQueueTest, ATimeMovesToTheStepBefore) {
  timers_.Set(a_, At(100));
  timers_.Set(a_, At(81));
  EXPECT_EQ(timers_.next(), At(100));
  timers_.Set(a_, At(80));
  EXPECT_EQ(timers_.next(), At(80));
}

TEST_F(TimerQueueTest, TimesThatAreCloseTogetherBecomeOneAndNoneComesTooEarly) {
  timers_.Set(a_, At(21));
  timers_.Set(b_, At(39));
  EXPECT_EQ(timers_.next(), At(40));
  EXPECT_THAT(DueAt(39), IsEmpty());
  EXPECT_THAT(DueAt(40), ElementsAre('a', 'b'));
}

TEST_F(TimerQueueTest, ATimeThatIsExactIsNotRounded) {
  timers_.Set(a_, At(100));
  timers_.SetExactly(a_, At(81));
  EXPECT_EQ(timers_.next(), At(81));
  timers_.SetExactly(a_, At(85));
  timers_.Set(a_, At(81));
  EXPECT_EQ(timers_.next(), At(81));
  EXPECT_THAT(DueAt(80), IsEmpty());
  EXPECT_THAT(DueAt(81), ElementsAre('a'));
}

TEST_F(TimerQueueTest, WhatWasTakenOrRemovedComesOnlyWhenItIsSetAgain) {
  timers_.Set(a_, At(20));
  timers_.Set(b_, At(20));
  timers_.Remove(b_);
  timers_.Remove(c_);
  EXPECT_THAT(DueAt(20), ElementsAre('a'));
  EXPECT_EQ(timers_.next(), absl::InfiniteFuture());
  timers_.Set(a_, At(60));
  timers_.Set(b_, absl::InfiniteFuture());
  EXPECT_THAT(DueAt(1000), ElementsAre('a'));
}

}  // namespace
}  // namespace osprey::server
