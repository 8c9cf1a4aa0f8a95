// One GET: an index::Lookup, its current READ, and the server's answer if the lookup gives up.
//
//                         Landed: another READ
//                    +---------------------------+
//          Begin     v            posted         |   Landed: torn
//   kNew --------> kToRead ------------------> kReading -------------> kPaused
//     |              ^  ^                        |   |                    |
//     |              |  +-- the pause is over: the same READ once more ---+
//     |              |                           |   |
//     |   a lookup from the reply's slot         |   +-- hit or miss --> kDone
//     |              |                           |
//     | no READ      +-------- kAsking           |  the lookup gives up, or there is no lease
//     | will do                 ^   |            v
//     +----------> kToAsk ------+   +--------> kDone      (kToAsk: the second and later times
//                         sent        Replied              by way of kPaused)
//
// A long value is READ in pieces: kReading -> kFetching when its head has landed. From there
// Fetched takes the same paths as Landed from kReading. value_reads.h posts its READs.
//
// Restart leads from every state but kDone back to `kNew`: bytes and replies of a lost connection
// do not count (R7). Finish leads from every state to kDone. read_batches.h posts the READs.

#ifndef OSPREY_CLIENT_READ_GET_OPERATION_H_
#define OSPREY_CLIENT_READ_GET_OPERATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/common/buffer_pool.h"
#include "client/common/operation.h"
#include "client/common/registered_memory.h"
#include "client/read/cached_lookup.h"
#include "client/read/partition_maps.h"
#include "client/read/value_fetch.h"
#include "index/reader/lookup.h"
#include "rdma/wire/batch.h"
#include "rdma/wire/protocol.h"

namespace osprey::client {

class GetTrace;

class GetOperation final : public Operation {
 public:
  enum class State { kNew, kToRead, kReading, kFetching, kPaused, kToAsk, kAsking, kDone };

  explicit GetOperation(GetContext& context)
      : Operation(Type::kGet),
        counters_(context.counters),
        lease_(context.lease),
        lookup_(std::make_unique<CachedLookup>(context)) {}

  // kDone -> `kNew`. Without `want_value` the answer's bytes stay empty.
  using Done = std::variant<Client::GetCallback, Client::ExistsCallback, Client::GetIntoCallback,
                            Client::TtlCallback>;
  // With a `target` the value goes there.
  void Start(absl::string_view key, bool want_value, absl::Time deadline, Done done,
             UserMemory target = {});
  // kDone -> `kNew`, without a key: one READ of the region's first `bytes`, which are not examined.
  void StartMeasure(uint32_t bytes, absl::Time deadline, Client::GetCallback done);
  bool is_measure() const { return special_ != kPlain && special_ != kTraced; }
  // As Start of a GET with its value, whose steps go to `trace`. It outlives the operation's end.
  void StartTraced(absl::string_view key, absl::Time deadline, Client::GetCallback done,
                   GetTrace& trace);
  // After Start: this GET is timed, from `now` on.
  void TakeTime(absl::Time now) { begun_at_ = now; }
  // The start of the timing. InfinitePast: it is not timed.
  absl::Time begun_at() const { return begun_at_; }
  // Before Begin, with the maps of the present connection.
  void Prepare(PartitionMaps& maps);
  // After Prepare: prefetches the cache lines for Begin.
  void Prefetch() const;
  // `kNew` -> as Landed: continues a lookup of this key that a batch began at `begun`
  // (ReadLease::Begun), at its last step. The batch gets the operation's own, empty lookup in
  // exchange.
  void TakeOver(std::unique_ptr<CachedLookup>& lookup, const CachedLookup::Step& step,
                uint64_t read_bytes_max, absl::Time begun);
  // `kNew` -> kToRead (or kToAsk). READs are no longer than `read_bytes_max`, because no value is
  // longer.
  void Begin(uint64_t read_bytes_max);
  // The same without a lease, where READs would not count: `kNew` -> kToAsk.
  void BeginByMessage(uint64_t read_bytes_max);
  // kReading -> any state but `kNew`: all bytes of step_read() have landed in its buffer.
  // `time_since(posted)` returns the bounds of the server's clock from then until now.
  using TimeSince = absl::FunctionRef<index::ServerTimeBounds(absl::Time posted)>;
  void Landed(TimeSince time_since);
  // kFetching: the next bytes of the value, in order. They are copied if the answer needs a copy.
  void TakePiece(rdma::Bytes piece);
  // kFetching -> kDone, kToRead, kPaused or kToAsk: the whole value was taken.
  void Fetched();
  // Appends a GET by message under `sequence` to `frame`. False: it does not fit there now.
  bool AppendTo(rdma::FrameBatch& frame, uint64_t session, uint64_t sequence) const;
  // kAsking -> kDone or kToRead. `value_bytes_max` bounds the reply.
  void Replied(const rdma::Reply& reply, uint64_t value_bytes_max);
  // kPaused -> kToRead or kToAsk.
  void EndPause();
  // any but kDone -> `kNew`.
  void Restart();
  // any -> kDone, with this error.
  void Finish(absl::Status error) { End(std::move(error), /*is_answered=*/false); }
  // kDone: replaces the answer, which is not accepted, by an error.
  void Disbelieve(absl::Status error) { answer_ = std::move(error); }
  // kDone: delivers the answer to the user. The operation may be started again inside.
  void RunCallback();

