// Clients that answer from what they READ under a lease, of servers that are stopped, lapse, take over
// and hand over (lease_servers.h). READs, requests and replies are delayed; clocks gain and lose a
// tenth.
//
// Claim: when a READ that a client accepts has completed, no other server has acknowledged a newer
// write. Each mistake that a rule forbids is found by it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/lease/reader_lease.h"
#include "gtest/gtest.h"
#include "index/layout/serving_record.h"
#include "rdma/lease_time.h"
#include "tests/server/cluster/beat/lease_servers.h"
#include "tests/server/cluster/right/drifting_clock.h"
#include "tests/support/split_mix64.h"
#include "tests/support/volume.h"

namespace osprey {
namespace {

constexpr uint32_t kShard = 0;

struct LeaseCounts {
  uint64_t accepted = 0;
  uint64_t stale = 0;  // READs that were refused, and would have been wrong
  uint64_t takeovers = 0;
  uint64_t hand_overs = 0;
};

class LeaseClient {
 public:
  LeaseClient(SplitMix64& random, const LeaseServers& servers, LeaseMistake mistake)
      : random_(random), servers_(servers), mistake_(mistake) {}

  // False: the claim does not hold.
  bool Step(absl::Duration time, LeaseCounts& counts) {
    clock_.Pass(time, random_);
    if (calls_.size() < kCallsMax && random_.Chance(60)) Begin();
    bool holds = true;
    for (size_t i = 0; i < calls_.size();) {
      Call& call = calls_[i];
      if (!call.executed && random_.Chance(40)) Execute(call);
      if (call.executed && random_.Chance(40)) {
        holds = Land(call, counts) && holds;
        call = calls_.back();
        calls_.pop_back();
      } else {
        ++i;
      }
    }
    return holds;
  }

 private:
  static constexpr size_t kCallsMax = 8;
  enum class Kind { kRecord, kRequest, kGet };
  struct Call {
    Kind kind;
    size_t server;
    absl::Time begun;
    bool executed = false;
    absl::optional<index::ServingState> state;
    uint64_t number = 0;
  };

  void Begin() {
    // It reads no record for a while, so that a lease lasts to its end.
    if (random_.Chance(2)) renews_ = !renews_;
    const uint64_t kind = random_.Below(100);
    Call call;
    call.kind = kind >= 50 || !renews_ ? Kind::kGet : kind < 40 ? Kind::kRecord : Kind::kRequest;
    call.server = random_.Below(LeaseServers::kServers);
    call.begun = clock_.now();
    calls_.push_back(call);
  }
  void Execute(Call& call) {
    switch (call.kind) {
      case Kind::kRecord:
        call.state = servers_.ReadRecord(call.server);
        break;
      case Kind::kRequest:
        if (servers_.stopped(call.server)) return;
        call.state = servers_.Grant(call.server);
        break;
      case Kind::kGet:
        call.number = servers_.ReadNumber(call.server);
        break;
    }
    call.executed = true;
  }

  bool Land(const Call& call, LeaseCounts& counts) {
    client::ReaderLease& lease = leases_[call.server];
    const absl::Time now = clock_.now();
    if (call.kind == Kind::kGet) return Judge(call, lease, now, counts);
    if (!call.state.has_value()) return true;
    index::ServingState state = *call.state;
    if (mistake_ == LeaseMistake::kOneBeat) state.beat *= 2;
    if (mistake_ == LeaseMistake::kLossIgnored) {
      state.loss_revision = 0;
      uint64_t& named_by = named_by_[call.server];
      if (state.Serves(kShard)) named_by = state.incarnation;
      if (named_by == state.incarnation) state.shards |= 1;
    }
    if (call.kind == Kind::kRecord) {
      lease.TakeRecord(state, mistake_ == LeaseMistake::kLeaseFromLanding ? now : call.begun, now);
    } else {
      lease.TakeGrant(state, mistake_ == LeaseMistake::kGrantFromReply ? now : call.begun, now);
    }
    return true;
  }

