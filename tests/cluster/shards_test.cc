// Clients use a cluster with several shards in every way while its servers are killed, stopped, ended and restarted.
// No acknowledged write is lost, none is made twice, and no answer is stale. Each server serves its part again
// afterwards.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster_processes.h"
#include "tests/durability/durable_history.h"
#include "tests/durability/durable_load.h"
#include "tests/support/split_mix64.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

constexpr uint32_t kShards = 4;
constexpr absl::Duration kInSyncMax = absl::Minutes(2);
// A server's right to serve lasts for 3 s.
constexpr absl::Duration kRight = absl::Seconds(3);

bool IsLong() { return std::getenv("OSPREY_TEST_LONG") != nullptr; }

enum class Fault { kKill, kEnd, kStop };

class ShardsTest : public ::testing::Test {
 protected:
  void Inject(Fault fault, size_t server) {
    switch (fault) {
      case Fault::kKill:
        cluster_.Kill(server);
        absl::SleepFor(absl::Milliseconds(300));
        return cluster_.Start(server);
      case Fault::kEnd:
        EXPECT_EQ(cluster_.Terminate(server), 0) << cluster_.Log(server);
        return cluster_.Start(server);
      case Fault::kStop:
        cluster_.Stop(server);
        absl::SleepFor(kRight + absl::Seconds(1));
        return cluster_.Continue(server);
    }
  }

  std::vector<uint64_t> Terms() {
    std::vector<uint64_t> terms;
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      const std::optional<ShardRecord> record = cluster_.Record(shard);
      terms.push_back(record.has_value() ? record->term : 0);
    }
    return terms;
  }

  // A fault, and its end.
  void Round(Fault fault, size_t server) {
    SCOPED_TRACE(absl::StrCat("fault ", static_cast<int>(fault), " at server ", server));
    const std::vector<uint64_t> before = Terms();
    const int64_t began_ns = SteadyNs();
    ASSERT_NO_FATAL_FAILURE(Inject(fault, server));
    ASSERT_TRUE(cluster_.AwaitInSync(cluster_.servers(), kInSyncMax)) << cluster_.WhyNot();
    ASSERT_TRUE(cluster_.AwaitBalance(kInSyncMax)) << cluster_.WhyNot();
    for (const std::string& crash : cluster_.Crashed()) FAIL() << crash;
    const std::vector<uint64_t> after = Terms();
    // A key is of one shard: so many changes of its primary, at most.
    uint64_t most = 0;
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      most = std::max(most, after[shard] - before[shard]);
      failovers_ += after[shard] - before[shard];
    }
    restarts_.push_back({began_ns, began_ns, SteadyNs(), static_cast<int>(most), false});
  }

  const uint64_t seed_ = std::random_device()();
  SplitMix64 random_{seed_};
  ClusterProcesses cluster_{{.shards = kShards, .flags = {}}};
  uint64_t failovers_ = 0;
  std::vector<Restart> restarts_;
};

TEST_F(ShardsTest, NothingIsLostOrStale) {
  SCOPED_TRACE(absl::StrCat("seed ", seed_));
  ASSERT_TRUE(cluster_.AwaitBalance(kInSyncMax)) << cluster_.WhyNot();
  const DurableLoadOptions options{.seed = seed_, .value_bytes_max = 100'000, .in_cluster = true};
  DurableLoad load(cluster_.uri(), options);
  std::vector<Fault> faults = {Fault::kKill, Fault::kStop, Fault::kEnd};
  if (InLab() && !IsLong()) faults.resize(1);
  for (const Fault fault : faults)
    ASSERT_NO_FATAL_FAILURE(Round(fault, random_.Below(cluster_.servers())));
  load.End();

  for (const std::string& error : load.TakeErrors()) ADD_FAILURE() << error;
  const DurableVerdict verdict = JudgeDurable(load.TakeHistories(), restarts_);
  EXPECT_EQ(verdict.wrong, "");
  EXPECT_EQ(verdict.undecided, 0u);
  EXPECT_EQ(verdict.unknown, 0u);
  const Counters counters = load.counters();
  std::cout << "operations " << verdict.operations << ", unapplied " << verdict.unapplied
            << ", changes of primaries " << failovers_ << ", READs " << counters.reads
            << ", GETs by message " << counters.rpc_gets << ", READs refused "
            << counters.uncovered_reads << ", connections " << counters.connects << "\n";
  // Void otherwise. Each fault takes its shards from a server, which gets some back.
  EXPECT_GE(verdict.operations, 300 * faults.size());
  EXPECT_GE(failovers_, 2 * faults.size());
  EXPECT_GE(counters.reads, 100 * faults.size());
}

}  // namespace
}  // namespace osprey
