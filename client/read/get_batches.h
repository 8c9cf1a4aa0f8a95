// Blocking GETs: up to 16 whose READs are one chain with one completion. Their answers are written
// directly for the caller. No GET of a batch has its own queue entry, callback or timer, so its
// cost is its lookup.
//
//   Begin ──▶ a READ each ──▶ Done: the window or the cached item answers most at once;
//                 ▲           │     the others' lookups take the bytes
//                 └─ another READ
//                             └─ anything else (torn: after a pause; a long READ or value; a GET by
//                                message; no lease): an operation continues the lookup as it is
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
#include "client/read/key_start.h"
#include "client/read/partition_maps.h"
#include "client/read/reads_in_flight.h"
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
  // READs of one chain land in this many bytes. A READ that does not fit needs an operation.
  static constexpr uint32_t kBufferBytes = 32 << 10;
  static constexpr uint32_t kReadBytesMax = kBufferBytes / kGetsMax;

  GetBatches(ReadsInFlight& reads, BufferPool& buffers, GetContext& context)
      : reads_(reads), buffers_(buffers), context_(context) {}

  // What a batch leaves to its owner. (No method begins or ends a batch.)
  class Owner {
   public:
    // An operation continues from that step of a lookup that began at `begun` (ReadLease). The batch
    // gets the operation's own, empty lookup in exchange.
    virtual void Continue(const BatchCall& call, const BatchedGet& get,
                          std::unique_ptr<CachedLookup>& lookup, const CachedLookup::Step& step,
                          absl::Time begun) = 0;
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

  // Opens a batch for `count` GETs, 1 to kGetsMax. False: there is no room for their READs now, or
  // no buffer.
  bool Open(const ReadSource& source, size_t count);
  // Adds a GET to the open batch. At most as many as its room is for.
  void Add(PartitionMaps& maps, const BatchedGet& get) {
    Member& member = open_->members[open_->reading++];
    member.get = get;
    member.start = KeyStart(maps, get.key);
  }
  // Posts the READs of the open batch, to which at least one was added, and closes it.
  void Begin(const ReadSource& source, const BatchCall& call, absl::Time now, Owner& owner);

  // A GET alone, which needs no batch if its first READ answers it: posts that READ, and polls for it.
  enum class One {
    kNotBegun,  // it cannot begin so, or not now
    kAnswered,  // by the READ. The caller counts it
    kUnderWay,  // it goes on as a batch, whose chain is under way
    kEnded,     // likewise; the chain one() has ended, as `done` tells, and Done must follow
  };
  // REQUIRES: no READ is under way; `done` is new.
  One GetOne(const ReadSource& source, PartitionMaps& maps, const BatchedGet& get,
             const BatchCall& call, absl::Time now, rdma::Transport::ReadsDone& done);
  ReadChainId one() const { return {ReadChainId::User::kBatch, open_->number}; }

  // The chain of batch `number` has ended. `believe`: successfully, and its bytes may be used.
  void Done(const ReadSource& source, uint32_t number, bool believe, absl::Time now, Owner& owner);
  // Answers those whose deadline has come with `error`.
  void Expire(absl::Time now, const absl::Status& error, Owner& owner);
  absl::Time NextDeadline() const;
  // Releases the buffers of batches that are not in use.
  void ReleaseBuffers();

 private:
  enum class Stage {
    kFirst,       // the first READ is under way
    kUnanswered,  // it has no answer; `lookup` shall take its bytes
    kLooks,
  };
  // What a GET has READ first.
  struct FirstRead {
    KeyStart start;
    LocationCache::Sets sets;
    uint64_t hint = 0;     // with which it began; 0: at its window
    index::ReadSpan read;  // in the region
  };
  // `read`: the READ under way.
  struct Member : FirstRead {
    BatchedGet get;
    Stage stage = Stage::kFirst;
    std::unique_ptr<CachedLookup> lookup;  // kLooks
    std::byte* lands_at = nullptr;
  };
  // The members with a READ come first.
  struct Batch {
    uint32_t number = 0;
    std::array<Member, kGetsMax> members;
    size_t reading = 0;
    BatchCall call;
    absl::Time posted_at;
    absl::Time begun;  // ReadLease::Begun before the first READs
    Buffer buffer;
  };

  Batch* NewBatch();
  bool Open();
  void Free(Batch& batch) { free_.push_back(&batch); }
  bool SetFirstRead(const ReadSource& source, FirstRead& first);
  bool AnswersAtOnce(const FirstRead& first, index::ByteSpan bytes, const BatchedGet& get);
  void KeepOne(const FirstRead& first, const BatchedGet& get, const BatchCall& call,
               absl::Time posted_at);
  static CachedLookup::Step Look(Member& member, index::ByteSpan bytes,
                                 index::Lookup::TimeOfRead time);
  void Follow(const ReadSource& source, Batch& batch, Member& member,
              const CachedLookup::Step& step, Owner& owner);
  void Ask(Batch& batch, Member& member, Owner& owner);
  void KeepReading(Batch& batch, Member& member);
  static void SetRequest(const ReadSource& source, const Batch& batch, const index::ReadSpan& read,
                         std::byte* lands_at, rdma::ReadRequest& request);
  void Post(const ReadSource& source, Batch& batch, absl::Time now, Owner& owner);
  void Restart(Batch& batch, Owner& owner);
  // Whether the step ends the lookup; then it sets `answer`.
  static bool Answers(const CachedLookup::Step& step, absl::StatusOr<Value>& answer);
  // Counts out the answered members, except those that an operation continues.
  void CountOut(Batch& batch, absl::Span<Member> answered, Owner& owner);

  ReadsInFlight& reads_;
  BufferPool& buffers_;
  GetContext& context_;
  std::vector<std::unique_ptr<Batch>> batches_;  // by the number of a chain
  std::vector<Batch*> free_;
  Batch* open_ = nullptr;
  std::array<rdma::ReadRequest, kGetsMax> chain_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_GET_BATCHES_H_