  bool Judge(const Call& call, const client::ReaderLease& lease, absl::Time now,
             LeaseCounts& counts) {
    const absl::Time begun =
        mistake_ == LeaseMistake::kUnnamed ? absl::InfiniteFuture() : call.begun;
    // As if the server's clock were this one.
    const absl::Duration trust = mistake_ == LeaseMistake::kClocksTrusted
                                     ? kReaderLease() - HeldFor(kReaderLease())
                                     : absl::ZeroDuration();
    const bool accepts = lease.Covers(kShard, begun, now - trust);
    bool stale = false;
    for (size_t other = 0; other < LeaseServers::kServers; ++other)
      stale = stale || (other != call.server && servers_.acknowledged(other) > call.number);
    counts.accepted += accepts;
    counts.stale += stale && !accepts;
    return !(stale && accepts);
  }

  SplitMix64& random_;
  const LeaseServers& servers_;
  const LeaseMistake mistake_;
  DriftingClock clock_;
  std::array<client::ReaderLease, LeaseServers::kServers> leases_;
  std::vector<Call> calls_;
  bool renews_ = true;
  // kLossIgnored: the incarnation of each server that was seen to serve the shard.
  std::array<uint64_t, LeaseServers::kServers> named_by_ = {};
};

constexpr int kSteps = 5000;

// Whether the claim holds in this history.
bool Holds(uint64_t seed, LeaseMistake mistake, LeaseCounts& counts) {
  SplitMix64 random(seed);
  // Clocks show their difference only if a whole hand-over takes no longer than it must.
  const bool calm = mistake == LeaseMistake::kClocksTrusted || random.Chance(50);
  LeaseServers servers(random, mistake, calm);
  const uint64_t jumps = calm ? 2 : 12;  // of the time, in 1000 steps
  std::vector<LeaseClient> clients(2, LeaseClient(random, servers, mistake));
  for (int step = 0; step < kSteps; ++step) {
    const absl::Duration time =
        absl::Milliseconds(random.Below(1000) < jumps ? random.Below(4000) : random.Below(8));
    servers.Step(time);
    for (LeaseClient& client : clients) {
      if (!client.Step(time, counts)) return false;
    }
  }
  counts.takeovers += servers.takeovers();
  counts.hand_overs += servers.hand_overs();
  return true;
}

TEST(LeaseSimulationTest, NoAcceptedReadIsOlderThanAnotherServersWrite) {
  LeaseCounts counts;
  for (uint64_t seed = 1; seed <= 300 / kLongVolumeParts; ++seed)
    ASSERT_TRUE(Holds(seed, LeaseMistake::kNone, counts)) << "seed " << seed;
  // Else it has shown nothing.
  EXPECT_GT(counts.accepted, 20000u / kLongVolumeParts);
  EXPECT_GT(counts.stale, 10000u / kLongVolumeParts);
  EXPECT_GT(counts.takeovers, 1000u / kLongVolumeParts);
  EXPECT_GT(counts.hand_overs, 1000u / kLongVolumeParts);
}

class LeaseMistakesTest : public testing::TestWithParam<LeaseMistake> {};

TEST_P(LeaseMistakesTest, IsFound) {
  if (!kSearchesMistakes) GTEST_SKIP() << "searched in the build that ships";
  LeaseCounts counts;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    if (!Holds(seed, GetParam(), counts)) return;
  }
  ADD_FAILURE() << "no seed has found it";
}

INSTANTIATE_TEST_SUITE_P(Mistakes, LeaseMistakesTest,
                         testing::Values(LeaseMistake::kBeatUnchecked,
                                         LeaseMistake::kCheckBeforeStore,
                                         LeaseMistake::kShortHandOver, LeaseMistake::kOneBeat,
                                         LeaseMistake::kLeaseFromLanding,
                                         LeaseMistake::kGrantFromReply, LeaseMistake::kLossIgnored,
                                         LeaseMistake::kUnnamed, LeaseMistake::kClocksTrusted));

}  // namespace
}  // namespace osprey
