// Clients use a cluster in every way while its servers are killed, stopped, ended and restarted, and its
// store is stopped. No acknowledged write is lost, none is made twice, and no answer is stale.
//
// The next fault comes when all are in sync again.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
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
#include "tests/support/volume.h"

namespace osprey {
namespace {

constexpr absl::Duration kInSyncMax = absl::Minutes(2);
constexpr absl::Duration kAnswerMax = absl::Minutes(2);
// A server's right to serve lasts for 3 s.
constexpr absl::Duration kRight = absl::Seconds(3);

bool IsLong() { return std::getenv("OSPREY_TEST_LONG") != nullptr; }

enum class Fault {
  kKillPrimary,
  kEndBackup,    // SIGTERM
  kStopPrimary,  // for longer than its right; later it is the primary again
  kStopPrimaryShortly,
  kStopBackup,
  kStopStore,
  kStopStoreShortly,
};

const char* NameOf(Fault fault) {
  switch (fault) {
    case Fault::kKillPrimary:
      return "primary killed";
    case Fault::kEndBackup:
      return "backup ended";
    case Fault::kStopPrimary:
      return "primary stopped, and a primary again";
    case Fault::kStopPrimaryShortly:
      return "primary stopped shortly";
    case Fault::kStopBackup:
      return "backup stopped";
    case Fault::kStopStore:
      return "store stopped";
    case Fault::kStopStoreShortly:
      return "store stopped shortly";
  }
  return "?";
}

class ClusterFaultsTest : public ::testing::Test {
 protected:
  // Each fault once, in any order; of a long test, many.
  std::vector<Fault> NewFaults() {
    std::vector<Fault> faults;
    for (int i = 0; i <= static_cast<int>(Fault::kStopStoreShortly); ++i)
      faults.push_back(static_cast<Fault>(i));
    if (IsLong()) {
      const size_t kinds = faults.size();
      while (faults.size() < 20 * kinds) faults.push_back(faults[faults.size() % kinds]);
    }
    for (size_t i = faults.size(); i-- > 1;) std::swap(faults[i], faults[random_.Below(i + 1)]);
    return faults;
  }

  size_t AnyBackup(size_t primary) {
    return (primary + 1 + random_.Below(cluster_.servers() - 1)) % cluster_.servers();
  }

  absl::Duration AnyTime(absl::Duration least, absl::Duration most) {
    return least + absl::Microseconds(random_.Below(absl::ToInt64Microseconds(most - least)));
  }

  void Inject(Fault fault) {
    const std::optional<size_t> primary = cluster_.Primary();
    ASSERT_TRUE(primary.has_value()) << cluster_.WhyNot();
    switch (fault) {
      case Fault::kKillPrimary:
        return Kill(*primary);
      case Fault::kEndBackup:
        return End(AnyBackup(*primary));
      case Fault::kStopPrimary:
        ASSERT_NO_FATAL_FAILURE(StopUntilReplaced(*primary));
        return Promote(*primary);
      case Fault::kStopPrimaryShortly:
        return Stop(*primary, AnyTime(absl::Milliseconds(500), kRight));
      case Fault::kStopBackup:
        return Stop(AnyBackup(*primary), AnyTime(absl::Milliseconds(500), 2 * kRight));
      case Fault::kStopStore:
        return StopStore(AnyTime(kRight + absl::Seconds(1), 2 * kRight));
      case Fault::kStopStoreShortly:
        return StopStore(AnyTime(absl::Milliseconds(500), kRight / 2));
    }
  }

  void Kill(size_t server) {
    cluster_.Kill(server);
    absl::SleepFor(AnyTime(absl::ZeroDuration(), absl::Seconds(1)));
    cluster_.Start(server);
  }

  void End(size_t server) {
    EXPECT_EQ(cluster_.Terminate(server), 0) << cluster_.Log(server);
    absl::SleepFor(AnyTime(absl::ZeroDuration(), absl::Milliseconds(300)));
    cluster_.Start(server);
  }

  void Stop(size_t server, absl::Duration time) {
    cluster_.Stop(server);
    absl::SleepFor(time);
    cluster_.Continue(server);
  }

  // (Where the machine stands still meanwhile, others wait longer.)
  void StopUntilReplaced(size_t server) {
    cluster_.Stop(server);
    absl::SleepFor(AnyTime(kRight + absl::Seconds(1), 2 * kRight));
    EXPECT_TRUE(cluster_.AwaitOtherPrimary(server, kInSyncMax).has_value()) << cluster_.WhyNot();
    cluster_.Continue(server);
  }

