// The engine's messages: requests out, replies in, and both after the loss of a connection.

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/common/errors.h"
#include "client/engine/engine.h"
#include "rdma/wire/protocol.h"

namespace osprey::client {

namespace {

uint64_t ValueLengthOf(const Operation& operation) {
  if (operation.type() == Operation::Type::kGet) return 0;
  return static_cast<const MessageOperation&>(operation).value_length();
}

absl::Status Hostile(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the server does not keep to the protocol: ", what));
}

}  // namespace

// The bounds of the server's clock grow old if nothing is sent. GETs of keys with an expiry, and
// scans, need them. So one PING for all of them requests the time now and then. No operation waits
// for its answer: OnReply takes the time out of it.
void Engine::AskTime(absl::Time now) {
  if (now >= clock_used_until_ && !scans_.wants_time()) return;
  if (server_clock_.Age(now) < ServerClock::kAgeMax() / 2) return;
  if (time_asked_ != 0 && session_.IsUnanswered(time_asked_)) return;
  if (!session_.HasRoom() || transport_->SendRoom(connection_->id()) == 0) return;
  const uint64_t sequence = session_.next_sequence();
  const rdma::EmptyMessage ping(rdma::Opcode::kPing, session_.id(), sequence);
  if (!transport_->Send(connection_->id(), {ping.bytes()}).ok()) return;  // it has just ended
  session_.AddUnowned(now);
  time_asked_ = sequence;
  ++counters_.messages;
  ++counters_.frames;
}

// Sends all that are ready, in as few frames as possible.
void Engine::SendRequests(absl::Time now) {
  while (transport_->SendRoom(connection_->id()) > 0) {
    BatchRequests();
    const bool tells = GatherHits(now);
    const bool reports = GatherReport(now);
    if (batch_->empty()) return;
    const absl::Status status =
        transport_->Send(connection_->id(), {batch_->Finish(session_.id())});
    if (absl::IsUnavailable(status))
      return;  // the connection has just ended: wait for its last event
    ++counters_.frames;
    if (reports) report_.Told(now);
    if (tells) {
      if (status.ok()) counters_.told_hits += sampler_.notes().size();
      sampler_.Clear();
      told_at_ = now;
    }
    for (Operation* operation : gathered_)
      status.ok() ? SentRequest(*operation) : End(*operation, status);
  }
}

// Builds the next frame: repeated requests come first, in their old order.
void Engine::BatchRequests() {
  batch_->Clear();
  gathered_.clear();
  uint64_t next_sequence = session_.next_sequence();
  for (OperationQueue* queue : {&to_resend_, &to_send_}) {
    for (Operation* next = queue->first(); next != nullptr;) {
      Operation& operation = *next;
      next = OperationQueue::Next(operation);
      if (!PartitionBatch(operation, next_sequence)) return;
    }
  }
}

// Samples of hits go along with requests, if all of them fit. Without requests they go alone, but
// rarely. Returns true if they are in the frame.
bool Engine::GatherHits(absl::Time now) {
  static_assert(AccessSampler::kNotesMax <= rdma::kHintsMax);
  const absl::Span<const uint64_t> notes = sampler_.notes();
  const bool is_time = now - told_at_ >= kTellEvery();
  if (notes.empty() || (!is_time && (batch_->empty() || notes.size() < kToldTogether)))
    return false;
  const rdma::FrameBytes words(reinterpret_cast<const std::byte*>(notes.data()),
                               notes.size() * sizeof(uint64_t));
  rdma::HintsBody body;
  body.count = static_cast<uint32_t>(notes.size());
  const rdma::Message<rdma::HintsBody> message(rdma::Opcode::kHints, session_.id(), 0, body,
                                               words.size());
  if (!batch_->Fits(message.bytes().size() + words.size())) return false;
  batch_->Append({message.bytes(), words});
  return true;
}

// Likewise the report of GETs, if the server requests it.
bool Engine::GatherReport(absl::Time now) {
  if (!report_.IsDue(now)) return false;
  const rdma::Message<rdma::ReportBody> message(rdma::Opcode::kReport, session_.id(), 0,
                                                report_.Next(), 0);
  if (!batch_->Fits(message.bytes().size())) return false;
  batch_->Append({message.bytes()});
  return true;
}

// Sent before the DisconnectNotice: otherwise a client that makes a few GETs alone would never
// report them.
void Engine::SendLastReport() {
  if (!connection_->ready() || !report_.HasNews()) return;
  // (The DisconnectNotice needs a credit as well.)
  if (transport_->SendRoom(connection_->id()) < 2) return;
  const rdma::Message<rdma::ReportBody> message(rdma::Opcode::kReport, session_.id(), 0,
                                                report_.Next(), 0);
  if (transport_->Send(connection_->id(), {message.bytes()}).ok()) ++counters_.frames;
  report_.Told(polled_at_);
}

// False: the frame or the session is full, or the connection has ended.
bool Engine::PartitionBatch(Operation& operation, uint64_t& next_sequence) {
  const bool is_new = operation.sequence() == 0;
  if (is_new && next_sequence - session_.next_sequence() == session_.Room()) return false;
  const uint64_t sequence = is_new ? next_sequence : operation.sequence();
  const ServerTerms& terms = connection_->terms();
  absl::StatusOr<bool> appended = false;
  if (operation.type() == Operation::Type::kGet) {
    appended = static_cast<GetOperation&>(operation).AppendTo(*batch_, session_.id(), sequence);
  } else if (ValueLengthOf(operation) > terms.value_bytes_max) {
    appended = ValueTooLongError(ValueLengthOf(operation), terms.value_bytes_max);
  } else {
    const uint64_t eager_bytes_max = std::min(terms.eager_bytes_max, options_.eager_bytes_max);
    appended = static_cast<MessageOperation&>(operation).AppendTo(
        *batch_, {connection_->id(), session_.id(), eager_bytes_max, exposures_}, sequence);
  }
  // The connection has just ended: wait for its last event.
  if (absl::IsUnavailable(appended.status())) return false;
  if (!appended.ok()) {
    End(operation, appended.status());
    return true;
  }
  const bool is_append = operation.type() == Operation::Type::kMessage &&
                         static_cast<const MessageOperation&>(operation).is_append();
  if (!*appended && is_append && batch_->empty()) {
    // The server of the last connection accepted longer frames.
    End(operation, AppendTooLongError(operation.key().size() + ValueLengthOf(operation),
                                      connection_->append_bytes_max()));
    return true;
  }
  if (!*appended) return false;
  if (is_new) ++next_sequence;
  gathered_.push_back(&operation);
  return true;
}

void Engine::SentRequest(Operation& operation) {
  ++counters_.messages;
  OperationQueue::Remove(operation);
  if (operation.sequence() == 0) session_.Add(operation, polled_at_);
  if (operation.type() == Operation::Type::kGet) {
    ++counters_.rpc_gets;
    static_cast<GetOperation&>(operation).set_state(GetOperation::State::kAsking);
  } else {
    static_cast<MessageOperation&>(operation).Sent();
  }
}

// False: the frame has neither a reply nor a Batch of replies.
bool Engine::OnFrame(rdma::Bytes frame, absl::Time now) {
  const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  if (!header.ok()) return false;
  const auto opcode = static_cast<rdma::Opcode>(header->opcode);
  if (opcode == rdma::Opcode::kReply) {
    OnReply(frame, now);
    return true;
  }
  if (opcode != rdma::Opcode::kBatch) return false;
  if (absl::Status status = rdma::ParseBatch(frame, replies_); !status.ok()) {
    connection_->Fail(Hostile(status.message()));
    return true;
  }
  for (rdma::FrameBytes reply : replies_) {
    // A reply that breaks the rules ends the connection, so the replies behind it are ignored.
    if (connection_->answers_count()) OnReply(reply, now);
  }
  return true;
}

void Engine::OnReply(rdma::Bytes frame, absl::Time now) {
  connection_->NoteActivity(now);
  const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  if (!header.ok() || static_cast<rdma::Opcode>(header->opcode) != rdma::Opcode::kReply) {
    return connection_->Fail(Hostile("a request in its Batch"));
  }
  const absl::StatusOr<rdma::Reply> reply = rdma::ParseReply(frame);
  if (!reply.ok()) return connection_->Fail(Hostile(reply.status().message()));
  if (header->session != session_.id() || !session_.IsUnanswered(header->sequence)) {
    return connection_->Fail(
        Hostile(absl::StrCat("a reply to request ", header->sequence, " of session ",
                             header->session, ", which waits for none")));
  }
  server_clock_.NoteActivity(session_.SentAt(header->sequence), ReceivedBy(),
                             absl::FromUnixNanos(static_cast<int64_t>(reply->body.server_time)));
  Operation* operation = session_.Waiting(header->sequence);
  session_.Remove(header->sequence);
  if (operation == nullptr) return;  // abandoned at its deadline
  if (static_cast<absl::StatusCode>(reply->body.status) == absl::StatusCode::kUnavailable) {
    return Refused(*operation, now);
  }
  OperationQueue::Remove(*operation);
  if (operation->type() == Operation::Type::kGet) {
    auto& get = static_cast<GetOperation&>(*operation);
    get.Replied(*reply, connection_->terms().value_bytes_max);
    Place(get, now);
  } else {
    auto& message = static_cast<MessageOperation&>(*operation);
    Learn(message, *reply);
    message.Replied(*reply);
    Place(message);
  }
}

// Caches the item's location from the reply to a write.
void Engine::Learn(const MessageOperation& message, const rdma::Reply& reply) {
  if (!message.is_write() || reply.body.status != 0) return;
  if (message.is_flush()) return location_cache_.Clear();
  const PartitionMaps& maps = connection_->maps();
  const index::KeyHash hash = index::HashKey(message.key(), maps.hash_seed());
  location_cache_.Wrote({maps.Of(hash).HomeOf(hash), hash.fingerprint()}, reply.body.slot);
}

// The server is about to end and has not applied it: send it on the next connection.
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

// Requests without an answer will not get it on the lost connection.
void Engine::RequeueRequests() {
  for (uint64_t sequence = session_.first(); sequence < session_.end(); ++sequence) {
    if (!session_.IsUnanswered(sequence)) continue;
    Operation* operation = session_.Waiting(sequence);
    if (operation == nullptr || operation->type() == Operation::Type::kGet) {
      session_.Remove(sequence);  // abandoned, with its buffer; or a GET, which starts over
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
