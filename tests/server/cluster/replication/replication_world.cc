#include "tests/server/cluster/replication/replication_world.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace osprey {
namespace {

bool Contains(const std::vector<ReplicaName>& names, const ReplicaName& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::vector<uint64_t> WritesOf(const ReplicatedGroup& group) {
  std::vector<uint64_t> writes(group.bytes() / sizeof(uint64_t));
  std::memcpy(writes.data(), group.body->data(), group.bytes());
  return writes;
}

std::string BodyOf(const std::vector<uint64_t>& writes) {
  return std::string(reinterpret_cast<const char*>(writes.data()),
                     writes.size() * sizeof(uint64_t));
}

absl::Status History::Reserve(const ReplicatedGroup& group) {
  EXPECT_TRUE(reserved_.emplace(group.first_lsn, group.term).second) << group.first_lsn;
  return absl::OkStatus();
}

// The primary reserves nothing here for what it decides.
void History::Release(const ReplicatedGroup& group) { reserved_.erase(group.first_lsn); }

void History::Apply(const ReplicatedGroup& group) {
  reserved_.erase(group.first_lsn);
  if (group.last_lsn <= copied_to_) return;
  for (const uint64_t write : WritesOf(group)) writes_.push_back(write);
}

void History::TakeCopy(const History& from, uint64_t lsn) {
  writes_ = from.writes_;
  copied_to_ = lsn;
}

void History::Clear() { *this = History(); }

WorldLimits LimitsOf(uint64_t seed) {
  WorldLimits limits;
  if (seed % 4 == 3) limits.min_in_sync = 2;
  if (seed % 2 == 0) return limits;
  limits.live_drops = 50;
  limits.hand_overs = 20;
  limits.late_answers = 80;
  return limits;
}

ReplicationWorld::ReplicationWorld(uint64_t seed, WorldLimits limits)
    : random_(seed), limits_(limits) {
  for (int i = 0; i < kServers; ++i) {
    servers_.push_back(std::make_unique<Server>(NewName(i), limits_.min_in_sync));
    record_.in_sync.push_back(servers_[i]->replica.self());
  }
  record_.term = 1;
  record_.primary = record_.in_sync[0];
  for (int i = 0; i < kServers; ++i) ReadRecord(i);
}

ReplicaName ReplicationWorld::NewName(int server) {
  return {++lives_ * 8 + static_cast<uint64_t>(server), ++lives_};
}

// Clients have seen these writes, in this order, as done.
std::string ReplicationWorld::See(const std::vector<uint64_t>& writes) {
  const auto [a, b] = std::mismatch(writes.begin(), writes.end(), seen_.begin(), seen_.end());
  if (a != writes.end() && b != seen_.end())
    return absl::StrCat("write ", *b, " was seen, and is ", *a, " now");
  for (auto next = a; next != writes.end(); ++next) {
    if (std::find(seen_.begin(), seen_.end(), *next) != seen_.end())
      return absl::StrCat("write ", *next, " was made twice");
    seen_.push_back(*next);
  }
  return "";
}

// A client sends a write, or sends it again.
void ReplicationWorld::Invoke(int at) {
  Server& server = *servers_[at];
  ShardPrimary* primary = server.replica.primary();
  if (primary == nullptr || !primary->has_tail_applied() || server.hand_over >= 2) return;
  const uint64_t write = random_.Below(std::min(invoked_ + 1, limits_.writes)) + 1;
  // The remembered results: of what is applied, and of what is pending.
  std::vector<uint64_t> known = server.history.writes();
  const ReplicaLog& log = server.replica.log();
  for (uint64_t lsn = log.applied(); const ReplicatedGroup* group = log.After(lsn);
       lsn = group->last_lsn) {
    for (const uint64_t one : WritesOf(*group)) known.push_back(one);
  }
  if (std::find(known.begin(), known.end(), write) != known.end()) return;
  std::vector<uint64_t> writes = {write};
  invoked_ = std::max(invoked_, write);
  if (random_.Chance(30) && invoked_ < limits_.writes) writes.push_back(++invoked_);
  primary->Decide(BodyOf(writes), writes.size());
}

std::string ReplicationWorld::CommitAndAnswer(int at) {
  Server& server = *servers_[at];
  ShardPrimary* primary = server.replica.primary();
  if (primary == nullptr) return "";
  server.replica.ApplyTail();
  const ReplicaLog& log = server.replica.log();
  while (const ReplicatedGroup* group = log.After(log.applied())) {
    if (group->last_lsn > primary->commit_point() || group->term < primary->term()) break;
    const auto holders = std::count_if(confirmed_.begin(), confirmed_.end(), [&](const auto& one) {
      return one.first.first == primary->term() && one.second >= group->last_lsn;
    });
    if (holders + 1 < limits_.min_in_sync)
      return absl::StrCat("lsn ", group->last_lsn,
                          " is committed, and confirmed by no other replica");
    server.history.Apply(*group);
    server.replica.MarkApplied(group->last_lsn);
    // The writes of this group are answered.
    if (std::string wrong = See(server.history.writes()); !wrong.empty()) return wrong;
  }
  return "";
}

// A READ that counts.
std::string ReplicationWorld::Read(int at) {
  Server& server = *servers_[at];
  ShardPrimary* primary = server.replica.primary();
  if (primary == nullptr || server.has_lapsed || !primary->has_tail_applied() ||
      server.hand_over >= 1)
    return "";
  if (server.history.writes().size() < seen_.size())
    return absl::StrCat("a READ finds ", server.history.writes().size(), " writes of ",
                        seen_.size());
  return See(server.history.writes());
}

void ReplicationWorld::ReadRecord(int at) {
  Server& server = *servers_[at];
  if (server.known_revision == revision_) return;
  server.known_revision = revision_;
  server.known = record_;
  server.swap_is_unknown = false;
  server.adding.reset();
  server.hand_over = 0;
  const ShardReplica::Role before = server.replica.role();
  server.replica.TakePlaces(record_);
  if (server.replica.role() == ShardReplica::Role::kOut && before != server.replica.role()) {
    server.history.Clear();
    // A server that was named no more is another replica when it comes back.
    server.has_lapsed = false;
  }
  Count(at);
}

void ReplicationWorld::Count(int at) {
  Server& server = *servers_[at];
  ShardPrimary* primary = server.replica.primary();
  if (primary == nullptr) return;
  std::vector<ReplicaName> counted = server.known.in_sync;
  if (server.adding.has_value()) counted.push_back(*server.adding);
  counted.erase(std::remove(counted.begin(), counted.end(), server.replica.self()), counted.end());
  primary->SetCounted(counted, static_cast<uint32_t>(server.known.in_sync.size()));
  std::vector<ReplicaName> others;
  for (const auto& [name, peer] : primary->peers()) {
    if (!Contains(counted, name) && server.joiner != name) others.push_back(name);
  }
  for (const ReplicaName& name : others) primary->RemovePeer(name);
  for (const ReplicaName& name : counted) {
    if (connections_[at][ServerOf(name)].is_open && !primary->peers().at(name).is_connected)
      primary->Connected(name);
  }
}

void ReplicationWorld::Propose(int at, const ShardPlaces& places, std::optional<ReplicaName> adds) {
  Server& server = *servers_[at];
  swaps_.push_back({at, server.known_revision, places, adds});
  server.swap_is_unknown = true;
  server.adding = adds;
  Count(at);
}

void ReplicationWorld::ExecuteSwap() {
  if (swaps_.empty()) return;
  const size_t index = random_.Below(swaps_.size());
  const Swap swap = swaps_[index];
  swaps_.erase(swaps_.begin() + static_cast<ptrdiff_t>(index));
  if (swap.revision == revision_) {
    ++revision_;
    record_ = swap.places;
    joins_ += swap.adds.has_value();
    hand_overs_ +=
        swap.places.term > 0 && swap.places.primary != servers_[swap.author]->replica.self();
  }
}

// The transaction looks at the store as it is: the record is unchanged, the primary's key is gone.
void ReplicationWorld::Promote(int at) {
  Server& server = *servers_[at];
  const bool is_gone = !servers_[ServerOf(record_.primary)]->is_up ||
                       servers_[ServerOf(record_.primary)]->replica.self() != record_.primary ||
                       servers_[ServerOf(record_.primary)]->has_lapsed;
  if (server.replica.role() != ShardReplica::Role::kBackup || server.has_lapsed || !is_gone ||
      server.known_revision != revision_ || !Contains(record_.in_sync, server.replica.self()))
    return;
  ++revision_;
  ++promotions_;
  auto& in_sync = record_.in_sync;
  in_sync.erase(std::remove(in_sync.begin(), in_sync.end(), record_.primary), in_sync.end());
  record_.primary = server.replica.self();
  ++record_.term;
}

void ReplicationWorld::DropSome(int at) {
  Server& server = *servers_[at];
  ShardPrimary* primary = server.replica.primary();
  if (primary == nullptr || server.swap_is_unknown || server.known.in_sync.size() < 2) return;
  const ReplicaName name = server.known.in_sync[random_.Below(server.known.in_sync.size())];
  if (name == server.replica.self()) return;
  const Server& other = *servers_[ServerOf(name)];
  // Mostly those that are silent.
  if (other.is_up && other.replica.self() == name && !random_.Chance(limits_.live_drops)) return;
  ShardPlaces places = server.known;
  places.in_sync.erase(std::find(places.in_sync.begin(), places.in_sync.end(), name));
  Propose(at, places, std::nullopt);
}

// A server without a copy joins the shard of this primary.
void ReplicationWorld::JoinSome(int at) {
  Server& server = *servers_[at];
  ShardPrimary* primary = server.replica.primary();
  if (primary == nullptr || !primary->has_tail_applied() || server.adding.has_value()) return;
  const int to = static_cast<int>(random_.Below(kServers));
  Server& other = *servers_[to];
  if (to == at || !other.is_up || other.has_lapsed ||
      other.replica.role() != ShardReplica::Role::kOut ||
      other.known_revision != server.known_revision)
    return;
  if (server.joiner.has_value()) primary->RemovePeer(*server.joiner);
  const ReplicaName name{other.incarnation, ++lives_};
  const uint64_t applied = primary->AddJoiner(name);
  other.replica.BeginCopy(name, server.known, applied);
  other.history.TakeCopy(server.history, applied);
  primary->EndCopy(name);
  server.joiner = name;
  if (connections_[at][to].is_open) primary->Connected(name);
}

void ReplicationWorld::AddSome(int at) {
  Server& server = *servers_[at];
  ShardPrimary* primary = server.replica.primary();
  if (primary == nullptr || !server.joiner.has_value() || server.swap_is_unknown ||
      !primary->has_tail_applied() || !primary->HasCaughtUp(*server.joiner))
    return;
  ShardPlaces places = server.known;
  places.in_sync.push_back(*server.joiner);
  Propose(at, places, server.joiner);
  server.joiner.reset();
}

// The region says no more that it serves; then nothing is decided; then the record is swapped.
void ReplicationWorld::HandOver(int at) {
  Server& server = *servers_[at];
  ShardPrimary* primary = server.replica.primary();
  if (primary == nullptr || !primary->has_tail_applied() || server.swap_is_unknown) return;
  if (server.hand_over < 2) {
    ++server.hand_over;
    return;
  }
  ShardPlaces places = server.known;
  places.primary = places.in_sync[random_.Below(places.in_sync.size())];
  if (places.primary == server.replica.self()) return;
  ++places.term;
  Propose(at, places, std::nullopt);
}

void ReplicationWorld::Send(int from, int to) {
  Connection& connection = connections_[from][to];
  ShardPrimary* primary = servers_[from]->replica.primary();
  if (!connection.is_open || primary == nullptr) return;
  if (random_.Chance(20)) primary->GreetAgain();
  for (const auto& [name, peer] : primary->peers()) {
    if (ServerOf(name) != to) continue;
    if (auto append = primary->NextAppend(name); append.has_value())
      connection.messages.push_back(EncodeAppend(*append));
    return;
  }
}

std::string ReplicationWorld::Deliver(int from, int to) {
  Connection& connection = connections_[from][to];
  if (connection.messages.empty() || !servers_[to]->is_up) return "";
  const std::string message = std::move(connection.messages.front());
  connection.messages.pop_front();
  const auto append = DecodeAppend(message);
  if (!append.ok()) return append.status().ToString();
  const Ack answer = servers_[to]->replica.TakeAppend(*append);
  if (answer.code == AckCode::kConfirmed) {
    uint64_t& confirmed = confirmed_[{answer.term, answer.from}];
    confirmed = std::max(confirmed, answer.confirmed);
  }
  // The answer comes at once, late, or never: a later answer says more.
  answers_.push_back({from, EncodeAck(answer)});
  return "";
}

std::string ReplicationWorld::Answer() {
  if (answers_.empty()) return "";
  const size_t index = !random_.Chance(limits_.late_answers) ? 0 : random_.Below(answers_.size());
  const auto [to, message] = answers_[index];
  answers_.erase(answers_.begin() + static_cast<ptrdiff_t>(index));
  if (random_.Chance(5)) return "";
  ShardPrimary* primary = servers_[to]->replica.primary();
  const auto ack = DecodeAck(message);
  if (!ack.ok()) return ack.status().ToString();
  if (!servers_[to]->is_up || primary == nullptr) return "";
  const auto is_unfit = [&] {
    const auto peer = primary->peers().find(ack->from);
    return peer != primary->peers().end() && peer->second.is_unfit;
  };
  const bool was_unfit = is_unfit();
  primary->TakeAck(*ack);
  if (ack->code == AckCode::kConfirmed && is_unfit() && !was_unfit)
    return "groups that a replica needs are gone";
  return "";
}

void ReplicationWorld::Reconnect(int from, int to) {
  Connection& connection = connections_[from][to];
  ShardPrimary* primary = servers_[from]->replica.primary();
  connection.is_open = !connection.is_open;
  if (primary == nullptr) return;
  for (const auto& [name, peer] : primary->peers()) {
    if (ServerOf(name) != to) continue;
    if (connection.is_open) {
      primary->Connected(name);
    } else {
      primary->Disconnected(name);
    }
  }
}

void ReplicationWorld::Fail(int at) {
  Server& server = *servers_[at];
  if (limits_.failures == 0 || !server.is_up) return;
  --limits_.failures;
  if (random_.Chance(50)) {
    server.has_lapsed = true;
  } else {
    server.is_up = false;
  }
}

// As a new incarnation, with nothing.
void ReplicationWorld::ComeBack(int at) {
  if (servers_[at]->is_up) return;
  servers_[at] = std::make_unique<Server>(NewName(at), limits_.min_in_sync);
  servers_[at]->replica.Leave();
}

std::string ReplicationWorld::Step() {
  const int at = static_cast<int>(random_.Below(kServers));
  const int other = static_cast<int>((at + 1 + random_.Below(kServers - 1)) % kServers);
  const bool is_up = servers_[at]->is_up;
  switch (random_.Below(16)) {
    case 0:
    case 1:
      if (is_up) Invoke(at);
      return "";
    case 2:
    case 3:
      return is_up ? CommitAndAnswer(at) : "";
    case 4:
      return is_up ? Read(at) : "";
    case 5:
      if (is_up && random_.Chance(50)) ReadRecord(at);
      return "";
    case 6:
      ExecuteSwap();
      return "";
    case 7:
      if (is_up && random_.Chance(30)) Promote(at);
      return "";
    case 8:
      if (is_up) DropSome(at);
      return "";
    case 9:
      if (is_up) JoinSome(at);
      if (is_up) AddSome(at);
      if (is_up && random_.Chance(servers_[at]->hand_over > 0 ? 40 : limits_.hand_overs))
        HandOver(at);
      return "";
    case 10:
    case 11:
    case 12:
      if (is_up) Send(at, other);
      return "";
    case 13:
      return Deliver(other, at);
    case 14:
      return Answer();
    default:
      if (random_.Chance(10)) Fail(at);
      if (random_.Chance(30)) ComeBack(at);
      if (is_up && random_.Chance(connections_[at][other].is_open ? 5 : 60)) Reconnect(at, other);
      return "";
  }
}

}  // namespace osprey
