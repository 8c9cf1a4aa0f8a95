#include "client/read/read_batches.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace osprey::client {

size_t ReadBatches::Post(const ReadSource& source, OperationQueue& to_read, absl::Time now) {
  const size_t room = reads_.Room(source);
  chain_.clear();
  entries_.clear();
  get_reads_ = get_read_bytes_ = 0;
  uint64_t chain_bytes = 0;
  for (Operation* next = to_read.first(); next != nullptr; next = OperationQueue::Next(*next)) {
    auto& operation = static_cast<GetOperation&>(*next);
    if (chain_.size() == room || chain_bytes >= kChainBytesMax) break;
    const uint32_t length = operation.step_read().span.length;
    Buffer& buffer = operation.step_read().buffer;
    if (buffer.size() < length) {
      buffer.Reset();
      buffer = buffers_.Take(length);
      // Buffers come back when other operations end. Operations behind this one wait, too, or a
      // long value would never get a buffer.
      if (!buffer.valid()) break;
    }
    AddReads(source, operation, room, now, chain_bytes);
  }
  if (chain_.empty()) return 0;

  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(batches_.size()));
    batches_.emplace_back();
  }
  const uint32_t index = free_.back();
  // The connection has just ended: the operations stay in their queue until its last event.
  if (!reads_.Post(source, chain_, {ReadChainId::User::kOperations, index}, now).ok()) return 0;
  free_.pop_back();
  counters_.reads += get_reads_;
  counters_.read_bytes += get_read_bytes_;
  batches_[index].swap(entries_);
  for (uint32_t i = 0; i < batches_[index].size(); ++i) {
    Entry& entry = batches_[index][i];
    OperationQueue::Remove(*entry.operation);
    entry.buffer = std::move(entry.operation->step_read().buffer);
    entry.operation->set_state(GetOperation::State::kReading);
    entry.operation->step_read().batch = index;
    entry.operation->step_read().batch_entry = i;
  }
  return batches_[index].size();
}

// Adds as many READs as the rest of the span of `operation` needs, or as the limits allow.
void ReadBatches::AddReads(const ReadSource& source, GetOperation& operation, size_t room,
                           absl::Time now, uint64_t& chain_bytes) {
  const index::ReadSpan& wanted = operation.step_read().span;
  // The lookup guarantees it; a READ out of range would break the connection.
  assert(wanted.length > 0 && wanted.length <= source.region.length &&
         wanted.offset <= source.region.length - wanted.length);
  uint32_t landed = operation.step_read().landed;
  const size_t chain_before = chain_.size();
  const uint64_t bytes_before = chain_bytes;
  if (landed == 0) operation.step_read().posted_at = now;
  while (landed < wanted.length && chain_.size() < room) {
    const uint32_t bytes = std::min(wanted.length - landed, source.read_bytes_max);
    rdma::ReadRequest read;
    read.remote_address = source.region.address + wanted.offset + landed;
    read.remote_key = source.region.key;
    read.segments[0] = {operation.step_read().buffer.data() + landed, bytes,
                        &operation.step_read().buffer.memory()};
    chain_.push_back(read);
    landed += bytes;
    chain_bytes += bytes;
  }
  entries_.push_back({&operation, Buffer(), landed});
  if (operation.is_measure()) return;
  get_reads_ += chain_.size() - chain_before;
  get_read_bytes_ += chain_bytes - bytes_before;
}

void ReadBatches::Abandon(GetOperation& operation) {
  assert(operation.state() == GetOperation::State::kReading);
  Entry& entry = batches_[operation.step_read().batch][operation.step_read().batch_entry];
  assert(entry.operation == &operation);
  entry.operation = nullptr;
}

}  // namespace osprey::client
