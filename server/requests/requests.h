// Executes requests on the table. Each function is one request that came whole in its frame; values
// that do not fit into a frame are rendezvous.h's business.
//
// Thread rule: the engine's thread, which holds the table's lock.

#ifndef OSPREY_SERVER_REQUESTS_REQUESTS_H_
#define OSPREY_SERVER_REQUESTS_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "index/layout/hash.h"
#include "index/writer/table.h"
#include "rdma/wire/protocol.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"

namespace osprey::server {

inline rdma::FrameBytes AsFrameBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// How long the space of a value stays as it is for a reader that was sent its slot (R6): the
// default deadline of a client's operation (1 s) twice, and as long as it takes to READ it over a
// slow line. A reader that comes later finds its READ torn or the item dead, and asks again.
inline constexpr absl::Duration kGetLease() { return absl::Seconds(2); }
inline constexpr uint64_t kGetLeaseBytesPerSecond = 64 << 20;
absl::Duration LeaseOf(uint64_t value_length);
// Leases end at multiples of this, so that a value that is asked for again and again has few of
// them, however often that is.
inline constexpr absl::Duration kGetLeaseStep() { return absl::Milliseconds(250); }
// The end of a lease given now: `lease` from now, or up to a step later.
absl::Time LeaseEnd(absl::Duration lease, absl::Time now);

// Keys that one FLUSH request deletes, at most: some 100 us, so that others get between.
inline constexpr uint64_t kFlushKeysPerRequest = 256;

// An append that makes a value of up to this length is done at once: some 5 us.
inline constexpr uint64_t kAppendAtOnceBytesMax = 16 << 10;

// A reply on its way. `value` is a view into the table, valid until the next call on it: send the
// answer before.
struct Answer {
  rdma::ReplyBody body;
  bool has_number = false;  // INCREMENT: `text` is that number
  int64_t number = 0;
  std::string text;        // a number, statistics, or what went wrong
  rdma::FrameBytes value;  // GET

  absl::StatusCode code() const { return static_cast<absl::StatusCode>(body.status); }
  rdma::WireReason reason() const { return static_cast<rdma::WireReason>(body.reason); }
  rdma::FrameBytes data() const;
};

Answer AnswerOf(absl::StatusCode code, absl::string_view text,
                rdma::WireReason reason = rdma::WireReason::kNone);
// Of a write: its status says which reason it has.
Answer AnswerOf(const index::WriteResult& result);
Answer AnswerOfNumber(int64_t number, uint64_t version);

// What is remembered of an answer, and the answer that is made of it again. The text of a refusal
// is not: a shorter one takes its place.
Result ResultOf(const Answer& answer);
Answer AnswerOf(const Result& result);

// Of the ttl_ns of a request; 0: forever.
index::Lifetime LifetimeOf(uint64_t ttl_ns);

index::Condition ConditionOf(uint8_t wire_condition, uint64_t version);

// The value came in the frame. INVALID_ARGUMENT when it is longer than `value_bytes_max`. `hash`:
// the key's.
Answer ExecutePut(index::Table& table, const rdma::PutRequest& request, index::KeyHash hash,
                  uint64_t value_bytes_max, absl::Time now);
Answer ExecuteDelete(index::Table& table, const rdma::DeleteRequest& request, absl::Time now);
Answer ExecuteIncrement(index::Table& table, const rdma::IncrementRequest& request, absl::Time now);
// Whether a write that reads before it writes was answered so because the key expired in between:
// then it is made again, of a key that is absent. (With a condition, NOT_FOUND is the answer.)
bool ExpiredMeanwhile(const Answer& answer, uint8_t wire_condition);
// A lifetime for the value that is there. OK: the expiry says until when.
Answer ExecuteExpire(index::Table& table, const rdma::ExpireRequest& request, absl::Time now);
// Nothing, and nothing was done, when the new value would be longer than kAppendAtOnceBytesMax and
// nothing else is wrong: that is for LongAppend.
absl::optional<Answer> ExecuteAppend(index::Table& table, const rdma::AppendRequest& request,
                                     uint64_t value_bytes_max, absl::Time now);
// One part of a flush, of one table: the cursor says where in which. OK: value_length says how many
// keys were deleted. Locks by itself.
Answer ExecuteFlush(TableAccess& tables, const rdma::FlushBody& request, absl::Time now);
// A value of more than `data_bytes_max` is not sent: the answer says its slot, which stays as it is
// for LeaseOf it at least.
Answer ExecuteGet(index::Table& table, const rdma::GetRequest& request, size_t data_bytes_max,
                  absl::Time now);

// The key is in use: it stays longer where cold keys make room. OK: version and expiry.
Answer ExecuteTouch(index::Table& table, const rdma::TouchRequest& request);

// The key of a request above that is executed on the table of that key and needs nothing else.
// Empty for all others, and if it is malformed.
absl::string_view BatchedBy(rdma::FrameBytes frame);

Answer ValueTooLong(uint64_t value_length, uint64_t value_bytes_max);

// For how long a write of a long value waits until enough has been evicted and moved out of its
// way: some hundred turns, if need be, of a server whose memory is all in small items.
inline constexpr absl::Duration kRoomAwaitedMax() { return absl::Seconds(5); }
// … and where nothing is evicted: shorter than a client's default deadline (1 s), so that the
// client receives the refusal, which says that nothing was applied.
inline constexpr absl::Duration kRoomAwaitedToMoveMax() { return absl::Milliseconds(800); }
// It tries again at once while something is evicted for it, else after this.
inline constexpr absl::Duration kRoomRetry() { return absl::Milliseconds(10); }

// A write's patience with a table that had no room for its value.
class RoomAwaited {
 public:
  // Whether it makes sense to try again, after this refusal of Reserve's; retry_at() says when.
  bool IsWorthIt(const absl::Status& refusal, const index::Table& table, absl::string_view key,
                 uint64_t value_length, absl::Time now);
  absl::Time retry_at() const { return retry_at_; }

 private:
  absl::Time since_ = absl::InfiniteFuture();
  absl::Time retry_at_ = absl::InfinitePast();
  uint64_t evictions_ = 0;  // of the table, when it was tried last
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_REQUESTS_REQUESTS_H_
