// The tables and sessions of a replica that is no primary: applies groups that the primary has decided.
//
//   BeginBackup ──> Reserve, Apply, Release (ShardBackup) ──> TakeOver: the tables decide again
//        └─ a joiner: BeginCopy ──> TakeChunk, … in between ──> the last chunk
//
// Rules:
//
// - Reserve holds an item for each put, and a line of the index for each key that is new then. *Else* a
//   group that was committed has no room.
// - A key counts as new if it is absent, or if a deletion of it is pending. *Else* a put behind a pending
//   deletion finds no place.
// - A deletion names a version: a later value stays. *Else* a key is gone that was put while the
//   eviction of its earlier value was on its way.
// - A key that a group has put or deleted since the copy began is not taken from the copy. *Else* an
//   earlier value comes back.
// - Of a key whose expiry alone a group has changed, the value is taken from the copy, with that
//   expiry. *Else* the value is missing, since no group has it.
// - A session that a group has ended is not taken from the copy. Results of groups stay beside those of
//   the copy. *Else* a repeated write is executed again.
// - A long value comes in parts (value_parts.h). Its item is held from the first one on.
// - Nothing is evicted, and no expired key ends, but by an entry. *Else* the replicas differ.
// - A primary evicts when it decides. A key whose eviction no log has is absent here alone. An entry deletes it
//   once the tables decide again. *Else* a client finds it absent here, and deletes it without an entry, and
//   the next primary has it.
// - The server's clock goes on from the last mark of time when the tables decide again. *Else* a key
//   that the primary before has found to have expired is there again.
//
// Thread rule: one thread, which holds no lock of a partition. Others may use the tables.

#ifndef OSPREY_SERVER_CLUSTER_TABLE_TABLE_REPLICA_H_
#define OSPREY_SERVER_CLUSTER_TABLE_TABLE_REPLICA_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "index/writer/table.h"
#include "server/cluster/replication/shard_backup.h"
#include "server/cluster/table/copied_names.h"
#include "server/cluster/table/copy_chunk.h"
#include "server/cluster/table/value_parts.h"
#include "server/durability/entry_effects.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"
#include "server/wal/format/entries.h"

namespace osprey::server {

class TableReplica final : public ReplicaStore {
 public:
  // `tables` outlives this. `seed`: random, of the digests of names.
  TableReplica(Tables& tables, uint64_t seed) : tables_(tables), names_(seed) {}

  // The tables decide nothing from now on. `sessions` are those that this server had as a primary, if
  // it was one. REQUIRES: no write of the tables is prepared (index::Table::Prepare).
  void BeginBackup(std::vector<SessionImage> sessions = {});
  // What this server had decided as a primary is in no log: the body of its group. REQUIRES: between
  // BeginBackup and TakeOver.
  void NoteDropped(const std::string& body);
  // Whether this server alone has removed the key.
  bool LacksAlone(absl::string_view key) const { return lost_removals_.contains(key); }
  // The tables decide again, with versions above all that were seen, and begin with the deletion of what they
  // lack alone. Returns the sessions, for Engine::RestoreSessions. REQUIRES: no group is reserved; no copy is
  // under way; the receivers of changes take groups.
  std::vector<SessionImage> TakeOver();
  // Begins to remove all keys; sessions are gone at once. REQUIRES: BeginBackup; no group is reserved.
  void BeginClear();
  // Goes on, for some ms. True: no key is left. Meanwhile nothing else changes the tables.
  bool ClearSome();
  bool is_clearing() const { return is_clearing_; }

  // --- ReplicaStore, between BeginBackup and TakeOver.
  // Errors: DATA_LOSS (a malformed group; says what is wrong); RESOURCE_EXHAUSTED (says which --memory
  // is too small).
  absl::Status Reserve(const ReplicatedGroup& group) override;
  void Release(const ReplicatedGroup& group) override;
  void Apply(const ReplicatedGroup& group) override;

