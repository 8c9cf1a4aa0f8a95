// Two servers of a cluster, with links over shared memory and a store in memory. The clock of the first
// primary is an hour ahead.

#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/server/cluster/node/node_world.h"

namespace osprey::server {
namespace {

// Of the first primary's clock.
constexpr absl::Duration kAhead = absl::Hours(1);

// A primary whose clock is ahead, and a backup that has its data.
struct Pair {
  explicit Pair(uint32_t replicas = 2) : world(replicas) {
    a.Start();
    a.Serve();
    a.clock.AdvanceTo(absl::Now() + kAhead);
    b.Start();
    EXPECT_TRUE(Await([&] { return world.InSync() == 2; }));
  }

  World world;
  TestServer a{world, "a"}, b{world, "b"};
};

TEST(NodeClockTest, AKeyThatExpiredStaysAwayUnderTheNextPrimary) {
  Pair pair;
  TestServer& a = pair.a;
  TestServer& b = pair.b;
  EXPECT_EQ(a.writes.marks().ReadsUntil(), absl::InfiniteFuture()) << "no key expires";
  a.Put("short", absl::Milliseconds(50));
  EXPECT_TRUE(Await([&] { return a.node->slot(0).MayAnswer(); }));
  EXPECT_LT(a.writes.marks().ReadsUntil(), absl::InfiniteFuture());
  ASSERT_TRUE(Await([&] { return !a.Has("short"); }));
  ASSERT_TRUE(Await([&] { return a.node->slot(0).MayAnswer(); })) << "so a client may learn that";
  const absl::Time seen = a.clock.Now();
  a.Kill();
  b.Serve();
  EXPECT_GE(b.clock.Now(), seen);
  EXPECT_FALSE(b.Has("short"));
  EXPECT_TRUE(Await([&] { return b.node->slot(0).MayAnswer(); }));
}

// Longer than a mark is ahead. (The clock of a server that was killed goes on here.)
TEST(NodeClockTest, TimeWithoutAPrimaryCounts) {
  Pair pair;
  TestServer& a = pair.a;
  TestServer& b = pair.b;
  EXPECT_LT(b.clock.Now(), a.clock.Now() - kAhead / 2) << "no key expires";
  a.Put("long", absl::Hours(2));
  absl::Duration behind = kAhead;
  EXPECT_TRUE(Await([&] {
    const absl::Time of_b = b.clock.Now();
    behind = a.clock.Now() - of_b;
    return behind < absl::Milliseconds(500);
  }));
  EXPECT_GT(behind, absl::ZeroDuration()) << "a backup's clock is not ahead";
  a.Kill();
  absl::SleepFor(TimeMarks::kAhead() + absl::Seconds(1));
  b.Serve();
  const absl::Time of_a = a.clock.Now();
  EXPECT_GE(b.clock.Now(), of_a - behind);
}

TEST(NodeClockTest, NoAnswerLeavesBehindTheMarkThatMembersHold) {
  Pair pair;
  TestServer& a = pair.a;
  a.Put("long", absl::Hours(1));
  absl::SleepFor(TimeMarks::kAhead() + absl::Seconds(1));
  EXPECT_TRUE(Await([&] { return a.node->slot(0).MayAnswer(); })) << "marks follow each other";
  a.calls.changes_nothing = true;  // the member cannot be dropped
  pair.b.Kill();
  EXPECT_TRUE(Await([&] { return !a.node->slot(0).MayAnswer(); }));
  EXPECT_LT(a.writes.marks().ReadsUntil(), a.clock.Now());
  a.calls.changes_nothing = false;
  EXPECT_TRUE(Await([&] { return a.node->slot(0).MayAnswer(); }));
}

TEST(NodeClockTest, MarksGoOnWithFewerMembersThanWritesNeed) {
  Pair pair(/*replicas=*/3);
  TestServer& a = pair.a;
  a.Put("long", absl::Hours(1));
  pair.b.Kill();
  EXPECT_TRUE(Await([&] { return pair.world.InSync() == 1; }));
  EXPECT_TRUE(Await([&] { return a.writes.MayWrite().code() == absl::StatusCode::kUnavailable; }));
  absl::SleepFor(TimeMarks::kAhead() + absl::Seconds(1));
  EXPECT_TRUE(Await([&] { return a.node->slot(0).MayAnswer(); }));
}

}  // namespace
}  // namespace osprey::server
