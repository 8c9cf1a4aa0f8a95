#include "server/cluster/member/shard_member.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/cluster/replication/test_hooks.h"

namespace osprey {
namespace {

// Between greetings of peers that did not answer, and probes of those that are silent.
constexpr absl::Duration kProbeInterval() { return absl::Milliseconds(200); }
// … and of a peer that did not have the term, and reads the record.
constexpr absl::Duration kGreetingPause() { return absl::Milliseconds(10); }
// A commit point without groups is sent when a replica was sent nothing for so long. *Else* each write alone
// costs two appends and two answers.
constexpr absl::Duration kCommitPointPause() { return absl::Milliseconds(5); }
// Of a link's room, what a copy leaves to appends.
constexpr uint64_t kRoomForAppends = 1 << 20;

ShardPlaces PlacesOf(const ShardRecord& record) {
  ShardPlaces places;
  places.term = record.term;
  if (const Replica* primary = record.Find(record.primary); primary != nullptr)
    places.primary = NameOf(*primary);
  for (const Replica& member : record.in_sync) places.in_sync.push_back(NameOf(member));
  return places;
}

}  // namespace

ShardMember::ShardMember(uint32_t shard, ShardMemberOptions options, MemberTable& table,
                         PeerSender& sender)
    : shard_(shard),
      options_(std::move(options)),
      table_(table),
      sender_(sender),
      replica_(shard, ReplicaName(), options_.cluster.min_in_sync, table),
      tracker_(shard) {
  self_.server = options_.server;
}

ShardAuthor ShardMember::Author() const { return {options_.keys, self_}; }

void ShardMember::SetServer(int64_t create_revision, uint64_t incarnation) {
  if (incarnation == self_.incarnation) {
    self_.create_revision = create_revision;
    return;
  }
  // A joiner that has only asked has nothing.
  if (asks_ && replica_.role() == ShardReplica::Role::kOut) self_.life = 0;
  // What the record names is what there was at first.
  if (self_.life != 0 && !before_.has_value()) before_ = self_;
  self_.create_revision = create_revision;
  self_.incarnation = incarnation;
}

// --- The record --------------------------------------------------------------

void ShardMember::Saw(const StoredShard& seen, absl::Time now) {
  if (tracker_.Saw(seen)) TakeRecord(now);
}

void ShardMember::BeginSwap(const ShardSwap& swap) {
  tracker_.Begin(swap);
  if (hand_over_.has_value() && swap.next.primary == hand_over_->to) swaps_hand_over_ = true;
  // A joiner counts from before the swap is sent.
  if (ShardPrimary* primary = replica_.primary(); primary != nullptr)
    primary->SetCounted(CountedNames(), InSync());
}

absl::Status ShardMember::TakeAnswer(const TransactionResult& result, size_t place,
                                     absl::Time now) {
  absl::Status status = tracker_.TakeAnswer(result, place);
  TakeRecord(now);
  // The swap has not happened, and cannot.
  if (tracker_.state() == SwapTracker::State::kIdle && swaps_hand_over_) {
    swaps_hand_over_ = false;
    hand_over_.reset();
  }
  return status;
}

void ShardMember::TakeRecord(absl::Time now) {
  const ShardRecord& record = tracker_.shard().record;
  highest_term_ = std::max(highest_term_, record.term);
  if (record.is_initial()) return TakeInitialRecord(record);
  const ShardPlaces places = PlacesOf(record);
  const bool stays_primary = places.term == replica_.term() && places.primary == replica_.self();
  const bool ends_primary = replica_.role() == ShardReplica::Role::kPrimary &&
                            places.term >= replica_.term() && !stays_primary;
  if (ends_primary) EndPrimary();
  const bool had_replica = replica_.role() != ShardReplica::Role::kOut;  // Rename may leave
  const uint64_t term_before = replica_.term();
  if (const Replica* named = record.Find(self_.server);
      before_.has_value() && named != nullptr && named->life == self_.life) {
    // Perhaps as an incarnation in between, whose swap had no answer. *Else* that replica, which this
    // server still has, counts as another's.
    if (*named != *before_) replica_.Rename(NameOf(*named), places);
    before_ = *named;
    if (*named == self_) before_.reset();
  }
  replica_.TakePlaces(places);
  const bool has_replica = replica_.role() != ShardReplica::Role::kOut;
  if (record.Has(self_)) asks_ = false;
  // One that was to adopt the shard, and came too late, has a name and no replica.
  if (!has_replica && (had_replica || (self_.life != 0 && !asks_))) {
    if (record.Has(self_)) NoteFull(absl::ResourceExhaustedError("memory is full"), now);
    LeaveShard();
  }
  if (ends_primary && has_replica) TellOfTerm(places);
  if (replica_.term() != term_before) {
    ForgetJoiner();
    hand_over_.reset();
    // *Else* a primary of an earlier term drops its members as silent.
    heard_.clear();
    probed_.clear();
    term_since_ = now;
  }
  Count(now);
}

// What this server has of earlier terms was given up by an operator.
void ShardMember::TakeInitialRecord(const ShardRecord& record) {
  const bool has_replica = replica_.role() != ShardReplica::Role::kOut;
  if (record.term == 0 || !(has_replica || before_.has_value() || asks_)) return;
  if (replica_.role() == ShardReplica::Role::kPrimary) EndPrimary();
  LeaveShard();
}

// Others read the record at intervals. One that has handed over need not have them wait for that.
void ShardMember::TellOfTerm(const ShardPlaces& places) {
  for (const ReplicaName& member : places.in_sync) {
    if (member == replica_.self()) continue;
    Ack ack;
    ack.shard = shard_;
    ack.code = AckCode::kUnknownTerm;
    ack.term = places.term;
    ack.from = replica_.self();
    ack.to = member;
    sender_.Send(member.incarnation, PeerMessageKind::kAck, EncodeAck(ack));
  }
}

void ShardMember::EndPrimary() {
  const uint64_t made = table_.EndPrimary();
  if (made > replica_.log().applied()) replica_.MarkApplied(made);
}

// What the replica held counts for nothing. It will be another one when it joins again.
void ShardMember::LeaveShard() {
  replica_.Leave();
  table_.Clear();
  is_clearing_ = true;
  hand_over_.reset();
  swaps_hand_over_ = false;
  self_.life = 0;
  before_.reset();
  copy_is_whole_ = false;
  asks_ = false;
  ForgetJoiner();
}

// The other replicas that the record names, or may come to name.
std::vector<ReplicaName> ShardMember::CountedNames() const {
  std::vector<ReplicaName> names;
  for (const Replica& replica : tracker_.Counted()) {
    if (NameOf(replica) != replica_.self()) names.push_back(NameOf(replica));
  }
  return names;
}

// Tells the primary which members count, and forgets all others.
void ShardMember::Count(absl::Time now) {
  ShardPrimary* primary = replica_.primary();
  if (primary == nullptr) return;
  const std::vector<ReplicaName> counted = CountedNames();
  primary->SetCounted(counted, InSync());
  std::vector<ReplicaName> others;
  for (const auto& [name, peer] : primary->peers()) {
    const bool is_counted = std::find(counted.begin(), counted.end(), name) != counted.end();
    const bool joins = joiner_.has_value() && NameOf(joiner_->replica) == name;
    if (!is_counted && !joins) others.push_back(name);
    if (is_counted && joins && tracker_.shard().record.Has(joiner_->replica)) joiner_.reset();
  }
  for (const ReplicaName& name : others) {
    primary->RemovePeer(name);
    heard_.erase(name);
    probed_.erase(name);
  }
  for (const ReplicaName& name : counted) {
    heard_.try_emplace(name, now);
    if (links_.contains(name.incarnation) && !primary->peers().at(name).is_connected)
      primary->Connected(name);
  }
}

void ShardMember::ForgetJoiner() {
  if (!joiner_.has_value()) return;
  const ReplicaName name = NameOf(joiner_->replica);
  joiner_.reset();
  ShardPrimary* primary = replica_.primary();
  if (primary == nullptr) return;
  const std::vector<ReplicaName> counted = CountedNames();
  if (std::find(counted.begin(), counted.end(), name) == counted.end()) primary->RemovePeer(name);
}

uint64_t ShardMember::NewLife() const {
  uint64_t life = 0;
  while (life == 0) life = options_.random();
  return life;
}

// --- Other servers -------------------------------------------------------------

void ShardMember::AddNeededServers(std::set<std::string>& servers) const {
  const ShardRecord& record = tracker_.shard().record;
  if (joiner_.has_value()) servers.insert(joiner_->replica.server);
  if (record.Find(self_.server) != nullptr) {
    for (const Replica& replica : tracker_.Counted()) servers.insert(replica.server);
  } else if (is_assigned_ || replica_.role() != ShardReplica::Role::kOut) {
    servers.insert(record.primary);
  }
}

void ShardMember::LinkUp(uint64_t incarnation) {
  links_.insert(incarnation);
  ShardPrimary* primary = replica_.primary();
  if (primary == nullptr) return;
  for (const auto& [name, peer] : primary->peers()) {
    if (name.incarnation == incarnation) primary->Connected(name);
  }
}

void ShardMember::LinkDown(uint64_t incarnation) {
  links_.erase(incarnation);
  ShardPrimary* primary = replica_.primary();
  if (primary == nullptr) return;
  for (const auto& [name, peer] : primary->peers()) {
    if (name.incarnation == incarnation) primary->Disconnected(name);
  }
  // A part of the copy may be lost.
  if (joiner_.has_value() && joiner_->replica.incarnation == incarnation) ForgetJoiner();
}

void ShardMember::TakeAppend(const Append& append, absl::Time now) {
  // The swap that resumed its place was applied, and the answer is on its way. *Else* the primary takes this replica for
  // another one, and drops what has all data.
  if (before_.has_value() && append.to == name() && replica_.role() != ShardReplica::Role::kOut) {
    wants_read_ = true;
    const Ack ack{shard_, AckCode::kUnknownTerm, replica_.term(), append.to, append.from, 0, 0};
    return sender_.Send(append.from.incarnation, PeerMessageKind::kAck, EncodeAck(ack));
  }
  const Ack ack = replica_.TakeAppend(append);
  if (ack.code == AckCode::kConfirmed) primary_heard_ = now;
  if (ack.code == AckCode::kUnknownTerm) wants_read_ = true;
  if (ack.code == AckCode::kNoRoom) NoteFull(replica_.failure(), now);
  sender_.Send(append.from.incarnation, PeerMessageKind::kAck, EncodeAck(ack));
}

void ShardMember::NoteFull(const absl::Status& why, absl::Time now) {
  full_until_ = now + options_.full_interval;
  if (options_.log) {
    options_.log(absl::StrCat("shard ", shard_,
                              " has no replica here any more, and joins again in ",
                              absl::FormatDuration(options_.full_interval), ": ", why.message()));
  }
}

void ShardMember::TakeAck(const Ack& ack, absl::Time now) {
  if (ack.code == AckCode::kUnknownTerm && ack.term > tracker_.shard().record.term)
    wants_read_ = true;
  ShardPrimary* primary = replica_.primary();
  if (primary == nullptr) return;
  if (const auto heard = heard_.find(ack.from); heard != heard_.end()) heard->second = now;
  // It has given its copy up: it had no memory for it, say. *Else* no other server may join.
  if (joiner_.has_value() && NameOf(joiner_->replica) == ack.from &&
      ack.code == AckCode::kOtherReplica)
    ForgetJoiner();
  primary->TakeAck(ack);
  if (primary->is_deposed() || ack.code == AckCode::kUnknownTerm) wants_read_ = true;
  if (ack.code == AckCode::kUnknownTerm)
    greeted_ = std::min(greeted_, now - kProbeInterval() + kGreetingPause());
}

void ShardMember::SendCopy(uint64_t to, const ReplicaName& joiner, CopyKind kind, uint64_t lsn,
                           std::string bytes) {
  sender_.Send(to, PeerMessageKind::kCopy,
               EncodeCopyMessage(
                   {shard_, kind, tracker_.shard().record.term, joiner, lsn, std::move(bytes)}));
}

void ShardMember::TakeCopy(const CopyMessage& message, const ConfigurationWatch& watch,
                           absl::Time now) {
  switch (message.kind) {
    case CopyKind::kJoin:
      return TakeJoin(message, watch);
    case CopyKind::kWhole:
      return TakeWhole(message);
    default:
      primary_heard_ = now;
      return TakeOfCopy(message, now);
  }
}

// Not for a primary of another term, or for a replica that counts.
bool ShardMember::IsOfJoiner(const CopyMessage& message) const {
  if (!serves() || message.term != tracker_.shard().record.term) return false;
  const std::vector<ReplicaName> counted = CountedNames();
  return std::find(counted.begin(), counted.end(), message.joiner) == counted.end();
}

void ShardMember::TakeWhole(const CopyMessage& message) {
  if (!IsOfJoiner(message)) return;
  if (joiner_.has_value() && NameOf(joiner_->replica) == message.joiner) {
    joiner_->is_whole = joiner_->is_sent;
    return;
  }
  // Its link was lost, and appends with it.
  SendCopy(message.joiner.incarnation, message.joiner, CopyKind::kRefused);
}

void ShardMember::TakeJoin(const CopyMessage& message, const ConfigurationWatch& watch) {
  const ReplicaName& name = message.joiner;
  const StoredShard& seen = tracker_.shard();
  if (!IsOfJoiner(message)) return;
  if (joiner_.has_value() && NameOf(joiner_->replica) == name) {
    // It asks again, so its copy is lost. A name is used for one copy.
    ForgetJoiner();
    return SendCopy(name.incarnation, name, CopyKind::kRefused);
  }
  if (joiner_.has_value() && joiner_->replica.incarnation != name.incarnation) return;  // busy
  ForgetJoiner();
  Joiner joiner;
  for (const auto& [id, server] : watch.servers()) {
    if (!server.record.has_value() || server.record->incarnation != name.incarnation) continue;
    joiner.replica = {id, server.create_revision, name.incarnation, name.life};
  }
  if (joiner.replica.server.empty() || seen.record.Find(joiner.replica.server) != nullptr ||
      Staying() >= options_.cluster.replicas || !links_.contains(name.incarnation))
    return;
  joiner_ = joiner;
  const uint64_t lsn = replica_.primary()->AddJoiner(name);
  replica_.primary()->Connected(name);
  table_.BeginCopy();
  SendCopy(name.incarnation, name, CopyKind::kBegin, lsn);
}

void ShardMember::TakeOfCopy(const CopyMessage& message, absl::Time now) {
  if (message.joiner != name() || self_.life == 0) return;
  if (message.kind == CopyKind::kBegin) return TakeBegin(message);
  if (message.kind == CopyKind::kRefused) return LeaveShard();
  if (replica_.role() != ShardReplica::Role::kJoining || copy_is_whole_) return;
  if (message.kind == CopyKind::kChunk) {
    if (absl::Status status = table_.TakeChunk(message.bytes); !status.ok()) {
      NoteFull(status, now);
      LeaveShard();
    }
    return;
  }
  table_.EndCopy();
  copy_is_whole_ = true;
  const ShardRecord& record = tracker_.shard().record;
  if (const Replica* primary = record.Find(record.primary); primary != nullptr)
    SendCopy(primary->incarnation, name(), CopyKind::kWhole);
}

void ShardMember::TakeBegin(const CopyMessage& message) {
  if (message.term != tracker_.shard().record.term) {
    wants_read_ |= message.term > tracker_.shard().record.term;
    return LeaveShard();
  }
  if (replica_.role() != ShardReplica::Role::kOut) return;
  // Another shard has taken it since this one asked.
  if (!table_.Take()) return LeaveShard();
  table_.BeginJoin();
  replica_.BeginCopy(name(), PlacesOf(tracker_.shard().record), message.lsn);
  copy_is_whole_ = false;
}

void ShardMember::AskToJoin(absl::Time now) {
  const ShardRecord& record = tracker_.shard().record;
  const bool joins = replica_.role() == ShardReplica::Role::kJoining;
  if (!joins && replica_.role() != ShardReplica::Role::kOut) return;
  // The rest of the copy will not come; also without a link. *Else* its memory is kept from other shards.
  if (joins && !copy_is_whole_ && primary_heard_ + 4 * options_.join_interval <= now)
    return LeaveShard();
  const Replica* primary = record.Find(record.primary);
  if (record.is_initial() || primary == nullptr || record.Find(self_.server) != nullptr ||
      !links_.contains(primary->incarnation) || self_.create_revision == 0)
    return;
  if (!joins && (!is_assigned_ || !table_.CanTake())) return;
  if (asked_ + options_.join_interval > now || full_until_ > now) return;
  if (joins && copy_is_whole_) {
    asked_ = now;
    return SendCopy(primary->incarnation, name(), CopyKind::kWhole);
  }
  if (joins) return;
  if (self_.life == 0) self_.life = NewLife();
  asks_ = true;
  asked_ = now;
  SendCopy(primary->incarnation, name(), CopyKind::kJoin);
}

void ShardMember::Pump(absl::Time now) {
  if (is_clearing_ && !table_.ClearSome()) return;
  is_clearing_ = false;
  if (before_.has_value()) return;  // the replica has no name of this incarnation yet
  if (replica_.primary() == nullptr) return AskToJoin(now);
  replica_.ApplyTail();
  PumpAppends(now);
  PumpCopy(now);
}

void ShardMember::PumpAppends(absl::Time now) {
  if (before_.has_value() || replica_.primary() == nullptr) return;
  ShardPrimary& primary = *replica_.primary();
  if (now - greeted_ >= kProbeInterval()) {
    primary.GreetAgain();
    greeted_ = now;
  }
  for (const auto& [name, peer] : primary.peers()) {
    absl::Time& probed = probed_.try_emplace(name, absl::InfinitePast()).first->second;
    while (sender_.RoomFor(name.incarnation) >= kAppendBytes) {
      const absl::optional<Append> append =
          primary.NextAppend(name, now - probed >= kCommitPointPause());
      if (!append.has_value()) break;
      sender_.Send(name.incarnation, PeerMessageKind::kAppend, EncodeAppend(*append));
      probed = now;
    }
    if (now - probed < kProbeInterval()) continue;
    if (const absl::optional<Append> probe = primary.Probe(name); probe.has_value())
      sender_.Send(name.incarnation, PeerMessageKind::kAppend, EncodeAppend(*probe));
    probed = now;
  }
}

bool ShardMember::MaySendChunk(uint64_t to, absl::Time now) const {
  return sender_.RoomFor(to) >= kRoomForAppends + kCopyBytesMax &&
         (options_.copy_rate == nullptr || options_.copy_rate->MaySend(now));
}

void ShardMember::PumpCopy(absl::Time now) {
  if (!joiner_.has_value() || joiner_->is_sent) return;
  const ReplicaName joiner = NameOf(joiner_->replica);
  while (table_.HasChunk() && MaySendChunk(joiner.incarnation, now)) {
    std::string chunk = table_.NextChunk();
    if (chunk.empty()) {
      SendCopy(joiner.incarnation, joiner, CopyKind::kEnd);
      joiner_->is_sent = true;
      replica_.primary()->EndCopy(joiner);
      return;
    }
    if (options_.copy_rate != nullptr) options_.copy_rate->Sent(chunk.size(), now);
    SendCopy(joiner.incarnation, joiner, CopyKind::kChunk, 0, std::move(chunk));
  }
}

// --- Serving -------------------------------------------------------------------

bool ShardMember::serves() const {
  return replica_.role() == ShardReplica::Role::kPrimary && replica_.self() == name() &&
         tracker_.IsPrimary(self_) && replica_.primary()->has_tail_applied();
}

bool ShardMember::may_decide() const {
  return serves() && InSync() >= options_.cluster.min_in_sync;
}

uint64_t ShardMember::Decide(std::string body, uint64_t entries) {
  assert(serves());
  return replica_.primary()->Decide(std::move(body), entries);
}

uint64_t ShardMember::commit_point() const {
  return replica_.primary() == nullptr ? 0 : replica_.primary()->commit_point();
}

uint64_t ShardMember::held_point() const {
  return replica_.primary() == nullptr ? 0 : replica_.primary()->held_point();
}

}  // namespace osprey