  // kDone: a READ found the key with an expiry, so that the server's clock was needed.
  bool used_clock() const { return used_clock_; }

  State state() const { return state_; }
  void set_state(State state) {
    state_ = state;
  }  // kReading, kToAsk, kAsking: by who posts and sends

  // kToRead: the next READ. (It may take several of the device's size.)
  struct StepRead {
    index::ReadSpan span;  // of the region
    uint32_t landed = 0;   // bytes of it
    absl::Time posted_at;  // when the first of its READs was posted, or a little earlier
    Buffer buffer;         // registered memory; held elsewhere while READs are under way
    uint32_t batch = 0;    // where the READ under way is recorded (client/read/read_batches.h)
    uint32_t batch_entry = 0;
  };
  StepRead& step_read() { return step_read_; }
  // The buffer's contents have been examined, and no READ into it has begun.
  bool NeedsNothingOfBuffer() const {
    return state_ != State::kReading && state_ != State::kFetching &&
           (state_ != State::kToRead || step_read_.landed == 0);
  }

  // kFetching: the value's bytes, and where they go.
  ValueFetch& fetch() { return fetch_; }
  const UserMemory& target() const { return target_; }
  // READs under way into the user's memory, for any operation. There must be none when this one is
  // answered.
  uint32_t reads_in_user_memory() const { return reads_in_user_memory_; }
  void ReadInUserMemoryBegins() { ++reads_in_user_memory_; }
  void ReadInUserMemoryEnded() { --reads_in_user_memory_; }

  // kPaused.
  struct Pause {
    int attempt = 0;    // failures in a row, at least 1
    bool asks = false;  // a GET by message follows
    absl::Time end;
  };
  Pause& pause() { return pause_; }

 private:
  static constexpr uint32_t kPlain = 0;
  static constexpr uint32_t kTraced = UINT32_MAX;
  static_assert(kTraced > Client::kMeasureBytesMax);

  index::LookupOptions ReadOptions(uint64_t present_version) const;
  void Follow(const index::Lookup::Step& step);
  bool Counts(const index::Lookup::Step& step);
  void BeginFetch(const index::Lookup::Step& step);
  void AskServer();
  void Hit(absl::Span<const std::byte> bytes, uint64_t version, absl::Duration ttl);
  void Answer(absl::StatusOr<Value> answer) { End(std::move(answer), /*is_answered=*/true); }
  void End(absl::StatusOr<Value> answer, bool is_answered);
  void Count();
  bool BeginSpecial();
  void LandedSpecial(TimeSince time_since);
  void FollowTraced(const index::Lookup::Step& step);

  Counters& counters_;
  ReadLease& lease_;
  std::unique_ptr<CachedLookup> lookup_;
  // Of the lookup: when it began, for the lease; the version that a reply has named, else 0; and
  // whether the READ of a long item's head counts.
  absl::Time lookup_begun_;
  uint64_t named_version_ = 0;
  bool head_counts_ = false;
  State state_ = State::kDone;
  bool want_value_ = true;
  // kPlain: a GET; kTraced: one with a trace; else the length of a READ that is measured. One number,
  // so that a plain GET looks at one.
  uint32_t special_ = kPlain;
  GetTrace* trace_ = nullptr;  // kTraced
  // The value seemed too long for the target: ask the server for its length.
  bool asks_length_ = false;
  Pause pause_;
  int times_asked_ = 0;
  uint64_t read_bytes_max_ = 0;
  StepRead step_read_;
  absl::Time begun_at_ = absl::InfinitePast();
  bool used_clock_ = false;
  ValueFetch fetch_;
  std::string fetched_;  // of fetch_, unless there is a target
  UserMemory target_;
  uint32_t reads_in_user_memory_ = 0;
  absl::StatusOr<Value> answer_;
  uint64_t length_ = 0;  // of the value in the target
  Done done_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_GET_OPERATION_H_
