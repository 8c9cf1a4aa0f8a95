// The data path of one connection: a queue pair, its receives, its sends under credits, its batches
// of READs. Knows nothing of how connections come about (verbs_transport.h does).
//
// Work requests are named by 64 bits, which come back in the completion (the rest of which means
// nothing on an error):
//
//   63                24 23    16 15         0
//   +-------------------+--------+------------+
//   |   link's tag      |  kind  |   index    |
//   +-------------------+--------+------------+
//
// The tag tells a completion of this link from a late one of another link that had the same place
// before.
//
// Sends: a ring of slots, each an envelope and a frame. Only every N-th SEND is signalled, and its
// completion frees its own slot and all before it. READs: only the last of a batch is signalled.
// Work requests of one queue pair complete in order, so one signalled completion speaks for all
// before it.

#ifndef OSPREY_RDMA_VERBS_LINK_H_
#define OSPREY_RDMA_VERBS_LINK_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rdma/handshake.h"
#include "rdma/transport.h"
#include "rdma/verbs_completions.h"
#include "rdma/verbs_device.h"
#include "rdma/verbs_frame.h"
#include "rdma/verbs_queue_pair.h"

namespace osprey::rdma {

// The most receives that either side posts for the other: what a client, which must size its queue
// pair before it knows what the server offers, provides for. 256 requests on their way hide any
// network's latency.
inline constexpr uint16_t kReceiveCreditsMax = 256;

// Kinds of work requests, as in wr_id.
enum class WorkKind : uint8_t {
  kReceive = 1,   // index: of the receive buffer
  kSend = 2,      // index: low bits of the send's number
  kRead = 3,      // index: low bits of the batch's number
  kReadLast = 4,  // the same, of the batch's last READ
  kGoodbye = 5,
  kSentinel = 6,  // posted to a broken queue pair: when it comes back, all before it has
};

struct WorkId {
  static constexpr int kTagBits = 40;
  uint64_t tag = 0;
  WorkKind kind = WorkKind::kReceive;
  uint16_t index = 0;

  static WorkId Unpack(uint64_t wr_id) {
    return {wr_id >> 24, static_cast<WorkKind>((wr_id >> 16) & 0xff), static_cast<uint16_t>(wr_id)};
  }
  static constexpr uint64_t Pack(uint64_t tag, WorkKind kind, uint64_t index) {
    return (tag << 24) | (static_cast<uint64_t>(kind) << 16) | (index & 0xffff);
  }
};

// Work requests of a long chain, built here. One for all links of a Transport, so that it stays in
// the cache.
struct ReadChain {
  explicit ReadChain(size_t reads_max) : requests(reads_max), segments(reads_max * kSegmentsMax) {}
  std::vector<ibv_send_wr> requests;
  std::vector<ibv_sge> segments;
};

// Belongs to its Transport's thread. But what takes the kernel long, Make, Start, Flush and the
// destructor of a link that has left the completions, may be called by another. Make, Start and the
// destructor want the link for themselves; during Flush the owner may go on with it.
class Link {
 public:
  struct Options {
    uint16_t receive_credits = 0;  // frames; at most kReceiveCreditsMax
    uint32_t frame_bytes_max = 0;  // the longest frame that we receive
    uint16_t reads_in_flight_max = 0;
    uint16_t send_credits_max =
        0;             // the most frames that we may have on their way, whatever the peer offers
    uint64_t tag = 0;  // WorkId::kTagBits
  };

  // A link for which nothing but room among the completions exists yet. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<Link>> Create(DeviceCompletions& completions,
                                                      const Options& options);
  ~Link();

  // Makes the queue pair and the receives, and posts these. REQUIRES: once, before all that
  // follows. Errors: RESOURCE_EXHAUSTED, INTERNAL.
  absl::Status Make(rdma_cm_id* id);

  // Adopts what the peer offers and makes the queue pair ready. REQUIRES: once, when the CM id
  // knows the peer's queue pair. Errors: RESOURCE_EXHAUSTED, INTERNAL, INVALID_ARGUMENT.
  absl::Status Start(rdma_cm_id* id, const ConnectData& peer, const ReadDepth& depth);

  const VerbsDevice& device() const { return device_; }
  ibv_qp* queue_pair() const { return queue_pair_.get(); }
  const ConnectionLimits& limits() const { return limits_; }
  uint32_t inline_bytes_max() const { return inline_bytes_max_; }

