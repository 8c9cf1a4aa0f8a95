// The order of calls of many timers.

#include "server/engine/timer_queue.h"

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
  Alarm its_alarm = {};
  Alarm& alarm() { return its_alarm; }
};

class AlarmsTest : public ::testing::Test {
 protected:
  std::vector<char> DueAt(int ms) {
    std::vector<char> names;
    while (Thing* const due = alarms_.TakeDue(At(ms))) names.push_back(due->name);
    return names;
  }

  Alarms<Thing> alarms_{absl::Milliseconds(20)};
  Thing a_{'a'}, b_{'b'}, c_{'c'};
};

TEST_F(AlarmsTest, ThingsComeInTheOrderOfTheirTimesAndThenInThatInWhichTheyWereSet) {
  alarms_.Set(b_, At(40));
  alarms_.Set(c_, At(40));
  alarms_.Set(a_, At(20));
  EXPECT_THAT(DueAt(19), IsEmpty());
  EXPECT_THAT(DueAt(40), ElementsAre('a', 'b', 'c'));
  EXPECT_THAT(DueAt(1000), IsEmpty());
}

TEST_F(AlarmsTest, ATimeMovesToEarlierAndNotToLater) {
  alarms_.Set(a_, At(100));
  alarms_.Set(a_, At(200));
  EXPECT_EQ(alarms_.next(), At(100));
  alarms_.Set(a_, At(60));
  EXPECT_EQ(alarms_.next(), At(60));
  EXPECT_THAT(DueAt(1000), ElementsAre('a'));
}

TEST_F(AlarmsTest, TimesThatAreCloseTogetherBecomeOneAndNoneComesTooEarly) {
  alarms_.Set(a_, At(21));
  alarms_.Set(b_, At(39));
  EXPECT_EQ(alarms_.next(), At(40));
  EXPECT_THAT(DueAt(39), IsEmpty());
  EXPECT_THAT(DueAt(40), ElementsAre('a', 'b'));
}

TEST_F(AlarmsTest, WhatWasTakenOrRemovedComesOnlyWhenItIsSetAgain) {
  alarms_.Set(a_, At(20));
  alarms_.Set(b_, At(20));
  alarms_.Remove(b_);
  alarms_.Remove(c_);
  EXPECT_THAT(DueAt(20), ElementsAre('a'));
  EXPECT_EQ(alarms_.next(), absl::InfiniteFuture());
  alarms_.Set(a_, At(60));
  alarms_.Set(b_, absl::InfiniteFuture());
  EXPECT_THAT(DueAt(1000), ElementsAre('a'));
}

}  // namespace
}  // namespace osprey::server
