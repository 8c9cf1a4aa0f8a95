#include "tests/simulation/cluster/cluster_faults.h"

#include <algorithm>

#include "server/cluster/configuration/shard_swaps.h"

namespace osprey {

std::vector<ShardRecord> ClusterFaults::Records() const {
  std::vector<ShardRecord> records;
  for (uint32_t shard = 0; shard < world_.plan.shards; ++shard) {
    const RangeAnswer answer = world_.store.Range({world_.keys.Shard(shard)});
    records.push_back(DecodeShardRecord(answer.keys.at(0).value).value());
  }
  return records;
}

void ClusterFaults::Later(int64_t ns, std::function<void()> undo) {
  undo_.emplace_back(world_.now() + ns, std::move(undo));
}

void ClusterFaults::Undo(bool all) {
  for (size_t i = 0; i < undo_.size();) {
    if (!all && undo_[i].first > world_.now()) {
      ++i;
      continue;
    }
    const std::function<void()> undo = std::move(undo_[i].second);
    undo_.erase(undo_.begin() + static_cast<ptrdiff_t>(i));
    undo();
  }
}

void ClusterFaults::Run() {
  uint32_t left = world_.plan.faults;
  int64_t next = world_.now() + 500 * kMillisecond;
  const auto clients_work = [&] {
    return std::any_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return !client->has_ended(); });
  };
  while (left > 0 && clients_work()) {
    world_.Sleep(5 * kMillisecond);
    Undo(false);
    if (world_.now() < next) continue;
    Fault();
    --left;
    next = world_.now() + world_.Random(world_.plan.fault_every_ms_max * kMillisecond);
  }
  Note("all faults end");
  Undo(true);
  store_.is_calm = true;
  for (const auto& server : servers_) {
    while (server->stops() && server->runs()) world_.Sleep(10 * kMillisecond);
    if (!server->runs()) server->Start();
  }
}

void ClusterFaults::Fault() {
  if (world_.plan.servers > world_.plan.replicas && world_.random.Chance(15)) return Move();
  switch (world_.random.Below(13)) {
    case 0:
    case 1:
    case 2:
      return Kill();
    case 3:
      return End();
    case 4:
    case 5:
      return StopHost();
    case 6:
      return CutFromStore();
    case 7:
    case 8:
      return CutLinks();
    case 9:
      return CutClients();
    case 10:
      return Drift();
    case 11:
      return BreakConnections();
    default:
      return HoldReads();
  }
}

// Each shard of which it has a copy has another one, and nothing is on its way that changes this. *Else* the data is
// lost, as it must be.
bool ClusterFaults::MayLose(const SimulatedServer& server) const {
  if (!store_.late.empty()) {
    for (const VirtualThreads::Id late : store_.late) {
      if (!world_.threads.HasEnded(late)) return false;
    }
  }
  for (const auto& one : servers_) {
    if (one->has_transaction()) return false;
  }
  const std::vector<ShardRecord> records = Records();
  return std::all_of(records.begin(), records.end(), [&](const ShardRecord& record) {
    if (record.Find(server.id()) == nullptr) return true;
    return std::any_of(record.in_sync.begin(), record.in_sync.end(), [&](const Replica& replica) {
      if (replica.server == server.id()) return false;
      const auto other = std::find_if(servers_.begin(), servers_.end(),
                                      [&](const auto& one) { return one->id() == replica.server; });
      return (*other)->runs() && !(*other)->stops() &&
             (*other)->create_revision() == replica.create_revision;
    });
  });
}

void ClusterFaults::Kill() {
  SimulatedServer& server = AnyServer();
  for (int i = 0; i < 200 && server.runs() && !MayLose(server); ++i)
    world_.Sleep(10 * kMillisecond);
  if (!server.runs() || server.stops() || !MayLose(server)) return;
  ++world_.report.kills;
  Note(absl::StrCat("server ", server.id(), " is killed"));
  server.Kill(world_.random.Chance(50));
  Later(world_.Random(6 * kSecond), [&server] { server.Start(); });
}

void ClusterFaults::End() {
  SimulatedServer& server = AnyServer();
  if (!server.runs() || server.stops() || !MayLose(server)) return;
  // No other fault meanwhile: with its last companion the data would be lost, as it must be.
  Undo(true);
  ++world_.report.ends;
  Note(absl::StrCat("server ", server.id(), " is to end"));
  server.Stop();
  const int64_t end = world_.now() + SimulatedServer::kEndMax;
  while (server.runs() && world_.now() < end) world_.Sleep(10 * kMillisecond);
  if (server.runs()) {
    world_.Wrong(absl::StrCat("server ", server.id(), " does not end"));
    server.Kill(true);
  }
  Later(world_.Random(3 * kSecond), [&server] { server.Start(); });
}

// Its memory answers READs meanwhile.
void ClusterFaults::StopHost() {
  SimulatedServer& server = AnyServer();
  ++world_.report.stops;
  const int64_t time = world_.Random(world_.random.Chance(50) ? kSecond : 8 * kSecond);
  Note(absl::StrCat("server ", server.id(), " stands still for ", time / kMillisecond, " ms"));
  server.host().stopped_until = world_.now() + time;
  Later(time, [&server] { server.host().stopped_until = 0; });
}

