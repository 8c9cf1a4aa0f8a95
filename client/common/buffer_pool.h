// Registered memory for READs and for values on their way to the server.
//
//   BufferPool pool(domain, rdma::Access::kLocal, 64 << 20);
//   Buffer buffer = pool.Take(3000);       // 4096 bytes; !valid() when none is free
//   … buffer.data(), buffer.memory() …     // returns to the pool when it is destroyed
//
// Buffers are powers of two, cut from slabs by a buddy system. Free halves merge again, so that no
// mix of sizes can exhaust the pool for another. Slabs are registered on demand, which is slow, and
// stay. A warm pool allocates nothing when buffers are taken and returned. Its bookkeeping is
// outside the registered memory.
//
// Thread rule: one thread. The pool must outlive its buffers, and the domain the pool.

#ifndef OSPREY_CLIENT_COMMON_BUFFER_POOL_H_
#define OSPREY_CLIENT_COMMON_BUFFER_POOL_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "rdma/transport.h"

namespace osprey::client {

class BufferPool;

// A span of registered memory. Move-only; it returns itself to the pool.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { Reset(); }

  bool valid() const { return pool_ != nullptr; }
  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }  // 0 when not valid
  // Its slab of the pool, and its offset there.
  uint32_t slab() const { return slab_; }
  uint64_t offset() const;
  const rdma::Memory& memory() const;
  void Reset();

 private:
  friend class BufferPool;
  BufferPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  uint32_t slab_ = 0;
};

class BufferPool {
 public:
  // The smallest buffer: a window with an item of the usual size fits. Smaller buffers would not
  // justify their bookkeeping.
  static constexpr uint64_t kBufferBytesMin = 1024;
  // The least that is registered at once: small enough for the usual RLIMIT_MEMLOCK of 8 MiB.
  static constexpr uint64_t kSlabBytesMin = 1 << 20;

  BufferPool(rdma::Domain& domain, rdma::Access access, uint64_t bytes_max);
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool();

  // A buffer of at least `bytes`. Not valid() when the pool is used up; error() then names the
  // limit.
  Buffer Take(uint64_t bytes);
  // False if Take(bytes) cannot succeed even when every buffer is back.
  bool CanEverHold(uint64_t bytes) const;
  const absl::Status& error() const { return error_; }
  // Whether Take has failed since the last call of this.
  bool TakeRanOut() { return std::exchange(ran_out_, false); }

  size_t slabs() const { return slabs_.size(); }
  const rdma::Memory& slab_memory(uint32_t slab) const { return *slabs_[slab].memory; }
  uint64_t registered_bytes() const { return registered_bytes_; }
  uint64_t taken_bytes() const { return taken_bytes_; }

 private:
  friend class Buffer;
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr int kOrders = 32;  // buffers of kBufferBytesMin << 0 … 31

  // One registered span of kBufferBytesMin << order bytes. Arrays are indexed by block
  // (kBufferBytesMin bytes each); only entries of the first block of a free buffer have a meaning.
  struct Slab {
    std::unique_ptr<rdma::Memory> memory;
    int order = 0;
    uint32_t free_orders = 0;        // bit i: heads[i] != kNone
    std::vector<int8_t> free_order;  // of the free buffer that starts at this block; -1: none does
    std::vector<uint32_t> next;
    std::vector<uint32_t> previous;
    uint32_t heads[kOrders];
  };

  static int OrderOf(uint64_t bytes);
  static void Push(Slab& slab, uint32_t block, int order);
  static void Unlink(Slab& slab, uint32_t block);
  static uint32_t Cut(Slab& slab, int order);
  bool Grow(int order);
  void Return(Buffer& buffer);

  rdma::Domain& domain_;
  const rdma::Access access_;
  const uint64_t bytes_max_;
  const absl::Status used_up_;  // the error of that limit
  // This many bytes, or more, could not be registered at once.
  uint64_t refused_bytes_ = UINT64_MAX;
  absl::Status refusal_;  // and why
  // This many Takes repeat the refusal before the system is asked again; the number doubles each
  // time.
  static constexpr uint32_t kRefusalsMax = 1024;
  uint32_t refusals_ = 0;
  uint32_t refusals_due_ = 0;  // of these
  uint64_t registered_bytes_ = 0;
  uint64_t taken_bytes_ = 0;
  absl::Status error_;
  bool ran_out_ = false;
  std::vector<Slab> slabs_;
};

inline const rdma::Memory& Buffer::memory() const {
  assert(valid());
  return pool_->slab_memory(slab_);
}

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_COMMON_BUFFER_POOL_H_
