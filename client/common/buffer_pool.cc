#include "client/common/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "client/common/errors.h"

namespace osprey::client {

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  pool_ = std::exchange(other.pool_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  slab_ = other.slab_;
  return *this;
}

void Buffer::Reset() {
  if (pool_ == nullptr) return;
  pool_->Return(*this);
  pool_ = nullptr;
  data_ = nullptr;
  size_ = 0;
}

uint64_t Buffer::offset() const { return static_cast<uint64_t>(data_ - memory().data()); }

BufferPool::BufferPool(rdma::Domain& domain, rdma::Access access, uint64_t bytes_max)
    : domain_(domain),
      access_(access),
      bytes_max_(bytes_max),
      used_up_(BuffersUsedUpError(bytes_max)) {}

BufferPool::~BufferPool() { assert(taken_bytes_ == 0); }

int BufferPool::OrderOf(uint64_t bytes) {
  const uint64_t blocks = (std::max<uint64_t>(bytes, 1) - 1) / kBufferBytesMin + 1;
  return std::bit_width(blocks - 1);
}

bool BufferPool::CanEverHold(uint64_t bytes) const {
  const int order = OrderOf(bytes);
  if (order >= kOrders) return false;
  for (const Slab& slab : slabs_) {
    if (slab.order >= order) return true;
  }
  const uint64_t needed = std::max(kBufferBytesMin << order, kSlabBytesMin);
  return needed < refused_bytes_ && registered_bytes_ + needed <= bytes_max_;
}

Buffer BufferPool::Take(uint64_t bytes) {
  Buffer buffer;
  const int order = OrderOf(bytes);
  if (order >= kOrders) return buffer;
  const auto has_room = [order](const Slab& slab) { return slab.free_orders >> order != 0; };
  auto slab = std::find_if(slabs_.begin(), slabs_.end(), has_room);
  if (slab == slabs_.end()) {
    if (!Grow(order)) {
      ran_out_ = true;
      return buffer;
    }
    slab = slabs_.end() - 1;
  }
  const uint32_t block = Cut(*slab, order);
  buffer.pool_ = this;
  buffer.slab_ = static_cast<uint32_t>(slab - slabs_.begin());
  buffer.data_ = slab->memory->data() + uint64_t{block} * kBufferBytesMin;
  buffer.size_ = kBufferBytesMin << order;
  taken_bytes_ += buffer.size_;
  return buffer;
}

// Registers one more slab in which a buffer of `order` fits. It is as large as all slabs so far, so
// that slabs stay few (each must be exposed to the peer).
bool BufferPool::Grow(int order) {
  const uint64_t needed = std::max(kBufferBytesMin << order, kSlabBytesMin);
  if (registered_bytes_ + needed > bytes_max_) {
    error_ = used_up_;
    return false;
  }
  // After a refusal, use the memory at hand and ask the system only now and then: it may have
  // memory again. It may grant a shorter slab in any case.
  if (needed >= refused_bytes_ && refusals_due_ > 0) {
    --refusals_due_;
    error_ = refusal_;
    return false;
  }
  uint64_t bytes =
      std::max(needed, std::bit_floor(std::min(registered_bytes_, bytes_max_ - registered_bytes_)));
  absl::StatusOr<std::unique_ptr<rdma::Memory>> memory = domain_.Allocate(bytes, access_);
  if (!memory.ok() && bytes > needed) memory = domain_.Allocate(bytes = needed, access_);
  if (!memory.ok()) {
    refused_bytes_ = std::min(refused_bytes_, needed);
    refusals_ = std::clamp(2 * refusals_, 1u, kRefusalsMax);
    refusals_due_ = refusals_;
    error_ = refusal_ = memory.status();
    return false;
  }
  if (needed >= refused_bytes_) {
    refused_bytes_ = UINT64_MAX;
    refusals_ = 0;
  }
  Slab slab;
  slab.memory = *std::move(memory);
  slab.order = OrderOf(bytes);
  const size_t blocks = bytes / kBufferBytesMin;
  slab.free_order.assign(blocks, -1);
  slab.next.assign(blocks, kNone);
  slab.previous.assign(blocks, kNone);
  std::fill(std::begin(slab.heads), std::end(slab.heads), kNone);
  Push(slab, 0, slab.order);
  registered_bytes_ += bytes;
  slabs_.push_back(std::move(slab));
  return true;
}

void BufferPool::Push(Slab& slab, uint32_t block, int order) {
  const uint32_t head = slab.heads[order];
  slab.next[block] = head;
  slab.previous[block] = kNone;
  if (head != kNone) slab.previous[head] = block;
  slab.heads[order] = block;
  slab.free_orders |= 1u << order;
  slab.free_order[block] = static_cast<int8_t>(order);
}

void BufferPool::Unlink(Slab& slab, uint32_t block) {
  const int order = slab.free_order[block];
  assert(order >= 0);
  const uint32_t next = slab.next[block];
  const uint32_t previous = slab.previous[block];
  if (next != kNone) slab.previous[next] = previous;
  if (previous != kNone) {
    slab.next[previous] = next;
  } else {
    slab.heads[order] = next;
    if (next == kNone) slab.free_orders &= ~(1u << order);
  }
  slab.free_order[block] = -1;
}

// Takes the smallest free buffer that is large enough, and frees the halves that exceed the need.
uint32_t BufferPool::Cut(Slab& slab, int order) {
  int from = order + std::countr_zero(slab.free_orders >> order);
  const uint32_t block = slab.heads[from];
  Unlink(slab, block);
  while (from > order) {
    --from;
    Push(slab, block + (uint32_t{1} << from), from);
  }
  return block;
}

void BufferPool::Return(Buffer& buffer) {
  Slab& slab = slabs_[buffer.slab_];
  uint32_t block = static_cast<uint32_t>(buffer.offset() / kBufferBytesMin);
  int order = OrderOf(buffer.size_);
  taken_bytes_ -= buffer.size_;
  while (order < slab.order) {
    const uint32_t buddy = block ^ (uint32_t{1} << order);
    if (slab.free_order[buddy] != order) break;
    Unlink(slab, buddy);
    block = std::min(block, buddy);
    ++order;
  }
  Push(slab, block, order);
}

}  // namespace osprey::client
