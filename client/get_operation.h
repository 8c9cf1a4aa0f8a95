// One GET: an index::Lookup, its READ of the moment, and the server's answer when the lookup gives
// up.
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
//     | no READ      +-------- kAsking           |  the lookup gives up
//     | will do                 ^   |            v
//     +----------> kToAsk ------+   +--------> kDone      (kToAsk: the second and later times
//                         sent        Replied              by way of kPaused)
//
// A long value is READ in pieces: kReading -> kFetching when its head has landed, and Fetched leads
// on from there as Landed does from kReading. Its READs are posted by value_reads.h.
//
// Restart leads from every state but kDone back to kNew: nothing that was READ or said on a
// connection that is gone counts (R7). Finish leads from every state to kDone. The READs
// themselves are posted by read_batches.h.

#ifndef OSPREY_CLIENT_GET_OPERATION_H_
#define OSPREY_CLIENT_GET_OPERATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/buffer_pool.h"
#include "client/client.h"
#include "client/key_lookup.h"
#include "client/operation.h"
#include "client/partition_maps.h"
#include "client/registered_memory.h"
#include "client/value_fetch.h"
#include "index/lookup.h"
#include "rdma/batch.h"
#include "rdma/protocol.h"

namespace osprey::client {

class GetOperation final : public Operation {
 public:
  enum class State { kNew, kToRead, kReading, kFetching, kPaused, kToAsk, kAsking, kDone };

  explicit GetOperation(GetContext& context)
      : Operation(Type::kGet),
        counters_(context.counters),
        lookup_(std::make_unique<KeyLookup>(context)) {}

  // kDone -> kNew. Without `want_value` the answer's bytes are left empty.
  using Done = std::variant<Client::GetCallback, Client::ExistsCallback, Client::GetIntoCallback,
                            Client::TtlCallback>;
  // With a `target` the value goes there.
  void Start(absl::string_view key, bool want_value, absl::Time deadline, Done done,
             UserMemory target = {});
  // kDone -> kNew, of no key: one READ of the region's first `bytes`, of which nothing is looked
  // at.
  void StartMeasure(uint32_t bytes, absl::Time deadline, Client::GetCallback done);
  bool is_measure() const { return measured_bytes_ != 0; }
  // After Start: this one's time is taken, from `now` on.
  void TakeTime(absl::Time now) { begun_at_ = now; }
  // … since when. InfinitePast: it is not.
  absl::Time begun_at() const { return begun_at_; }
  // Before Begin, with the maps of the present connection.
  void Prepare(PartitionMaps& maps);
  // After Prepare: begins to fetch what Begin needs of the cache.
  void Prefetch() const;
  // kNew -> as Landed: goes on with a lookup of this key that others began, whose last step this
  // is. They are given the operation's own, which is none.
  void TakeOver(std::unique_ptr<KeyLookup>& lookup, const KeyLookup::Step& step,
                uint64_t read_bytes_max);
  // kNew -> kToRead (or kToAsk). READs longer than `read_bytes_max` are not asked for: no value is
  // that long.
  void Begin(uint64_t read_bytes_max);
  // kReading -> anything but kNew: all bytes of read() have landed in buffer(). `time_since(
  // posted)` says what is known of the server's clock from then until now.
  using TimeSince = absl::FunctionRef<index::ServerTimeBounds(absl::Time posted)>;
  void Landed(TimeSince time_since);
  // kFetching: the next bytes of the value, in order. A copy is made where the answer needs one.
  void TakePiece(rdma::Bytes piece);
  // kFetching -> kDone, kToRead, kPaused or kToAsk: all of the value was taken.
  void Fetched();
  // Puts a GET by message under `sequence` into `frame`. False: it does not fit there now.
  bool AppendTo(rdma::FrameBatch& frame, uint64_t session, uint64_t sequence) const;
  // kAsking -> kDone or kToRead. `value_bytes_max` bounds what is believed of the reply.
  void Replied(const rdma::Reply& reply, uint64_t value_bytes_max);
  // kPaused -> kToRead or kToAsk.
  void EndPause();
  // any but kDone -> kNew.
  void Restart();
  // any -> kDone, with this error.
  void Finish(absl::Status error) { End(std::move(error), /*is_answered=*/false); }
  // kDone: what the answer was is not believed.
  void Disbelieve(absl::Status error) { answer_ = std::move(error); }
  // kDone: gives the answer to the user. The operation may be started again inside.
  void RunCallback();

