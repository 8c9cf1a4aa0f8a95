// Blocking GETs from a server whose region this process has mapped (shm). What one probe finds is
// answered at once, without chain, event or Poll. Such a GET costs a probe of its window, a copy of
// the candidate, and the check of the copy (index/reader/mapped_probe.h).
//
//   left = mapped.Answer(source, view, maps, gets, deadline, owner);    // gets[0, left) are
//                                                                       // unanswered
//
// R4: after all were judged, the clock is read once more, as for a batch.
//
// All windows are prefetched together, then all lines and items that they lead to. So a batch of
// any size waits for memory twice.
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_READ_SHM_FAST_PATH_H_
#define OSPREY_CLIENT_READ_SHM_FAST_PATH_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "client/common/buffer_pool.h"
#include "client/read/cached_lookup.h"
#include "client/read/get_batches.h"
#include "client/read/partition_maps.h"
#include "client/read/reads_in_flight.h"
#include "index/layout/hash.h"
#include "index/reader/directory_cache.h"
#include "index/reader/mapped_probe.h"
#include "rdma/transport.h"

namespace osprey::client {

class ShmFastPath {
 public:
  static constexpr size_t kGetsMax = GetBatches::kGetsMax;
  // Longer items need an operation.
  static constexpr uint32_t kReadBytesMax = 1024;

  // `mapped` is null where nothing can be mapped.
  ShmFastPath(rdma::MappedReads* mapped, BufferPool& buffers, GetContext& context)
      : mapped_(mapped), buffers_(buffers), context_(context) {}

  // False: no region can be mapped, and nothing else may be called.
  bool available() const { return mapped_ != nullptr; }
  // The region, if it is mapped.
  rdma::Bytes View(const ReadSource& source) const {
    return mapped_->View(source.connection, source.region);
  }

  // Answers those of `gets` that it finds, and counts them. The others, of which nothing is known,
  // come first afterwards, in their order; returns their number. `region` is the View of
  // source.region. REQUIRES: at most kGetsMax.
  size_t Answer(const ReadSource& source, rdma::Bytes region, PartitionMaps& maps,
                absl::Span<BatchedGet> gets, absl::Time deadline, GetBatches::Owner& owner);
  // Releases its buffer until the next Answer.
  void ReleaseBuffer() { buffer_.Reset(); }

 private:
  struct Member {
    index::KeyHash hash;
    const MappedPartition* partition = nullptr;
    index::DirectoryCache::Window window;
    index::MappedProbe mapped_probe;
  };

  size_t Look(const ReadSource& source, rdma::Bytes region, PartitionMaps& maps,
              absl::Span<const BatchedGet> gets);
  bool Judge(const Member& member, const std::byte* landed, const BatchedGet& get);

  rdma::MappedReads* const mapped_;
  BufferPool& buffers_;
  GetContext& context_;
  Buffer buffer_;
  // The members of the Answer under way.
  std::array<Member, kGetsMax> members_;
  std::array<rdma::ReadRequest, kGetsMax> chain_;
  std::array<BatchedGet, kGetsMax> answered_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_SHM_FAST_PATH_H_
