// Clients use a cluster with several shards in every way while its servers are killed, stopped, ended and restarted.
// No acknowledged write is lost, none is made twice, and no answer is stale. Each server serves its part again
// afterwards.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
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
const absl::Duration kInSyncMax = absl::Minutes(InLab() ? 5 : 2);
// A server's right to serve lasts for 3 s.
constexpr absl::Duration kRight = absl::Seconds(3);

bool IsLong() { return std::getenv("OSPREY_TEST_LONG") != nullptr; }

enum class Fault { kKill, kEnd, kStop };

class ShardsTest : public ::testing::Test {
 protected:
  // `in_lab`: it runs over verbs, too, and not only with --long.
  explicit ShardsTest(ClusterProcessesOptions options = {.shards = kShards, .flags = {}},
                      bool in_lab = true)
      : options_(std::move(options)), in_lab_(in_lab) {}
  void SetUp() override {
    if (InLab() && !in_lab_ && !IsLong()) GTEST_SKIP() << "over verbs with --long";
    cluster_ = std::make_unique<ClusterProcesses>(options_);
  }

  // A client's load while these faults happen, of which each has so many changes of primaries.
  void Run(std::vector<Fault> faults, uint64_t failovers_least);

  void Inject(Fault fault, size_t server) {
    switch (fault) {
      case Fault::kKill:
        cluster_->Kill(server);
        absl::SleepFor(absl::Milliseconds(300));
        return cluster_->Start(server);
      case Fault::kEnd:
        EXPECT_EQ(cluster_->Terminate(server), 0) << cluster_->Log(server);
        return cluster_->Start(server);
      case Fault::kStop:
        cluster_->Stop(server);
        absl::SleepFor(kRight + absl::Seconds(1));
        return cluster_->Continue(server);
    }
  }

  // A fault, and its end.
  void Round(Fault fault, size_t server) {
    SCOPED_TRACE(absl::StrCat("fault ", static_cast<int>(fault), " at server ", server));
    const std::vector<uint64_t> before = cluster_->Terms();
    const int64_t began_ns = SteadyNs();
    ASSERT_NO_FATAL_FAILURE(Inject(fault, server));
    ASSERT_TRUE(cluster_->AwaitInSync(cluster_->replicas(), kInSyncMax)) << cluster_->WhyNot();
    ASSERT_TRUE(cluster_->AwaitBalance(kInSyncMax)) << cluster_->WhyNot();
    for (const std::string& crash : cluster_->Crashed()) FAIL() << crash;
    const std::vector<uint64_t> after = cluster_->Terms();
    // A key is of one shard: so many changes of its primary, at most.
    uint64_t most = 0;
    for (uint32_t shard = 0; shard < cluster_->shards(); ++shard) {
      most = std::max(most, after[shard] - before[shard]);
      failovers_ += after[shard] - before[shard];
    }
    restarts_.push_back({began_ns, began_ns, SteadyNs(), static_cast<int>(most), false});
    std::cout << "server " << server << " is back" << std::endl;  // the suite ends what is silent
  }

  const ClusterProcessesOptions options_;
  const bool in_lab_;
  const uint64_t seed_ = std::random_device()();
  SplitMix64 random_{seed_};
  std::unique_ptr<ClusterProcesses> cluster_;
  uint64_t failovers_ = 0;
  std::vector<Restart> restarts_;
};

