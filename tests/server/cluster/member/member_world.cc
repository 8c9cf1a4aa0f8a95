#include "tests/server/cluster/member/member_world.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rdma/lease_time.h"
#include "server/cluster/configuration/cluster_record.h"

namespace osprey {
namespace {

constexpr absl::Duration kStep() { return absl::Milliseconds(5); }
constexpr absl::Duration kCallTimeout() { return absl::Milliseconds(800); }
constexpr uint64_t kLinkRoom = 64 << 20;

std::string ServerId(int number) {
  const std::string letter(1, static_cast<char>('a' + number % 26));
  return number < 26 ? letter : absl::StrCat(letter, number);
}

}  // namespace

// --- The table -----------------------------------------------------------------

absl::Status RegisterTable::Reserve(const ReplicatedGroup&) { return absl::OkStatus(); }
void RegisterTable::Release(const ReplicatedGroup&) {}

void RegisterTable::Apply(const ReplicatedGroup& group) {
  assert(has_slot_ || free_slots_ == nullptr);
  if (group.last_lsn <= applied_) return;  // in the copy
  uint64_t lsn = group.first_lsn;
  for (const uint64_t write : WritesOf(group)) writes_.emplace_back(lsn++, write);
  applied_ = group.last_lsn;
}

bool RegisterTable::Take() {
  if (has_slot_ || free_slots_ == nullptr) return true;
  if (*free_slots_ == 0) return false;
  --*free_slots_;
  return has_slot_ = true;
}

void RegisterTable::Clear() {
  writes_.clear();
  applied_ = 0;
  copies_ = false;
}

bool RegisterTable::ClearSome() {
  if (std::exchange(has_slot_, false)) ++*free_slots_;
  return true;
}

std::string RegisterTable::NextChunk() {
  if (!std::exchange(copies_, false)) return "";
  std::vector<uint64_t> numbers = {applied_};
  for (const auto& [lsn, write] : writes_) numbers.insert(numbers.end(), {lsn, write});
  return std::string(reinterpret_cast<const char*>(numbers.data()),
                     numbers.size() * sizeof(uint64_t));
}

absl::Status RegisterTable::TakeChunk(absl::string_view chunk) {
  std::vector<uint64_t> numbers(chunk.size() / sizeof(uint64_t));
  std::memcpy(numbers.data(), chunk.data(), chunk.size());
  std::vector<std::pair<uint64_t, uint64_t>> writes;
  for (size_t i = 1; i + 1 < numbers.size(); i += 2)
    writes.emplace_back(numbers[i], numbers[i + 1]);
  for (const auto& one : writes_) {
    if (one.first > numbers[0]) writes.push_back(one);
  }
  writes_ = std::move(writes);
  applied_ = std::max(applied_, numbers[0]);
  return absl::OkStatus();
}

std::vector<uint64_t> RegisterTable::Writes() const {
  std::vector<uint64_t> writes;
  for (const auto& one : writes_) writes.push_back(one.second);
  return writes;
}

// --- The servers ---------------------------------------------------------------

MemberWorld::Server::Server(MemberWorld& world, int number)
    : sender(world, number), free_slots(world.slots_) {
  MemberOptions options{.keys = world.keys_,
                        .cluster = world.cluster_,
                        .server = ServerId(number),
                        .addresses = {"shm:///" + std::to_string(number)},
                        .slots = world.slots_,
                        .random = [&world] { return world.random_.Next(); },
                        .log = nullptr};
  std::vector<MemberTable*> pointers;
  for (uint32_t shard = 0; shard < world.shards_; ++shard) {
    tables.push_back(std::make_unique<RegisterTable>(&free_slots));
    pointers.push_back(tables.back().get());
  }
  member = std::make_unique<ClusterMember>(std::move(options), pointers, sender);
}

MemberWorld::MemberWorld(uint64_t seed, const MemberWorldOptions& options)
    : random_(seed),
      servers_(options.servers),
      shards_(options.shards),
      slots_(options.slots == 0 ? options.shards : options.slots),
      cut_until_(options.servers, std::vector<absl::Time>(options.servers, absl::InfinitePast())),
      machines_(options.servers),
      invoked_(options.shards),
      seen_(options.shards) {
  cluster_.id = random_.Next() | 1;
  cluster_.shards = shards_;
  cluster_.replicas = options.replicas;
  cluster_.min_in_sync = MinInSync(options.replicas);
  cluster_.hash_seed = 1;
  cluster_.shard_bytes = kShardBytesMin;
  store_.Execute(CreateCluster(keys_, cluster_));
  for (int i = 0; i < servers_; ++i) {
    machines_[i].links.resize(servers_);
    machines_[i].leased_until.resize(shards_, absl::UnixEpoch());
    machines_[i].server = std::make_unique<Server>(*this, i);
  }
  next_fault_ = now_ + absl::Seconds(3);
}

uint64_t MemberWorld::Sender::RoomFor(uint64_t incarnation) const {
  for (const Link& link : world_.machines_[from_].links) {
    if (link.to == incarnation) return kLinkRoom;
  }
  return 0;
}

void MemberWorld::Sender::Send(uint64_t incarnation, PeerMessageKind kind, std::string bytes) {
  for (Link& link : world_.machines_[from_].links) {
    if (link.to != incarnation || incarnation == 0) continue;
    const absl::Time last =
        link.messages.empty() ? absl::InfinitePast() : link.messages.back().arrives;
    const absl::Time arrives =
        world_.now_ +
        absl::Microseconds(world_.random_.Below(world_.random_.Chance(5) ? 300000 : 4000));
    link.messages.push_back({std::max(last, arrives), incarnation, kind, std::move(bytes)});
  }
}

// --- The store -------------------------------------------------------------------

MemberWorld::Call MemberWorld::NewCall(int at, StoreCall call) {
  Call made;
  made.call = std::move(call);
  made.sent_by_clock = machines_[at].clock;
  made.gives_up = now_ + kCallTimeout();
  const auto delay = [&] {
    return absl::Milliseconds(random_.Below(random_.Chance(5) ? 1500 : 6));
  };
  made.executed = IsCutFromStore(at) ? absl::InfiniteFuture() : now_ + delay();
  made.answered = random_.Chance(2) ? absl::InfiniteFuture() : made.executed + delay();
  return made;
}

void MemberWorld::Execute(Call& call) {
  if (call.is_done || call.executed > now_) return;
  if (now_ < store_down_until_) {
    call.executed = store_down_until_;  // it was on its way to the store
    return;
  }
  call.is_done = true;
  if (call.call.range.has_value()) {
    call.read = store_.Range(*call.call.range);
  } else {
    call.result = store_.Execute(call.call.transaction);
  }
}

void MemberWorld::RunStore(int at) {
  Machine& machine = machines_[at];
  Server& server = *machine.server;
  ClusterMember& member = *server.member;
  for (std::optional<Call>* call : {&server.renewal, &server.call}) {
    if (call->has_value()) Execute(**call);
  }
  if (IsPaused(at)) return;
  const auto has_answer = [&](const Call& call) {
    return call.is_done && call.answered <= now_ && !IsCutFromStore(at);
  };
  if (server.renewal.has_value()) {
    const Call call = *server.renewal;
    if (has_answer(call) || now_ >= call.gives_up) {
      if (!call.is_done) late_.push_back(call);
      server.renewal.reset();
      member.TakeRenewal(has_answer(call) ? call.result : TransactionResult(), call.sent_by_clock,
                         machine.clock);
    }
  } else if (machine.clock >= member.next_renewal()) {
    StoreCall call;
    call.transaction = member.NextRenewal();
    server.renewal = NewCall(at, std::move(call));
  }
  if (server.call.has_value()) {
    const Call call = *server.call;
    if (has_answer(call) || now_ >= call.gives_up) {
      const bool is_read = call.call.range.has_value();
      if (!call.is_done && !is_read) late_.push_back(call);
      server.call.reset();
      if (is_read) {
        absl::StatusOr<RangeAnswer> answer = absl::UnavailableError("no answer");
        if (has_answer(call)) answer = call.read;
        member.TakeRead(answer, machine.clock);
      } else {
        member.TakeResult(has_answer(call) ? call.result : TransactionResult(), machine.clock);
      }
    }
  } else if (auto call = member.NextCall(machine.clock); call.has_value()) {
    server.call = NewCall(at, *std::move(call));
  }
}

// --- Links -----------------------------------------------------------------------

void MemberWorld::RunLinks(int at) {
  Machine& machine = machines_[at];
  ClusterMember& member = *machine.server->member;
  if (now_ >= machine.needed_due) {
    machine.needed_due = now_ + absl::Milliseconds(10);
    machine.needed = member.NeededServers(machine.clock);
  }
  for (int to = 0; to < servers_; ++to) {
    if (to == at) continue;
    Link& link = machine.links[to];
    const auto known = member.servers().find(ServerId(to));
    const uint64_t wanted = !machine.needed.contains(ServerId(to)) ||
                                    known == member.servers().end() ||
                                    !known->second.record.has_value()
                                ? 0
                                : known->second.record->incarnation;
    const Server* other = machines_[to].server.get();
    const bool is_there =
        other != nullptr && other->member->incarnation() == wanted && wanted != 0 && !IsCut(at, to);
    const bool breaks =
        link.to != 0 && (link.to != wanted || !is_there || link.from != member.incarnation() ||
                         (now_ < faults_end_ && random_.Below(3000) == 0));
    if (breaks) {
      const uint64_t before = std::exchange(link.to, 0);
      link.messages.clear();
      link.retry = now_ + absl::Milliseconds(random_.Below(100));
      member.LinkDown(before);
    }
    // A stopped server's kernel accepts nothing.
    if (link.to == 0 && is_there && !IsPaused(to) && now_ >= link.retry) {
      link.to = wanted;
      link.from = member.incarnation();
      member.LinkUp(wanted);
    }
  }
}

std::string MemberWorld::Deliver(int from, int to) {
  Link& link = machines_[from].links[to];
  Machine& machine = machines_[to];
  if (machine.server == nullptr || machines_[from].server == nullptr) {
    link.messages.clear();
    return "";
  }
  if (IsPaused(to) || IsCut(from, to)) return "";
  while (!link.messages.empty() && link.messages.front().arrives <= now_) {
    const Message message = std::move(link.messages.front());
    link.messages.pop_front();
    if (message.to != machine.server->member->incarnation()) continue;
    const absl::Status status =
        machine.server->member->TakeMessage(link.from, message.kind, message.body, machine.clock);
    if (!status.ok()) return status.ToString();
  }
  return "";
}

// --- Clients ---------------------------------------------------------------------

// A new write, or one that is sent again.
void MemberWorld::Write(int at, uint32_t shard) {
  Server& server = *machines_[at].server;
  ShardMember& member = server.member->shard(shard);
  const uint64_t oldest = invoked_[shard] > 3 ? invoked_[shard] - 3 : 0;
  const uint64_t write = oldest + 1 + random_.Below(invoked_[shard] + 1 - oldest);
  if (HasWrite(server.tables[shard]->Writes(), member.replica().log(), write)) return;
  invoked_[shard] = std::max(invoked_[shard], write);
  member.Decide(BodyOf({write}), 1);
}

// Applies what is committed, and answers if the right lasts.
std::string MemberWorld::Settle(int at, uint32_t shard) {
  Machine& machine = machines_[at];
  ShardMember& member = machine.server->member->shard(shard);
  const ReplicaLog& log = member.replica().log();
  if (member.replica().role() != ShardReplica::Role::kPrimary || !member.serves()) return "";
  bool applied = false;
  while (const ReplicatedGroup* group = log.After(log.applied())) {
    if (group->last_lsn > member.commit_point()) break;
    machine.server->tables[shard]->Apply(*group);
    member.MarkApplied(group->last_lsn);
    applied = true;
  }
  if (!applied || !machine.server->member->Serves(shard, machine.clock)) return "";
  const size_t before = seen_[shard].size();
  std::string wrong = seen_[shard].See(machine.server->tables[shard]->Writes());
  stats_.acknowledged += seen_[shard].size() - before;
  return wrong;
}

std::string MemberWorld::RunClients(int at) {
  Machine& machine = machines_[at];
  ClusterMember& member = *machine.server->member;
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    if (std::string wrong = Settle(at, shard); !wrong.empty()) return wrong;
    if (random_.Chance(10) && member.MayDecide(shard, machine.clock)) Write(at, shard);
    if (!random_.Chance(20) || !member.Serves(shard, machine.clock)) continue;
    // A GET by message: the data, then the right.
    ++stats_.reads;
    if (std::string wrong = seen_[shard].Read(absl::StrCat("a GET at ", at),
                                              machine.server->tables[shard]->Writes());
        !wrong.empty())
      return wrong;
  }
  return "";
}

