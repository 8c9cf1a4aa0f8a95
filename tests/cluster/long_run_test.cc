// A cluster under load for hours: a random fault a minute, while a copy moves. No acknowledged write is lost, no answer
// is stale, and the memory and the descriptors of servers and clients do not grow.
//
// With --long for 4 hours, or OSPREY_LONG_RUN_MINUTES; else for a few faults, one right after the other.

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster_processes.h"
#include "tests/durability/durable_history.h"
#include "tests/durability/durable_load.h"
#include "tests/support/split_mix64.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

constexpr uint32_t kServers = 4, kShards = 4, kReplicas = 2;
constexpr int kFaultsShort = 4;
constexpr absl::Duration kFaultEvery = absl::Minutes(1);
constexpr absl::Duration kRight = absl::Seconds(3);  // of a server to serve
constexpr absl::Duration kHealedMax = absl::Minutes(2);

enum class Fault { kKill, kEnd, kStop, kStopShortly, kStopStore };
constexpr const char* kFaultNames[] = {"kill", "end", "stop", "short stop", "stop of the store"};

// Zero: the short form. Nothing: the variable is no number of minutes.
std::optional<absl::Duration> RunTime() {
  if (std::getenv("OSPREY_TEST_LONG") == nullptr) return absl::ZeroDuration();
  const char* const text = std::getenv("OSPREY_LONG_RUN_MINUTES");
  uint32_t minutes = 240;
  if (text != nullptr && (!absl::SimpleAtoi(text, &minutes) || minutes == 0)) return std::nullopt;
  return absl::Minutes(minutes);
}

// What processes hold once no client is left, without shared memory: the tables are there, and have their size.
struct Held {
  static Held Of(pid_t pid) { return {DescriptorsOf(pid), StatusNumber(pid, "RssAnon") >> 10}; }
  int64_t descriptors = 0;
  int64_t mib = 0;
};
using Helds = std::vector<Held>;  // after each round

int64_t Median(const Helds& held, size_t begin, size_t end, int64_t Held::*figure) {
  std::vector<int64_t> figures;
  for (size_t i = begin; i < end; ++i) figures.push_back(held[i].*figure);
  std::nth_element(figures.begin(), figures.begin() + figures.size() / 2, figures.end());
  return figures[figures.size() / 2];
}

// The last quarter beside the second one; the first may fill what is kept for later.
void ExpectFlat(const char* name, const Helds& held, int64_t Held::*figure, int64_t spare) {
  const size_t quarter = held.size() / 4;
  const int64_t early = Median(held, quarter, 2 * quarter, figure);
  const int64_t late = Median(held, 3 * quarter, held.size(), figure);
  EXPECT_LE(late, early + early / 20 + spare) << name;
  std::cout << name << ": " << early << ", later " << late << "\n";
}

class LongRunTest : public ::testing::Test {
 protected:
  size_t AnyServer() { return random_.Below(kServers); }

  // The copy of any shard goes to any server without one; at times, back to where there is room.
  void BeginMove() {
    if (moves_ > 0 && random_.Below(3) == 0) {
      cluster_.RunKvcli("rebalance", {"--yes"});
      return;
    }
    const uint32_t shard = static_cast<uint32_t>(random_.Below(kShards));
    const std::optional<ShardRecord> record = cluster_.Record(shard);
    ASSERT_TRUE(record.has_value() && !record->in_sync.empty()) << cluster_.WhyNot();
    std::string to;
    do to = absl::StrCat("s", AnyServer());
    while (record->Find(to) != nullptr);
    const std::string& from = record->in_sync[random_.Below(record->in_sync.size())].server;
    moves_ += cluster_.RunKvcli("move", {absl::StrCat(shard), from, to});
  }

  void StopFor(size_t server, absl::Duration time) {
    cluster_.Stop(server);
    absl::SleepFor(time);
    cluster_.Continue(server);
  }
  void Inject(Fault fault) {
    // (The first is a change of a primary.)
    const std::optional<size_t> primary = cluster_.Primary(random_.Below(kShards));
    const bool takes_primary = primary.has_value() && (changes_ == 0 || random_.Below(2) == 0);
    const size_t server = takes_primary ? *primary : AnyServer();
    switch (fault) {
      case Fault::kKill:
        cluster_.Kill(server);
        absl::SleepFor(absl::Milliseconds(random_.Below(1000)));
        return cluster_.Start(server);
      case Fault::kEnd:
        EXPECT_EQ(cluster_.Terminate(server), 0) << cluster_.Log(server);
        return cluster_.Start(server);
      case Fault::kStop:
        return StopFor(server, kRight + absl::Milliseconds(500 + random_.Below(3000)));
      case Fault::kStopShortly:
        return StopFor(server, absl::Milliseconds(200 + random_.Below(2500)));
      case Fault::kStopStore:
        cluster_.etcd().Stop(0);
        absl::SleepFor(absl::Milliseconds(500 + random_.Below(5000)));
        return cluster_.etcd().Continue(0);
    }
  }

  void AwaitHealed() {
    const absl::Time end = absl::Now() + kHealedMax;
    do {
      ASSERT_LT(absl::Now(), end) << "a move does not end\n" << cluster_.WhyNot();
      ASSERT_TRUE(cluster_.AwaitInSync(kReplicas, kHealedMax)) << cluster_.WhyNot();
    } while (cluster_.HasMoves());
    for (const std::string& crash : cluster_.Crashed()) FAIL() << crash;
  }

