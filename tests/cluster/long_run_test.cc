// A cluster under load for hours: a random fault a minute, while a copy moves. No acknowledged write is lost, no answer
// is stale, and the memory and the descriptors of servers and clients do not grow.
//
// With --long for 4 hours, or OSPREY_LONG_RUN_MINUTES; else for a few faults, one right after the other.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
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

namespace osprey {
namespace {

constexpr uint32_t kServers = 4, kShards = 4, kReplicas = 2;
constexpr int kFaultsShort = 4;
constexpr absl::Duration kFaultEvery = absl::Minutes(1);
constexpr absl::Duration kRight = absl::Seconds(3);  // of a server to serve
constexpr absl::Duration kHealedMax = absl::Minutes(2);

enum class Fault { kKill, kEnd, kStop, kStopShortly, kStopStore };
constexpr const char* kFaultNames[] = {"kill", "end", "stop", "short stop", "stop of the store"};

// Zero: the short form.
absl::Duration RunTime() {
  if (std::getenv("OSPREY_TEST_LONG") == nullptr) return absl::ZeroDuration();
  const char* const text = std::getenv("OSPREY_LONG_RUN_MINUTES");
  int minutes = 240;
  if (text != nullptr && !absl::SimpleAtoi(text, &minutes)) minutes = 0;
  return absl::Minutes(minutes);
}

size_t DescriptorsOf(const std::string& process) {
  const std::filesystem::directory_iterator all("/proc/" + process + "/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// Without what is shared: the tables are, and are as large as they are to be.
uint64_t OwnMib(const std::string& process) {
  std::ifstream status("/proc/" + process + "/status");
  std::string word;
  uint64_t kib = 0;
  while (status >> word) {
    if (word == "RssAnon:" && status >> kib) return kib >> 10;
  }
  return 0;
}

// Once no client is left. Of servers the most that one holds.
struct Held {
  size_t descriptors = 0;
  uint64_t mib = 0;
  size_t own_descriptors = 0;  // of the clients' process
  uint64_t own_mib = 0;
};

uint64_t Median(const std::vector<Held>& held, size_t begin, size_t end,
                uint64_t (*figure)(const Held&)) {
  std::vector<uint64_t> figures;
  for (size_t i = begin; i < end; ++i) figures.push_back(figure(held[i]));
  std::nth_element(figures.begin(), figures.begin() + figures.size() / 2, figures.end());
  return figures[figures.size() / 2];
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
    const std::vector<uint64_t> after = cluster_.Terms();
    uint64_t most = 0;  // a key is of one shard
    for (uint32_t shard = 0; shard < kShards; ++shard)
      most = std::max(most, after[shard] - before[shard]);
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
  void AwaitDescriptors(size_t most) {
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (DescriptorsOf("self") > most && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
    EXPECT_LE(DescriptorsOf("self"), most) << "clients that have ended";
    absl::SleepFor(absl::Milliseconds(300));
  }

  void Measure() {
    Held held{.own_descriptors = DescriptorsOf("self"), .own_mib = OwnMib("self")};
    for (size_t i = 0; i < kServers; ++i) {
      const std::string process = absl::StrCat(cluster_.pid(i));
      held.descriptors = std::max(held.descriptors, DescriptorsOf(process));
      held.mib = std::max(held.mib, OwnMib(process));
    }
    std::cout << "after round " << round_ << ": operations " << operations_ << ", moves " << moves_
              << ", changes of primaries " << changes_ << "; a server holds at most "
              << held.descriptors << " descriptors and " << held.mib << " MiB, the clients "
              << held.own_descriptors << " and " << held.own_mib << std::endl;
    held_.push_back(held);
  }

  // The last quarter beside the second one; the first may fill what is kept for later.
  void ExpectFlat(const char* name, uint64_t spare, uint64_t (*figure)(const Held&)) {
    const size_t quarter = held_.size() / 4;
    const uint64_t early = Median(held_, quarter, 2 * quarter, figure);
    const uint64_t late = Median(held_, 3 * quarter, held_.size(), figure);
    EXPECT_LE(late, early + early / 20 + spare) << name;
    std::cout << name << ": " << early << ", later " << late << "\n";
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
  std::vector<Held> held_;
};

TEST_F(LongRunTest, NothingIsLostOrStaleOrGrows) {
  SCOPED_TRACE(absl::StrCat("seed ", seed_));
  const absl::Duration time = RunTime();
  const absl::Time began = absl::Now();
  ASSERT_NO_FATAL_FAILURE(AwaitHealed());
  const size_t descriptors = DescriptorsOf("self");
  for (int i = 0; time > absl::ZeroDuration() ? absl::Now() < began + time : i < kFaultsShort;
       ++i) {
    const absl::Time until =
        time > absl::ZeroDuration() ? began + kFaultEvery * (i + 1) : absl::InfinitePast();
    const auto fault =
        i == 0 ? Fault::kKill : static_cast<Fault>(random_.Below(std::size(kFaultNames)));
    ASSERT_NO_FATAL_FAILURE(Round(fault, until));
    ASSERT_NO_FATAL_FAILURE(Empty());
    ASSERT_NO_FATAL_FAILURE(AwaitDescriptors(descriptors));
    Measure();
  }
  EXPECT_GE(moves_, held_.size() / 4) << "void: hardly a copy was moved";
  EXPECT_GE(changes_, held_.size() / 4) << "void: hardly a primary changed";
  if (time < absl::Minutes(8)) return;
  ExpectFlat("descriptors of a server", 2, [](const Held& h) -> uint64_t { return h.descriptors; });
  ExpectFlat("MiB of a server", 4, [](const Held& h) { return h.mib; });
  ExpectFlat("MiB of the clients", 16, [](const Held& h) { return h.own_mib; });
}

}  // namespace
}  // namespace osprey