// A beat that the server stores now, and clients see: the check is that of serving_beat.h.
void MemberWorld::GrantLeases(int at) {
  Machine& machine = machines_[at];
  const ClusterMember& member = *machine.server->member;
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    if (!member.Publishes(shard, machine.clock)) continue;
    if (machine.clock + kReaderLease() <= member.right_until())
      machine.leased_until[shard] = now_ + HeldFor(kReaderLease()) * 110 / 100;
  }
}

// A GET by READ, from a server that runs or is stopped.
std::string MemberWorld::ReadRegion(int at) {
  Machine& machine = machines_[at];
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    if (now_ >= machine.leased_until[shard] || !random_.Chance(20)) continue;
    ++stats_.region_reads;
    if (std::string wrong = seen_[shard].Read(absl::StrCat("a READ from ", at),
                                              machine.server->tables[shard]->Writes());
        !wrong.empty())
      return wrong;
  }
  return "";
}

// --- Faults ----------------------------------------------------------------------

// As when a server is drained.
void MemberWorld::AskToHandOver(int at, int to) {
  if (machines_[at].server == nullptr || IsPaused(at)) return;
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    ShardMember& member = machines_[at].server->member->shard(shard);
    if (member.serves()) member.HandOverTo(ServerId(to), machines_[at].clock);
  }
}

