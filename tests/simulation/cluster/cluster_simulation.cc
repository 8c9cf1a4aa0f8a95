#include "tests/simulation/cluster/cluster_simulation.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/cluster/cluster_clients.h"
#include "tests/simulation/cluster/cluster_faults.h"
#include "tests/simulation/cluster/cluster_world.h"
#include "tests/simulation/cluster/simulated_server.h"
#include "tests/simulation/cluster/simulated_store.h"

namespace osprey {
namespace {

// After the last fault. (A server that ended is waited for, and copies go one after the other.)
constexpr int64_t kWholeMax = 90 * kSecond;
// … and all operations have ended.
constexpr int64_t kEqualMax = 20 * kSecond;
// Of each client that begins when all is whole again.
constexpr int kOperationsAfterwards = 8;

class Run {
 public:
  explicit Run(ClusterWorld& world) : world_(world), faults_(world, store_, servers_, clients_) {}

  void All() {
    Begin();
    if (world_.options.has_faults) {
      faults_.Run();
    } else {
      store_.is_calm = true;
    }
    for (const auto& client : clients_) client->Join();
    AwaitWhole();
    if (world_.report.wrong.empty()) Afterwards();
    if (world_.report.wrong.empty()) AwaitEqual();
    End();
    world_.report.virtual_ms += static_cast<uint64_t>(world_.now() / kMillisecond);
    if (world_.report.wrong.empty()) world_.Wrong(Judge(histories_, world_.report));
  }

 private:
  void Begin() {
    for (uint32_t i = 0; i < world_.plan.servers; ++i) {
      servers_.push_back(std::make_unique<SimulatedServer>(world_, store_, i));
      servers_.back()->Start();
    }
    // A list has the scheme once.
    for (const auto& server : servers_) {
      if (world_.plan.has_one_address && !addresses_.empty()) break;
      absl::StrAppend(&addresses_, addresses_.empty() ? "shm://" : ",", "/", server->id());
    }
    if (!world_.options.has_faults) AwaitWhole();  // until then writes are refused
    BeginClients(world_.options.operations / world_.plan.clients, !world_.options.has_faults);
  }

  void BeginClients(int operations, bool is_calm) {
    for (int i = 0; i < world_.plan.clients; ++i) {
      clients_.push_back(std::make_unique<SimulatedClusterClient>(
          world_, static_cast<int>(clients_.size()), addresses_, operations, is_calm, histories_));
      clients_.back()->Start();
    }
  }

  // Nothing is left of the faults for which an operation waits until its deadline.
  void Afterwards() {
    const size_t begun = clients_.size();
    BeginClients(kOperationsAfterwards, /*is_calm=*/true);
    for (size_t i = begun; i < clients_.size(); ++i) clients_[i]->Join();
  }

  void End() {
    for (const auto& server : servers_) {
      if (server->runs()) server->Stop();
    }
    const int64_t end = world_.now() + SimulatedServer::kEndMax;
    for (const auto& server : servers_) {
      while (server->runs() && world_.now() < end) world_.Sleep(20 * kMillisecond);
      if (!server->runs()) continue;
      world_.Wrong(absl::StrCat("server ", server->id(), " does not end with the others"));
      server->Kill(true);
    }
    for (const auto& server : servers_) {
      server->Join();
      world_.report.promotions += server->promotions();
    }
    for (const VirtualThreads::Id late : store_.late) world_.threads.Join(late);
    if (world_.network.connections() != 0 && world_.report.wrong.empty())
      world_.Wrong(absl::StrCat(world_.network.connections(), " ends of connections are left"));
  }

  void AwaitWhole() {
    const int64_t end = world_.now() + kWholeMax;
    while (!IsWhole() && world_.now() < end) world_.Sleep(20 * kMillisecond);
    if (!IsWhole()) world_.Wrong(absl::StrCat("a shard lacks copies: ", Describe()));
  }

  // A record names servers that have ended until their rights have.
  bool IsWhole() const {
    const std::vector<ShardRecord> records = faults_.Records();
    return std::all_of(records.begin(), records.end(), [&](const ShardRecord& record) {
      return record.in_sync.size() == std::min(world_.plan.replicas, world_.plan.servers) &&
             !record.primary.empty() && !record.move.has_value() &&
             std::all_of(record.in_sync.begin(), record.in_sync.end(), [&](const Replica& replica) {
               return ServerOf(replica.server).create_revision() == replica.create_revision;
             });
    });
  }

  SimulatedServer& ServerOf(const std::string& id) const {
    return *servers_[static_cast<size_t>(id[0] - 'a')];
  }

  std::string Describe() const {
    std::string text;
    for (const ShardRecord& record : faults_.Records())
      absl::StrAppend(&text, EncodeShardRecord(record), " ");
    return text;
  }

  void AwaitEqual() {
    const int64_t end = world_.now() + kEqualMax;
    std::string different = Compare();
    while (!different.empty() && world_.now() < end) {
      world_.Sleep(100 * kMillisecond);
      different = Compare();
    }
    if (!different.empty()) world_.Wrong(different);
  }

