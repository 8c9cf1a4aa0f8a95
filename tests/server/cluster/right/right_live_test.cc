// The right to serve in a real etcd, of which one member of three ends.

#include <memory>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/cluster/right/peer_watch.h"
#include "server/cluster/right/serving_right.h"
#include "tests/server/cluster/etcd/etcd_process.h"

namespace osprey {
namespace {

constexpr char kKey[] = "/osprey/test/servers/a";
constexpr absl::Duration kTtl = absl::Seconds(1);
constexpr absl::Duration kTimeout = absl::Seconds(20);

RightOptions Options(uint64_t incarnation) { return {kKey, {incarnation, {"rdma://a"}, 0}, kTtl}; }

absl::Status Renew(ConfigurationStore& store, ServingRight& right) {
  const absl::Time sent = absl::Now();
  return right.TakeAnswer(store.Execute(right.NextRequest(), kTimeout), sent);
}

void Read(ConfigurationStore& store, PeerWatch& watch) {
  const auto answer = store.Range({kKey}, kTimeout);
  ASSERT_TRUE(answer.ok()) << answer.status();
  watch.Saw(answer->keys, absl::Now());
}

TEST(RightLiveTest, AServerThatStopsRenewingLosesItsKey) {
  EtcdCluster cluster(3);
  const std::unique_ptr<EtcdClient> store = cluster.NewClient(0);
  const std::unique_ptr<EtcdClient> watchers_store = cluster.NewClient(1);
  ServingRight right(Options(1));
  PeerWatch watch(kKey, kTtl);
  ASSERT_TRUE(Renew(*store, right).ok());
  cluster.Kill(cluster.WaitForLeader());
  // A renewal may be unknown while there is no leader.
  const absl::Time end = absl::Now() + absl::Seconds(60);
  for (int renewed = 0; renewed < 5 && absl::Now() < end;) {
    const absl::Time until = right.until();
    const absl::Status status = Renew(*store, right);
    ASSERT_TRUE(status.ok()) << status;
    renewed += right.until() > until;
    Read(*watchers_store, watch);
    EXPECT_TRUE(watch.is_there());
    EXPECT_EQ(watch.create_revision(), right.create_revision());
  }
  ASSERT_GT(right.until(), absl::InfinitePast());
  while (!watch.HasEnded(absl::Now()) && absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(20));
    Read(*watchers_store, watch);
  }
  EXPECT_GT(absl::Now(), right.until());
  EXPECT_EQ(watchers_store->Execute(watch.Removal(), kTimeout).outcome,
            TransactionOutcome::kApplied);
  EXPECT_EQ(Renew(*store, right).code(), absl::StatusCode::kAborted);
  ServingRight next(Options(2));
  ASSERT_TRUE(Renew(*store, next).ok());
  EXPECT_GT(next.until(), absl::Now());
}

}  // namespace
}  // namespace osprey