// Each shard has another replica in sync, whose server runs.
bool MemberWorld::HaveOtherCopies(int at) const {
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    const std::vector<StoredKey> found = store_.Range({keys_.Shard(shard)}).keys;
    const absl::StatusOr<ShardRecord> record = DecodeShardRecord(found.at(0).value);
    if (!record.ok()) return false;
    const bool has_other =
        std::any_of(record->in_sync.begin(), record->in_sync.end(), [&](const Replica& member) {
          return member.server != ServerId(at) && !crashed_.contains(member.life);
        });
    if (!has_other) return false;
  }
  return true;
}

// An operator's, of any member to any server that is none.
void MemberWorld::AskForMove() {
  const uint32_t shard = static_cast<uint32_t>(random_.Below(shards_));
  const StoredKey found = store_.Range({keys_.Shard(shard)}).keys.at(0);
  const absl::StatusOr<ShardRecord> record = DecodeShardRecord(found.value);
  if (!record.ok() || record->is_initial()) return;
  const ShardMove move = {record->in_sync[random_.Below(record->in_sync.size())].server,
                          ServerId(static_cast<int>(random_.Below(servers_)))};
  const absl::StatusOr<ShardSwap> swap = BeginMove({shard, found.mod_revision, *record}, move);
  if (!swap.ok()) return;
  if (store_.Execute(SwapTransaction(keys_, {&*swap, 1})).outcome == TransactionOutcome::kApplied)
    ++stats_.moves;
}

