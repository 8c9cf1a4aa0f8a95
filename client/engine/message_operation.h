// One request that is answered by message: writes, and likewise TOUCH, PING and STATS.
//
//   kToSend --sent--> kSent --Replied--> kDone        Finish leads from every state to kDone
//      ^                |
//      +---- Resend ----+   the connection broke
//      +---- Replied ---+   a part of a FLUSH is done: the next is another request
//
// A value that fits the frame travels in it (eager). A longer one stays in registered memory. The
// server READs it from there (rendezvous), checks it against the request's hash, and replies. Its
// buffer is therefore reused only after the reply or the end of the connection (R5). An operation
// that ends earlier leaves the buffer to the Session.
//
// A write is sent again only within its first session, under its old sequence.

#ifndef OSPREY_CLIENT_ENGINE_MESSAGE_OPERATION_H_
#define OSPREY_CLIENT_ENGINE_MESSAGE_OPERATION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/client.h"
#include "client/common/buffer_pool.h"
#include "client/common/operation.h"
#include "client/common/registered_memory.h"
#include "rdma/transport.h"
#include "rdma/wire/batch.h"
#include "rdma/wire/protocol.h"

namespace osprey::client {

// The memory that the server may READ on the present connection: the pool's slabs and the user's
// memory, each exposed on its first use. Over shm the server limits their number at a time. At the
// limit the client withdraws the one used least recently, unless an unanswered request uses it.
class Exposures {
 public:
  // `may_be_read`: the server may still READ from that memory for a request.
  Exposures(rdma::Transport& transport, std::function<bool(const rdma::Memory&)> may_be_read)
      : transport_(transport), may_be_read_(std::move(may_be_read)) {}

  // The server's name for `length` bytes at `data` within `memory`, which it exposes if necessary.
  // No value: the limit is reached and all memories are in use; try again after the next answer.
  // Errors: those of Transport::Expose.
  absl::StatusOr<absl::optional<rdma::WireMemory>> Expose(rdma::ConnectionId id,
                                                          const rdma::Memory& memory,
                                                          const std::byte* data, uint64_t length);
  // Ends the exposure: the server READs the memory no longer, and it may be freed.
  void Withdraw(rdma::ConnectionId id, const rdma::Memory& memory);
  // The connection is gone.
  void Clear() { exposed_.clear(); }

 private:
  struct Exposed {
    rdma::RemoteMemory remote;
    uint64_t used = 0;  // the value of uses_ at its last use
  };

  bool WithdrawOne(rdma::ConnectionId id);

  rdma::Transport& transport_;
  const std::function<bool(const rdma::Memory&)> may_be_read_;
  std::unordered_map<const rdma::Memory*, Exposed> exposed_;
  uint64_t uses_ = 0;
};

class MessageOperation final : public Operation {
 public:
  enum class State { kToSend, kSent, kDone };
  using TextCallback = absl::AnyInvocable<void(absl::StatusOr<std::string>)>;
  // The callback: for a version or a count; for a number; for the server's text.
  using Done = std::variant<Client::WriteCallback, Client::IncrementCallback, TextCallback>;

  struct Request {
    Request(rdma::Opcode o, absl::string_view k, const WriteOptions& w, absl::Time d, Done whom)
        : opcode(o), key(k), options(w), deadline(d), done(std::move(whom)), ttl(w.ttl) {}
    rdma::Opcode opcode;
    absl::string_view key;  // copied
    WriteOptions options;   // except its deadline
    absl::Time deadline;
    Done done;
    absl::Duration ttl;  // PUT (that of the options), EXPIRE: zero or infinite: until it is deleted
    int64_t by = 0;      // INCREMENT
    uint64_t value_length = 0;  // PUT and APPEND: a copy of the value is in value()
    UserMemory source;          // PUT: the value itself, not copied, instead of value()
  };

  // The properties of the connection that a request is sent on.
  struct Link {
    rdma::ConnectionId id = rdma::ConnectionId::kNone;
    uint64_t session = 0;
    uint64_t eager_bytes_max = 0;
    Exposures& exposures;
  };

  explicit MessageOperation(Counters& counters) : Operation(Type::kMessage), counters_(counters) {}

  // kDone -> kToSend.
  void Start(Request&& request);

