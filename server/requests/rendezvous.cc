#include "server/requests/rendezvous.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace osprey::server {

Rendezvous::Rendezvous(TableAccess& tables, const rdma::PutRequest& request, uint64_t sequence,
                       uint64_t number, absl::Time received)
    : tables_(tables),
      body_(request.body),
      key_(request.key.data(), request.key.size()),
      sequence_(sequence),
      number_(number),
      received_(received) {
  assert(body_.rendezvous == 1 && body_.value_length > 0);
  assert(number != 0 && number >> (64 - kCookieBits) == 0);
}

Rendezvous::~Rendezvous() { assert(!reading()); }

absl::StatusOr<bool> Rendezvous::Reserve(absl::Time now) {
  assert(!reserved());
  if (now < room_awaited_.retry_at()) return false;
  LockedTable table = tables_.For(key_);
  absl::StatusOr<index::Reservation> reservation = table->Reserve(key_, body_.value_length, now);
  if (!reservation.ok()) {
    if (room_awaited_.IsWorthIt(reservation.status(), *table, key_, body_.value_length, now))
      return false;
    return reservation.status();
  }
  space_ = TableSpace(tables_, table.partition(), *std::move(reservation));
  assert(space_.value().size() == value_length());
  const uint32_t partition = table.partition();
  table.Release();
  if (tables_.log() == nullptr) return true;
  absl::StatusOr<std::unique_ptr<ValueUpload>> upload =
      tables_.log()->BeginUpload(partition, key_, value_length());
  if (upload.ok()) upload_ = *std::move(upload);
  log_status_ = upload.status();
  return true;
}

uint64_t Rendezvous::PieceLength(uint64_t offset) const {
  return std::min(piece_bytes_, value_length() - offset);
}

absl::StatusOr<size_t> Rendezvous::Post(rdma::Transport& transport, rdma::ConnectionId id,
                                        const rdma::Memory& region, size_t room) {
  assert(reserved());
  if (piece_bytes_ == 0)
    piece_bytes_ = std::min<uint64_t>(kPieceBytesMax, transport.limits(id).read_bytes_max);
  if (!log_status_.ok() || (upload_ != nullptr && upload_->IsBehind())) return 0;
  size_t count = 0;
  while (count < room && posted_ < value_length() &&
         posted_ - hashed_ < kPiecesInFlightMax * piece_bytes_) {
    const uint64_t length = PieceLength(posted_);
    rdma::ReadRequest read;
    read.remote_address = body_.source.address + posted_;
    read.remote_key = body_.source.key;
    read.segments[0] = {space_.value().data() + posted_, static_cast<uint32_t>(length), &region};
    const uint64_t place = posted_ / piece_bytes_ % kPiecesInFlightMax;
    const absl::Status status = transport.PostReads(id, {&read, 1}, number_ << kCookieBits | place);
    if (!status.ok()) return status;
    posted_ += length;
    ++reading_;
    ++count;
  }
  return count;
}

// Hashes the bytes while they may still be in the cache. This spreads the work of a large value
// over turns. READs may end in any order; the hash needs them in sequence.
void Rendezvous::OnPieceLanded(uint64_t cookie) {
  assert(reading() && NumberOf(cookie) == number_);
  --reading_;
  landed_.set(cookie & ((1 << kCookieBits) - 1));
  while (hashed_ < posted_) {
    const uint64_t place = hashed_ / piece_bytes_ % kPiecesInFlightMax;
    if (!landed_.test(place)) break;
    landed_.reset(place);
    const uint64_t length = PieceLength(hashed_);
    hasher_.Update(space_.value().subspan(hashed_, length));
    space_.Hash(length);
    hashed_ += length;
  }
  if (upload_ != nullptr && log_status_.ok()) log_status_ = upload_->Log(space_.value(), hashed_);
}

// True if the whole value is logged, or never will be.
bool Rendezvous::LogRest(absl::Time now) {
  if (upload_ == nullptr || upload_->IsLogged() || !log_status_.ok()) return true;
  finish_retry_at_ = now + kUploadStep();
  if (upload_->IsBehind()) return false;
  log_status_ = upload_->Log(space_.value(), hashed_);
  finish_retry_at_ = now;
  return upload_->IsLogged() || !log_status_.ok();
}

absl::optional<Answer> Rendezvous::Finish(absl::Time now) {
  assert(landed() && !reading() && !decided());
  if (!log_status_.ok()) return AnswerOfLog(log_status_);
  // W6: a client that died may have reused its buffer before the READ fetched it.
  if (hasher_.Digest() != body_.value_hash) {
    return AnswerOf(
        absl::StatusCode::kDataLoss,
        "the value's bytes are not those that value_hash was made of; nothing was written",
        Reason::kValueChanged);
  }
  if (!LogRest(now)) return absl::nullopt;
  if (!log_status_.ok()) return AnswerOfLog(log_status_);
  finish_retry_at_ = now + kPendingStep();
  const index::Condition condition = ConditionOf(body_.condition, body_.condition_version);
  const index::Lifetime lifetime = LifetimeOf(body_.ttl_ns);
  if (!InTwoSteps(tables_))
    return PublishReserved(tables_, space_, upload_.get(), key_, condition, lifetime, now);
  absl::optional<Verdict> verdict =
      DecideReserved(tables_, space_, upload_.get(), key_, condition, lifetime, now);
  if (!verdict.has_value()) return absl::nullopt;
  decision_ = std::move(verdict->decision);
  return std::move(verdict->refusal);
}

Answer Rendezvous::Apply(absl::Time now) {
  assert(decided());
  return ApplyReserved(tables_, space_, key_, *decision_, now);
}

}  // namespace osprey::server
