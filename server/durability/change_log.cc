#include "server/durability/change_log.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "absl/types/optional.h"
#include "index/layout/test_hooks.h"
#include "server/durability/upload_log.h"
#include "server/requests/decimal_int.h"
#include "xxhash.h"

namespace osprey::server {
namespace {

wal::EntryResult WireResultOf(const Result& result) {
  wal::EntryResult entry;
  entry.status = static_cast<uint32_t>(result.code);
  entry.reason = WireNumberOf(result.reason);
  entry.version = result.version;
  entry.number = result.number;
  entry.length = result.value_length;
  entry.cursor = result.slot;
  entry.expiry = result.expiry;
  return entry;
}

}  // namespace

// The write that the entry is the effect of, and its answer, if that has more than the version.
void ChangeLog::NameWrite(wal::Entry& entry) const {
  assert(write_ != nullptr);
  // The parts of a flush have one answer for all deletes.
  if (write_->opcode == rdma::Opcode::kFlush) return;
  entry.client = write_->session;
  entry.sequence = write_->sequence;
  Result result;
  result.code = absl::StatusCode::kOk;
  result.version = entry.version;
  switch (write_->opcode) {
    case rdma::Opcode::kIncrement: {
      const absl::optional<int64_t> number = ParseNumber(wal::TextOf(entry.value));
      assert(number.has_value());
      result.has_number = true;
      result.number = *number;
      break;
    }
    case rdma::Opcode::kAppend:
      result.value_length = entry.value_length;
      break;
    case rdma::Opcode::kExpire:
      result.expiry = entry.expiry;
      break;
    default:
      return;
  }
  entry.result = WireResultOf(result);
  entry.has_number = result.has_number;
}

void ChangeLog::OnPut(absl::string_view key, index::ByteSpan value, uint64_t version,
                      uint64_t expiry_ns) {
  wal::Entry entry;
  entry.kind = wal::EntryKind::kPut;
  entry.key = key;
  entry.version = version;
  entry.expiry = expiry_ns;
  entry.value = value;
  entry.value_length = value.size();
  NameWrite(entry);
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

void ChangeLog::OnExpire(absl::string_view key, uint64_t version, uint64_t expiry_ns) {
  wal::Entry entry;
  entry.kind = wal::EntryKind::kExpire;
  entry.key = key;
  entry.version = version;
  entry.expiry = expiry_ns;
  NameWrite(entry);
  Add(entry);
}

void ChangeLog::OnDelete(absl::string_view key, uint64_t version, uint64_t deletion) {
  wal::Entry entry;
  entry.kind = wal::EntryKind::kDelete;
  entry.key = key;
  entry.version = version;
  NameWrite(entry);
  if (entry.client != 0) {
    Result result;
    result.code = absl::StatusCode::kOk;
    result.version = deletion;
    entry.result = WireResultOf(result);
  }
  Add(entry);
}

void ChangeLog::OnEvict(absl::string_view key, uint64_t version) {
  if (log_ == nullptr) return;  // while the table is loaded
  if (index::IsMutant(index::Mutant::kEvictionNotLogged)) return;
  wal::Entry entry;
  entry.kind = wal::EntryKind::kDelete;
  entry.key = key;
  entry.version = version;
  Add(entry);
}

void ChangeLog::OnResult(const Result& result) {
  assert(write_ != nullptr);
  wal::Entry entry;
  entry.kind = wal::EntryKind::kFlushBound;
  entry.client = write_->session;
  entry.sequence = write_->sequence;
  entry.version = result.version;
  entry.result = WireResultOf(result);
  Add(entry);
}

void ChangeLog::Add(const wal::Entry& entry) {
  if (count_ == 0) {
    wal::GroupHeader header;
    header.shard = shard_;
    header.first_lsn = lsn_ + 1;
    header.commit_point = lsn_;
    group_.Reset(header);
  }
  if (entry.expiry != 0 && entry.expiry <= soon_ns_->load(std::memory_order_relaxed))
    log_->RaiseMarks(entry.expiry, 0);
  group_.Add(entry);
  ++count_;
  ++lsn_;
  if (group_.bytes() > kGroupBytesMax) AppendGroup();
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

void ChangeLog::AppendGroup() {
  wal::BodyParts parts = group_.Parts();
  for (wal::BodyPart& part : parts) part.pinned = false;  // it is written after the lock's release
  (void)Append({wal::RecordKind::kEntries, parts});
  // Only the holder of the lock writes it.
  entries_.store(entries() + count_, std::memory_order_relaxed);
  count_ = 0;
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
