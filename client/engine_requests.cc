// The engine's messages: requests out, replies in, and what becomes of them when the connection is
// lost.

#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/engine.h"
#include "rdma/protocol.h"

namespace osprey::client {

namespace {

absl::Status Hostile(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the server does not keep to the protocol: ", what));
}

}  // namespace

void Engine::SendRequests() {
  while (transport_->SendRoom(connection_->id()) > 0) {
    if (to_resend_.empty() && (to_send_.empty() || !session_.HasRoom())) return;
    Operation& operation = to_resend_.empty() ? *to_send_.first() : *to_resend_.first();
    absl::Status status = SendRequest(operation);
    if (absl::IsUnavailable(status))
      return;  // the connection has just ended: wait for its last event
    if (!status.ok()) {
      operation.type() == Operation::Type::kGet
          ? End(static_cast<GetOperation&>(operation), std::move(status))
          : End(static_cast<MessageOperation&>(operation), std::move(status));
      continue;
    }
    ++counters_.messages;
    OperationQueue::Remove(operation);
    if (operation.sequence() == 0) session_.Add(operation);
    if (operation.type() == Operation::Type::kGet) {
      static_cast<GetOperation&>(operation).set_state(GetOperation::State::kAsking);
    } else {
      static_cast<MessageOperation&>(operation).Sent();
    }
  }
}

absl::Status Engine::SendRequest(Operation& operation) {
  const uint64_t sequence =
      operation.sequence() != 0 ? operation.sequence() : session_.next_sequence();
  if (operation.type() == Operation::Type::kGet)
    return SendGet(static_cast<GetOperation&>(operation), sequence);
  auto& message = static_cast<MessageOperation&>(operation);
  const ServerTerms& terms = connection_->terms();
  if (message.value_length() > terms.value_bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("not applied: the value has ", message.value_length(),
                     " bytes; the server takes at most ", terms.value_bytes_max));
  }
  return message.Send(*transport_, connection_->id(), session_.id(), sequence,
                      terms.eager_bytes_max, exposures_);
}

absl::Status Engine::SendGet(GetOperation& get, uint64_t sequence) {
  ++counters_.rpc_gets;
  rdma::GetBody body;
  body.key_length = static_cast<uint16_t>(get.key().size());
  const rdma::Message<rdma::GetBody> message(rdma::Opcode::kGet, session_.id(), sequence, body,
                                             get.key().size());
  const rdma::Bytes key(reinterpret_cast<const std::byte*>(get.key().data()), get.key().size());
  return transport_->Send(connection_->id(), {message.bytes(), key});
}

void Engine::OnReply(rdma::Bytes frame, absl::Time now) {
  connection_->Heard(now);
  const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  const absl::StatusOr<rdma::Reply> reply = rdma::ParseReply(frame);
  if (!reply.ok()) return connection_->Fail(Hostile(reply.status().message()));
  if (header->session != session_.id() || !session_.IsUnanswered(header->sequence)) {
    return connection_->Fail(
        Hostile(absl::StrCat("a reply to request ", header->sequence, " of session ",
                             header->session, ", which waits for none")));
  }
  Operation* operation = session_.Waiting(header->sequence);
  session_.Remove(header->sequence);
  if (operation == nullptr) return;  // given up at its deadline
  if (static_cast<absl::StatusCode>(reply->body.status) == absl::StatusCode::kUnavailable) {
    return Refused(*operation, now);
  }
  OperationQueue::Remove(*operation);
  if (operation->type() == Operation::Type::kGet) {
    auto& get = static_cast<GetOperation&>(*operation);
    get.Replied(*reply, connection_->map(), connection_->terms().value_bytes_max);
    Place(get, now);
  } else {
    auto& message = static_cast<MessageOperation&>(*operation);
    Learn(message, *reply);
    message.Replied(*reply);
    Place(message);
  }
}

// A write's answer says where the item is now.
void Engine::Learn(const MessageOperation& message, const rdma::Reply& reply) {
  if (!message.is_write() || reply.body.status != 0) return;
  const index::KeyHash hash = index::HashKey(message.key(), connection_->map().hash_seed());
  slot_cache_.Wrote(SlotCache::PlaceOf(connection_->map(), hash), reply.body.slot);
}

// The server is about to end and has not done it: on the next connection, then.
void Engine::Refused(Operation& operation, absl::Time now) {
  connection_->Leave(now);
  OperationQueue::Remove(operation);
  if (operation.type() == Operation::Type::kGet) {
    auto& get = static_cast<GetOperation&>(operation);
    get.Restart();
    Place(get, now);
  } else {
    static_cast<MessageOperation&>(operation).NotApplied();
    to_send_.PushBack(operation);
  }
}

// What waits for an answer in the session will not get it on the connection that is gone.
void Engine::RequeueRequests() {
  for (uint64_t sequence = session_.first(); sequence < session_.end(); ++sequence) {
    if (!session_.IsUnanswered(sequence)) continue;
    Operation* operation = session_.Waiting(sequence);
    if (operation == nullptr || operation->type() == Operation::Type::kGet) {
      session_.Remove(sequence);  // given up, with its buffer; or a GET, which starts over
      continue;
    }
    auto& message = static_cast<MessageOperation&>(*operation);
    message.Resend();
    OperationQueue::Remove(message);
    if (message.is_write()) {
      to_resend_.PushBack(message);
    } else {
      session_.Remove(sequence);
      to_send_.PushBack(message);
    }
  }
}

}  // namespace osprey::client