  // kDone: a READ found the key, and it has an expiry: what is known of the server's clock was of
  // use.
  bool used_clock() const { return used_clock_; }

  State state() const { return state_; }
  void set_state(State state) {
    state_ = state;
  }  // kReading, kToAsk, kAsking: by who posts and sends

  // kToRead: what is wanted of the region, and how much of it has landed (a READ may need several,
  // of the device's size).
  const index::ReadSpan& read() const { return read_; }
  uint32_t landed() const { return landed_; }
  void set_landed(uint32_t bytes) { landed_ = bytes; }
  // When the first of them was posted, or a little earlier.
  void set_posted_at(absl::Time time) { posted_at_ = time; }
  // Registered memory for read(). Elsewhere while READs are under way.
  Buffer& buffer() { return buffer_; }
  // What is in it has been looked at, and no READ into it has begun.
  bool NeedsNothingOfBuffer() const {
    return state_ != State::kReading && state_ != State::kFetching &&
           (state_ != State::kToRead || landed_ == 0);
  }

  // kFetching: what is wanted, and where it goes.
  ValueFetch& fetch() { return fetch_; }
  const UserMemory& target() const { return target_; }
  // READs under way into the user's memory, on whatever behalf: none may be when this is answered.
  uint32_t reads_in_user_memory() const { return reads_in_user_memory_; }
  void ReadInUserMemoryBegins() { ++reads_in_user_memory_; }
  void ReadInUserMemoryEnded() { --reads_in_user_memory_; }

  // kPaused: how many times in a row this went wrong (at least 1), and whether what follows is
  // asking.
  int pause_attempt() const { return attempt_; }
  bool asks_after_pause() const { return asks_after_pause_; }
  absl::Time pause_end() const { return pause_end_; }
  void set_pause_end(absl::Time end) { pause_end_ = end; }

  // Where the READ under way is accounted for (client/read_batches.h).
  uint32_t batch = 0;
  uint32_t batch_entry = 0;

 private:
  index::LookupOptions ReadOptions(uint64_t present_version) const;
  void Follow(const index::Lookup::Step& step);
  void BeginFetch(const index::Lookup::Step& step);
  void AskServer();
  void Hit(absl::Span<const std::byte> bytes, uint64_t version, absl::Duration ttl);
  void Answer(absl::StatusOr<Value> answer) { End(std::move(answer), /*is_answered=*/true); }
  void End(absl::StatusOr<Value> answer, bool is_answered);
  void Count();

  Counters& counters_;
  std::unique_ptr<KeyLookup> lookup_;
  State state_ = State::kDone;
  bool want_value_ = true;
  uint32_t measured_bytes_ = 0;  // 0: a GET
  bool asks_after_pause_ = false;
  bool asks_length_ = false;  // the value seemed too long for the target: the server knows
  int attempt_ = 0;
  int times_asked_ = 0;
  uint64_t read_bytes_max_ = 0;
  index::ReadSpan read_;
  uint32_t landed_ = 0;
  absl::Time posted_at_;
  absl::Time begun_at_ = absl::InfinitePast();
  bool used_clock_ = false;
  Buffer buffer_;
  ValueFetch fetch_;
  std::string fetched_;  // of fetch_, unless there is a target
  UserMemory target_;
  uint32_t reads_in_user_memory_ = 0;
  absl::Time pause_end_;
  absl::StatusOr<Value> answer_;
  uint64_t length_ = 0;  // of the value in the target
  Done done_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_GET_OPERATION_H_
