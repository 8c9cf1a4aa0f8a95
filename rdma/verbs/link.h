// The data path of one connection: a queue pair, its receives, its sends under credits, its batches
// of READs. Connections are established in verbs_transport.h.
//
// A work request has a name of 64 bits, which its completion returns. (The completion's other
// fields are undefined after an error.)
//
//   63                24 23    16 15         0
//   +-------------------+--------+------------+
//   |   link's tag      |  kind  |   index    |
//   +-------------------+--------+------------+
//
// The tag distinguishes a completion of this link from a late one of an earlier link at the same
// place.
//
// Sends use a ring of slots, each an envelope and a frame. Only every N-th SEND is signalled; its
// completion frees its own slot and all earlier ones. Of a batch of READs only the last is
// signalled. Work requests of one queue pair complete in order, so one signalled completion covers
// all before it.

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
#include "rdma/verbs/completions.h"
#include "rdma/verbs/device/device.h"
#include "rdma/verbs/device/queue_pair.h"
#include "rdma/verbs/frame.h"

namespace osprey::rdma {

// The most receives that either side posts for the other. A client sizes its queue pair by this,
// since it must do so before it has the server's offer. 256 requests in flight hide any network's
// latency.
inline constexpr uint16_t kReceiveCreditsMax = 256;

// Kinds of work requests, as in wr_id.
enum class WorkKind : uint8_t {
  kReceive = 1,   // index: of the receive buffer
  kSend = 2,      // index: low bits of the send's number
  kRead = 3,      // index: low bits of the batch's number
  kReadLast = 4,  // the same, of the batch's last READ
  kDisconnectNotice = 5,
  kSentinel = 6,  // posted to a broken queue pair; its completion follows all others
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

// The work requests of a chain of READs, prepared: most fields are the same in every chain. All
// links of a Transport share one, so that it stays in the cache. Not thread-safe.
class ReadChain {
 public:
  explicit ReadChain(size_t reads_max);
  ReadChain(const ReadChain&) = delete;
  ReadChain& operator=(const ReadChain&) = delete;

  // The first request of a chain of `reads`, from 1 to reads_max, of which the last is signalled.
  // Valid until Reset, which must follow.
  ibv_send_wr* Build(absl::Span<const ReadRequest> reads, size_t device, uint64_t work_id,
                     uint64_t last_work_id);
  void Reset();

 private:
  std::vector<ibv_send_wr> requests_;
  std::vector<ibv_sge> segments_;
  ibv_send_wr* last_ = nullptr;  // of the chain that was built
  ibv_send_wr* behind_last_ = nullptr;
};

// Belongs to its Transport's thread, except for the slow calls: Make, Start, Flush, and the
// destructor of a link that has left the completions. Another thread may make these. Make, Start
// and the destructor need exclusive use of the link; during Flush the owner may continue to use it.
class Link {
 public:
  struct Options {
    uint16_t receive_credits = 0;  // frames; at most kReceiveCreditsMax
    uint32_t frame_bytes_max = 0;  // the longest frame that this side receives
    uint16_t reads_in_flight_max = 0;
    uint16_t send_credits_max =
        0;             // the most frames that this side may have in flight, whatever the peer
                       // offers
    uint64_t tag = 0;  // WorkId::kTagBits
  };

  // A link that has only its room in a completion queue. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<Link>> Create(DeviceCompletions& completions,
                                                      const Options& options);
  ~Link();

  // Makes the queue pair and the receives, and posts the receives. REQUIRES: called once, before
  // all that follows. Errors: RESOURCE_EXHAUSTED, INTERNAL.
  absl::Status Make(rdma_cm_id* id);

  // Adopts the peer's offer and makes the queue pair ready. REQUIRES: called once, when the CM id
  // has the peer's queue pair. Errors: RESOURCE_EXHAUSTED, INTERNAL, INVALID_ARGUMENT.
  absl::Status Start(rdma_cm_id* id, const ConnectData& peer, const ReadDepth& depth);

