// The operations of the client's engine: their pool, the queues of their states, and how they end.
//
// R5, for operations on the user's memory: READs into that memory, or by the server out of it, may
// be under way when an operation's deadline passes or the client is closed. The operation is
// answered only when they cannot land any more. So the engine breaks the connection and awaits
// kDisconnected, which comes after all READs. Other operations continue after the reconnect.

#ifndef OSPREY_CLIENT_ENGINE_OPERATIONS_H_
#define OSPREY_CLIENT_ENGINE_OPERATIONS_H_

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/common/operation.h"
#include "client/engine/message_operation.h"
#include "client/engine/server_link.h"
#include "client/read/get_operation.h"
#include "client/read/read_batches.h"
#include "client/read/value_reads.h"

namespace osprey::client {

// A struct: the engine owns it, and the two pipelines take operations from its queues.
// Not thread-safe.
struct Operations {
  // All must outlive this.
  Operations(ServerLink& link, ReadBatches& batches, ValueReads& value_reads);

  // An operation that is not in use.
  GetOperation& NewGet();
  MessageOperation& NewMessage();
  // With a copy of `value` in registered memory. Error: that is used up.
  absl::StatusOr<MessageOperation*> NewMessage(absl::string_view value);
  // Counts an operation that has just started.
  void Started(GetOperation& get);
  void Started(Operation& operation);
  // As ClientEngine::Defer.
  void Defer(absl::AnyInvocable<void()> callback);

  // Puts the operation into the queue of its state.
  void Place(GetOperation& get, absl::Time now);
  void Place(MessageOperation& message);
  void EndPauses(absl::Time now);

  void End(GetOperation& get, absl::Status error);
  void End(MessageOperation& message, const absl::Status& error);
  void End(Operation& operation, const absl::Status& error);
  // As End, but only after no READ can land in the user's memory any more.
  void FailAfterDrain(Operation& operation, const absl::Status& error);
  // Called when the connection is gone.
  void EndDrained();

  // Every operation is in one of these queues, in a chain or in the session. (GETs of batches are
  // none.)
  OperationQueue new_gets;   // their lookup has not begun
  OperationQueue to_read;    // GETs
  OperationQueue fetching;   // GETs: their values come in pieces
  OperationQueue paused;     // GETs
  OperationQueue to_resend;  // messages that have a sequence already, in its order
  OperationQueue to_send;    // messages, and GETs by message
  OperationQueue done;       // callbacks to be run

  std::vector<absl::AnyInvocable<void()>> deferred;
  std::vector<std::unique_ptr<GetOperation>> gets;
  std::vector<GetOperation*> free_gets;
  std::vector<std::unique_ptr<MessageOperation>> messages;
  std::vector<MessageOperation*> free_messages;
  int in_flight = 0;
  uint64_t ended = 0;
  // No deadline, and no end of a pause, is earlier than this. It may be too early; the check then
  // finds nothing.
  absl::Time next_deadline = absl::InfiniteFuture();
  absl::Time next_pause_end = absl::InfiniteFuture();

 private:
  static bool IsInUserMemory(const Operation& operation);

  ServerLink& link_;
  ReadBatches& batches_;
  ValueReads& value_reads_;
  std::minstd_rand random_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_OPERATIONS_H_