  // --- The copy for a joiner, between BeginBackup and TakeOver.
  // The copy begins: the groups that are reserved from now on are those behind it. REQUIRES: the tables
  // are empty, and no group is reserved.
  void BeginCopy();
  // Takes a part of the copy, in its order. Groups may be reserved and applied before and after each.
  // Errors: those of Reserve. Then the copy has to begin again, with BeginClear. REQUIRES: is_copying().
  absl::Status TakeChunk(absl::string_view chunk);
  // Until the last chunk was taken.
  bool is_copying() const { return is_copying_; }

  // The highest version that was seen.
  uint64_t version_floor() const { return version_floor_; }
  // The last mark of time that was seen, and counts (time_marks.h); 0: none. Before TakeOver the owner
  // advances the clock of the tables to it.
  uint64_t time_mark_ns() const { return time_mark_ns_; }
  // This server, as a primary, has a mark that counts.
  void NoteTimeMark(uint64_t mark_ns) { time_mark_ns_ = std::max(time_mark_ns_, mark_ns); }
  // By ascending id.
  std::vector<SessionImage> Sessions() const;

 private:
  // What an entry holds.
  struct Held {
    index::HashedKey key;
    index::HeldWrite write;
  };
  // A value that has parts, and no put yet.
  struct Arriving {
    std::string key;
    uint64_t term = 0;
    uint64_t bytes = 0;    // of the whole value
    uint64_t arrived = 0;  // of them
  };
  struct Reserved {
    uint64_t first_lsn = 0;
    std::shared_ptr<const std::string> body;  // that `group` points into
    wal::Group group;
    std::vector<Held> held;                 // by entry, as far as it names a key
    std::optional<index::HeldValue> value;  // of a first part
    std::optional<Arriving> before;         // `arriving_` before it
  };
  // A value as far as its parts are applied.
  struct Parts {
    uint32_t partition = 0;
    uint64_t term = 0;
    uint64_t arrived = 0;
    index::HeldValue held;
  };

  // A long value of the copy.
  struct CopiedValue {
    std::string key;
    uint64_t version = 0;
    uint64_t arrived = 0;
    index::HeldValue held;
  };

  absl::Status Parse(const ReplicatedGroup& group, wal::Group& parsed) const;
  absl::Status Hold(const wal::Entry& entry, index::Table& table, Reserved& to);
  absl::Status HoldPart(const wal::Entry& entry, uint64_t term, index::Table& table, Reserved& to);
  absl::Status HoldPartedPut(const wal::Entry& entry, Reserved& to);
  void TakePart(const wal::Entry& entry, uint64_t term, Reserved& from);
  bool EndsParts(const Reserved& reserved, uint64_t term) const;
  void DropParts();
  void Drop(index::Table& table, Reserved& from);
  void Make(const wal::Entry& entry, const Held& held, index::Table& table, absl::Time now);
  bool IsNew(const index::HashedKey& key, const index::Table& table) const;
  void EndDeletion(const Held& held);
  void NoteLost(const wal::Group& group, const index::Table& table);
  void NoteVersions(const wal::Group& group);
  absl::Status TakeItem(const CopiedItem& item);
  absl::Status TakePartOfItem(CopiedItem item, const ChunkPart& part);
  void DropCopiedValue();
  void TakeSession(const SessionImage& session);
  absl::Status RoomError(const absl::Status& status, absl::string_view what) const;

  Tables& tables_;
  std::deque<Reserved> reserved_;
  std::optional<Arriving> arriving_;                   // behind all that is reserved
  std::optional<Parts> parts_;                         // behind all that is applied
  absl::flat_hash_map<uint64_t, uint32_t> deletions_;  // that are reserved, by hash
  // Keys that are absent here, and perhaps here alone.
  absl::flat_hash_set<std::string> lost_removals_;
  SessionImages sessions_;
  uint64_t version_floor_ = 0;
  uint64_t time_mark_ns_ = 0;
  bool is_copying_ = false;
  CopiedNames names_;
  std::optional<CopiedValue> copied_;
  // Where ClearSome goes on.
  bool is_clearing_ = false;
  uint32_t cleared_partitions_ = 0;
  uint64_t clear_cursor_ = 0;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_TABLE_TABLE_REPLICA_H_
