// The READs of GETs: all that are ready in one round go out as one chain with one completion.
//
// While a READ is under way its buffer belongs to the batch, not to the operation. So an operation
// can be answered at its deadline at once. The buffer goes back to the pool when the READ has
// ended, even if the engine had to break the connection for that (R5). The engine detects a batch
// that does not end.
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_READ_READ_BATCHES_H_
#define OSPREY_CLIENT_READ_READ_BATCHES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/common/buffer_pool.h"
#include "client/common/operation.h"
#include "client/read/get_operation.h"
#include "client/read/reads_in_flight.h"
#include "rdma/transport.h"

namespace osprey::client {

class ReadBatches {
 public:
  // The limit for the bytes of a chain: everything in it waits for its last byte.
  static constexpr uint64_t kChainBytesMax = 1 << 20;

  ReadBatches(ReadsInFlight& reads, BufferPool& buffers, Counters& counters)
      : reads_(reads), buffers_(buffers), counters_(counters) {}

  // Posts the READs of the first operations of `to_read` as one chain, as far as the limits allow.
  // Those operations leave the queue and become kReading. Returns their number; 0: a limit, no
  // buffers, or no connection.
  size_t Post(const ReadSource& source, OperationQueue& to_read, absl::Time now);

  // Chain `number` has ended. Calls `landed(operation)` for each operation that still waits for it,
  // with its step_read() updated.
  template <typename Landed>
  void Done(uint32_t number, Landed landed);

  // The operation ends without its READ. REQUIRES: it is kReading.
  void Abandon(GetOperation& operation);

 private:
  struct Entry {
    GetOperation* operation = nullptr;  // null: abandoned
    Buffer buffer;
    uint32_t landed = 0;  // bytes of the operation's READ, once this chain has ended
  };
  using Batch = std::vector<Entry>;

  void AddReads(const ReadSource& source, GetOperation& operation, size_t room, absl::Time now,
                uint64_t& chain_bytes);

  ReadsInFlight& reads_;
  BufferPool& buffers_;
  Counters& counters_;
  std::vector<Batch> batches_;  // by the chain's number
  std::vector<uint32_t> free_;  // of batches_
  // The chain under construction.
  std::vector<rdma::ReadRequest> chain_;
  std::vector<Entry> entries_;
  uint64_t get_reads_ = 0;  // in chain_, without the READs of MeasureRead
  uint64_t get_read_bytes_ = 0;
};

template <typename Landed>
void ReadBatches::Done(uint32_t number, Landed landed) {
  assert(number < batches_.size());
  Batch& batch = batches_[number];
  for (Entry& entry : batch) {
    if (entry.operation == nullptr) continue;
    entry.operation->step_read().buffer = std::move(entry.buffer);
    entry.operation->step_read().landed = entry.landed;
    landed(*entry.operation);
  }
  batch.clear();
  free_.push_back(number);
}

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_READ_BATCHES_H_