void MemberWorld::Fault() {
  ++stats_.faults;
  // As many a server, however many servers there are.
  next_fault_ = now_ + absl::Milliseconds(500 + random_.Below(6000)) * 3 / servers_;
  const int at = static_cast<int>(random_.Below(servers_));
  const int other = static_cast<int>((at + 1 + random_.Below(servers_ - 1)) % servers_);
  const absl::Time until = now_ + absl::Milliseconds(100 + random_.Below(8000));
  switch (random_.Below(8)) {
    case 0:
    case 1:
      machines_[at].paused_until = until;
      return;
    case 2: {
      if (machines_[at].server == nullptr || !HaveOtherCopies(at)) return;
      for (uint32_t shard = 0; shard < shards_; ++shard)
        crashed_.insert(machines_[at].server->member->shard(shard).replica().self().life);
      machines_[at].server.reset();
      for (Link& link : machines_[at].links) link = Link();
      for (absl::Time& leased : machines_[at].leased_until) leased = now_;
      machines_[at].restarts = until;
      return;
    }
    case 3:
      AskToHandOver(at, other);
      return;
    case 6:
      return AskForMove();
    case 4:
      machines_[at].cut_from_store_until = until;
      return;
    case 5:
      cut_until_[at][other] = until;
      if (random_.Chance(70)) cut_until_[other][at] = until;
      return;
    default:
      store_down_until_ = until;
      return;
  }
}

