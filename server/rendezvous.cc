#include "server/rendezvous.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace osprey::server {

absl::StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Begin(index::Table& table,
                                                              const rdma::PutRequest& request,
                                                              uint64_t sequence,
                                                              uint64_t value_bytes_max,
                                                              absl::Time now) {
  assert(request.body.rendezvous == 1);
  if (request.body.value_length > value_bytes_max)
    return ValueTooLong(request.body.value_length, value_bytes_max);
  absl::StatusOr<index::Reservation> reservation =
      table.Reserve(request.key, request.body.value_length, now);
  if (!reservation.ok()) return reservation.status();
  return std::unique_ptr<Rendezvous>(
      new Rendezvous(table, std::move(*reservation), request.body, sequence));
}

Rendezvous::Rendezvous(index::Table& table, index::Reservation reservation,
                       const rdma::PutBody& body, uint64_t sequence)
    : table_(table),
      reservation_(std::move(reservation)),
      body_(body),
      sequence_(sequence),
      hash_(XXH3_createState()) {
  assert(value_length() == body.value_length);
  assert(hash_ != nullptr);
  XXH3_64bits_reset(hash_.get());
}

Rendezvous::~Rendezvous() { assert(!reading()); }

absl::StatusOr<size_t> Rendezvous::Post(rdma::Transport& transport, rdma::ConnectionId id,
                                        const rdma::Memory& region, size_t room) {
  if (reading() || landed()) return size_t{0};
  const uint64_t piece_max =
      std::min<uint64_t>(kPieceBytesMax, transport.limits(id).read_bytes_max);
  assert(piece_max > 0);
  rdma::ReadRequest reads[kPiecesPerBatch];
  size_t count = 0;
  uint64_t next = posted_;
  while (count < std::min(room, kPiecesPerBatch) && next < value_length()) {
    const uint64_t length = std::min(piece_max, value_length() - next);
    rdma::ReadRequest& read = reads[count++];
    read.remote_address = body_.source.address + next;
    read.remote_key = body_.source.key;
    read.segments[0] = {reservation_.value().data() + next, static_cast<uint32_t>(length), &region};
    next += length;
  }
  if (count == 0) return count;
  if (absl::Status status = transport.PostReads(id, {reads, count}, sequence_); !status.ok())
    return status;
  posted_ = next;
  return count;
}

void Rendezvous::OnReadsLanded() {
  assert(reading());
  // Hashing now, while the bytes may still be in the cache, spreads the work of a large value over
  // turns.
  XXH3_64bits_update(hash_.get(), reservation_.value().data() + hashed_, posted_ - hashed_);
  hashed_ = posted_;
}

Answer Rendezvous::Finish(absl::Time now) {
  assert(landed() && !reading());
  // W6: a client that died may have reused its buffer before the READ fetched it.
  if (XXH3_64bits_digest(hash_.get()) != body_.value_hash) {
    return AnswerOf(
        absl::StatusCode::kDataLoss,
        "the value's bytes are not those that value_hash was made of; nothing was written");
  }
  // reservation_ is left empty; the lengths that landed() compares are not needed any more.
  posted_ = hashed_ = 0;
  return AnswerOf(table_.Publish(std::move(reservation_),
                                 ConditionOf(body_.condition, body_.condition_version), now));
}

}  // namespace osprey::server