  // Load, in which a copy begins to move, a fault happens, and both end.
  void Round(Fault fault, absl::Time until) {
    SCOPED_TRACE(absl::StrCat("round ", round_, ": ", kFaultNames[static_cast<int>(fault)]));
    const DurableLoadOptions options{
        .seed = seed_ + round_++, .value_bytes_max = 100'000, .in_cluster = true};
    DurableLoad load(cluster_.uri(), options);
    const std::vector<uint64_t> before = cluster_.Terms();
    const int64_t began_ns = SteadyNs();
    ASSERT_NO_FATAL_FAILURE(BeginMove());
    ASSERT_NO_FATAL_FAILURE(Inject(fault));
    ASSERT_NO_FATAL_FAILURE(AwaitHealed());
    while (absl::Now() < until) absl::SleepFor(absl::Milliseconds(100));
    load.End();
    const uint64_t most = cluster_.ChangesSince(before);
    changes_ += most;
    for (const std::string& error : load.TakeErrors()) ADD_FAILURE() << error;
    const DurableVerdict verdict = JudgeDurable(
        load.TakeHistories(), {{began_ns, began_ns, SteadyNs(), static_cast<int>(most), false}});
    EXPECT_EQ(verdict.wrong, "") << cluster_.WhyNot();
    EXPECT_EQ(verdict.undecided, 0u);
    EXPECT_EQ(verdict.unknown, 0u);
    EXPECT_GE(verdict.operations, 100u);  // void otherwise
    operations_ += verdict.operations;
  }

  // The next load begins with nothing.
  void Empty() {
    auto client = Client::Connect(cluster_.uri(), {});
    ASSERT_TRUE(client.ok()) << client.status();
    ASSERT_TRUE((*client)->Flush().ok());
  }

  // (Connections are closed in the background, at both ends.)
  void AwaitDescriptors(int most) {
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (DescriptorsOf(getpid()) > most && absl::Now() < end)
      absl::SleepFor(absl::Milliseconds(5));
    EXPECT_LE(DescriptorsOf(getpid()), most) << "clients that have ended";
    absl::SleepFor(absl::Milliseconds(300));
  }

  void Measure() {
    Held most;
    for (size_t i = 0; i < kServers; ++i) {
      const Held held = Held::Of(cluster_.pid(i));
      most.descriptors = std::max(most.descriptors, held.descriptors);
      most.mib = std::max(most.mib, held.mib);
    }
    servers_.push_back(most);
    clients_.push_back(Held::Of(getpid()));
    std::cout << "after round " << round_ << ": operations " << operations_ << ", moves " << moves_
              << ", changes of primaries " << changes_ << "; a server holds at most "
              << most.descriptors << " descriptors and " << most.mib << " MiB, the clients "
              << clients_.back().descriptors << " and " << clients_.back().mib << std::endl;
  }

  const uint64_t seed_ = std::random_device()();
  SplitMix64 random_{seed_};
  ClusterProcesses cluster_{{.servers = kServers,
                             .replicas = kReplicas,
                             .min_in_sync = 1,
                             .shards = kShards,
                             .shard_bytes = 64 << 20,
                             .memory = "256MiB",
                             .flags = {}}};
  uint64_t round_ = 0, operations_ = 0, changes_ = 0, moves_ = 0;
  Helds servers_;  // of each round the most that one holds
  Helds clients_;  // this process
};

TEST_F(LongRunTest, NothingIsLostOrStaleOrGrows) {
  SCOPED_TRACE(absl::StrCat("seed ", seed_));
  const std::optional<absl::Duration> time = RunTime();
  ASSERT_TRUE(time.has_value()) << "OSPREY_LONG_RUN_MINUTES is no number of minutes, from 1 on";
  const bool is_long = *time > absl::ZeroDuration();
  const absl::Time began = absl::Now();
  ASSERT_NO_FATAL_FAILURE(AwaitHealed());
  const int descriptors = DescriptorsOf(getpid());
  for (int i = 0; is_long ? absl::Now() < began + *time : i < kFaultsShort; ++i) {
    const absl::Time until = is_long ? began + kFaultEvery * (i + 1) : absl::InfinitePast();
    const auto fault =
        i == 0 ? Fault::kKill : static_cast<Fault>(random_.Below(std::size(kFaultNames)));
    ASSERT_NO_FATAL_FAILURE(Round(fault, until));
    ASSERT_NO_FATAL_FAILURE(Empty());
    ASSERT_NO_FATAL_FAILURE(AwaitDescriptors(descriptors));
    Measure();
  }
  const size_t rounds = servers_.size();
  EXPECT_GE(moves_, rounds / 4) << "void: hardly a copy was moved";
  EXPECT_GE(changes_, rounds / 4) << "void: hardly a primary changed";
  if (rounds < 8) return;
  ExpectFlat("descriptors of a server", servers_, &Held::descriptors, 2);
  ExpectFlat("MiB of a server", servers_, &Held::mib, 4);
  ExpectFlat("MiB of the clients", clients_, &Held::mib, 16);
}

}  // namespace
}  // namespace osprey