std::string MemberWorld::Step() {
  const absl::Duration step = kStep();
  now_ += step;
  if (now_ >= next_fault_ && now_ < faults_end_) Fault();
  for (size_t i = 0; i < late_.size();) {
    Execute(late_[i]);
    if (late_[i].is_done || late_[i].executed == absl::InfiniteFuture()) {
      late_.erase(late_.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  for (int at = 0; at < servers_; ++at) {
    Machine& machine = machines_[at];
    if (random_.Below(400) == 0)
      machine.clock_percent = 90 + static_cast<int64_t>(random_.Below(21));
    machine.clock += step * machine.clock_percent / 100;
    if (machine.server == nullptr) {
      if (now_ < machine.restarts && now_ < faults_end_) continue;
      machine.server = std::make_unique<Server>(*this, at);
      continue;
    }
    RunStore(at);
    if (std::string wrong = ReadRegion(at); !wrong.empty()) return wrong;
    if (IsPaused(at)) continue;
    RunLinks(at);
    for (int from = 0; from < servers_; ++from) {
      if (from == at) continue;
      if (std::string wrong = Deliver(from, at); !wrong.empty()) return wrong;
    }
    machine.server->member->Pump(machine.clock);
    if (std::string wrong = RunClients(at); !wrong.empty()) return wrong;
    if (random_.Chance(30)) GrantLeases(at);
    // It may stop between any two turns, and in the middle of a message's way.
    if (now_ < faults_end_ && random_.Below(4000) == 0)
      machine.paused_until = now_ + absl::Milliseconds(random_.Below(5000));
  }
  return "";
}

// Served, and by as many replicas as there are to be.
bool MemberWorld::IsWhole(uint32_t shard) const {
  for (const Machine& machine : machines_) {
    if (machine.server == nullptr) return false;
    const ClusterMember& member = *machine.server->member;
    if (member.Serves(shard, machine.clock) && member.MayDecide(shard, machine.clock) &&
        member.shard(shard).record().record.in_sync.size() == cluster_.replicas)
      return true;
  }
  return false;
}

bool MemberWorld::AreAllWhole() const {
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    if (!IsWhole(shard)) return false;
  }
  return true;
}

// Every member that the record names has lost its memory.
bool MemberWorld::IsLost(uint32_t shard) const {
  const std::vector<StoredKey> found = store_.Range({keys_.Shard(shard)}).keys;
  const absl::StatusOr<ShardRecord> record = DecodeShardRecord(found.at(0).value);
  return record.ok() && !record->is_initial() &&
         std::all_of(record->in_sync.begin(), record->in_sync.end(),
                     [&](const Replica& member) { return crashed_.contains(member.life); });
}

std::string MemberWorld::Describe() const {
  std::string text;
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    const std::vector<StoredKey> found = store_.Range({keys_.Shard(shard)}).keys;
    absl::StrAppend(&text, "\nshard ", shard, ": ", found.at(0).value);
    for (int at = 0; at < servers_; ++at) {
      if (machines_[at].server == nullptr) continue;
      const ClusterMember& member = *machines_[at].server->member;
      const ShardReplica& replica = member.shard(shard).replica();
      absl::StrAppend(&text, "\n  ", at, ": role ", static_cast<int>(replica.role()), " term ",
                      replica.term(), " life ", absl::Hex(replica.self().life), " incarnation ",
                      absl::Hex(member.incarnation()), " log ", replica.log().kept_after(), "/",
                      replica.log().applied(), "/", replica.log().last(), " serves ",
                      member.Serves(shard, machines_[at].clock));
    }
  }
  return text;
}

std::string MemberWorld::Run(absl::Duration with_faults, absl::Duration to_recover) {
  faults_end_ = now_ + with_faults;
  while (now_ < faults_end_) {
    if (std::string wrong = Step(); !wrong.empty())
      return absl::StrCat("after ", absl::FormatDuration(now_ - absl::UnixEpoch()), ": ", wrong,
                          Describe());
  }
  for (Machine& machine : machines_) {
    machine.paused_until = std::min(machine.paused_until, now_);
    machine.cut_from_store_until = now_;
  }
  for (auto& row : cut_until_) std::fill(std::begin(row), std::end(row), now_);
  store_down_until_ = now_;
  const absl::Time end = now_ + to_recover;
  while (now_ < end && !AreAllWhole()) {
    if (std::string wrong = Step(); !wrong.empty()) return wrong + Describe();
  }
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    const std::vector<StoredKey> found = store_.Range({keys_.Shard(shard)}).keys;
    const absl::StatusOr<ShardRecord> record = DecodeShardRecord(found.at(0).value);
    if (record.ok()) stats_.terms += record->term;
    if (IsLost(shard)) stats_.lost_all = true;
  }
  if (stats_.lost_all || AreAllWhole()) return "";
  return "not whole again" + Describe();
}

}  // namespace osprey
