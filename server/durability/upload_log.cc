#include "server/durability/upload_log.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "server/durability/change_log.h"

namespace osprey::server {
namespace {

constexpr int kMibShift = 20;
static_assert(wal::kPieceBytesMax == 1 << kMibShift);

}  // namespace

absl::StatusOr<std::unique_ptr<ValueUpload>> UploadLog::Begin(uint64_t value_bytes) {
  if (value_bytes <= ChangeLog::kValueInEntryMax) return std::unique_ptr<ValueUpload>();
  // The next checkpoint will have the value as well.
  const uint64_t reserved = 2 * value_bytes;
  const absl::Status status = log_->ReserveSpace(reserved);
  if (status.ok()) return std::make_unique<LoggedUpload>(*this, reserved);
  if (!absl::IsResourceExhausted(status)) return status;
  refused_ = true;
  return absl::ResourceExhaustedError(
      absl::StrCat("a value of ", value_bytes,
                   " bytes does not fit on the disk; nothing was changed: ", status.message()));
}

uint64_t UploadLog::oldest_incomplete() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return first_records_.empty() ? UINT64_MAX : *first_records_.begin();
}

UploadLog::Records::iterator UploadLog::Register(uint64_t first_record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return first_records_.insert(first_record);
}

void UploadLog::Unregister(Records::iterator place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  first_records_.erase(place);
}

// On return the piece is not used any more.
absl::StatusOr<uint64_t> UploadLog::AppendPiece(wal::Bytes piece) {
  const wal::BodyPart part{piece, /*pinned=*/true};
  absl::StatusOr<uint64_t> number = AppendTo(*log_, {wal::RecordKind::kPiece, {&part, 1}});
  if (!number.ok()) return Failed(number.status());
  if (absl::Status status = log_->Write(); !status.ok()) return Failed(std::move(status));
  NotePiece(*number, piece.size());
  return number;
}

// A log that has no room for a piece goes on without it.
absl::Status UploadLog::Failed(absl::Status status) {
  if (!log_->status().ok()) {
    failed_(status);
  } else if (absl::IsResourceExhausted(status)) {
    refused_ = true;
  }
  return status;
}

void UploadLog::NotePiece(uint64_t record, uint64_t bytes) {
  const uint64_t before = bytes_.fetch_add(bytes);
  const uint64_t mib = (before + bytes) >> kMibShift;
  if (before >> kMibShift == mib) return;
  records_[mib % kAheadMibMax] = record;
  if (sync_thread_ != nullptr && IsUnsynced(kAheadMibMax / 2)) sync_thread_->Hurry();
}

// Whether the record of so many MiB of pieces ago is not synced.
bool UploadLog::IsUnsynced(uint64_t mib_ago) const {
  const uint64_t mib = bytes_.load() >> kMibShift;
  return records_[(mib + kAheadMibMax - mib_ago) % kAheadMibMax] > log_->synced();
}

LoggedUpload::LoggedUpload(UploadLog& owner, uint64_t reserved)
    : owner_(owner), reserved_(reserved), hasher_(std::make_unique<index::BytesHasher>()) {}

LoggedUpload::~LoggedUpload() {
  if (place_.has_value()) owner_.Unregister(*place_);
  owner_.log_->ReleaseSpace(reserved_);
}

absl::Status LoggedUpload::Log(index::ByteSpan value, uint64_t arrived) {
  assert(arrived <= value.size() && arrived >= logged_);
  const bool is_whole = arrived == value.size();
  if (!is_whole && !postponed_ && place_.has_value() &&
      owner_.log_->bytes_written() - log_bytes_before_ > owner_.postponed_after_) {
    if (absl::Status status = Postpone(); !status.ok()) return status;
  }
  if (!is_whole && (postponed_ || arrived - logged_ < wal::kPieceBytesMax)) return absl::OkStatus();
  if (is_logged_) return absl::OkStatus();
  absl::Status status =
      LogPiece(value.subspan(logged_, std::min<uint64_t>(arrived - logged_, wal::kPieceBytesMax)));
  is_logged_ = status.ok() && logged_ == value.size();
  return status;
}

// Gives the pieces up, so that the log before them may be removed.
absl::Status LoggedUpload::Postpone() {
  if (absl::Status status = owner_.log_->ReserveSpace(logged_); !status.ok())
    return owner_.Failed(std::move(status));
  reserved_ += logged_;
  logged_ = 0;
  postponed_ = true;
  pieces_.clear();
  hasher_ = std::make_unique<index::BytesHasher>();
  owner_.Unregister(*std::exchange(place_, std::nullopt));
  return absl::OkStatus();
}

absl::Status LoggedUpload::LogPiece(wal::Bytes piece) {
  if (!place_.has_value()) {
    log_bytes_before_ = owner_.log_->bytes_written();
    place_ = owner_.Register(owner_.log_->appended() + 1);
  }
  hasher_->Update(piece);
  // Before the append, which looks for space beside what is reserved.
  reserved_ -= piece.size();
  owner_.log_->ReleaseSpace(piece.size());
  const absl::StatusOr<uint64_t> record = owner_.AppendPiece(piece);
  if (!record.ok()) return record.status();
  pieces_.push_back({*record, static_cast<uint32_t>(piece.size()), 0});
  logged_ += piece.size();
  return absl::OkStatus();
}

// The oldest MiB of those that may be ahead.
bool LoggedUpload::IsBehind() const {
  return !(postponed_ && logged_ == 0) && owner_.IsUnsynced(UploadLog::kAheadMibMax - 1);
}

void LoggedUpload::NameIn(wal::Entry& entry) const {
  assert(is_logged_);
  entry.value = {};
  entry.value_length = logged_;
  entry.value_checksum = hasher_->Digest();
  entry.pieces = pieces_;
}

}  // namespace osprey::server
