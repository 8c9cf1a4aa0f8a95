// One request that is answered by message: PUT and DELETE, and PING and STATS, which are asked in
// the same way.
//
//   kToSend --sent--> kSent --Replied--> kDone        Finish leads from every state to kDone
//      ^                |
//      +---- Resend ----+   the connection broke
//
// A value that fits the frame travels in it (eager). A longer one stays in registered memory and
// the server READs it from there (rendezvous), checks it against the hash that the request carries,
// and replies. Its buffer is therefore used again only after the reply or the end of the connection
// (R5): an operation that ends earlier leaves the buffer to the Session.
//
// A write is sent again only within the session in which it was sent first, under its old sequence.

#ifndef OSPREY_CLIENT_MESSAGE_OPERATION_H_
#define OSPREY_CLIENT_MESSAGE_OPERATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/buffer_pool.h"
#include "client/client.h"
#include "client/operation.h"
#include "rdma/protocol.h"
#include "rdma/transport.h"

namespace osprey::client {

// What the server was told it may READ on the present connection: the pool's slabs, each exposed
// when it is first used.
class Exposures {
 public:
  Exposures(rdma::Transport& transport, const BufferPool& pool)
      : transport_(transport), pool_(pool) {}

  // How the server names the first `length` bytes of `buffer`.
  absl::StatusOr<rdma::WireMemory> Expose(rdma::ConnectionId id, const Buffer& buffer,
                                          uint64_t length);
  // The connection is gone.
  void Clear() { slabs_.clear(); }

 private:
  rdma::Transport& transport_;
  const BufferPool& pool_;
  std::vector<rdma::RemoteMemory> slabs_;  // length 0: not exposed yet
};

class MessageOperation final : public Operation {
 public:
  enum class State { kToSend, kSent, kDone };
  using TextCallback = absl::AnyInvocable<void(absl::StatusOr<std::string>)>;

  explicit MessageOperation(Counters& counters) : Operation(Type::kMessage), counters_(counters) {}

  // kDone -> kToSend. `value` is a copy, as long as its buffer or shorter; not valid() for an empty
  // value.
  void StartPut(absl::string_view key, Buffer value, uint64_t value_length,
                const WriteOptions& options, absl::Time deadline, Client::WriteCallback done);
  void StartDelete(absl::string_view key, const WriteOptions& options, absl::Time deadline,
                   Client::WriteCallback done);
  void StartPing(absl::Time deadline, Client::WriteCallback done);
  void StartStats(absl::Time deadline, TextCallback done);

  // Sends the request under `sequence`. The state stays; the caller tells of success with Sent().
  // Errors: Transport::Send's and Transport::Expose's.
  absl::Status Send(rdma::Transport& transport, rdma::ConnectionId id, uint64_t session,
                    uint64_t sequence, uint64_t eager_bytes_max, Exposures& exposures);
  void Sent() { state_ = State::kSent, ever_sent_ = true; }
  // kSent -> kDone.
  void Replied(const rdma::Reply& reply);
  // kSent -> kToSend.
  void Resend() { state_ = State::kToSend; }
  // kSent -> kToSend: the server said that it has not done it and will not. As if it had never been
  // sent.
  void NotApplied() {
    state_ = State::kToSend;
    ever_sent_ = by_rendezvous_ = false;
  }
  // any -> kDone, with this error.
  void Finish(absl::Status error);
  // kDone: gives the answer to the user. The operation may be started again inside.
  void RunCallback();

  State state() const { return state_; }
  bool is_write() const {
    return opcode_ == rdma::Opcode::kPut || opcode_ == rdma::Opcode::kDelete;
  }
  uint64_t value_length() const { return value_length_; }
  // The server may have it: it was sent at least once.
  bool ever_sent() const { return ever_sent_; }
  // The server may READ value(): see above.
  bool by_rendezvous() const { return by_rendezvous_; }
  Buffer& value() { return value_; }

 private:
  void Start(rdma::Opcode opcode, absl::string_view key, const WriteOptions& options,
             absl::Time deadline);
  absl::Status SendPut(rdma::Transport& transport, rdma::ConnectionId id, uint64_t session,
                       uint64_t sequence, uint64_t eager_bytes_max, Exposures& exposures);
  absl::Status SendDelete(rdma::Transport& transport, rdma::ConnectionId id, uint64_t session,
                          uint64_t sequence);

  Counters& counters_;
  State state_ = State::kDone;
  rdma::Opcode opcode_ = rdma::Opcode::kPing;
  rdma::WireCondition condition_ = rdma::WireCondition::kNone;
  uint64_t condition_version_ = 0;
  Buffer value_;
  uint64_t value_length_ = 0;
  uint64_t value_hash_ = 0;  // of a rendezvous, computed when it is first sent
  bool by_rendezvous_ = false;
  bool ever_sent_ = false;
  // The answer.
  absl::Status status_;
  uint64_t version_ = 0;
  std::string text_;
  Client::WriteCallback done_;
  TextCallback text_done_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_MESSAGE_OPERATION_H_
