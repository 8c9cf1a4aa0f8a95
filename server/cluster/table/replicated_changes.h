// The changes of one partition of a primary, as groups of entries for the other replicas.
//
//   Table ──changes──> ReplicatedChanges ──a group for each hold of the lock──> GroupSink::Decide
//
// The entries are those of a data directory's log (server/durability/change_log.h), and others:
//
// - A key that has expired, and was removed, is deleted by an entry. *Else* it stays on backups, which
//   judge no time.
// - Each value is in its entry, or in parts before it (value_parts.h). So a group fits into a message.
// - The entry of a flush's result has the bound as its version, if this server has given out that.
//   *Else* the next primary gives out versions below the bound, and the flush deletes what they name.
//
// Thread rule: as EntryGroups.

#ifndef OSPREY_SERVER_CLUSTER_TABLE_REPLICATED_CHANGES_H_
#define OSPREY_SERVER_CLUSTER_TABLE_REPLICATED_CHANGES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/cluster/table/value_parts.h"
#include "server/durability/entry_groups.h"
#include "server/requests/write_log.h"
#include "server/wal/format/entries.h"

namespace osprey::server {

// Takes what the holds of partitions' locks have decided.
class GroupSink {
 public:
  virtual ~GroupSink() = default;
  // `body` has so many entries, of this partition. Called under the partition's lock, in the order of
  // its decisions. Thread rule: any threads, of several partitions at once.
  virtual void Decide(uint32_t partition, std::string body, uint64_t entries) = 0;
  // A change with an expiry follows (TimeMarks::NoteExpiry). Thread rule: as Decide.
  virtual void NoteExpiry() = 0;
  // How many groups were decided so far, of all partitions. Thread rule: any thread.
  virtual uint64_t decided() const = 0;
};

class ReplicatedChanges final : public EntryGroups {
 public:
  // `sink` outlives this. `last_version` returns the last version that the tables have given out
  // (Tables::LastVersion).
  ReplicatedChanges(uint32_t partition, GroupSink& sink, std::function<uint64_t()> last_version)
      : EntryGroups(partition),
        partition_(partition),
        sink_(sink),
        last_version_(std::move(last_version)) {}

  // REQUIRES: null, or a PartedValue whose parts are all decided.
  void SetUpload(const ValueUpload* upload) override {
    upload_ = static_cast<const PartedValue*>(upload);
  }
  // REQUIRES: at most kReplicatedValueBytesMax bytes, unless there is an upload.
  void OnPut(absl::string_view key, index::ByteSpan value, uint64_t version,
             uint64_t expiry_ns) override;
  void OnExpired(absl::string_view key, uint64_t version) override;
  void BeginPending(uint64_t hash) override {
    if (!has_pending()) oldest_pending_ = sink_.decided() + 1;
    EntryGroups::BeginPending(hash);
  }
  void EndPending(uint64_t hash) override {
    EntryGroups::EndPending(hash);
    if (!has_pending()) oldest_pending_ = UINT64_MAX;
  }
  void DropPending() override {
    EntryGroups::DropPending();
    oldest_pending_ = UINT64_MAX;
  }

  // The number, by GroupSink::decided, of the first group whose changes are not made yet, or of an earlier
  // one; UINT64_MAX: there is none. *Read it after decided()*: then all groups before both are made. Any
  // thread.
  uint64_t oldest_pending() const { return oldest_pending_.load(); }

 private:
  void TakeGroup(wal::GroupBuilder& group, uint64_t entries) override;
  void NoteExpiry(uint64_t) override { sink_.NoteExpiry(); }
  uint64_t VersionOfBound(uint64_t bound) const override;

  const uint32_t partition_;
  GroupSink& sink_;
  const std::function<uint64_t()> last_version_;
  const PartedValue* upload_ = nullptr;  // of the puts that follow
  std::atomic<uint64_t> oldest_pending_{UINT64_MAX};
};

// The body of a group with this entry alone.
std::string BodyOfEntry(uint32_t partition, const wal::Entry& entry);
// The body of a group that says that a session has begun, or has ended: one entry, of partition 0.
std::string SessionBody(wal::EntryKind kind, uint64_t session);
// … that is this mark of time (time_marks.h).
std::string TimeMarkBody(uint64_t mark_ns);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_TABLE_REPLICATED_CHANGES_H_