  const VerbsDevice& device() const { return device_; }
  ibv_qp* queue_pair() const { return queue_pair_.get(); }
  const ConnectionLimits& limits() const { return limits_; }
  uint32_t inline_bytes_max() const { return inline_bytes_max_; }

  // As the methods of Transport.
  absl::StatusOr<RemoteMemory> Expose(const VerbsMemory& memory);
  absl::StatusOr<RemoteMemory> Announce(const VerbsMemory& memory) const;
  absl::Status PostReads(absl::Span<const ReadRequest> reads, uint64_t cookie, ReadChain& chain);
  size_t ReadRoom() const { return limits_.reads_in_flight_max - reads_.in_flight; }
  absl::Status Send(absl::Span<const Bytes> pieces);
  size_t SendRoom() const;

  // Announces an intended disconnect to the peer. A completion of kDisconnectNotice follows.
  void SendDisconnectNotice();

  // Returns the frame (or envelope) in receive `index`, and adds the credits that came with it.
  // `frame` is empty for a control message; the receive is then posted again already. Errors:
  // INVALID_ARGUMENT for a malformed message.
  struct Received {
    Bytes frame;
    bool disconnect_notice = false;
  };
  absl::StatusOr<Received> OnReceived(uint16_t index, uint32_t bytes);
  // Releases the frame of receive `index`: posts the receive again, and returns the credit.
  void ReleaseFrame(uint16_t index);

  // A signalled SEND completed: `index` as in its WorkId.
  void OnSent(uint16_t index);

  // Removes the oldest batch, which has ended, and returns its cookie. REQUIRES: there is one.
  uint64_t PopBatch();
  bool has_batches() const { return reads_.batches_begin != reads_.batches_end; }

  // The end of the queue pair, in two steps. After StopPosting no work is posted. Flush ends posted
  // work: each receive completes, and kSentinel as the last of the sends. Call OnDrained for each
  // completion, whatever its status. drained() is true when no posted work is left.
  void StopPosting();
  void Flush() const;
  void OnDrained(WorkKind kind);
  bool draining() const { return draining_; }
  bool drained() const { return draining_ && receives_.posted == 0 && sentinel_seen_; }
  // Once it is destroyed, no READ can land, drained or not, and no work completes.
  QueuePair TakeQueuePair() { return std::move(queue_pair_); }
  // REQUIRES: the queue pair is gone, and the next call is the destructor.
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
  bool MayBeRead(const ReadRequest& read) const;
  absl::Status BadReadError(const ReadRequest& read) const;

  const VerbsDevice& device_;
  const size_t device_index_;
  const Options options_;
  ConnectionLimits limits_;
  uint32_t inline_bytes_max_ = 0;
  CompletionRoom completions_;

  struct {
    // Slot number n (counted without end) lies at n % slots; one more is for the disconnect notice.
    uint32_t slots = 0;
    uint32_t signal_every = 1;  // sends
    uint32_t unsignalled = 0;   // sends since the last signalled one
    uint64_t posted = 0;
    uint64_t done = 0;
    uint32_t credits = 0;  // frames that may be sent now
    VerbsBuffer buffer;
    size_t stride = 0;  // bytes
  } sends_;

  struct {
    uint32_t count = 0;         // in all
    uint32_t posted = 0;        // of these
    uint32_t credits_owed = 0;  // posted again and not returned to the peer yet
    VerbsBuffer buffer;
    size_t stride = 0;  // bytes
  } receives_;

  struct {
    uint32_t in_flight = 0;
    // Batches are numbered without end; number n lies at n % batches.size(), a power of 2.
    uint64_t batches_begin = 0;
    uint64_t batches_end = 0;
    std::vector<Batch> batches;
  } reads_;

  bool remote_read_granted_ = false;
  bool draining_ = false;
  bool sentinel_seen_ = false;

  QueuePair queue_pair_;  // destroyed before everything that it uses
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_LINK_H_
