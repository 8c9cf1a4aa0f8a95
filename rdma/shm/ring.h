// A ring of frames in shared memory between one producer and one consumer, in different processes.
//
//   byte 0    tail             u32  frames published, modulo 2^32; written by the producer
//        4    consumer_sleeps  u32  1: the consumer wants to be woken by the next frame
//       64    head             u32  frames consumed, modulo 2^32; written by the consumer
//       68    producer_waits   u32  1: the producer wants to be woken by the next free slot
//      128    slot 0                length u32, 4 bytes unused, then the frame
//      128 + slot_bytes             slot 1 …
//
// Each side keeps its own counter and slot index privately and never reads them back: what the peer
// writes into shared memory affects only the peer. The peer's counter and the lengths of
// frames are hostile: each is loaded once and checked before it is used. A ring that fails a check
// is broken for good.
//
// Ordering:
//   frame    the producer's store of `tail` releases the slot's bytes; the consumer's load of
//   `tail` acquires them. slot     the consumer's store of `head` releases its copying out; the
//   producer's load of `head` acquires it
//            before it overwrites the slot.
//   sleeping store of `consumer_sleeps`, then load of `tail` here; store of `tail`, then load of
//   `consumer_sleeps`
//            there. All four are seq_cst, so in their single total order at least one side sees the
//            other's store: either the consumer finds the frame, or the producer finds the sleeper.
//            The same holds for `producer_waits` and `head`.

#ifndef OSPREY_RDMA_SHM_RING_H_
#define OSPREY_RDMA_SHM_RING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "rdma/handshake.h"
#include "rdma/transport.h"

namespace osprey::rdma {

struct RingShape {
  uint32_t slots = 0;
  uint32_t frame_bytes_max = 0;

  // Whole cache lines, so that neighbours in the ring share none.
  size_t slot_bytes() const { return (kSlotHeaderBytes + frame_bytes_max + 63) / 64 * 64; }
  size_t bytes() const { return kControlBytes + slots * slot_bytes(); }

  static constexpr size_t kControlBytes = 128;
  static constexpr size_t kSlotHeaderBytes = 8;
};

// The two rings of a connection, one behind the other in the same memory.
struct RingShapes {
  RingShape to_server;
  RingShape to_client;
  size_t bytes() const { return to_server.bytes() + to_client.bytes(); }
};

// Both ends compute this from what both have said.
RingShapes ShapesOf(const ConnectData& server, const ConnectData& client);

// The producer's end. Not thread-safe. `ring` has shape.bytes() bytes, zeroed at first, and
// outlives it.
class RingProducer {
 public:
  enum class Result { kDone, kFull, kBroken };

  RingProducer() = default;
  RingProducer(std::byte* ring, const RingShape& shape) : ring_(ring), shape_(shape) {}

  // Frames that Push takes from now on, whatever the consumer does; 0 when the ring is broken.
  uint32_t Room();
  // Publishes the concatenation of `pieces`, which has 1 … frame_bytes_max bytes, `length` in all.
  // After kFull the consumer will ask for a wake-up of this side (RingConsumer::Release) as soon as
  // it has freed a slot.
  Result Push(absl::Span<const Bytes> pieces, uint32_t length);
  // True once for each time that the consumer went to sleep: wake it. To be called after each Push.
  bool TakeSleeper();

  // Bytes of the ring, from its first on.
  struct Span {
    size_t offset = 0;
    size_t bytes = 0;
  };
  // The slots of the frames that the consumer has not taken: up to the end of the ring, and if they
  // go on there, from slot 0 on. No bytes when there are none, or the ring is broken.
  struct UnreadSpans {
    Span first;
    Span second;
  };
  UnreadSpans Unread();

 private:
  std::byte* slot() const { return ring_ + RingShape::kControlBytes + slot_ * shape_.slot_bytes(); }
  bool SeeHead(uint32_t head);

  std::byte* ring_ = nullptr;
  RingShape shape_;
  uint32_t tail_ = 0;
  uint32_t slot_ = 0;       // tail_ modulo slots, which need not divide 2^32
  uint32_t head_seen_ = 0;  // of some time ago; spares the consumer's cache line
};

// The consumer's end. Not thread-safe.
class RingConsumer {
 public:
  enum class Result { kFrame, kEmpty, kBroken };

  RingConsumer() = default;
  RingConsumer(std::byte* ring, const RingShape& shape) : ring_(ring), shape_(shape) {}

  // Copies the next frame to `to`, which has room for frame_bytes_max, and sets `length`.
  Result Pop(std::byte* to, uint32_t* length);
  // Gives the slots of the popped frames back. True: the producer waits for them, wake it.
  bool Release();
  // Asks for a wake-up by the next frame. False: there is one already (or the ring is broken).
  bool Sleep();
  // Withdraws it, cheaply: a wake-up may still come.
  void Awake();
  // No frame is taken any more that was published after this call: for a producer that is gone, or
  // should be.
  void Freeze();

 private:
  const std::byte* slot() const {
    return ring_ + RingShape::kControlBytes + slot_ * shape_.slot_bytes();
  }

  std::byte* ring_ = nullptr;
  RingShape shape_;
  uint32_t head_ = 0;
  uint32_t slot_ = 0;
  uint32_t tail_seen_ = 0;
  bool sleeping_ = false;
  bool frozen_ = false;
};

// The frames that one Poll delivers are copied here, and stay until the next. Keeps its storage.
class FrameBuffers {
 public:
  explicit FrameBuffers(size_t frame_bytes_max) : frame_bytes_max_(frame_bytes_max) {}

  // Frames put here since Reset.
  size_t used() const { return used_; }
  void Reset() { used_ = 0; }
  // The buffer that is next. It stays so until Use, when a frame was put there.
  std::byte* Next() {
    if (used_ == buffers_.size())
      buffers_.push_back(std::make_unique_for_overwrite<std::byte[]>(frame_bytes_max_));
    return buffers_[used_].get();
  }
  void Use() { ++used_; }

 private:
  const size_t frame_bytes_max_;
  std::vector<std::unique_ptr<std::byte[]>> buffers_;
  size_t used_ = 0;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_RING_H_
