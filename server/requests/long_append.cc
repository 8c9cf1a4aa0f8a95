#include "server/requests/long_append.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/requests/two_step_writes.h"

namespace osprey::server {

LongAppend::LongAppend(const KeyedRequest& request)
    : key_(request.key.data(), request.key.size()),
      addition_(reinterpret_cast<const char*>(request.value.data()), request.value.size()),
      request_(request) {
  request_.frame = {};
  request_.key = key_;
  request_.value = AsFrameBytes(addition_);
}

absl::optional<Answer> LongAppend::Step(TableAccess& tables, uint64_t value_bytes_max,
                                        absl::Time now) {
  retry_at_ = absl::InfinitePast();
  if (upload_ != nullptr && upload_->IsBehind()) {
    retry_at_ = now + kUploadStep();
    return absl::nullopt;
  }
  LockedTable table = tables.For(key_);
  if (table.changes() != nullptr && table.changes()->IsPending(request_.hash.bits)) {
    retry_at_ = now + kPendingStep();
    return absl::nullopt;
  }
  // Again in each step: compaction may move the value.
  const absl::StatusOr<index::Table::View> present = table->Find(key_);
  if (!present.ok() || present->version != version_) {
    upload_.reset();
    if (space_.valid()) space_.Take(table).Abort();
    version_ = 0;
    // The value may have become short, or the condition may refuse it now.
    const Answer answer = ExecuteAppend(tables, table, request_, value_bytes_max, now);
    if (!answer.is_for_later) return answer;
    return Begin(tables, table, *present, now);
  }
  const uint64_t bytes = std::min(kAppendStepBytes, present->value.size() - copied_);
  if (bytes > 0) {
    std::memcpy(space_.value().data() + copied_, present->value.data() + copied_, bytes);
    space_.Hash(bytes);
    copied_ += bytes;
  }
  const bool is_copied = copied_ == present->value.size();
  table.Release();
  if (is_copied && !addition_.empty())
    std::memcpy(space_.value().data() + copied_, addition_.data(), addition_.size());
  const bool is_logged = LogArrived(copied_ + (is_copied ? addition_.size() : 0));
  if (!log_status_.ok()) return Refuse();
  if (!is_copied || !is_logged) return absl::nullopt;
  absl::optional<Answer> answer = Finish(tables, now);
  if (!answer.has_value()) retry_at_ = now + kPendingStep();
  if (answer.has_value() && answer->is_void) return answer;
  // Another poller may have written the key since the release.
  const bool is_of_older_value = answer.has_value() &&
                                 answer->code() == absl::StatusCode::kFailedPrecondition &&
                                 request_.condition.kind == index::Condition::Kind::kNone;
  if (is_of_older_value || (answer.has_value() && ExpiredMeanwhile(*answer, request_.condition)))
    return absl::nullopt;  // the next step starts over
  return answer;
}

absl::optional<Answer> LongAppend::Begin(TableAccess& tables, LockedTable& table,
                                         const index::Table::View& present, absl::Time now) {
  if (++attempts_ > kAppendAttemptsMax) {
    return AnswerOf(absl::StatusCode::kAborted,
                    "the value was written again and again while it was copied; not applied");
  }
  const uint64_t version = present.version;
  const uint64_t length = present.value.size() + addition_.size();
  absl::StatusOr<index::Reservation> reservation = table->Reserve(key_, length, now);
  if (!reservation.ok()) {
    if (!room_awaited_.IsWorthIt(reservation.status(), *table, key_, length, now))
      return AnswerOf(reservation.status());
    retry_at_ = room_awaited_.retry_at();
    --attempts_;
    return absl::nullopt;
  }
  space_ = TableSpace(tables, table.partition(), *std::move(reservation));
  const uint32_t partition = table.partition();
  table.Release();
  version_ = version;
  copied_ = 0;
  if (tables.log() == nullptr) return absl::nullopt;
  absl::StatusOr<std::unique_ptr<ValueUpload>> upload =
      tables.log()->BeginUpload(partition, key_, length);
  log_status_ = upload.status();
  if (!upload.ok()) return Refuse();
  upload_ = *std::move(upload);
  return absl::nullopt;
}

// Logs some of the new value, of which the first bytes are there. True if none of them is left.
bool LongAppend::LogArrived(uint64_t bytes) {
  if (upload_ == nullptr) return true;
  log_status_ = upload_->Log(space_.value(), bytes);
  return upload_->IsLogged();
}

Answer LongAppend::Refuse() {
  space_.Drop();
  return AnswerOfLog(log_status_);
}

absl::optional<Answer> LongAppend::Finish(TableAccess& tables, absl::Time now) {
  const uint64_t length = space_.value().size();
  absl::optional<Answer> answer =
      PublishReserved(tables, space_, upload_.get(), key_,
                      {index::Condition::Kind::kVersionIs, version_}, index::Lifetime::Kept(), now);
  if (answer.has_value() && answer->code() == absl::StatusCode::kOk)
    answer->body.value_length = length;
  return answer;
}

}  // namespace osprey::server
