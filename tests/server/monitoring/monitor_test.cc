// What a server tells of several shards: the sum of theirs.

#include "server/monitoring/monitor.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/stats/cluster_stats.h"
#include "tests/index/index_test_util.h"

namespace osprey::server {
namespace {

// A shard with so many keys, two pollers and a connection to each.
struct TestShard {
  explicit TestShard(int keys) {
    index::TableOptions options;
    options.incarnation = 1;
    tables = Tables::Create(memory.span(), 2, options).value();
    for (int i = 0; i < keys; ++i) {
      const std::string key = absl::StrCat("key", i);
      const LockedTable table = tables->Lock(tables->PartitionOf(key));
      EXPECT_TRUE(table->Put(key, {}, {}, absl::UnixEpoch()).status.ok());
    }
    for (const uint32_t poller : {0, 1}) {
      PollerReport report;
      report.connections = 1;
      report.counters.puts = 100;
      pollers.Report(poller, report);
    }
  }

  index::RegionMemory memory{1 << 20};
  std::unique_ptr<Tables> tables;
  Pollers pollers{2};
  PollerHeartbeat heartbeats[2];
  Clock clock;
};

TEST(MonitorTest, FiguresOfAllShardsAreAdded) {
  TestShard first(3), second(4);
  const Admission admission{AdmissionLimits()};
  const ClientGets client_gets;
  // The second shard's clock is ahead, as after a failover.
  second.clock.AdvanceTo(first.clock.Now() + absl::Hours(1));
  for (TestShard* const shard : {&first, &second}) {
    for (PollerHeartbeat& heartbeat : shard->heartbeats) heartbeat.Turns(shard->clock.Now(), true);
  }
  Monitor monitor({{*first.tables, first.pollers, first.heartbeats, first.clock},
                   {*second.tables, second.pollers, second.heartbeats, second.clock}},
                  admission, client_gets, StatsInput(), nullptr, nullptr);
  const MonitorReading reading = monitor.Read();
  EXPECT_EQ(reading.stats.table.keys, 7u);
  EXPECT_EQ(reading.stats.table.region_bytes, 2u << 20);
  EXPECT_EQ(reading.stats.counters.puts, 400u);
  EXPECT_EQ(reading.stats.connections, 4u);
  ASSERT_EQ(reading.pollers.size(), 4u);
  for (const PollerMetricRows& poller : reading.pollers) {
    EXPECT_EQ(poller.connections, 1u);
    EXPECT_LT(poller.heartbeat.late, absl::Minutes(30)) << "by its own shard's clock";
  }
}

ClusterStats StatsOf(uint64_t primaries, uint64_t in_sync,
                     std::vector<ClusterStats::Member> members) {
  ClusterStats stats;
  stats.primaries = primaries;
  stats.in_sync = in_sync;
  stats.replicas = 3;
  stats.term = 4 + in_sync;
  stats.right_left = absl::Seconds(static_cast<int64_t>(in_sync));
  stats.groups = 10;
  stats.members = std::move(members);
  return stats;
}

TEST(ClusterStatsTest, ShardsAreAdded) {
  ClusterStats sum = StatsOf(1, 3,
                             {{.server = "a", .primaries = 1, .in_sync = 1, .is_self = true},
                              {.server = "c", .in_sync = 1}});
  ClusterStats other = StatsOf(
      0, 2,
      {{.server = "a", .in_sync = 1, .is_self = true},
       {.server = "b", .primaries = 1, .in_sync = 1, .is_needed = true, .is_linked = true}});
  other.moves = {{1, "a", "d"}};
  sum.Add(other);
  ASSERT_EQ(sum.moves.size(), 1u);
  EXPECT_EQ(sum.moves[0].to, "d");
  EXPECT_EQ(sum.shards, 2u);
  EXPECT_EQ(sum.primaries, 1u);
  EXPECT_EQ(sum.in_sync, 2u) << "the least";
  EXPECT_EQ(sum.term, 7u) << "the highest";
  EXPECT_EQ(sum.right_left, absl::Seconds(2));
  EXPECT_EQ(sum.groups, 20u);
  ASSERT_EQ(sum.members.size(), 3u);
  EXPECT_EQ(sum.members[0].server, "a");
  EXPECT_EQ(sum.members[0].primaries, 1u);
  EXPECT_EQ(sum.members[0].in_sync, 2u);
  EXPECT_TRUE(sum.members[0].is_self);
  EXPECT_EQ(sum.members[1].server, "b");
  EXPECT_TRUE(sum.members[1].is_needed);
  EXPECT_TRUE(sum.members[1].is_linked);
  EXPECT_FALSE(sum.members[2].is_needed);
  EXPECT_EQ(sum.members[2].server, "c");
}

}  // namespace
}  // namespace osprey::server
