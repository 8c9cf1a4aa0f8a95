#include "client/lease/reader_lease.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "rdma/lease_time.h"
#include "tests/support/split_mix64.h"

namespace osprey::client {
namespace {

constexpr uint64_t kIncarnation = 7;
constexpr uint64_t kShards = 0b101;

absl::Time At(int64_t ms) { return absl::UnixEpoch() + absl::Milliseconds(ms); }

index::ServingState State(uint64_t beat, uint64_t loss = 1, uint64_t gain = 1,
                          uint64_t shards = kShards) {
  return {beat, loss, gain, kIncarnation, shards};
}

// A lease by two READs: what completes before At(360) is covered.
ReaderLease Leased() {
  ReaderLease lease;
  lease.TakeRecord(State(10), At(0), At(1));
  lease.TakeRecord(State(12), At(110), At(111));
  EXPECT_EQ(lease.until(), At(360));
  return lease;
}

TEST(ReaderLeaseTest, LastsFromThePostingOfABeatTwoBefore) {
  ReaderLease lease;
  EXPECT_FALSE(lease.Covers(0, At(0), At(0)));
  lease.TakeRecord(State(10), At(0), At(1));
  EXPECT_EQ(lease.until(), absl::InfinitePast());
  lease.TakeRecord(State(11), At(50), At(51));
  EXPECT_EQ(lease.until(), absl::InfinitePast());
  lease.TakeRecord(State(12), At(100), At(101));
  EXPECT_EQ(lease.until(), At(360));
  lease.TakeRecord(State(13), At(150), At(151));
  EXPECT_EQ(lease.until(), At(410));
  lease.TakeRecord(State(20), At(500), At(501));
  EXPECT_EQ(lease.until(), At(510));
}

TEST(ReaderLeaseTest, CountsFromTheNewestPostingOfABeat) {
  ReaderLease lease;
  lease.TakeRecord(State(10), At(0), At(60));
  lease.TakeRecord(State(10), At(40), At(50));
  lease.TakeRecord(State(10), At(20), At(55));
  lease.TakeRecord(State(12), At(100), At(101));
  EXPECT_EQ(lease.until(), At(400));
}

TEST(ReaderLeaseTest, TakesReadsThatLandInAnyOrder) {
  ReaderLease lease;
  lease.TakeRecord(State(12), At(100), At(101));
  EXPECT_EQ(lease.until(), absl::InfinitePast());
  lease.TakeRecord(State(11), At(60), At(102));
  EXPECT_EQ(lease.until(), absl::InfinitePast());
  lease.TakeRecord(State(10), At(10), At(103));
  EXPECT_EQ(lease.until(), At(370));
  lease.TakeRecord(State(13), At(150), At(151));
  EXPECT_EQ(lease.until(), At(420));
}

TEST(ReaderLeaseTest, CoversShardsThatTheRecordNames) {
  const ReaderLease lease = Leased();
  EXPECT_TRUE(lease.Covers(0, At(2), At(359)));
  EXPECT_TRUE(lease.Covers(2, At(2), At(359)));
  EXPECT_FALSE(lease.Covers(1, At(2), At(359)));
  EXPECT_FALSE(lease.Covers(63, At(2), At(359)));
  EXPECT_FALSE(lease.Covers(64, At(2), At(359)));
  EXPECT_FALSE(lease.Covers(std::numeric_limits<uint32_t>::max(), At(2), At(359)));
}

TEST(ReaderLeaseTest, CoversWhatCompletesBeforeItsEnd) {
  ReaderLease lease = Leased();
  EXPECT_TRUE(lease.Covers(0, At(2), At(360) - absl::Nanoseconds(1)));
  EXPECT_FALSE(lease.Covers(0, At(2), At(360)));
  // The lease that follows, after a gap, covers the gap as well.
  EXPECT_FALSE(lease.Covers(0, At(380), At(400)));
  lease.TakeGrant(State(20), At(600), At(700));
  EXPECT_TRUE(lease.Covers(0, At(380), At(400)));
  EXPECT_FALSE(lease.Covers(0, At(380), At(960)));
}

TEST(ReaderLeaseTest, CoversReadsThatBeganAfterTheShardWasNamed) {
  ReaderLease lease = Leased();
  EXPECT_FALSE(lease.Covers(0, At(1), At(2)));
  EXPECT_FALSE(lease.Covers(0, At(0), At(200)));
  lease.TakeRecord(State(13, 1, 2, kShards | 2), At(150), At(160));
  EXPECT_FALSE(lease.Covers(1, At(155), At(170)));
  EXPECT_FALSE(lease.Covers(1, At(160), At(170)));
  EXPECT_TRUE(lease.Covers(1, At(161), At(170)));
  EXPECT_TRUE(lease.Covers(0, At(2), At(170))) << "that shard was named before";
}

// It was posted before another, which found more shards.
TEST(ReaderLeaseTest, ARecordOfAnEarlierGainTakesNoShardAway) {
  ReaderLease lease = Leased();
  lease.TakeRecord(State(13, 1, 3, kShards | 2), At(150), At(160));
  lease.TakeRecord(State(13, 1, 2, kShards), At(149), At(161));
  EXPECT_TRUE(lease.Covers(1, At(161), At(170)));
}

TEST(ReaderLeaseTest, AGrantLastsFromTheSendingOfItsRequest) {
  ReaderLease lease;
  lease.TakeGrant(State(10), At(100), At(150));
  EXPECT_EQ(lease.until(), At(460));
  EXPECT_FALSE(lease.Covers(0, At(120), At(160))) << "its shard was not yet named";
  EXPECT_TRUE(lease.Covers(0, At(151), At(160)));
  // Its beat counts as that of a READ.
  lease.TakeRecord(State(9), At(130), At(161));
  EXPECT_EQ(lease.until(), At(460));
  lease.TakeRecord(State(8), At(120), At(162));
  EXPECT_EQ(lease.until(), At(480));
}

TEST(ReaderLeaseTest, ALaterLossRevisionEndsIt) {
  ReaderLease lease = Leased();
  lease.TakeRecord(State(13, 2, 1, 0b100), At(150), At(151));
  EXPECT_EQ(lease.until(), absl::InfinitePast());
  EXPECT_FALSE(lease.Covers(2, At(152), At(153)));
  // Postings from before do not count either, nor records that land late.
  lease.TakeRecord(State(14, 2, 1, 0b100), At(200), At(201));
  lease.TakeRecord(State(14, 1), At(200), At(202));
  lease.TakeRecord(State(11, 1), At(60), At(203));
  EXPECT_EQ(lease.until(), absl::InfinitePast());
  lease.TakeRecord(State(15, 2, 1, 0b100), At(250), At(251));
  EXPECT_EQ(lease.until(), At(510));
  EXPECT_TRUE(lease.Covers(2, At(152), At(300)));
  EXPECT_FALSE(lease.Covers(0, At(152), At(300)));
}

TEST(ReaderLeaseTest, AnotherIncarnationEndsIt) {
  ReaderLease lease = Leased();
  index::ServingState next = State(14, 1, 1);
  next.incarnation = kIncarnation + 1;
  lease.TakeRecord(next, At(200), At(201));
  EXPECT_EQ(lease.until(), absl::InfinitePast());
  next.beat = 16;
  lease.TakeRecord(next, At(300), At(301));
  EXPECT_EQ(lease.until(), At(560));
  EXPECT_TRUE(lease.Covers(0, At(202), At(302)));
  lease.Drop();
  EXPECT_FALSE(lease.Covers(0, At(202), At(302)));
}

// The counters of a server that lies: nothing overflows, and no lease is longer than from its posting.
TEST(ReaderLeaseTest, AnyRecordsKeepItBounded) {
  SplitMix64 random(1);
  const std::vector<uint64_t> odd = {0, 1, 2, 3, UINT64_MAX, UINT64_MAX - 1, UINT64_MAX / 2};
  const auto any = [&] { return odd[random.Below(odd.size())]; };
  ReaderLease lease;
  for (int64_t i = 0; i < 100000; ++i) {
    index::ServingState state;
    state.beat = any();
    state.loss_revision = any();
    state.gain_revision = any();
    state.incarnation = any();
    state.shards = any();
    lease.TakeRecord(state, At(i), At(i + 1));
    ASSERT_LE(lease.until(), At(i + 360));
  }
}

// GETs at these distances, of a server that beats every 50 ms and answers within 1 ms.
struct Traffic {
  int reads = 0, requests = 0, covered = 0, gets = 0;
};
Traffic RunGets(absl::Duration between, absl::Duration length) {
  Traffic traffic;
  ReaderLease lease;
  absl::Time now = At(17);
  for (const absl::Time end = now + length; now < end; now += between) {
    const absl::Time landed = now + absl::Microseconds(100);
    const auto beat = static_cast<uint64_t>((now - At(0)) / absl::Milliseconds(50));
    // In the order of the header's example.
    const bool reads = lease.WantsRead(now);
    if (reads) lease.ReadPosted(now);
    const bool requests = lease.WantsRequest(now);
    if (requests) lease.RequestSent(now);
    if (reads) lease.TakeRecord(State(beat), now, landed);
    if (requests) lease.TakeGrant(State(beat), now, landed);
    traffic.reads += reads;
    traffic.requests += requests;
    traffic.covered += lease.Covers(0, now, landed);
    ++traffic.gets;
  }
  return traffic;
}

TEST(ReaderLeaseTest, OneReadABeatKeepsItWhileThereAreGets) {
  const Traffic traffic = RunGets(absl::Milliseconds(1), absl::Seconds(10));
  EXPECT_EQ(traffic.requests, 1);
  EXPECT_LE(traffic.reads, 200);
  EXPECT_EQ(traffic.covered, traffic.gets - 1) << "all but the first, whose shard was not named";
}

TEST(ReaderLeaseTest, RareGetsAreCoveredByOneReadOrOneRequestEach) {
  for (const int64_t ms : {30, 60, 99, 149, 151, 250, 305, 320, 359, 361, 400, 1000, 10000}) {
    const Traffic traffic = RunGets(absl::Milliseconds(ms), absl::Milliseconds(ms * 1000));
    EXPECT_EQ(traffic.covered, traffic.gets - 1) << ms;
    EXPECT_LE(traffic.reads, traffic.gets) << ms;
    EXPECT_LE(traffic.requests, ms <= 305 ? 1 : traffic.gets) << ms;
  }
}

// A server that grants none, and does not beat.
TEST(ReaderLeaseTest, RequestsAreNotRepeatedWithinABeat) {
  ReaderLease lease;
  EXPECT_TRUE(lease.WantsRequest(At(0)));
  lease.RequestSent(At(0));
  EXPECT_FALSE(lease.WantsRequest(At(49)));
  EXPECT_TRUE(lease.WantsRequest(At(50)));
}

}  // namespace
}  // namespace osprey::client
