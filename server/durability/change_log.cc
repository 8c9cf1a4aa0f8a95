#include "server/durability/change_log.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "index/layout/test_hooks.h"
#include "server/durability/upload_log.h"
#include "xxhash.h"

namespace osprey::server {

void ChangeLog::OnPut(absl::string_view key, index::ByteSpan value, uint64_t version,
                      uint64_t expiry_ns) {
  if (upload_ == nullptr && AddShortPut(key, value, version, expiry_ns)) return;
  wal::Entry entry = PutEntry(key, value, version, expiry_ns);
  if (upload_ != nullptr) {
    static_cast<const LoggedUpload*>(upload_)->NameIn(entry);
    assert(entry.value_length == value.size());
    return Add(entry);
  }
  if (value.size() > wal::kShortValueBytesMax)
    entry.value_checksum = XXH3_64bits(value.data(), value.size());
  if (value.size() > kValueInEntryMax) {
    OnRelease();  // earlier changes come first
    oldest_piece_ = log_->appended() + 1;
    if (!AppendPieces(value, entry)) return;  // an entry without all pieces is damage
    entry.value = {};
  }
  Add(entry);
  // The builder only points to a longer value, which the next change may move.
  if (value.size() > wal::kShortValueBytesMax) OnRelease();
  oldest_piece_ = UINT64_MAX;
}

void ChangeLog::OnEvict(absl::string_view key, uint64_t version) {
  if (log_ == nullptr) return;  // while the table is loaded
  if (index::IsMutant(index::Mutant::kEvictionNotLogged)) return;
  AddRemoval(key, version);
}

void ChangeLog::NoteExpiry(uint64_t expiry_ns) {
  if (expiry_ns <= soon_ns_->load(std::memory_order_relaxed)) log_->RaiseMarks(expiry_ns, 0);
}

// The value stays where it is until the lock is released, so the log need not copy it.
bool ChangeLog::AppendPieces(index::ByteSpan value, wal::Entry& entry) {
  for (uint64_t at = 0; at < value.size(); at += wal::kPieceBytesMax) {
    const wal::Bytes piece =
        value.subspan(at, std::min<uint64_t>(wal::kPieceBytesMax, value.size() - at));
    const wal::BodyPart part{piece, /*pinned=*/true};
    const absl::StatusOr<uint64_t> number = Append({wal::RecordKind::kPiece, {&part, 1}});
    if (!number.ok()) return false;
    entry.pieces.push_back({*number, static_cast<uint32_t>(piece.size()), 0});
  }
  absl::Status status = log_->Write();
  if (!status.ok()) Fail(status);
  return status.ok();
}

void ChangeLog::TakeGroup(wal::GroupBuilder& group, uint64_t entries) {
  wal::BodyParts parts = group.Parts();
  for (wal::BodyPart& part : parts) part.pinned = false;  // it is written after the lock's release
  (void)Append({wal::RecordKind::kEntries, parts});
  // Only the holder of the lock writes it.
  entries_.store(entries_.load(std::memory_order_relaxed) + entries, std::memory_order_relaxed);
}

absl::StatusOr<uint64_t> ChangeLog::Append(const wal::NewRecord& record) {
  assert(log_ != nullptr);
  if (!error_.ok()) return error_;
  absl::StatusOr<uint64_t> number = AppendTo(*log_, record);
  if (!number.ok()) Fail(number.status());
  return number;
}

void ChangeLog::Fail(const absl::Status& status) {
  if (!error_.ok()) return;
  error_ = status;
  failed_(status);
}

absl::StatusOr<uint64_t> AppendTo(wal::Log& log, const wal::NewRecord& record) {
  absl::StatusOr<uint64_t> number = log.Append({&record, 1});
  while (absl::IsAborted(number.status())) {  // the queue is full
    if (absl::Status status = log.Write(); !status.ok()) return status;
    number = log.Append({&record, 1});
  }
  return number;
}

}  // namespace osprey::server