void ShardsTest::Run(std::vector<Fault> faults, uint64_t failovers_least) {
  SCOPED_TRACE(absl::StrCat("seed ", seed_));
  ASSERT_TRUE(cluster_->AwaitBalance(kInSyncMax)) << cluster_->WhyNot();
  const DurableLoadOptions options{.seed = seed_, .value_bytes_max = 100'000, .in_cluster = true};
  DurableLoad load(cluster_->uri(), options);
  if (InLab() && !IsLong()) faults.resize(1);
  for (const Fault fault : faults)
    ASSERT_NO_FATAL_FAILURE(Round(fault, random_.Below(cluster_->servers())));
  const uint64_t operations_least = 300 * faults.size();
  // Slow machines take longer than the faults do.
  for (const absl::Time end = absl::Now() + kInSyncMax;
       load.done() < operations_least && absl::Now() < end;)
    absl::SleepFor(absl::Milliseconds(100));
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
  EXPECT_GE(verdict.operations, operations_least);
  EXPECT_GE(failovers_, failovers_least * faults.size());
  EXPECT_GE(counters.reads, 100 * faults.size());
}

TEST_F(ShardsTest, NothingIsLostOrStale) { Run({Fault::kKill, Fault::kStop, Fault::kEnd}, 2); }

// As many servers as shards, each of which has two copies.
class PartsTest : public ShardsTest {
 protected:
  // Memory for just these copies: a server that returns takes those that it had.
  PartsTest() : PartsTest(kShards, 64, "128MiB", /*in_lab=*/false) {}  // DrainTest has such servers
  PartsTest(uint32_t shards, uint64_t shard_mib, const std::string& memory, bool in_lab,
            std::vector<std::string> flags = {})
      : ShardsTest({.servers = shards,
                    .replicas = 2,
                    .min_in_sync = 1,
                    .shards = shards,
                    .shard_bytes = shard_mib << 20,
                    .memory = memory,
                    .flags = std::move(flags)},
                   in_lab) {}
};

TEST_F(PartsTest, NothingIsLostOrStale) {
  EXPECT_EQ(cluster_->Copies(), std::vector<size_t>(cluster_->servers(), 2));
  Run({Fault::kEnd, Fault::kKill, Fault::kStop}, 1);  // a server is the primary of one
  EXPECT_EQ(cluster_->Copies(), std::vector<size_t>(cluster_->servers(), 2)) << cluster_->WhyNot();
}

// What an operator does with kvcli.
class MovesTest : public PartsTest {
 protected:
  using PartsTest::PartsTest;

  // Begins moves by `command` until the copies are as they are to be. A plan has the copies in sync alone:
  // one that was missing at that moment may have come back.
  void MoveUntil(const std::string& command, std::vector<std::string> args,
                 const std::function<bool(const std::vector<size_t>&)>& is_right) {
    args.push_back("--yes");
    for (const absl::Time end = absl::Now() + kInSyncMax; absl::Now() < end;
         absl::SleepFor(absl::Milliseconds(200))) {
      if (cluster_->HasMoves()) continue;
      const std::vector<size_t> copies = cluster_->Copies();
      const size_t all = std::accumulate(copies.begin(), copies.end(), size_t{0});
      if (all < cluster_->replicas() * cluster_->shards()) continue;
      if (is_right(copies)) return;
      (void)cluster_->RunKvcli(command, args);
    }
    FAIL() << "copies are not where they are to be:\n" << cluster_->WhyNot();
  }
  // Servers get nothing by themselves while no copy is missing, not even those that have begun late.
  void SpreadCopies() {
    const std::vector<size_t> even(cluster_->servers(), 2);
    MoveUntil("rebalance", {}, [&](const std::vector<size_t>& copies) { return copies == even; });
  }
};

// An operator takes a server out, and brings it back.
class DrainTest : public MovesTest {
 protected:
  DrainTest() : MovesTest(kShards, 64, "256MiB", /*in_lab=*/true) {}
};

TEST_F(DrainTest, AServerIsDrainedAndFilledUnderLoad) {
  SCOPED_TRACE(absl::StrCat("seed ", seed_));
  ASSERT_NO_FATAL_FAILURE(SpreadCopies());
  ASSERT_TRUE(cluster_->AwaitBalance(kInSyncMax)) << cluster_->WhyNot();
  const std::optional<size_t> primary = cluster_->Primary();
  ASSERT_TRUE(primary.has_value());
  const size_t server = *primary;
  // The clients know no other server, and have to learn of those where its shards go.
  const DurableLoadOptions options{.seed = seed_, .value_bytes_max = 100'000, .in_cluster = true};
  DurableLoad load(cluster_->uri(server), options);
  const absl::Time begin_max = absl::Now() + kInSyncMax;
  while (load.done() < 50 && absl::Now() < begin_max) absl::SleepFor(absl::Milliseconds(10));
  ASSERT_GE(load.done(), 50u);
  const std::vector<uint64_t> before = cluster_->Terms();
  const int64_t began_ns = SteadyNs();

  ASSERT_NO_FATAL_FAILURE(
      MoveUntil("drain", {absl::StrCat("s", server)},
                [&](const std::vector<size_t>& copies) { return copies[server] == 0; }));
  ASSERT_EQ(cluster_->Terminate(server), 0);
  ASSERT_TRUE(cluster_->AwaitInSync(cluster_->replicas(), kInSyncMax)) << "no copy is missing";
  cluster_->Start(server);
  ASSERT_NO_FATAL_FAILURE(SpreadCopies());
  load.End();

  for (const std::string& crash : cluster_->Crashed()) ADD_FAILURE() << crash;
  const uint64_t most = cluster_->ChangesSince(before);
  restarts_.push_back({began_ns, began_ns, SteadyNs(), static_cast<int>(most), false});
  // Not one operation has failed.
  for (const std::string& error : load.TakeErrors()) ADD_FAILURE() << error;
  const DurableVerdict verdict = JudgeDurable(load.TakeHistories(), restarts_);
  EXPECT_EQ(verdict.wrong, "");
  EXPECT_EQ(verdict.undecided + verdict.unknown, 0u);
  EXPECT_GE(verdict.operations, 300u);
  std::cout << "operations " << verdict.operations << ", changes of one shard's primary " << most
            << "\n";
}

class SixteenServersTest : public MovesTest {
 protected:
  // Two CPUs have no time to spin.
  SixteenServersTest() : MovesTest(16, 16, "64MiB", /*in_lab=*/false, {"--poll=event"}) {}
};

TEST_F(SixteenServersTest, NothingIsLostOrStale) {
  ASSERT_NO_FATAL_FAILURE(SpreadCopies());
  Run({Fault::kKill, Fault::kStop, Fault::kEnd}, 1);
}

}  // namespace
}  // namespace osprey
