#include "rdma/shm/ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace osprey::rdma {
namespace {

constexpr size_t kTail = 0;
constexpr size_t kConsumerSleeps = 4;
constexpr size_t kHead = 64;
constexpr size_t kProducerWaits = 68;

// Lock-free atomics are address-free: they work between processes that map the word at different
// addresses.
static_assert(std::atomic_ref<uint32_t>::is_always_lock_free);

std::atomic_ref<uint32_t> Word(std::byte* base, size_t offset) {
  return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(base + offset));
}

// Takes a flag that the peer raised. The load spares the exchange, which is dear, in the common
// case.
bool TakeFlag(std::byte* ring, size_t offset) {
  const std::atomic_ref<uint32_t> flag = Word(ring, offset);
  return flag.load(std::memory_order_seq_cst) != 0 &&
         flag.exchange(0, std::memory_order_seq_cst) != 0;
}

}  // namespace

RingShapes ShapesOf(const ConnectData& server, const ConnectData& client) {
  const uint32_t frame = std::min(server.frame_bytes_max, client.frame_bytes_max);
  return {{std::min(server.receive_credits, kShmCreditsMax), frame},
          {std::min(client.receive_credits, kShmCreditsMax), frame}};
}

// The result is kept: the next Push relies on it, whatever the peer stores meanwhile.
uint32_t RingProducer::Room() {
  // Pairs with the store in RingConsumer::Release.
  return SeeHead(Word(ring_, kHead).load(std::memory_order_acquire))
             ? shape_.slots - (tail_ - head_seen_)
             : 0;
}

// False when the ring is broken: `head` has overtaken us, or went back.
bool RingProducer::SeeHead(uint32_t head) {
  if (head - head_seen_ > tail_ - head_seen_) return false;
  head_seen_ = head;
  return true;
}

RingProducer::Result RingProducer::Push(absl::Span<const Bytes> pieces, uint32_t length) {
  if (tail_ - head_seen_ >= shape_.slots) {
    // Pairs with the store in RingConsumer::Release.
    if (!SeeHead(Word(ring_, kHead).load(std::memory_order_acquire))) return Result::kBroken;
    if (tail_ - head_seen_ == shape_.slots) {
      // Raised before the second look, so that a slot freed in between is seen here or the flag is
      // seen there (seq_cst on both sides: "sleeping" in the header).
      Word(ring_, kProducerWaits).store(1, std::memory_order_seq_cst);
      if (!SeeHead(Word(ring_, kHead).load(std::memory_order_seq_cst))) return Result::kBroken;
    }
    if (tail_ - head_seen_ == shape_.slots) return Result::kFull;
  }
  std::byte* to = slot() + RingShape::kSlotHeaderBytes;
  for (const Bytes& piece : pieces) {
    if (piece.empty()) continue;
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  // Relaxed: the store of `tail` releases it.
  Word(slot(), 0).store(length, std::memory_order_relaxed);
  slot_ = slot_ + 1 == shape_.slots ? 0 : slot_ + 1;
  // Releases the slot to the load in RingConsumer::Pop; seq_cst for the load in TakeSleeper that
  // follows.
  Word(ring_, kTail).store(++tail_, std::memory_order_seq_cst);
  return Result::kDone;
}

RingProducer::UnreadSpans RingProducer::Unread() {
  UnreadSpans unread;
  // Pairs with the store in RingConsumer::Release: what the consumer has copied may go.
  if (!SeeHead(Word(ring_, kHead).load(std::memory_order_acquire))) return unread;
  const uint32_t count = tail_ - head_seen_;
  const uint32_t first = slot_ >= count ? slot_ - count : slot_ + shape_.slots - count;
  const uint32_t until_end = std::min(count, shape_.slots - first);
  const auto span = [this](uint32_t slot, uint32_t slots) {
    return Span{RingShape::kControlBytes + slot * shape_.slot_bytes(), slots * shape_.slot_bytes()};
  };
  unread.first = span(first, until_end);
  unread.second = span(0, count - until_end);
  return unread;
}

bool RingProducer::TakeSleeper() { return TakeFlag(ring_, kConsumerSleeps); }

RingConsumer::Result RingConsumer::Pop(std::byte* to, uint32_t* length) {
  if (head_ == tail_seen_) {
    if (frozen_) return Result::kEmpty;
    // Pairs with the store in RingProducer::Push.
    tail_seen_ = Word(ring_, kTail).load(std::memory_order_acquire);
    if (head_ == tail_seen_) return Result::kEmpty;
  }
  if (tail_seen_ - head_ > shape_.slots) return Result::kBroken;
  // Loaded once: the peer may change it between a check and a use.
  const uint32_t bytes = Word(const_cast<std::byte*>(slot()), 0).load(std::memory_order_relaxed);
  if (bytes == 0 || bytes > shape_.frame_bytes_max) return Result::kBroken;
  // A peer that keeps the rules does not touch the slot now. One that does not yields garbage, and
  // what is validated later is this copy.
  std::memcpy(to, slot() + RingShape::kSlotHeaderBytes, bytes);
  *length = bytes;
  ++head_;
  slot_ = slot_ + 1 == shape_.slots ? 0 : slot_ + 1;
  return Result::kFrame;
}

bool RingConsumer::Release() {
  // Pairs with the loads in RingProducer::Room and Push; seq_cst for the flag that is loaded next.
  Word(ring_, kHead).store(head_, std::memory_order_seq_cst);
  return TakeFlag(ring_, kProducerWaits);
}

bool RingConsumer::Sleep() {
  if (frozen_ || head_ != tail_seen_) return false;
  sleeping_ = true;
  Word(ring_, kConsumerSleeps).store(1, std::memory_order_seq_cst);
  return Word(ring_, kTail).load(std::memory_order_seq_cst) == head_;
}

void RingConsumer::Awake() {
  if (!sleeping_) return;
  sleeping_ = false;
  // Relaxed: a producer that still sees the 1 sends a wake-up too many, nothing worse.
  Word(ring_, kConsumerSleeps).store(0, std::memory_order_relaxed);
}

void RingConsumer::Freeze() {
  if (frozen_) return;
  frozen_ = true;
  // Pairs with the store in RingProducer::Push.
  tail_seen_ = Word(ring_, kTail).load(std::memory_order_acquire);
}

}  // namespace osprey::rdma