  // As the methods of Transport.
  absl::StatusOr<RemoteMemory> Expose(const VerbsMemory& memory);
  absl::StatusOr<RemoteMemory> Announce(const VerbsMemory& memory) const;
  absl::Status PostReads(absl::Span<const ReadRequest> reads, uint64_t cookie, ReadChain& chain);
  size_t ReadRoom() const { return limits_.reads_in_flight_max - reads_in_flight_; }
  absl::Status Send(absl::Span<const Bytes> pieces);
  size_t SendRoom() const;

  // Says that we are about to disconnect on purpose. A completion of kGoodbye follows.
  void SendGoodbye();

  // The frame (or envelope) that arrived in receive `index`. Credits that came with it are added.
  // `frame` is empty for a control message; then the receive has been posted again already. Errors:
  // INVALID_ARGUMENT for a malformed message.
  struct Received {
    Bytes frame;
    bool goodbye = false;
  };
  absl::StatusOr<Received> OnReceived(uint16_t index, uint32_t bytes);
  // The frame of receive `index` is not needed any more: posts it again, and gives the credit back.
  void ReleaseFrame(uint16_t index);

  // A signalled SEND completed: `index` as in its WorkId.
  void OnSent(uint16_t index);

  // The oldest batch ended; returns its cookie. REQUIRES: there is one.
  uint64_t PopBatch();
  bool has_batches() const { return batches_begin_ != batches_end_; }

  // The end of the queue pair, in two steps. From StopPosting on nothing is posted any more. Flush
  // ends what is: completions follow, of each receive, and, last of the sends, kSentinel. Call
  // OnDrained for each, whatever its status; drained() tells when nothing is posted any more.
  void StopPosting();
  void Flush() const;
  void OnDrained(WorkKind kind);
  bool draining() const { return draining_; }
  bool drained() const { return draining_ && receives_posted_ == 0 && sentinel_seen_; }
  // Once it is destroyed no READ can land, drained or not, and nothing completes.
  QueuePair TakeQueuePair() { return std::move(queue_pair_); }
  // REQUIRES: there is no queue pair any more, and nothing will be called but the destructor.
  void LeaveCompletions() { completions_ = CompletionRoom(); }

 private:
  struct Batch {
    uint64_t cookie = 0;
    uint32_t reads = 0;
  };

  Link(const VerbsDevice& device, const Options& options);
  QueuePairShape Shape() const;
  std::byte* send_slot(uint64_t number) const;
  uint64_t Work(WorkKind kind, uint64_t index) const {
    return WorkId::Pack(options_.tag, kind, index);
  }

  absl::Status PrepareReceives();
  absl::Status PostReceive(uint16_t index);
  absl::Status AllocateSends();
  absl::Status PostFrame(uint8_t flags, absl::Span<const Bytes> pieces, uint32_t length);
  absl::Status PostSend(std::byte* slot, uint32_t bytes, uint64_t wr_id, bool signalled);
  void GiveCreditsBack();
  void BuildChain(absl::Span<const ReadRequest> reads, ibv_send_wr* requests,
                  ibv_sge* segments_of) const;
  absl::Status CheckRead(const ReadRequest& read) const;

  const VerbsDevice& device_;
  const size_t device_index_;
  const Options options_;
  ConnectionLimits limits_;
  uint32_t inline_bytes_max_ = 0;
  CompletionRoom completions_;

  // Sends. Slot number n (counted for ever) lies at n % send_slots_; one more slot is the
  // goodbye's.
  uint32_t send_slots_ = 0;
  uint32_t signal_every_ = 1;  // sends
  uint32_t unsignalled_ = 0;   // sends since the last signalled one
  uint64_t sends_posted_ = 0;
  uint64_t sends_done_ = 0;
  uint32_t send_credits_ = 0;  // frames that we may send now
  VerbsBuffer send_buffer_;
  size_t send_stride_ = 0;  // bytes

  // Receives.
  const uint32_t receives_;       // in all
  uint32_t receives_posted_ = 0;  // of these
  uint32_t credits_owed_ = 0;     // posted again and not told to the peer yet
  VerbsBuffer receive_buffer_;
  size_t receive_stride_ = 0;  // bytes

  // READs. Batches are numbered for ever; number n lies at n % batches_.size(), a power of 2.
  uint32_t reads_in_flight_ = 0;
  uint64_t batches_begin_ = 0;
  uint64_t batches_end_ = 0;
  std::vector<Batch> batches_;

  bool remote_read_granted_ = false;
  bool draining_ = false;
  bool sentinel_seen_ = false;

  QueuePair queue_pair_;  // gone before everything that it uses
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_LINK_H_