  // Copies of a shard that differ.
  std::string Compare() {
    const std::vector<ShardRecord> records = faults_.Records();
    for (uint32_t shard = 0; shard < records.size(); ++shard) {
      const ShardRecord& record = records[shard];
      const auto contents_of = [&](const std::string& id) {
        return ServerOf(id).ContentsOf(shard);
      };
      if (record.primary.empty()) return "there is no primary";
      const auto wanted = contents_of(record.primary);
      for (const Replica& replica : record.in_sync) {
        const auto held = contents_of(replica.server);
        if (held == wanted) continue;
        std::string text =
            absl::StrCat("shard ", shard, ": server ", replica.server, " has ", held.size(),
                         " keys, its primary ", record.primary, " ", wanted.size());
        for (const auto& [key, content] : wanted) {
          if (const auto found = held.find(key); found == held.end() || !(found->second == content))
            absl::StrAppend(&text, ", ", key, " differs");
        }
        for (const auto& [key, content] : held) {
          if (!wanted.contains(key))
            absl::StrAppend(&text, ", ", key, " is only there: version ", content.version,
                            ", expiry ", content.expiry_ns);
        }
        return text;
      }
    }
    return "";
  }

  ClusterWorld& world_;
  StoreState store_;
  ClusterFaults::Servers servers_;
  ClusterFaults::Clients clients_;
  std::string addresses_;  // as clients have them
  ClusterFaults faults_;
  ClusterHistories histories_;
};

struct Named {
  const char* name;
  uint64_t ClusterCounts::*count;
  uint64_t per_100_runs;  // that there must be
};
constexpr std::array kCounts{
    Named{"operations", &ClusterCounts::operations, 10'000},
    Named{"unknown", &ClusterCounts::unknown, 0},
    Named{"histories", &ClusterCounts::histories, 0},
    Named{"undecided", &ClusterCounts::undecided, 0},
    Named{"promotions", &ClusterCounts::promotions, 300},
    Named{"writes answered by another server than they began at",
          &ClusterCounts::answered_elsewhere, 50},
    Named{"long values put", &ClusterCounts::long_puts, 100},
    Named{"GETs by READ", &ClusterCounts::read_gets, 1000},
    Named{"READs refused without a lease", &ClusterCounts::uncovered_reads, 20},
    Named{"kills", &ClusterCounts::kills, 50},
    Named{"stops", &ClusterCounts::stops, 50},
    Named{"ends", &ClusterCounts::ends, 10},
    Named{"cuts from the store", &ClusterCounts::cuts_from_store, 10},
    Named{"outages of the store", &ClusterCounts::store_outages, 5},
    Named{"cuts between servers", &ClusterCounts::cuts_of_links, 10},
    Named{"one-way cuts", &ClusterCounts::one_way_cuts, 10},
    Named{"cuts of clients", &ClusterCounts::cuts_of_clients, 10},
    Named{"moves", &ClusterCounts::moves, 10},
    Named{"drifts", &ClusterCounts::drifts, 10},
    Named{"broken connections", &ClusterCounts::broken, 50},
    Named{"held READs", &ClusterCounts::held_reads, 50},
    Named{"lost transactions", &ClusterCounts::store_lost, 50},
    Named{"transactions without an answer", &ClusterCounts::store_unanswered, 50},
    Named{"late transactions", &ClusterCounts::store_late, 50},
    Named{"virtual ms", &ClusterCounts::virtual_ms, 0},
    Named{"switches", &ClusterCounts::switches, 0},
};

}  // namespace

ClusterReport SimulateCluster(const ClusterSimulationOptions& options) {
  ClusterReport report;
  report.runs = 1;
  SplitMix64 random(options.seed);
  ClusterPlan plan = MakeClusterPlan(random);
  // (The others go on as they did.)
  plan.long_percent = options.seed % 4 == 1 ? (options.has_faults ? 12 : 60) : 0;
  active_mistake = options.mistake;
  {
    ClusterWorld world(options, plan, random, report);
    world.threads.SetOutput([&world](absl::string_view host, absl::string_view text) {
      world.Log(absl::StrCat(host, ": ", text.substr(0, text.find('\n'))));
    });
    world.threads.Run([&world] { Run(world).All(); });
    report.switches = world.threads.switches();
  }
  active_mistake = ReplicationMistake::kNone;
  if (!report.wrong.empty())
    absl::StrAppend(&report.wrong, "\nseed ", options.seed, ", ", options.operations,
                    " operations; ", plan.servers, " servers, ", plan.shards, " shards, ",
                    plan.replicas, " replicas, ", plan.clients, " clients");
  return report;
}

void ClusterCounts::Add(const ClusterCounts& other) {
  runs += other.runs;
  for (const Named& one : kCounts) this->*one.count += other.*one.count;
}

std::string ClusterCounts::ToString() const {
  std::string text = absl::StrCat(runs, " runs");
  for (const Named& one : kCounts) absl::StrAppend(&text, ", ", this->*one.count, " ", one.name);
  return text;
}

std::string ClusterCounts::Void() const {
  std::string text;
  for (const Named& one : kCounts) {
    const uint64_t least = one.per_100_runs * runs / 100;
    if (this->*one.count < least)
      absl::StrAppend(&text, "only ", this->*one.count, " ", one.name, " of ", least, "; ");
  }
  if (undecided * 500 > histories) absl::StrAppend(&text, undecided, " histories undecided; ");
  return text;
}

}  // namespace osprey
