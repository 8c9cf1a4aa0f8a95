// The simulated caches, on sequences that were computed by hand.

#include "tests/benchmarks/cache_rivals.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace osprey {
namespace {

// A letter a GET: 'h' for a hit and '.' for a miss, which fills the cache.
template <typename Cache>
std::string Outcomes(Cache& cache, const std::string& gets) {
  std::string outcomes;
  for (const char key : gets) {
    const bool hit = cache.Get(static_cast<uint64_t>(key));
    if (!hit) cache.Put(static_cast<uint64_t>(key));
    outcomes += hit ? 'h' : '.';
  }
  return outcomes;
}

std::vector<uint32_t> TraceOf(const std::string& gets) { return {gets.begin(), gets.end()}; }

TEST(LruTest, EvictsTheKeyUsedLeastRecently) {
  Lru lru(3);
  EXPECT_EQ(Outcomes(lru, "abcadbac"), "...h..h.");
}

TEST(LruTest, WeightsCount) {
  Lru lru(10);
  lru.Put(1, 4);
  lru.Put(2, 4);
  EXPECT_TRUE(lru.Get(1));
  lru.Put(3, 5);
  EXPECT_FALSE(lru.Get(2));
  EXPECT_TRUE(lru.Get(1));
  EXPECT_TRUE(lru.Get(3));
}

// Ten keys fit: one new key and nine others. Whatever is not hit twice goes first in, first out.
TEST(S3FifoTest, KeysThatAreNotHitLeaveInTheirOrder) {
  S3Fifo cache(10);
  EXPECT_EQ(Outcomes(cache, "abcdefghij"), "..........");
  EXPECT_EQ(Outcomes(cache, "k"), ".");  // a goes
  EXPECT_EQ(Outcomes(cache, "bcdefghijk"), "hhhhhhhhhh");
}

TEST(S3FifoTest, OneHitDoesNotKeepANewKeyAndTwoDo) {
  S3Fifo cache(10);
  Outcomes(cache, "abcdefghij");
  EXPECT_EQ(Outcomes(cache, "abb"), "hhh");
  Outcomes(cache, "kl");  // a goes, then b moves and c goes
  EXPECT_EQ(Outcomes(cache, "b"), "h");
  EXPECT_FALSE(cache.Get('a'));
  EXPECT_FALSE(cache.Get('c'));
  EXPECT_TRUE(cache.Get('d'));
}

// A ghost that comes back outlives new keys.
TEST(S3FifoTest, AKeyThatReturnsIsInTheMainQueue) {
  S3Fifo cache(10);
  Outcomes(cache, "abcdefghijk");        // a goes, and is a ghost
  EXPECT_EQ(Outcomes(cache, "a"), ".");  // b goes
  Outcomes(cache, "lmnopqrstuvwxyz");    // all others go
  EXPECT_EQ(Outcomes(cache, "ab"), "h.");
  // Nine ghosts are remembered; c was forgotten long ago, and is new again.
  Outcomes(cache, "c");
  Outcomes(cache, "0123456789");
  EXPECT_EQ(Outcomes(cache, "ac"), "h.");
}

// The main queue passes by a key once for each hit, and then evicts it.
TEST(S3FifoTest, TheMainQueueGivesAnotherRoundPerHit) {
  for (const auto& [hits, outcome] : {std::pair(2, "."), std::pair(3, "h")}) {
    S3Fifo cache(2);         // one new key, one other, one ghost
    Outcomes(cache, "abc");  // a is the ghost
    EXPECT_EQ(Outcomes(cache, "a"), ".");
    for (int i = 0; i < hits; ++i) EXPECT_TRUE(cache.Get('a'));
    EXPECT_EQ(Outcomes(cache, "xyz"), "...");  // they only replace each other
    // Ghosts return, so that the main queue must evict: at z, at n, and at the last m.
    EXPECT_EQ(Outcomes(cache, "yznmnm"), "......");
    EXPECT_EQ(Outcomes(cache, "a"), outcome) << hits;
  }
}

TEST(BeladyTest, KeepsWhatIsUsedSoonest) {
  // b and c are not used again before a is.
  EXPECT_EQ(BeladyHits(TraceOf("abcabc"), 1, 0), 1u);
  EXPECT_EQ(BeladyHits(TraceOf("abcabc"), 2, 0), 2u);
  EXPECT_EQ(BeladyHits(TraceOf("abcabc"), 3, 0), 3u);
}

TEST(BeladyTest, CountsFromTheGetThatItIsGiven) {
  EXPECT_EQ(BeladyHits(TraceOf("aaaa"), 1, 0), 3u);
  EXPECT_EQ(BeladyHits(TraceOf("aaaa"), 1, 2), 2u);
}

}  // namespace
}  // namespace osprey
