// Executes requests that came whole in their frames; values that do not fit into a frame are
// rendezvous.h's business.
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
#include "index/writer/table.h"
#include "rdma/reasons.h"
#include "rdma/wire/protocol.h"
#include "server/requests/keyed_request.h"
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
  // APPEND: nothing was done, since the value would be longer than kAppendAtOnceBytesMax and nothing
  // else is wrong. That is for LongAppend.
  bool is_for_later = false;
  // A Commit has failed (WriteLog::Commit): what was decided may be durable or not. So this is neither
  // sent nor remembered.
  bool is_void = false;
  bool has_number = false;  // INCREMENT: `text` is that number
  int64_t number = 0;
  std::string text;        // a number, statistics, or what went wrong
  rdma::FrameBytes value;  // GET

  absl::StatusCode code() const { return static_cast<absl::StatusCode>(body.status); }
  Reason reason() const { return ReasonOfWire(body.reason); }
  rdma::FrameBytes data() const { return value.empty() ? AsFrameBytes(text) : value; }
};

Answer AnswerOf(absl::StatusCode code, absl::string_view text, Reason reason = Reason::kNone);
// Of a refused write: its status says which reason it has.
Answer AnswerOf(const absl::Status& refusal);
// Of a write that the log did not take (WriteLog::MayWrite, BeginUpload; ValueUpload::Log).
Answer AnswerOfLog(const absl::Status& refusal);
// Of a write.
inline Answer AnswerOf(const index::WriteResult& result) {
  Answer answer;
  if (!result.status.ok()) answer = AnswerOf(result.status);
  answer.body.version = result.version;
  answer.body.slot = result.slot;
  return answer;
}
Answer AnswerOfNumber(int64_t number, uint64_t version);

// What is remembered of an answer, and the answer that is made of it again. The text of a refusal
// is not: a shorter one takes its place.
inline Result ResultOf(const Answer& answer) {
  Result result;
  result.code = answer.code();
  result.version = answer.body.version;
  result.slot = answer.body.slot;
  result.value_length = answer.body.value_length;
  result.number = answer.number;
  result.has_number = answer.has_number;
  result.expiry = answer.body.expiry;
  result.reason = answer.reason();
  return result;
}
Answer AnswerOf(const Result& result);

// Of the ttl_ns of a request; 0: forever.
index::Lifetime LifetimeOf(uint64_t ttl_ns);
Answer ValueTooLong(uint64_t value_length, uint64_t value_bytes_max);

// The limits of an answer's value: longer ones are refused with INVALID_ARGUMENT, or not sent.
struct ValueLimits {
  uint64_t value_bytes_max = 0;  // of a value that is stored
  size_t reply_bytes_max = 0;    // of a value in a reply
};
// Executes a request on the table of its key. The answer has, of
//
//   PUT, DELETE, INCREMENT, APPEND   the version, and the slot of an item
//   EXPIRE, TOUCH                    the expiry; TOUCH: the key stays where cold keys make room
//   GET                              the value; or its slot, for LeaseOf it, if the value is too
//                                    long for the reply
//
// REQUIRES: no rendezvous; the request's hash is set.
Answer ExecuteKeyed(index::Table& table, const KeyedRequest& request, const ValueLimits& limits,
                    absl::Time now);
// The write of a PUT whose value is not too long. In line, since it is the most frequent request.
inline index::WriteResult ExecutePut(index::Table& table, const KeyedRequest& request,
                                     absl::Time now) {
  const index::Lifetime lifetime =
      request.ttl_ns == 0 ? index::Lifetime::Forever() : LifetimeOf(request.ttl_ns);
  return table.Put({request.key, request.hash}, request.value, request.condition, now, lifetime,
                   request.hint);
}
// As ExecuteKeyed. REQUIRES: an APPEND.
Answer ExecuteAppend(index::Table& table, const KeyedRequest& request, uint64_t value_bytes_max,
                     absl::Time now);
// Whether a write that reads before it writes was answered so because the key expired in between:
// then it is made again, of a key that is absent. (With a condition, NOT_FOUND is the answer.)
bool ExpiredMeanwhile(const Answer& answer, const index::Condition& condition);
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
