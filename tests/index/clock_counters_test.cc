// The CLOCK counters of the keys in a line.

#include "index/segments/clock_counters.h"

#include "gtest/gtest.h"

namespace osprey::index {
namespace {

TEST(ClockCountersTest, AKeyKeepsItsLivesWhenWordsBeforeItGo) {
  LineClocks lives;
  lives.Set(0, 3);
  lives.Set(1, 1);  // an inline item of 3 words
  lives.Set(4, 15);
  lives.Set(12, 7);
  lives.Remove(1, 3);
  EXPECT_EQ(lives.At(0), 3u);
  EXPECT_EQ(lives.At(1), 15u);
  EXPECT_EQ(lives.At(9), 7u);
  for (uint32_t word : {2, 3, 4, 5, 6, 7, 8, 10, 11, 12}) EXPECT_EQ(lives.At(word), 0u) << word;
}

TEST(ClockCountersTest, AgeDecrementsCountersAboveOne) {
  LineClocks lives;
  for (uint32_t word = 0; word < 13; ++word) lives.Set(word, word);
  lives.Age();
  for (uint32_t word = 0; word < 13; ++word) EXPECT_EQ(lives.At(word), word < 2 ? word : word - 1);
  EXPECT_TRUE(lives.AnyLast());
  LineClocks several;
  several.Set(3, 2);
  EXPECT_FALSE(several.AnyLast());
  EXPECT_FALSE(LineClocks().AnyLast());
}

TEST(ClockCountersTest, AddStopsAtTheMostAndGivesNothingWhereNoKeyBegins) {
  LineClocks lives;
  lives.Set(5, 14);
  lives.Add(5, 4);
  lives.Add(6, 4);
  EXPECT_EQ(lives.At(5), kClockMax);
  EXPECT_EQ(lives.At(6), 0u);
}

// Eviction depends on this count, so it is kept at each change.
TEST(ClockCountersTest, TheKeysWhoseCounterIsOneAreCounted) {
  ClockCounters clocks(0, /*on=*/true);
  LineClocks lives;
  lives.Set(0, 1);
  lives.Set(1, 2);
  lives.Set(2, 1);
  clocks.Set(0, lives);
  clocks.Set(kLineBytes, lives);
  clocks.Set(kUnitBytes, lives);
  EXPECT_EQ(clocks.last(), 6u);
  clocks.Add(0, 0, 1);
  EXPECT_EQ(clocks.last(), 5u);
  clocks.Add(0, 1, 1);
  clocks.Add(0, 3, 1);  // no key
  EXPECT_EQ(clocks.last(), 5u);
  lives.Age();
  clocks.Set(kLineBytes, lives);
  EXPECT_EQ(clocks.last(), 6u);
  clocks.Set(0, LineClocks());
  EXPECT_EQ(clocks.last(), 5u);
  clocks.DropUnit(kUnitBytes);
  EXPECT_EQ(clocks.last(), 3u);
  clocks.DropUnit(0);
  EXPECT_EQ(clocks.last(), 0u);
}

}  // namespace
}  // namespace osprey::index
