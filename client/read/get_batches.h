// Blocking GETs: up to 16 whose READs are one chain with one completion. Their answers are written
// directly for the caller. No GET of a batch has its own queue entry, callback or timer, so its
// cost is its lookup.
//
//   Begin ──▶ a READ each ──▶ Landed: each lookup takes its bytes
//                 ▲               │
//                 └─ another READ ┼─ hit, miss: the answer
//                                 └─ anything else (torn: after a pause; a long READ or value; a
//                                    GET by message): an operation continues the lookup as it is
//
// R4: a batch has one deadline. After all that landed together is judged, the clock is read once
//     more, and late answers are not accepted.
// R5: READs land in buffers of the engine. A batch that is answered before they have ended stays
//     out of use until then.
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_READ_GET_BATCHES_H_
#define OSPREY_CLIENT_READ_GET_BATCHES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/client.h"
#include "client/common/buffer_pool.h"
#include "client/read/cached_lookup.h"
#include "client/read/partition_maps.h"
#include "client/read/read_batches.h"
#include "index/reader/server_time.h"
#include "rdma/transport.h"

namespace osprey::client {

// A GET of a batch. The caller owns key and answer.
struct BatchedGet {
  absl::string_view key;
  absl::StatusOr<Value>* answer = nullptr;
  absl::Time begun_at = absl::InfinitePast();  // InfinitePast: it is not timed
};

// Shared by all GETs of one call.
struct BatchCall {
  size_t* unanswered = nullptr;  // the caller waits until it is 0
  absl::Time deadline;
};

class GetBatches {
 public:
  static constexpr size_t kGetsMax = 16;
  // Longer READs need an operation.
  static constexpr uint32_t kReadBytesMax = 1024;

  GetBatches(rdma::Transport& transport, BufferPool& buffers, GetContext& context)
      : transport_(transport), buffers_(buffers), context_(context) {}

  // What a batch leaves to its owner. (No method begins or ends a batch.)
  class Owner {
   public:
    // An operation continues from that step. The batch gets the operation's own, empty lookup in
    // exchange.
    virtual void Continue(const BatchCall& call, const BatchedGet& get,
                          std::unique_ptr<CachedLookup>& lookup,
                          const CachedLookup::Step& step) = 0;
    // An operation starts over: the connection is gone.
    virtual void Restart(const BatchCall& call, const BatchedGet& get) = 0;
    // This many have their answers, and are counted out; one timed GET is among them.
    virtual void Answered(size_t count) = 0;
    virtual void Timed(absl::Time begun_at) = 0;
    // The bounds of the server's clock from `posted` until now.
    virtual index::ServerTimeBounds ClockSince(absl::Time posted) = 0;
    // Reads the clock before answers are delivered.
    virtual bool IsLate(absl::Time deadline) const = 0;

   protected:
    ~Owner() = default;
  };

  // Whether `count` GETs can begin now.
  bool HasRoom(const ReadBatches::Source& source, size_t count);
  // REQUIRES: HasRoom; 1 to kGetsMax.
  void Begin(const ReadBatches::Source& source, PartitionMaps& maps, const BatchCall& call,
             absl::Span<const BatchedGet> gets, absl::Time now, Owner& owner);

  // Whether a completion with this cookie is of a batch.
  static bool Owns(uint64_t cookie) { return (cookie & kCookieBit) != 0; }
  // The chain `cookie` has ended. `believe`: successfully, and its bytes may be used.
  void Done(const ReadBatches::Source& source, uint64_t cookie, bool believe, absl::Time now,
            Owner& owner);
  // Answers those whose deadline has come with `error`.
  void Expire(absl::Time now, const absl::Status& error, Owner& owner);
  absl::Time NextDeadline() const;
  // Releases the buffers of batches that are not in use.
  void ReleaseBuffers();

  // Chains under way.
  size_t outstanding() const { return outstanding_; }
  // When the last chain ended, or when the first of those under way was posted.
  absl::Time progress_at() const { return progress_at_; }

 private:
  static constexpr uint64_t kCookieBit = uint64_t{1} << 60;

  struct Member {
    BatchedGet get;
    std::unique_ptr<CachedLookup> lookup;
    index::ReadSpan read;   // in the region
    uint32_t lands_at = 0;  // in the batch's buffer
  };
  // The members with a READ come first.
  struct Batch {
    std::array<Member, kGetsMax> members;
    size_t reading = 0;
    BatchCall call;
    absl::Time posted_at;
    Buffer buffer;
  };

  void Free(uint32_t number) { free_.push_back(number); }
  void Follow(const ReadBatches::Source& source, Batch& batch, Member& member,
              const CachedLookup::Step& step, Owner& owner);
  void Post(const ReadBatches::Source& source, uint32_t number, absl::Time now, Owner& owner);
  void Restart(Batch& batch, Owner& owner);
  // Whether the step ends the lookup; then it sets `answer`.
  static bool Answers(const CachedLookup::Step& step, absl::StatusOr<Value>& answer);
  void CountOut(Batch& batch, absl::Span<Member> answered, Owner& owner);

  rdma::Transport& transport_;
  BufferPool& buffers_;
  GetContext& context_;
  std::vector<std::unique_ptr<Batch>> batches_;  // indexed by the number in a cookie
  std::vector<uint32_t> free_;                   // numbers
  size_t outstanding_ = 0;
  absl::Time progress_at_ = absl::InfinitePast();
  std::array<rdma::ReadRequest, kGetsMax> chain_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_GET_BATCHES_H_
