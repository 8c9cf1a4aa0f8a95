#include "server/cluster/table/table_replica.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/cluster/replication/test_hooks.h"
#include "server/cluster/table/replicated_changes.h"
#include "server/durability/session_bytes.h"
#include "xxhash.h"

namespace osprey::server {
namespace {

// Keys that Clear removes in one hold of a lock, about: bytes of a step of the walk.
constexpr uint64_t kClearedBytes = 64 << 10;
// Some ms of work.
constexpr size_t kKeysClearedAtATime = 20'000;

bool IsPart(const wal::Entry& entry) { return entry.kind == wal::EntryKind::kValuePart; }

bool NamesKey(const wal::Entry& entry) {
  return entry.kind == wal::EntryKind::kPut || entry.kind == wal::EntryKind::kExpire ||
         entry.kind == wal::EntryKind::kDelete;
}

// Why no primary sends such an entry; empty if it may.
std::string WhyRefused(const wal::Entry& entry) {
  switch (entry.kind) {
    case wal::EntryKind::kPut:
    case wal::EntryKind::kDelete:
    case wal::EntryKind::kExpire:
    case wal::EntryKind::kSessionBegin:
    case wal::EntryKind::kSessionEnd:
    case wal::EntryKind::kFlushBound:
    case wal::EntryKind::kTimeMark:
    case wal::EntryKind::kValuePart:
    case wal::EntryKind::kPartsDropped:
      break;
    default:
      return absl::StrCat("an entry is of kind ", static_cast<int>(entry.kind),
                          ", which this version never sends");
  }
  const bool is_in_parts = !entry.pieces.empty();
  if (is_in_parts || entry.kind == wal::EntryKind::kValuePart) {
    if (std::string wrong = WhyWrongParts(entry); !wrong.empty()) return wrong;
  } else if (entry.value_length > kReplicatedValueBytesMax) {
    return absl::StrCat("an entry's value has ", entry.value_length, " bytes");
  }
  if (entry.version > index::kCasVersionMax) return "an entry has an impossible version";
  if (entry.kind == wal::EntryKind::kTimeMark &&
      entry.expiry > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return "a mark of time is impossible";
  if (entry.kind == wal::EntryKind::kDelete && entry.result.has_value() &&
      entry.result->version > index::kCasVersionMax)
    return "a result has an impossible version";
  if (!is_in_parts && entry.value_length > wal::kShortValueBytesMax &&
      entry.value_checksum != XXH3_64bits(entry.value.data(), entry.value.size()))
    return "an entry's value has another checksum";
  return WhyImpossible(entry);
}

std::string NameOf(const ReplicatedGroup& group) {
  return absl::StrCat("the group of term ", group.term, ", entries ", group.first_lsn, " to ",
                      group.last_lsn);
}

bool HasResult(const SessionImage& image, uint64_t sequence) {
  const auto at = std::lower_bound(image.results.begin(), image.results.end(), sequence,
                                   [](const auto& one, uint64_t of) { return one.first < of; });
  return at != image.results.end() && at->first == sequence;
}

}  // namespace

// --- Roles -------------------------------------------------------------------

void TableReplica::BeginBackup(std::vector<SessionImage> sessions) {
  assert(reserved_.empty() && !parts_.has_value() && !arriving_.has_value());
  sessions_.clear();
  for (SessionImage& session : sessions) sessions_[session.id] = std::move(session);
  version_floor_ = std::max(version_floor_, tables_.LastVersion());
  for (uint32_t i = 0; i < tables_.partitions(); ++i)
    tables_.SetDecides(i, IsMistake(ReplicationMistake::kBackupDecides));
}

std::vector<SessionImage> TableReplica::TakeOver() {
  assert(reserved_.empty() && !is_copying_);
  DropParts();
  arriving_.reset();
  tables_.RaiseVersions(version_floor_);
  for (uint32_t i = 0; i < tables_.partitions(); ++i) tables_.SetDecides(i, true);
  for (const std::string& key : lost_removals_) {
    const LockedTable table = tables_.Lock(tables_.PartitionOf(key));
    table.changes()->OnEvict(key, version_floor_);
  }
  lost_removals_.clear();
  std::vector<SessionImage> sessions = Sessions();
  sessions_.clear();
  return sessions;
}

void TableReplica::NoteDropped(const std::string& body) {
  wal::Group group;
  const std::string wrong = wal::ParseGroup(wal::BytesOfText(body), group);
  assert(wrong.empty());
  NoteLost(group, *tables_.Lock(group.header.shard));
}

// The group is in no log. What it removes, and is absent, was removed here when it was decided.
void TableReplica::NoteLost(const wal::Group& group, const index::Table& table) {
  if (IsMistake(ReplicationMistake::kForgetsLostRemovals)) return;
  for (const wal::Entry& entry : group.entries) {
    if (entry.kind != wal::EntryKind::kDelete || entry.client != 0) continue;
    if (table.HeldVersion({entry.key, tables_.HashOf(entry.key)}) == 0)
      lost_removals_.insert(std::string(entry.key));
  }
}

void TableReplica::BeginClear() {
  assert(reserved_.empty());
  DropParts();
  arriving_.reset();
  DropCopiedValue();
  sessions_.clear();
  names_.Clear();
  lost_removals_.clear();
  is_copying_ = false;
  is_clearing_ = true;
  time_mark_ns_ = 0;  // what comes next may be another shard's
  cleared_partitions_ = 0;
  clear_cursor_ = 0;
}

// The thread has other shards.
bool TableReplica::ClearSome() {
  const absl::Time now = tables_.ServerTime();
  for (size_t cleared = 0; is_clearing_ && cleared < kKeysClearedAtATime;) {
    const LockedTable table = tables_.Lock(cleared_partitions_);
    std::vector<std::pair<std::string, uint64_t>> keys;
    clear_cursor_ = table->Walk(clear_cursor_, kClearedBytes, [&](const index::WalkedKey& key) {
      keys.emplace_back(std::string(key.key), key.version);
    });
    for (const auto& [key, version] : keys)
      (void)table->MakeDelete({key, tables_.HashOf(key)}, version, now);
    cleared += keys.size();
    if (clear_cursor_ == 0) is_clearing_ = ++cleared_partitions_ < tables_.partitions();
  }
  return !is_clearing_;
}

std::vector<SessionImage> TableReplica::Sessions() const {
  std::vector<SessionImage> sessions;
  for (const auto& [id, image] : sessions_) ForgetResults(sessions.emplace_back(image));
  return sessions;
}

// --- Groups ------------------------------------------------------------------

absl::Status TableReplica::Parse(const ReplicatedGroup& group, wal::Group& parsed) const {
  std::string wrong = wal::ParseGroup(wal::BytesOfText(*group.body), parsed);
  if (wrong.empty() && parsed.entries.size() != group.last_lsn - group.first_lsn + 1)
    wrong = absl::StrCat("it has ", parsed.entries.size(), " entries");
  const uint32_t partition = parsed.header.shard;
  if (wrong.empty() && partition >= tables_.partitions())
    wrong = absl::StrCat("it is of partition ", partition, " of ", tables_.partitions());
  for (const wal::Entry& entry : parsed.entries) {
    if (!wrong.empty()) break;
    wrong = WhyRefused(entry);
    if (wrong.empty() && parsed.entries.size() > 1 &&
        (IsPart(entry) || entry.kind == wal::EntryKind::kPartsDropped))
      wrong = "a part of a value is not alone in its group";
    if (wrong.empty() && (NamesKey(entry) || IsPart(entry)) &&
        tables_.PartitionOf(entry.key) != partition)
      wrong = "a key is of another partition; the servers' hash seeds differ";
  }
  if (wrong.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(NameOf(group), " is damaged: ", wrong));
}

absl::Status TableReplica::RoomError(const absl::Status& status, absl::string_view what) const {
  return absl::ResourceExhaustedError(
      absl::StrCat(what, " has no room on this server: ", status.message(),
                   "; start it with a larger --memory"));
}

absl::Status TableReplica::Reserve(const ReplicatedGroup& group) {
  Reserved reserved;
  reserved.first_lsn = group.first_lsn;
  reserved.body = group.body;
  if (absl::Status status = Parse(group, reserved.group); !status.ok()) return status;
  const LockedTable table = tables_.Lock(reserved.group.header.shard);
  reserved.before = arriving_;
  if (arriving_.has_value() && arriving_->term < group.term) arriving_.reset();
  for (const wal::Entry& entry : reserved.group.entries) {
    absl::Status status;
    if (IsPart(entry)) {
      status = HoldPart(entry, group.term, *table, reserved);
    } else if (entry.kind == wal::EntryKind::kPartsDropped) {
      arriving_.reset();
    } else if (NamesKey(entry)) {
      status =
          entry.pieces.empty() ? Hold(entry, *table, reserved) : HoldPartedPut(entry, reserved);
    }
    if (status.ok()) continue;
    Drop(*table, reserved);
    if (absl::IsDataLoss(status))
      return absl::DataLossError(absl::StrCat(NameOf(group), " is damaged: ", status.message()));
    return RoomError(status, NameOf(group));
  }
  NoteVersions(reserved.group);
  reserved_.push_back(std::move(reserved));
  return absl::OkStatus();
}

// Whether the key may be absent when the put is made.
bool TableReplica::IsNew(const index::HashedKey& key, const index::Table& table) const {
  if (IsMistake(ReplicationMistake::kReservesNoPlace)) return table.HeldVersion(key) == 0;
  return table.HeldVersion(key) == 0 || deletions_.contains(key.hash.bits);
}

absl::Status TableReplica::Hold(const wal::Entry& entry, index::Table& table, Reserved& to) {
  Held held;
  held.key = {entry.key, tables_.HashOf(entry.key)};
  const absl::Time now = tables_.ServerTime();
  absl::StatusOr<index::HeldWrite> write = index::HeldWrite();
  if (entry.kind == wal::EntryKind::kPut) {
    write = table.HoldPut(held.key, entry.value.size(), IsNew(held.key, table), now);
  } else if (entry.kind == wal::EntryKind::kExpire) {
    write = table.HoldExpire(held.key, entry.expiry, now);
  } else if (absl::Status status = table.CheckHolds(); !status.ok()) {
    write = status;
  }
  if (!write.ok()) return write.status();
  held.write = *write;
  if (entry.kind == wal::EntryKind::kDelete) ++deletions_[held.key.hash.bits];
  to.held.push_back(held);
  return absl::OkStatus();
}

// The part continues the value that arrives, or begins another one.
absl::Status TableReplica::HoldPart(const wal::Entry& entry, uint64_t term, index::Table& table,
                                    Reserved& to) {
  const uint64_t offset = entry.version - entry.value_length;
  if (offset == 0) {
    const index::HashedKey key{entry.key, tables_.HashOf(entry.key)};
    absl::StatusOr<index::HeldValue> held =
        table.HoldValue(key, entry.sequence, tables_.ServerTime());
    if (!held.ok()) return held.status();
    to.value = *std::move(held);
    arriving_ = Arriving{std::string(entry.key), term, entry.sequence, 0};
  }
  if (!arriving_.has_value() || arriving_->key != entry.key || arriving_->bytes != entry.sequence ||
      arriving_->arrived != offset)
    return absl::DataLossError("the parts before one of a value are missing");
  arriving_->arrived = entry.version;
  return absl::OkStatus();
}

absl::Status TableReplica::HoldPartedPut(const wal::Entry& entry, Reserved& to) {
  if (!arriving_.has_value() || arriving_->key != entry.key ||
      arriving_->bytes != entry.value_length || arriving_->arrived != arriving_->bytes)
    return absl::DataLossError("parts of a put's value are missing");
  arriving_.reset();
  Held held;
  held.key = {entry.key, tables_.HashOf(entry.key)};
  to.held.push_back(held);
  return absl::OkStatus();
}

void TableReplica::EndDeletion(const Held& held) {
  const auto found = deletions_.find(held.key.hash.bits);
  assert(found != deletions_.end());
  if (--found->second == 0) deletions_.erase(found);
}

// Gives back what the entries hold, as far as they do.
void TableReplica::Drop(index::Table& table, Reserved& from) {
  auto held = from.held.begin();
  for (const wal::Entry& entry : from.group.entries) {
    if (held == from.held.end()) break;
    if (!NamesKey(entry)) continue;
    table.DropHeld(held->write);
    if (entry.kind == wal::EntryKind::kDelete) EndDeletion(*held);
    ++held;
  }
  from.held.clear();
  if (from.value.has_value()) table.DropHeldValue(*std::exchange(from.value, std::nullopt));
  arriving_ = std::move(from.before);
}

void TableReplica::TakePart(const wal::Entry& entry, uint64_t term, Reserved& from) {
  const uint64_t offset = entry.version - entry.value_length;
  if (offset == 0) {
    assert(!parts_.has_value());
    parts_ = Parts{from.group.header.shard, term, 0, *std::exchange(from.value, std::nullopt)};
  }
  assert(parts_.has_value() && parts_->arrived == offset);
  index::Reservation& reservation = parts_->held.reservation;
  std::memcpy(reservation.value().data() + offset, entry.value.data(), entry.value.size());
  reservation.Hash(entry.value.size());
  parts_->arrived = entry.version;
}

// Whether the value that has parts will have no put, since this group is applied.
bool TableReplica::EndsParts(const Reserved& reserved, uint64_t term) const {
  if (parts_->term < term || reserved.value.has_value()) return true;
  return std::any_of(
      reserved.group.entries.begin(), reserved.group.entries.end(),
      [](const wal::Entry& entry) { return entry.kind == wal::EntryKind::kPartsDropped; });
}

void TableReplica::DropParts() {
  if (!parts_.has_value()) return;
  const LockedTable table = tables_.Lock(parts_->partition);
  table->DropHeldValue(std::move(parts_->held));
  parts_.reset();
}

void TableReplica::NoteVersions(const wal::Group& group) {
  for (const wal::Entry& entry : group.entries) {
    if (IsPart(entry)) continue;
    // A client has seen the version of a deletion, and the bound of a flush.
    const bool has_own = entry.kind == wal::EntryKind::kDelete && entry.result.has_value();
    uint64_t version = entry.version;
    if (!IsMistake(ReplicationMistake::kFloorOfAppliedKeys)) {
      if (has_own) version = std::max(version, entry.result->version);
    } else if (entry.kind != wal::EntryKind::kPut) {
      continue;
    }
    version_floor_ = std::max(version_floor_, version);
  }
}

void TableReplica::Release(const ReplicatedGroup& group) {
  assert(!reserved_.empty() && reserved_.back().first_lsn == group.first_lsn);
  (void)group;
  Reserved reserved = std::move(reserved_.back());
  reserved_.pop_back();
  if (IsMistake(ReplicationMistake::kForgetsReleased)) return;
  const LockedTable table = tables_.Lock(reserved.group.header.shard);
  Drop(*table, reserved);
  NoteLost(reserved.group, *table);
}

void TableReplica::Apply(const ReplicatedGroup& group) {
  assert(!reserved_.empty() && reserved_.front().first_lsn == group.first_lsn);
  Reserved reserved = std::move(reserved_.front());
  reserved_.pop_front();
  const absl::Time now = tables_.ServerTime();
  if (parts_.has_value() && EndsParts(reserved, group.term)) DropParts();
  const LockedTable table = tables_.Lock(reserved.group.header.shard);
  auto held = reserved.held.begin();
  for (const wal::Entry& entry : reserved.group.entries) {
    if (IsPart(entry)) TakePart(entry, group.term, reserved);
    if (NamesKey(entry)) Make(entry, *held++, *table, now);
    if (entry.kind == wal::EntryKind::kTimeMark && !IsMistake(ReplicationMistake::kForgetsMarks))
      NoteTimeMark(entry.expiry);
    NoteClient(entry, sessions_);
    if (is_copying_) names_.Note(entry);
  }
  // As a poller does for partitions that it has written to.
  if (table->GrowthWanted()) (void)table->GrowStep(now);
}

void TableReplica::Make(const wal::Entry& entry, const Held& held, index::Table& table,
                        absl::Time now) {
  // Others have it as this server has it now. (An expiry alone changes nothing here.)
  if (entry.kind != wal::EntryKind::kExpire && !lost_removals_.empty())
    lost_removals_.erase(entry.key);
  switch (entry.kind) {
    case wal::EntryKind::kPut:
      if (!entry.pieces.empty()) {
        assert(parts_.has_value() && parts_->arrived == entry.value_length);
        table.MakeValuePut(std::move(parts_->held), held.key, entry.version, entry.expiry, now);
        parts_.reset();
        return;
      }
      table.MakePut(held.write, held.key, entry.value, entry.version, entry.expiry, now);
      return;
    case wal::EntryKind::kExpire:
      // A joiner may not have the value yet. Then CopiedNames keeps the expiry.
      (void)table.MakeExpire(held.write, held.key, entry.version, entry.expiry, now);
      return;
    default:
      EndDeletion(held);
      (void)table.MakeDelete(
          held.key, IsMistake(ReplicationMistake::kDeletesNewer) ? UINT64_MAX : entry.version, now);
      return;
  }
}

// --- The copy ----------------------------------------------------------------

void TableReplica::BeginCopy() {
  assert(reserved_.empty());
  names_.Clear();
  is_copying_ = true;
}

absl::Status TableReplica::TakeChunk(absl::string_view chunk) {
  assert(is_copying_);
  absl::StatusOr<Chunk> parsed = ParseChunk(chunk);
  if (!parsed.ok()) return parsed.status();
  version_floor_ = std::max(version_floor_, parsed->last_version);
  NoteTimeMark(parsed->time_mark_ns);
  if (parsed->part.has_value()) {
    if (absl::Status status = TakePartOfItem(parsed->items[0], *parsed->part); !status.ok())
      return status;
    parsed->items.clear();
  }
  for (CopiedItem item : parsed->items) {
    if (!names_.MayTake(item)) continue;
    if (absl::Status status = TakeItem(item); !status.ok()) return status;
  }
  for (const SessionImage& session : parsed->sessions) {
    if (names_.MayTakeSession(session.id)) TakeSession(session);
  }
  if (!parsed->is_last) return absl::OkStatus();
  DropCopiedValue();
  is_copying_ = false;
  names_.Clear();
  return absl::OkStatus();
}

absl::Status TableReplica::TakeItem(const CopiedItem& item) {
  const index::HashedKey key{item.key, tables_.HashOf(item.key)};
  const absl::Time now = tables_.ServerTime();
  const LockedTable table = tables_.Lock(tables_.PartitionOf(key.hash));
  const bool is_new = table->HeldVersion(key) == 0;
  absl::StatusOr<index::HeldWrite> write = table->HoldPut(key, item.value.size(), is_new, now);
  if (!write.ok()) return RoomError(write.status(), "a copied key");
  table->MakePut(*write, key, item.value, item.version, item.expiry_ns, now);
  if (table->GrowthWanted()) (void)table->GrowStep(now);
  version_floor_ = std::max(version_floor_, item.version);
  return absl::OkStatus();
}

// It counts when its last part has come, by what groups have named until then.
absl::Status TableReplica::TakePartOfItem(CopiedItem item, const ChunkPart& part) {
  const index::HashedKey key{item.key, tables_.HashOf(item.key)};
  const absl::Time now = tables_.ServerTime();
  if (part.offset == 0) DropCopiedValue();
  const LockedTable table = tables_.Lock(tables_.PartitionOf(key.hash));
  if (part.offset == 0) {
    absl::StatusOr<index::HeldValue> held = table->HoldValue(key, part.bytes, now);
    if (!held.ok()) return RoomError(held.status(), "a copied key");
    copied_ = CopiedValue{std::string(item.key), item.version, 0, *std::move(held)};
  }
  if (!copied_.has_value() || copied_->key != item.key || copied_->version != item.version ||
      copied_->arrived != part.offset || copied_->held.reservation.value().size() != part.bytes) {
    return absl::DataLossError("a part of a copied value does not follow the one before");
  }
  index::Reservation& reservation = copied_->held.reservation;
  std::memcpy(reservation.value().data() + part.offset, item.value.data(), item.value.size());
  reservation.Hash(item.value.size());
  copied_->arrived += item.value.size();
  if (copied_->arrived < part.bytes) return absl::OkStatus();
  index::HeldValue held = std::move(copied_->held);
  copied_.reset();
  if (!names_.MayTake(item)) {
    table->DropHeldValue(std::move(held));
    return absl::OkStatus();
  }
  table->MakeValuePut(std::move(held), key, item.version, item.expiry_ns, now);
  version_floor_ = std::max(version_floor_, item.version);
  return absl::OkStatus();
}

void TableReplica::DropCopiedValue() {
  if (!copied_.has_value()) return;
  const LockedTable table = tables_.Lock(tables_.PartitionOf(copied_->key));
  table->DropHeldValue(std::move(copied_->held));
  copied_.reset();
}

// The copy and the groups have the same result of a sequence.
void TableReplica::TakeSession(const SessionImage& session) {
  SessionImage& image = sessions_[session.id];
  image.id = session.id;
  if (IsMistake(ReplicationMistake::kCopyOverResults)) image.results.clear();
  for (const auto& [sequence, result] : session.results) {
    if (!HasResult(image, sequence)) RememberResult(image, sequence, result);
  }
}

}  // namespace osprey::server