  // Puts the request under `sequence` into `batch`. False: it does not fit there now, or its value
  // cannot be exposed before another request is answered. The state stays; the caller reports the
  // sending by Sent(). Errors: those of Transport::Expose.
  absl::StatusOr<bool> AppendTo(rdma::FrameBatch& batch, const Link& link, uint64_t sequence);
  void Sent() { state_ = State::kSent, ever_sent_ = true; }
  // kSent -> kDone, or kToSend if there is another part.
  void Replied(const rdma::Reply& reply);
  // kSent -> kToSend.
  void Resend() { state_ = State::kToSend; }
  // kSent -> kToSend: the server replied that it has not applied it and will not. The request
  // counts as never sent.
  void NotApplied() {
    state_ = State::kToSend;
    ever_sent_ = flush_.cursor != 0;  // a FLUSH: earlier parts were sent
    by_rendezvous_ = false;
  }
  // any -> kDone, with this error. The error of a write ends with its effect.
  void Finish(const absl::Status& error);
  // kDone: replaces the answer, which is not accepted, by an error. A write may have been applied.
  void Disbelieve(const absl::Status& error) { status_ = WithWhatIsKnown(error); }
  // kDone: delivers the answer to the user. The operation may be started again inside.
  void RunCallback();

  State state() const { return state_; }
  // A second application would be visible in the table.
  bool is_write() const {
    return opcode_ != rdma::Opcode::kPing && opcode_ != rdma::Opcode::kStats &&
           opcode_ != rdma::Opcode::kTouch;
  }
  bool is_flush() const { return opcode_ == rdma::Opcode::kFlush; }
  bool is_append() const { return opcode_ == rdma::Opcode::kAppend; }
  // A FLUSH with a part done: the next part is valid for the same keys only.
  bool is_in_mid_flush() const { return flush_.cursor != 0; }
  uint64_t value_length() const { return value_length_; }
  // The server may have it: it was sent at least once.
  bool ever_sent() const { return ever_sent_; }
  // The server may READ value(): see above.
  bool by_rendezvous() const { return by_rendezvous_; }
  // For the copy of a value. A short buffer is kept for the next operation.
  Buffer& value() { return value_; }
  // The value is in the user's memory.
  bool has_source() const { return source_.data != nullptr; }
  // The memory of the value. REQUIRES: the value is not empty.
  const rdma::Memory& memory() const { return has_source() ? *source_.memory() : value_.memory(); }

 private:
  // A FLUSH, which comes in parts.
  struct FlushProgress {
    uint64_t cursor = 0;         // of the next part; 0: none
    uint64_t version_bound = 0;  // keys up to it are deleted
    uint64_t deleted = 0;        // keys
  };

  rdma::Bytes ValueBytes() const {
    return {source_.data != nullptr ? source_.data : value_.data(), value_length_};
  }
  absl::StatusOr<bool> AppendPut(rdma::FrameBatch& batch, const Link& link, uint64_t sequence);
  template <typename Body>
  bool AppendWrite(rdma::FrameBatch& batch, const Link& link, uint64_t sequence, Body body,
                   rdma::Bytes value);
  absl::Status ErrorOf(const rdma::Reply& reply) const;
  void Succeeded(const rdma::Reply& reply);
  absl::Status WithWhatIsKnown(const absl::Status& error) const;
  void End(absl::Status status, bool is_answered);

  Counters& counters_;
  State state_ = State::kDone;
  rdma::Opcode opcode_ = rdma::Opcode::kPing;
  rdma::WireCondition condition_ = rdma::WireCondition::kNone;
  uint64_t condition_version_ = 0;
  int64_t by_ = 0;
  uint64_t ttl_ns_ = 0;
  Buffer value_;
  UserMemory source_;
  uint64_t value_length_ = 0;
  uint64_t value_hash_ = 0;  // of a rendezvous, computed when it is first sent
  FlushProgress flush_;
  bool by_rendezvous_ = false;
  bool ever_sent_ = false;
  // The answer.
  absl::Status status_;
  uint64_t version_ = 0;
  int64_t number_ = 0;  // INCREMENT
  std::string text_;    // STATS
  Done done_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_MESSAGE_OPERATION_H_
