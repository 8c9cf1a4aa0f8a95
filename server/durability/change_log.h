// Appends the changes of one partition to the log: a record for each hold of the partition's lock
// (entry_groups.h).
//
//   OnPut, OnDelete, …  ──> entries of the present group ──OnRelease──> wal::Log::Append
//   OnPut, of an upload ──> an entry that names the upload's pieces (upload_log.h)
//   OnPut, above 64 KiB ──> pieces, written at once, from the table's memory
//
// So records have the order of the partition's changes, and what one hold did is replayed whole.
//
// Thread rule: the thread that holds the partition's lock.

#ifndef OSPREY_SERVER_DURABILITY_CHANGE_LOG_H_
#define OSPREY_SERVER_DURABILITY_CHANGE_LOG_H_

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/durability/entry_groups.h"
#include "server/requests/write_log.h"
#include "server/wal/format/entries.h"
#include "server/wal/log.h"

namespace osprey::server {

// Appends to the log, and writes first what fills its queue. Returns the record's number. Errors:
// those of Log::Append, but ABORTED, and of Log::Write. Any thread.
absl::StatusOr<uint64_t> AppendTo(wal::Log& log, const wal::NewRecord& record);

class ChangeLog final : public EntryGroups {
 public:
  // A longer value is written in pieces.
  static constexpr uint64_t kValueInEntryMax = 64 << 10;

  // `failed` is called with the error of an append, which ends the server: its change was made. No
  // later change is appended, so that none is in the log without those before it.
  ChangeLog(uint32_t shard, std::function<void(absl::Status)> failed)
      : EntryGroups(shard), failed_(std::move(failed)) {}
  // Changes are logged from now on; they may not come before. A record of a key that expires up to
  // `soon_ns`, by server time, raises the time mark to that: no mark may come before it expires. Both
  // outlive this.
  void Start(wal::Log& log, const std::atomic<uint64_t>& soon_ns) {
    log_ = &log;
    soon_ns_ = &soon_ns;
  }

  // The first record whose change is not made yet, or of a value whose entry is not appended yet, or
  // an earlier one; UINT64_MAX: there is none. A checkpoint that reads it after Log::appended()
  // misses none. Any thread.
  uint64_t oldest_incomplete() const {
    return std::min(oldest_piece_.load(), oldest_pending_.load());
  }

  // Changes that were appended. Any thread.
  uint64_t entries() const { return entries_.load(std::memory_order_relaxed); }

  // REQUIRES: it is an UploadLog's, of the same log.
  void SetUpload(const ValueUpload* upload) override { upload_ = upload; }
  void OnPut(absl::string_view key, index::ByteSpan value, uint64_t version,
             uint64_t expiry_ns) override;
  void OnEvict(absl::string_view key, uint64_t version) override;
  // oldest_incomplete() has the first one's record.
  void BeginPending(uint64_t hash) override {
    if (!has_pending()) oldest_pending_ = log_->appended() + 1;
    EntryGroups::BeginPending(hash);
  }
  void EndPending(uint64_t hash) override {
    EntryGroups::EndPending(hash);
    if (!has_pending()) oldest_pending_ = UINT64_MAX;
  }
  // REQUIRES: nothing is pending. The log has such changes, and replays them after a restart.
  void DropPending() override { assert(!has_pending()); }

 private:
  void TakeGroup(wal::GroupBuilder& group, uint64_t entries) override;
  void NoteExpiry(uint64_t expiry_ns) override;
  bool AppendPieces(index::ByteSpan value, wal::Entry& entry);
  absl::StatusOr<uint64_t> Append(const wal::NewRecord& record);
  void Fail(const absl::Status& status);

  const std::function<void(absl::Status)> failed_;
  wal::Log* log_ = nullptr;
  const std::atomic<uint64_t>* soon_ns_ = nullptr;
  const ValueUpload* upload_ = nullptr;  // of the puts that follow
  absl::Status error_;                   // of an append
  std::atomic<uint64_t> entries_{0};
  std::atomic<uint64_t> oldest_piece_{UINT64_MAX};
  std::atomic<uint64_t> oldest_pending_{UINT64_MAX};
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_CHANGE_LOG_H_
