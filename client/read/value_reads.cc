#include "client/read/value_reads.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace osprey::client {

ValueReads::Posted ValueReads::Post(const ReadSource& source, OperationQueue& fetching,
                                    absl::Time now) {
  int left = kPiecesPerPostMax;
  // One piece a value in turn, so that a long value does not block others.
  for (bool posted = true; posted;) {
    posted = false;
    for (Operation* next = fetching.first(); next != nullptr; next = OperationQueue::Next(*next)) {
      auto& operation = static_cast<GetOperation&>(*next);
      const ValueFetch& fetch = operation.fetch();
      if (fetch.count == ValueFetch::kPiecesMax || fetch.posted == fetch.length) continue;
      if (left-- == 0) return Posted::kYes;
      switch (PostPiece(source, operation, now)) {
        case Outcome::kPosted:
          posted = true;
          break;
        case Outcome::kNoRoom:
          return Posted::kYes;
        case Outcome::kNoBuffer:
          return buffers_.CanEverHold(std::min(kPieceBytes, fetch.length)) ? Posted::kYes
                                                                           : Posted::kNoBuffer;
      }
    }
  }
  return Posted::kYes;
}

ValueReads::Outcome ValueReads::PostPiece(const ReadSource& source, GetOperation& operation,
                                          absl::Time now) {
  if (reads_.Room(source) <= 2 * source.reads_left) return Outcome::kNoRoom;
  ValueFetch& fetch = operation.fetch();
  const uint64_t offset = fetch.offset + fetch.posted;
  const uint64_t length =
      std::min({fetch.length - fetch.posted, kPieceBytes, uint64_t{source.read_bytes_max}});
  // The lookup guarantees it; a READ out of range would break the connection.
  assert(length > 0 && offset <= source.region.length && length <= source.region.length - offset);
  const UserMemory& target = operation.target();
  Buffer buffer;
  std::byte* data = nullptr;
  if (target.data != nullptr) {
    data = target.data + fetch.posted;
  } else {
    buffer = buffers_.Take(length);
    if (!buffer.valid()) return Outcome::kNoBuffer;
    data = buffer.data();
  }
  assert(target.data == nullptr || fetch.length <= target.size);
  rdma::ReadRequest read;
  read.remote_address = source.region.address + offset;
  read.remote_key = source.region.key;
  read.segments[0] = {data, static_cast<uint32_t>(length),
                      target.data == nullptr ? &buffer.memory() : target.memory()};
  const uint32_t number = NewPiece();
  // The limit is reached, or the connection has just ended: the operation waits for its last event.
  if (!reads_.Post(source, {&read, 1}, {ReadChainId::User::kValue, number}, now).ok()) {
    Free(number);
    return Outcome::kNoRoom;
  }
  pieces_[number] = {&operation,
                     /*wanted=*/true,
                     /*landed=*/false, std::move(buffer), data, static_cast<uint32_t>(length)};
  ++counters_.reads;
  counters_.read_bytes += length;
  fetch.posted += length;
  fetch.PushBack(number);
  if (target.data != nullptr) operation.ReadInUserMemoryBegins();
  return Outcome::kPosted;
}

GetOperation* ValueReads::Done(uint32_t number, bool ok) {
  assert(number < pieces_.size() && !pieces_[number].landed);
  Piece& piece = pieces_[number];
  GetOperation* const operation = piece.operation;
  if (!piece.buffer.valid()) operation->ReadInUserMemoryEnded();
  if (!piece.wanted) {
    Free(number);
    return nullptr;
  }
  piece.landed = true;
  if (!ok) return operation;
  ValueFetch& fetch = operation->fetch();
  while (fetch.count > 0 && pieces_[fetch.front()].landed) {
    const Piece& next = pieces_[fetch.front()];
    operation->TakePiece({next.data, next.length});
    Free(fetch.front());
    fetch.PopFront();
  }
  return fetch.taken == fetch.length ? operation : nullptr;
}

void ValueReads::Abandon(GetOperation& operation) {
  ValueFetch& fetch = operation.fetch();
  for (; fetch.count > 0; fetch.PopFront()) {
    Piece& piece = pieces_[fetch.front()];
    piece.wanted = false;
    if (piece.landed) Free(fetch.front());
  }
}

uint32_t ValueReads::NewPiece() {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(pieces_.size()));
    pieces_.emplace_back();
  }
  const uint32_t number = free_.back();
  free_.pop_back();
  return number;
}

void ValueReads::Free(uint32_t number) {
  pieces_[number] = Piece();
  free_.push_back(number);
}

}  // namespace osprey::client