  // One of the others is killed, and the last hands over to this server.
  void Promote(size_t server) {
    ASSERT_TRUE(cluster_.AwaitInSync(cluster_.servers(), kInSyncMax)) << cluster_.WhyNot();
    const std::optional<size_t> primary = cluster_.Primary();
    ASSERT_TRUE(primary.has_value() && *primary != server) << cluster_.WhyNot();
    const size_t third = 3 - server - *primary;
    cluster_.Kill(third);
    ASSERT_TRUE(cluster_.AwaitInSync(2, kInSyncMax)) << cluster_.WhyNot();
    EXPECT_EQ(cluster_.Terminate(*primary), 0) << cluster_.Log(*primary);
    EXPECT_EQ(cluster_.Primary(), server) << cluster_.WhyNot();
    cluster_.Start(*primary);
    cluster_.Start(third);
  }

  void StopStore(absl::Duration time) {
    cluster_.etcd().Stop(0);
    absl::SleepFor(time);
    cluster_.etcd().Continue(0);
  }

  void AwaitAnswer(const DurableLoad& load) {
    const uint64_t done = load.done();
    for (const absl::Time end = absl::Now() + kAnswerMax; load.done() == done;
         absl::SleepFor(absl::Milliseconds(1)))
      ASSERT_LT(absl::Now(), end) << "nothing is answered\n" << cluster_.WhyNot();
  }

  // A fault, and its end.
  void Round(Fault fault, const DurableLoad& load) {
    SCOPED_TRACE(NameOf(fault));
    const std::optional<ShardRecord> before = cluster_.Record();
    const int64_t began_ns = SteadyNs();
    ASSERT_NO_FATAL_FAILURE(Inject(fault));
    ASSERT_TRUE(cluster_.AwaitInSync(cluster_.servers(), kInSyncMax)) << cluster_.WhyNot();
    ASSERT_NO_FATAL_FAILURE(AwaitAnswer(load));
    for (const std::string& crash : cluster_.Crashed()) FAIL() << crash;
    const std::optional<ShardRecord> after = cluster_.Record();
    ASSERT_TRUE(before.has_value() && after.has_value());
    const int failovers = static_cast<int>(after->term - before->term);
    failovers_ += failovers;
    if (failovers > 0) restarts_.push_back({began_ns, began_ns, SteadyNs(), failovers, false});
    ++faults_[NameOf(fault)];
  }

  const uint64_t seed_ = std::random_device()();
  SplitMix64 random_{seed_};
  ClusterProcesses cluster_{{.flags = {"--pollers=2"}}};
  std::map<std::string, int> faults_;
  int failovers_ = 0;
  std::vector<Restart> restarts_;  // the faults with failovers
};

TEST_F(ClusterFaultsTest, NothingIsLostOrStale) {
  SCOPED_TRACE(absl::StrCat("seed ", seed_));
  const DurableLoadOptions options{.seed = seed_, .value_bytes_max = 4 << 20, .in_cluster = true};
  DurableLoad load(cluster_.uri(), options);
  ASSERT_NO_FATAL_FAILURE(AwaitAnswer(load));
  const std::vector<Fault> faults = NewFaults();
  for (const Fault fault : faults) ASSERT_NO_FATAL_FAILURE(Round(fault, load));
  load.End();

  for (const std::string& error : load.TakeErrors()) ADD_FAILURE() << error;
  // A new primary's clock goes on from a mark that is ahead. So keys that outlive a failover may end earlier.
  const DurableVerdict verdict = JudgeDurable(load.TakeHistories(), restarts_);
  EXPECT_EQ(verdict.wrong, "");
  EXPECT_EQ(verdict.undecided, 0u);
  // Each write is made once, and its client learns that: its session outlives any server.
  EXPECT_EQ(verdict.unknown, 0u);
  const Counters counters = load.counters();
  std::cout << "operations " << verdict.operations << ", unknown " << verdict.unknown
            << ", unapplied " << verdict.unapplied << ", failovers " << failovers_
            << ", longest time without an answered write " << load.longest_pause() << "\nREADs "
            << counters.reads << ", GETs by message " << counters.rpc_gets << ", without a lease "
            << counters.unleased_gets << ", leases " << counters.leases << ", READs refused "
            << counters.uncovered_reads << ", connections " << counters.connects << "\n";
  for (const auto& [name, count] : faults_) std::cout << "  " << name << ": " << count << "\n";
  // Void otherwise. A primary that is killed or stopped has a successor.
  EXPECT_GE(verdict.operations, 500 * faults.size());
  EXPECT_LE(verdict.unapplied, verdict.operations / 10);
  EXPECT_GE(failovers_, static_cast<int>(faults.size() / 3));
  EXPECT_GE(counters.reads, 100 * faults.size());
  EXPECT_GE(counters.uncovered_reads, 1u);
}

}  // namespace
}  // namespace osprey
