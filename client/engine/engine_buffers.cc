// The engine's operations on the user's memory, and how they end (R5).
//
// READs into that memory, or by the server out of it, may be under way when an operation's deadline
// passes or the client is closed. The operation is answered only when they cannot land any more. So
// the engine breaks the connection and awaits kDisconnected, which comes after all READs. Other
// operations continue after the reconnect.

#include <utility>

#include "client/common/errors.h"
#include "client/engine/engine.h"
#include "rdma/errors.h"

namespace osprey::client {

absl::Status Engine::StartGetInto(absl::string_view key, UserMemory target, absl::Time deadline,
                                  Client::GetIntoCallback done) {
  if (absl::Status status = CheckKey(key); !status.ok()) return status;
  GetOperation& get = NewGet();
  get.Start(key, /*want_value=*/true, deadline, std::move(done), std::move(target));
  Started(get);
  return absl::OkStatus();
}

absl::Status Engine::StartPutFrom(absl::string_view key, UserMemory source,
                                  const WriteOptions& options, absl::Time deadline,
                                  Client::WriteCallback done) {
  if (absl::Status status = CheckPut(key, source.size, options); !status.ok()) return status;
  MessageOperation::Request request(rdma::Opcode::kPut, key, options, deadline, std::move(done));
  request.value_length = source.size;
  request.source = std::move(source);
  return Start(std::move(request));
}

void Engine::Withdraw(const rdma::Memory& memory) {
  if (connection_->id() != rdma::ConnectionId::kNone)
    exposures_.Withdraw(connection_->id(), memory);
}

// Whether a request that was sent on this connection, or is about to be, lets the server READ it.
bool Engine::MayBeRead(const rdma::Memory& memory) const {
  const auto is_in = [&memory](const MessageOperation& message) {
    return message.by_rendezvous() && &message.memory() == &memory;
  };
  for (const Operation* operation : gathered_) {
    if (operation->type() == Operation::Type::kMessage &&
        is_in(*static_cast<const MessageOperation*>(operation)))
      return true;
  }
  for (uint64_t sequence = session_.first(); sequence < session_.end(); ++sequence) {
    if (!session_.IsUnanswered(sequence)) continue;
    const Operation* const operation = session_.Waiting(sequence);
    if (operation == nullptr) {
      const Buffer& buffer = session_.Abandoned(sequence);
      if (buffer.valid() && &buffer.memory() == &memory) return true;
    } else if (operation->type() == Operation::Type::kMessage) {
      const auto& message = *static_cast<const MessageOperation*>(operation);
      if (message.state() == MessageOperation::State::kSent && is_in(message)) return true;
    }
  }
  return false;
}

bool Engine::IsInUserMemory(const Operation& operation) const {
  if (operation.type() == Operation::Type::kGet)
    return static_cast<const GetOperation&>(operation).reads_in_user_memory() > 0;
  const auto& message = static_cast<const MessageOperation&>(operation);
  return message.state() == MessageOperation::State::kSent && message.by_rendezvous() &&
         message.has_source();
}

// As End, but only after no READ can land in the user's memory any more.
void Engine::FailAfterDrain(Operation& operation, const absl::Status& error) {
  if (!IsInUserMemory(operation)) return End(operation, error);
  operation.set_last_error(error);
  connection_->Fail(rdma::PeerGoneError("READs in memory of the user were late"));
}

// Called when the connection is gone.
void Engine::EndDrained() {
  const auto end = [this](Operation& operation) {
    if (!operation.active() || operation.last_error().ok()) return;
    const absl::Status error = operation.last_error();
    End(operation, error);
  };
  for (const std::unique_ptr<GetOperation>& get : gets_) end(*get);
  for (const std::unique_ptr<MessageOperation>& message : messages_) end(*message);
}

}  // namespace osprey::client