void ClusterFaults::CutFromStore() {
  const int64_t time = world_.Random(world_.random.Chance(50) ? 2 * kSecond : 8 * kSecond);
  if (world_.random.Chance(30)) {
    ++world_.report.store_outages;
    Note(absl::StrCat("the store is down for ", time / kMillisecond, " ms"));
    store_.down_until = world_.now() + time;
    return Later(time, [this] { store_.down_until = 0; });
  }
  SimulatedServer& server = AnyServer();
  ++world_.report.cuts_from_store;
  Note(absl::StrCat("server ", server.id(), " is cut off from the store for ", time / kMillisecond,
                    " ms"));
  server.is_cut_from_store = true;
  Later(time, [&server] { server.is_cut_from_store = false; });
}

void ClusterFaults::CutLinks() {
  const std::string from = AnyServer().id();
  const std::string to = AnyServer().id();
  if (from == to) return;
  const bool is_one_way = world_.random.Chance(50);
  ++(is_one_way ? world_.report.one_way_cuts : world_.report.cuts_of_links);
  const int64_t time = world_.Random(world_.random.Chance(40) ? 300 * kMillisecond : 5 * kSecond);
  Note(absl::StrCat("nothing arrives from ", from, " at ", to, is_one_way ? "" : ", nor back, ",
                    " for ", time / kMillisecond, " ms"));
  world_.Block(from, to, true);
  if (!is_one_way) world_.Block(to, from, true);
  Later(time, [this, from, to, is_one_way] {
    world_.Block(from, to, false);
    if (!is_one_way) world_.Block(to, from, false);
  });
}

void ClusterFaults::CutClients() {
  ++world_.report.cuts_of_clients;
  const std::string server = AnyServer().id();
  const std::string client = clients_[world_.random.Below(clients_.size())]->domain();
  const bool is_one_way = world_.random.Chance(30);
  const int64_t time = world_.Random(4 * kSecond);
  Note(absl::StrCat(client, " and ", server, " are cut off for ", time / kMillisecond, " ms"));
  world_.Block(server, client, true);
  if (!is_one_way) world_.Block(client, server, true);
  Later(time, [this, server, client, is_one_way] {
    world_.Block(server, client, false);
    if (!is_one_way) world_.Block(client, server, false);
  });
}

// By an operator, to a server without a copy. (There is one at any time, since there are more servers than copies. *Else*
// the move stays, since it would leave too few copies.)
void ClusterFaults::Move() {
  const uint32_t shard = static_cast<uint32_t>(world_.random.Below(world_.plan.shards));
  const RangeAnswer answer = world_.store.Range({world_.keys.Shard(shard)});
  const StoredShard stored{shard, answer.keys.at(0).mod_revision,
                           DecodeShardRecord(answer.keys[0].value).value()};
  std::vector<std::string> without;
  for (const auto& server : servers_) {
    if (stored.record.Find(server->id()) == nullptr) without.push_back(server->id());
  }
  if (stored.record.in_sync.empty() || without.empty() || stored.record.move.has_value()) return;
  const std::string& to = without[world_.random.Below(without.size())];
  const std::string& from =
      stored.record.in_sync[world_.random.Below(stored.record.in_sync.size())].server;
  const absl::StatusOr<ShardSwap> swap = BeginMove(stored, {.from = from, .to = to});
  if (!swap.ok()) return;
  ++world_.report.moves;
  Note(absl::StrCat("the copy of shard ", shard, " moves from ", from, " to ", to));
  (void)world_.store.Execute(SwapTransaction(world_.keys, {*swap}));
}

// By up to a tenth for rights and leases; the raw clock's rate has a bound.
void ClusterFaults::Drift() {
  ++world_.report.drifts;
  const auto set = [this](VirtualHost& host) {
    const int64_t tenths = world_.random.Chance(50)
                               ? (world_.random.Chance(50) ? 100'000 : -100'000)
                               : world_.Random(200'000) - 100'000;
    host.SetRates(world_.now(), world_.Random(800) - 400, tenths);
  };
  for (const auto& server : servers_) set(server->host());
  for (const auto& client : clients_) set(client->host());
}

void ClusterFaults::BreakConnections() {
  for (const auto& client : clients_) {
    for (const rdma::ConnectionId id : client->connections()) {
      if (world_.random.Chance(50)) continue;
      ++world_.report.broken;
      if (world_.random.Chance(50)) {
        world_.network.Break(id, world_.random.Chance(50));
      } else {
        world_.network.Cut(id);
      }
    }
  }
}

void ClusterFaults::HoldReads() {
  for (const auto& client : clients_) {
    for (const rdma::ConnectionId id : client->connections()) {
      if (world_.random.Chance(50)) continue;
      ++world_.report.held_reads;
      world_.network.HoldReads(id, true);
      Later(world_.Random(kSecond), [this, id] { world_.network.HoldReads(id, false); });
    }
  }
}

}  // namespace osprey
