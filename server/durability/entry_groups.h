// Makes groups of entries from the changes of one partition: a group for each hold of the partition's
// lock.
//
//   OnPut, OnDelete, …  ──> entries of the present group ──OnRelease──> TakeGroup
//
// A subclass says where groups go: into a log (change_log.h), or to other servers
// (server/cluster/table/replicated_changes.h).
//
// Thread rule: the thread that holds the partition's lock.

#ifndef OSPREY_SERVER_DURABILITY_ENTRY_GROUPS_H_
#define OSPREY_SERVER_DURABILITY_ENTRY_GROUPS_H_

#include <cassert>
#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "server/requests/write_log.h"
#include "server/wal/format/entries.h"

namespace osprey::server {

class EntryGroups : public PartitionChanges {
 public:
  // A group ends when it has so many bytes, even within a hold. A part of a flush is shorter.
  static constexpr uint64_t kGroupBytesMax = 4 << 20;

  explicit EntryGroups(uint32_t shard) : shard_(shard) {}

  void SetWrite(const ClientWrite* write) final { write_ = write; }
  void OnExpire(absl::string_view key, uint64_t version, uint64_t expiry_ns) final;
  void OnDelete(absl::string_view key, uint64_t version, uint64_t deletion) final;
  void OnEvict(absl::string_view key, uint64_t version) override;
  void OnResult(const Result& result) final;
  void OnRelease() final {
    if (count_ > 0) EndGroup();
  }
  void BeginPending(uint64_t hash) override { pending_.insert(hash); }
  // The first one's record counts.
  void ContinuePending(uint64_t hash) final { assert(IsPending(hash)); }
  bool IsPending(uint64_t hash) const final { return pending_.contains(hash); }
  void EndPending(uint64_t hash) override { pending_.erase(hash); }
  void DropPending() override { pending_.clear(); }

 protected:
  // A put of the present write. The value's checksum is missing.
  wal::Entry PutEntry(absl::string_view key, index::ByteSpan value, uint64_t version,
                      uint64_t expiry_ns) const {
    wal::Entry entry;
    entry.kind = wal::EntryKind::kPut;
    entry.key = key;
    entry.version = version;
    entry.expiry = expiry_ns;
    entry.value = value;
    entry.value_length = value.size();
    NameWrite(entry);
    return entry;
  }
  // The builder only points to a value above wal::kShortValueBytesMax.
  void Add(const wal::Entry& entry);
  // Adds the put that PutEntry makes, if it has a short value and the answer has the version alone.
  bool AddShortPut(absl::string_view key, index::ByteSpan value, uint64_t version,
                   uint64_t expiry_ns) {
    assert(write_ != nullptr);
    if (write_->opcode != rdma::Opcode::kPut || value.size() > wal::kShortValueBytesMax)
      return false;
    Begin(expiry_ns);
    group_.Add(wal::ShortPut{key, value, version, expiry_ns, write_->session, write_->sequence});
    End();
    return true;
  }
  // Of that key's version alone, by no client.
  void AddRemoval(absl::string_view key, uint64_t version);
  bool has_pending() const { return !pending_.empty(); }

 private:
  // The group has so many entries, the first of which has this lsn. It is used up.
  virtual void TakeGroup(wal::GroupBuilder& group, uint64_t entries) = 0;
  // Before an entry that has an expiry.
  virtual void NoteExpiry(uint64_t expiry_ns) = 0;
  // The version of the entry of a flush's result: that of the bound, as a rule.
  virtual uint64_t VersionOfBound(uint64_t bound) const { return bound; }

  void NameWrite(wal::Entry& entry) const;
  // Before and after an entry that is added.
  void Begin(uint64_t expiry_ns) {
    if (count_ == 0) BeginGroup();
    if (expiry_ns != 0) NoteExpiry(expiry_ns);
  }
  void End() {
    ++count_;
    ++lsn_;
    if (group_.bytes() > kGroupBytesMax) EndGroup();
  }
  void BeginGroup();
  void EndGroup() {
    TakeGroup(group_, count_);
    count_ = 0;
  }

  const uint32_t shard_;
  const ClientWrite* write_ = nullptr;
  wal::GroupBuilder group_{wal::GroupHeader()};
  uint64_t count_ = 0;                     // of its entries
  uint64_t lsn_ = 0;                       // the last one
  absl::flat_hash_set<uint64_t> pending_;  // hashes of keys
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_ENTRY_GROUPS_H_
