#include "client/engine/request_pipeline.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/common/errors.h"
#include "client/engine/greeting.h"
#include "rdma/handshake.h"

namespace osprey::client {
namespace {

uint64_t ValueLengthOf(const Operation& operation) {
  if (operation.type() == Operation::Type::kGet) return 0;
  return static_cast<const MessageOperation&>(operation).value_length();
}

}  // namespace

RequestPipeline::RequestPipeline(ServerLink& link, Operations& operations)
    : link_(link),
      operations_(operations),
      exposures_(*link.transport,
                 [this](const rdma::Memory& memory) { return MayBeRead(memory); }) {}

void RequestPipeline::SendAll(absl::Time now) {
  if (HasRequests() || link_.report.IsDue(now)) SendRequests(now);
}

void RequestPipeline::OnReady() { batch_.emplace(link_.connection->limits().frame_bytes_max); }

void RequestPipeline::OnLost() {
  exposures_.Clear();
  time_asked_ = servers_asked_ = 0;
  RequeueRequests();
}

// The bounds of the server's clock grow old if nothing is sent. GETs of keys with an expiry, and
// scans, need them. So one PING for all of them requests the time now and then. No operation waits
// for its answer: OnReply takes the time out of it.
void RequestPipeline::AskTime(absl::Time now, bool scans_want_it) {
  if (now >= link_.clock_used_until && !scans_want_it) return;
  if (link_.server_clock.Age(now) < ServerClock::kAgeMax() / 2) return;
  if (const uint64_t sequence = Ask(rdma::Opcode::kPing, time_asked_, now); sequence != 0)
    time_asked_ = sequence;
}

void RequestPipeline::AskServers(absl::Time now) {
  KnownServers* const servers = link_.options.connection.servers.get();
  if (servers == nullptr || !link_.connection->ready() || !link_.connection->terms().in_cluster)
    return;
  if (link_.connection->limits().version < rdma::kServersSince || !servers->IsDue(now)) return;
  const uint64_t sequence = Ask(rdma::Opcode::kServers, servers_asked_, now);
  if (sequence == 0) return;
  servers_asked_ = sequence;
  servers->Asked(now);
}

// Sends a question that no operation waits for, unless that of sequence `asked` has no answer yet. Returns its sequence;
// 0: there is no room for it now.
uint64_t RequestPipeline::Ask(rdma::Opcode question, uint64_t asked, absl::Time now) {
  if (asked != 0 && link_.session.IsUnanswered(asked)) return 0;
  if (!link_.session.HasRoom() || link_.transport->SendRoom(link_.connection->id()) == 0) return 0;
  const uint64_t sequence = link_.session.next_sequence();
  const rdma::EmptyMessage message(question, link_.session.id(), sequence);
  if (!link_.transport->Send(link_.connection->id(), {message.bytes()}).ok())
    return 0;  // it has just ended
  link_.session.AddUnowned(now);
  ++link_.counters.messages;
  ++link_.counters.frames;
  return sequence;
}

void RequestPipeline::LearnServers(const rdma::Reply& reply) {
  servers_asked_ = 0;
  if (reply.body.status != 0) return;
  const absl::string_view text(reinterpret_cast<const char*>(reply.data.data()), reply.data.size());
  link_.options.connection.servers->Learn(text);
}

void RequestPipeline::SendRequests(absl::Time now) {
  while (link_.transport->SendRoom(link_.connection->id()) > 0) {
    batch_->Clear();
    const bool tells = AppendHits(now);
    BatchRequests();
    const bool reports = AppendReport(now);
    if (batch_->empty()) return;
    const absl::Status status =
        link_.transport->Send(link_.connection->id(), {batch_->Finish(link_.session.id())});
    if (absl::IsUnavailable(status))
      return;  // the connection has just ended: wait for its last event
    ++link_.counters.frames;
    if (reports) link_.report.Told(now);
    if (tells) {
      if (status.ok()) link_.counters.told_hits += link_.sampler.notes().size();
      link_.sampler.Clear();
      told_at_ = now;
    }
    for (Operation* operation : in_frame_)
      status.ok() ? SentRequest(*operation) : operations_.End(*operation, status);
  }
}

// Fills the next frame: repeated requests come first, in their old order.
void RequestPipeline::BatchRequests() {
  in_frame_.clear();
  uint64_t next_sequence = link_.session.next_sequence();
  for (OperationQueue* queue : {&operations_.to_resend, &operations_.to_send}) {
    for (Operation* next = queue->first(); next != nullptr;) {
      Operation& operation = *next;
      next = OperationQueue::Next(operation);
      if (!AppendRequest(operation, next_sequence)) return;
    }
  }
}

// Samples of hits go along with requests, before these. *Else* they wait while requests fill all frames, and what is
// READ is evicted meanwhile. Without requests they go alone, but rarely. Returns true if they are in the frame.
bool RequestPipeline::AppendHits(absl::Time now) {
  static_assert(AccessSampler::kNotesMax <= rdma::kHintsMax);
  const absl::Span<const uint64_t> notes = link_.sampler.notes();
  const bool is_time = now - told_at_ >= kTellEvery();
  const bool has_requests =
      operations_.to_resend.first() != nullptr || operations_.to_send.first() != nullptr;
  if (notes.empty() || (!is_time && (!has_requests || notes.size() < kToldTogether))) return false;
  const rdma::FrameBytes words(reinterpret_cast<const std::byte*>(notes.data()),
                               notes.size() * sizeof(uint64_t));
  rdma::HintsBody body;
  body.count = static_cast<uint32_t>(notes.size());
  const rdma::Message<rdma::HintsBody> message(rdma::Opcode::kHints, link_.session.id(), 0, body,
                                               words.size());
  if (!batch_->Fits(message.bytes().size() + words.size())) return false;
  batch_->Append({message.bytes(), words});
  return true;
}

// Likewise the report of GETs, if the server requests it.
bool RequestPipeline::AppendReport(absl::Time now) {
  if (!link_.report.IsDue(now)) return false;
  const rdma::Message<rdma::ReportBody> message(rdma::Opcode::kReport, link_.session.id(), 0,
                                                link_.report.Next(), 0);
  if (!batch_->Fits(message.bytes().size())) return false;
  batch_->Append({message.bytes()});
  return true;
}

void RequestPipeline::SendLastReport() {
  if (!link_.connection->ready() || !link_.report.HasNews()) return;
  // (The DisconnectNotice needs a credit as well.)
  if (link_.transport->SendRoom(link_.connection->id()) < 2) return;
  const rdma::Message<rdma::ReportBody> message(rdma::Opcode::kReport, link_.session.id(), 0,
                                                link_.report.Next(), 0);
  if (link_.transport->Send(link_.connection->id(), {message.bytes()}).ok())
    ++link_.counters.frames;
  link_.report.Told(link_.polled_at);
}

// False: the frame or the session is full, or the connection has ended.
bool RequestPipeline::AppendRequest(Operation& operation, uint64_t& next_sequence) {
  const bool is_new = operation.sequence() == 0;
  if (is_new && next_sequence - link_.session.next_sequence() == link_.session.Room()) return false;
  const uint64_t sequence = is_new ? next_sequence : operation.sequence();
  const ServerTerms& terms = link_.connection->terms();
  absl::StatusOr<bool> appended = false;
  if (operation.type() == Operation::Type::kGet) {
    appended =
        static_cast<GetOperation&>(operation).AppendTo(*batch_, link_.session.id(), sequence);
  } else if (ValueLengthOf(operation) > terms.value_bytes_max) {
    appended = ValueTooLongError(ValueLengthOf(operation), terms.value_bytes_max);
  } else {
    const uint64_t eager_bytes_max = std::min(terms.eager_bytes_max, link_.options.eager_bytes_max);
    appended = static_cast<MessageOperation&>(operation).AppendTo(
        *batch_, {link_.connection->id(), link_.session.id(), eager_bytes_max, exposures_},
        sequence);
  }
  // The connection has just ended: wait for its last event.
  if (absl::IsUnavailable(appended.status())) return false;
  if (!appended.ok()) {
    operations_.End(operation, appended.status());
    return true;
  }
  const bool is_append = operation.type() == Operation::Type::kMessage &&
                         static_cast<const MessageOperation&>(operation).is_append();
  if (!*appended && is_append && batch_->empty()) {
    // The server of the last connection accepted longer frames.
    operations_.End(operation, AppendTooLongError(operation.key().size() + ValueLengthOf(operation),
                                                  link_.connection->append_bytes_max()));
    return true;
  }
  if (!*appended) return false;
  if (is_new) ++next_sequence;
  in_frame_.push_back(&operation);
  return true;
}

void RequestPipeline::SentRequest(Operation& operation) {
  ++link_.counters.messages;
  OperationQueue::Remove(operation);
  if (operation.sequence() == 0) link_.session.Add(operation, link_.polled_at);
  if (operation.type() == Operation::Type::kGet) {
    ++link_.counters.rpc_gets;
    static_cast<GetOperation&>(operation).set_state(GetOperation::State::kAsking);
  } else {
    static_cast<MessageOperation&>(operation).Sent();
  }
}

bool RequestPipeline::OnFrame(rdma::Bytes frame, absl::Time now) {
  const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  if (!header.ok()) return false;
  const auto opcode = static_cast<rdma::Opcode>(header->opcode);
  if (opcode == rdma::Opcode::kReply) {
    OnReply(frame, now);
    return true;
  }
  if (opcode != rdma::Opcode::kBatch) return false;
  if (absl::Status status = rdma::ParseBatch(frame, replies_); !status.ok()) {
    link_.connection->Fail(BadServer(status.message()));
    return true;
  }
  for (rdma::FrameBytes reply : replies_) {
    // A reply that breaks the rules ends the connection, so the replies behind it are ignored.
    if (link_.connection->answers_count()) OnReply(reply, now);
  }
  return true;
}

void RequestPipeline::OnReply(rdma::Bytes frame, absl::Time now) {
  link_.connection->NoteActivity(now);
  const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  if (!header.ok() || static_cast<rdma::Opcode>(header->opcode) != rdma::Opcode::kReply) {
    return link_.connection->Fail(BadServer("a request in its Batch"));
  }
  const absl::StatusOr<rdma::Reply> reply = rdma::ParseReply(frame);
  if (!reply.ok()) return link_.connection->Fail(BadServer(reply.status().message()));
  if (header->session != link_.session.id() || !link_.session.IsUnanswered(header->sequence)) {
    return link_.connection->Fail(
        BadServer(absl::StrCat("a reply to request ", header->sequence, " of session ",
                               header->session, ", which waits for none")));
  }
  if (link_.server_clock.WantsNews(now)) {
    link_.server_clock.Observe(link_.session.SentAt(header->sequence), link_.ReceivedBy(),
                               absl::FromUnixNanos(static_cast<int64_t>(reply->body.server_time)));
  }
  Operation* operation = link_.session.Waiting(header->sequence);
  link_.session.Remove(header->sequence);
  if (header->sequence == servers_asked_) return LearnServers(*reply);
  if (operation == nullptr) return;  // abandoned at its deadline
  if (static_cast<absl::StatusCode>(reply->body.status) == absl::StatusCode::kUnavailable &&
      ReasonOfWire(reply->body.reason) != Reason::kTooFewReplicas) {
    return Refused(*operation, now);
  }
  OperationQueue::Remove(*operation);
  if (operation->type() == Operation::Type::kGet) {
    auto& get = static_cast<GetOperation&>(*operation);
    get.Replied(*reply, link_.connection->terms().value_bytes_max);
    operations_.Place(get, now);
  } else {
    auto& message = static_cast<MessageOperation&>(*operation);
    Learn(message, *reply);
    message.Replied(*reply);
    operations_.Place(message);
  }
}

// Caches the item's location from the reply to a write.
void RequestPipeline::Learn(const MessageOperation& message, const rdma::Reply& reply) {
  if (!message.is_write() || reply.body.status != 0) return;
  if (message.is_flush()) return link_.location_cache.Clear();
  const PartitionMaps& maps = link_.connection->maps();
  const index::KeyHash hash = index::HashKey(message.key(), maps.hash_seed());
  link_.location_cache.Wrote({maps.Of(hash).HomeOf(hash), hash.fingerprint()}, reply.body.slot);
}

// The server is about to end, or has no right to serve, and has not applied it: send it on the next connection.
void RequestPipeline::Refused(Operation& operation, absl::Time now) {
  link_.connection->Leave(now);
  OperationQueue::Remove(operation);
  if (operation.type() == Operation::Type::kGet) {
    auto& get = static_cast<GetOperation&>(operation);
    get.Restart();
    operations_.Place(get, now);
  } else {
    static_cast<MessageOperation&>(operation).NotApplied();
    operations_.to_send.PushBack(operation);
  }
}

// Requests without an answer will not get it on the lost connection.
void RequestPipeline::RequeueRequests() {
  for (uint64_t sequence = link_.session.first(); sequence < link_.session.end(); ++sequence) {
    if (!link_.session.IsUnanswered(sequence)) continue;
    Operation* operation = link_.session.Waiting(sequence);
    if (operation == nullptr || operation->type() == Operation::Type::kGet) {
      link_.session.Remove(sequence);  // abandoned, with its buffer; or a GET, which starts over
      continue;
    }
    auto& message = static_cast<MessageOperation&>(*operation);
    message.Resend();
    OperationQueue::Remove(message);
    if (message.is_write()) {
      operations_.to_resend.PushBack(message);
    } else {
      link_.session.Remove(sequence);
      operations_.to_send.PushBack(message);
    }
  }
}

// Whether a request that was sent on this connection, or is about to be, lets the server READ it.
bool RequestPipeline::MayBeRead(const rdma::Memory& memory) const {
  const auto is_in = [&memory](const MessageOperation& message) {
    return message.by_rendezvous() && &message.memory() == &memory;
  };
  for (const Operation* operation : in_frame_) {
    if (operation->type() == Operation::Type::kMessage &&
        is_in(*static_cast<const MessageOperation*>(operation)))
      return true;
  }
  for (uint64_t sequence = link_.session.first(); sequence < link_.session.end(); ++sequence) {
    if (!link_.session.IsUnanswered(sequence)) continue;
    const Operation* const operation = link_.session.Waiting(sequence);
    if (operation == nullptr) {
      const Buffer& buffer = link_.session.Abandoned(sequence);
      if (buffer.valid() && &buffer.memory() == &memory) return true;
    } else if (operation->type() == Operation::Type::kMessage) {
      const auto& message = *static_cast<const MessageOperation*>(operation);
      if (message.state() == MessageOperation::State::kSent && is_in(message)) return true;
    }
  }
  return false;
}

void RequestPipeline::Withdraw(const rdma::Memory& memory) {
  if (link_.connection->id() != rdma::ConnectionId::kNone)
    exposures_.Withdraw(link_.connection->id(), memory);
}

}  // namespace osprey::client
