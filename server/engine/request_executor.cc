#include "server/engine/request_executor.h"

#include <bit>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "index/layout/access_hint.h"
#include "index/layout/test_hooks.h"

namespace osprey::server {

void RequestExecutor::Execute(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                              absl::Time now) {
  switch (static_cast<rdma::Opcode>(header.opcode)) {
    case rdma::Opcode::kPut:
      return TakePut(header, frame, now);
    case rdma::Opcode::kDelete:
      return TakeDelete(header, frame, now);
    case rdma::Opcode::kIncrement:
      return TakeIncrement(header, frame, now);
    case rdma::Opcode::kAppend:
      return TakeAppend(header, frame, now);
    case rdma::Opcode::kFlush:
      return TakeFlush(header, frame, now);
    case rdma::Opcode::kGet:
      return TakeGet(header, frame, now);
    case rdma::Opcode::kExpire:
      return TakeExpire(header, frame, now);
    case rdma::Opcode::kTouch:
      return TakeTouch(header, frame, now);
    case rdma::Opcode::kPing:
    case rdma::Opcode::kStats:
      return TakeQuestion(header, frame, now);
    case rdma::Opcode::kHints:
      return TakeHints(header, frame);
    case rdma::Opcode::kReport:
      return TakeReport(header, frame, now);
    case rdma::Opcode::kDisconnectNotice:
      return TakeDisconnectNotice(frame);
    case rdma::Opcode::kBatch:
    case rdma::Opcode::kHello:
    case rdma::Opcode::kChallenge:
    case rdma::Opcode::kResponse:
    case rdma::Opcode::kRefused:
    case rdma::Opcode::kWelcome:
    case rdma::Opcode::kReply:
      return lifecycle_.Malformed(
          absl::StrCat("opcode ", header.opcode, " is none that an established client sends"));
  }
}

void RequestExecutor::TakePut(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                              absl::Time now) {
  const absl::StatusOr<rdma::PutRequest> request = rdma::ParsePut(frame);
  if (!request.ok()) return lifecycle_.Malformed(request.status().message());
  ++shared_.counters.puts;
  if (Settled(header.sequence, now) || Refused(header.sequence, now)) return;
  if (request->body.rendezvous == 1) return writes_.Put(*request, header.sequence, now);
  const bool unconditional = request->body.condition == 0;
  if (unconditional && index::IsMutant(index::Mutant::kAckBeforePublish)) {
    replies_.AnswerWrite(header.sequence, AnswerOf(absl::StatusCode::kOk, ""), now);
    replies_.Flush(now);
    (void)Put(*request, now);
    return;
  }
  replies_.AnswerWrite(header.sequence, Put(*request, now), now);
}

// The value came in the frame.
Answer RequestExecutor::Put(const rdma::PutRequest& request, absl::Time now) {
  const index::KeyHash hash =
      known_hash_ != nullptr ? *known_hash_ : shared_.tables.HashOf(request.key);
  const LockedTable table = shared_.tables.At(shared_.tables.PartitionOf(hash));
  return ExecutePut(*table, request, hash, shared_.value_bytes_max, now);
}

void RequestExecutor::TakeDelete(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                                 absl::Time now) {
  const absl::StatusOr<rdma::DeleteRequest> request = rdma::ParseDelete(frame);
  if (!request.ok()) return lifecycle_.Malformed(request.status().message());
  ++shared_.counters.deletes;
  if (Settled(header.sequence, now) || Refused(header.sequence, now)) return;
  const Answer answer = ExecuteDelete(*shared_.tables.For(request->key), *request, now);
  replies_.AnswerWrite(header.sequence, answer, now);
}

void RequestExecutor::TakeIncrement(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                                    absl::Time now) {
  const absl::StatusOr<rdma::IncrementRequest> request = rdma::ParseIncrement(frame);
  if (!request.ok()) return lifecycle_.Malformed(request.status().message());
  ++shared_.counters.increments;
  if (Settled(header.sequence, now) || Refused(header.sequence, now)) return;
  const Answer answer = ExecuteIncrement(*shared_.tables.For(request->key), *request, now);
  replies_.AnswerWrite(header.sequence, answer, now);
}

void RequestExecutor::TakeAppend(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                                 absl::Time now) {
  const absl::StatusOr<rdma::AppendRequest> request = rdma::ParseAppend(frame);
  if (!request.ok()) return lifecycle_.Malformed(request.status().message());
  ++shared_.counters.appends;
  if (Settled(header.sequence, now) || Refused(header.sequence, now)) return;
  const absl::optional<Answer> answer =
      ExecuteAppend(*shared_.tables.For(request->key), *request, shared_.value_bytes_max, now);
  if (answer.has_value()) return replies_.AnswerWrite(header.sequence, *answer, now);
  writes_.Append(*request, header.sequence);
}

// A part of a flush is a write like others: a repeated request returns the same number of keys.
void RequestExecutor::TakeFlush(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                                absl::Time now) {
  const absl::StatusOr<rdma::FlushBody> request = rdma::ParseFlush(frame);
  if (!request.ok()) return lifecycle_.Malformed(request.status().message());
  ++shared_.counters.flushes;
  if (Settled(header.sequence, now) || Refused(header.sequence, now)) return;
  const Answer answer = ExecuteFlush(shared_.tables, *request, now);
  shared_.counters.keys_flushed += answer.body.value_length;
  replies_.AnswerWrite(header.sequence, answer, now);
}

void RequestExecutor::TakeExpire(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                                 absl::Time now) {
  const absl::StatusOr<rdma::ExpireRequest> request = rdma::ParseExpire(frame);
  if (!request.ok()) return lifecycle_.Malformed(request.status().message());
  ++shared_.counters.expires;
  if (Settled(header.sequence, now) || Refused(header.sequence, now)) return;
  const Answer answer = ExecuteExpire(*shared_.tables.For(request->key), *request, now);
  replies_.AnswerWrite(header.sequence, answer, now);
}

// Like a read: repeated, it counts as one more use of the key.
void RequestExecutor::TakeTouch(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                                absl::Time now) {
  const absl::StatusOr<rdma::TouchRequest> request = rdma::ParseTouch(frame);
  if (!request.ok()) return lifecycle_.Malformed(request.status().message());
  ++shared_.counters.touches;
  if (Refused(header.sequence, now)) return;
  const Answer answer = ExecuteTouch(*shared_.tables.For(request->key), *request);
  replies_.Reply(header.sequence, answer, now);
}

// Reads may be repeated freely: the result is not stored.
void RequestExecutor::TakeGet(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                              absl::Time now) {
  const absl::StatusOr<rdma::GetRequest> request = rdma::ParseGet(frame);
  if (!request.ok()) return lifecycle_.Malformed(request.status().message());
  ++shared_.counters.gets;
  if (Refused(header.sequence, now)) return;
  const bool was_locked = lifecycle_.set_locked(true);
  {
    // Held until the value has been copied into the reply.
    const LockedTable table = shared_.tables.For(request->key);
    replies_.Reply(header.sequence, ExecuteGet(*table, *request, replies_.reply_data_max(), now),
                   now);
  }
  lifecycle_.set_locked(was_locked);
  lifecycle_.FinishClosing();
}

void RequestExecutor::TakeQuestion(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                                   absl::Time now) {
  if (absl::Status status = rdma::ParseEmpty(frame); !status.ok())
    return lifecycle_.Malformed(status.message());
  const bool ping = header.opcode == static_cast<uint8_t>(rdma::Opcode::kPing);
  ++(ping ? shared_.counters.pings : shared_.counters.stats);
  if (Refused(header.sequence, now)) return;
  const std::string text = ping ? "" : shared_.stats_text(transport_.Describe(id_), now);
  replies_.Reply(header.sequence, AnswerOf(absl::StatusCode::kOk, text), now);
}

// Recent READs of the client. They affect only the choice of keys to evict. So a client may send
// any hints at any time.
void RequestExecutor::TakeHints(const rdma::FrameHeader& header, rdma::FrameBytes frame) {
  const absl::StatusOr<rdma::HintsMessage> message = rdma::ParseHints(frame);
  if (!message.ok()) return lifecycle_.Malformed(message.status().message());
  if (header.sequence != 0)
    return lifecycle_.Malformed("hints have a sequence, though nothing answers them");
  ++shared_.counters.hint_frames;
  if (!shared_.tables.evicts()) return;
  const auto hint = [&](uint32_t i) {
    uint64_t word;
    std::memcpy(&word, message->words.data() + i * sizeof(word), sizeof(word));
    return word;
  };
  uint64_t partitions = 0;  // the hints' partitions, a bit each
  for (uint32_t i = 0; i < message->count; ++i) {
    const uint32_t partition = index::AccessHint::Unpack(hint(i)).partition;
    if (partition < shared_.tables.partitions()) partitions |= uint64_t{1} << partition;
  }
  for (; partitions != 0; partitions &= partitions - 1) {
    const auto partition = static_cast<uint32_t>(std::countr_zero(partitions));
    shared_.hints.clear();
    for (uint32_t i = 0; i < message->count; ++i) {
      if (index::AccessHint::Unpack(hint(i)).partition == partition)
        shared_.hints.push_back(hint(i));
    }
    shared_.tables.At(partition)->TakeHints(shared_.hints);
  }
}

// Likewise; affects only metrics.
void RequestExecutor::TakeReport(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                                 absl::Time now) {
  const absl::StatusOr<rdma::ReportBody> report = rdma::ParseReport(frame);
  if (!report.ok()) return lifecycle_.Malformed(report.status().message());
  if (header.sequence != 0)
    return lifecycle_.Malformed("a report has a sequence, though nothing answers it");
  ++shared_.counters.report_frames;
  if (shared_.client_gets != nullptr) shared_.client_gets->Add(report_limit_.Cut(*report, now));
}

// The client leaves for good: its session will not be resumed.
void RequestExecutor::TakeDisconnectNotice(rdma::FrameBytes frame) {
  if (absl::Status status = rdma::ParseEmpty(frame); !status.ok())
    return lifecycle_.Malformed(status.message());
  session_.Forget();
  lifecycle_.Close(CloseReason::kPeer, "disconnect notice");
}

// True if a write is over already: its result is stored, or no longer stored, or the client
// violates the rules.
bool RequestExecutor::Settled(uint64_t sequence, absl::Time now) {
  if (writes_.Contains(sequence)) {
    lifecycle_.Malformed("sequence is that of a write that is under way");
    return true;
  }
  switch (session_->results.SeenOf(sequence)) {
    case ResultWindow::Seen::kNew:
      return false;
    case ResultWindow::Seen::kAnswered:
      ++shared_.counters.writes_repeated;
      replies_.Reply(sequence, AnswerOf(session_->results.Find(sequence).result), now);
      return true;
    case ResultWindow::Seen::kForgotten:
      ++shared_.counters.writes_forgotten;
      replies_.Reply(
          sequence,
          AnswerOf(absl::StatusCode::kUnknown, "the answer to this write is no longer remembered",
                   rdma::WireReason::kForgotten),
          now);
      return true;
  }
  return false;
}

// True if the server is about to end and starts no new work.
bool RequestExecutor::Refused(uint64_t sequence, absl::Time now) {
  if (lifecycle_.state() == Lifecycle::State::kEstablished) return false;
  replies_.Reply(sequence,
                 AnswerOf(absl::StatusCode::kUnavailable, "the server is about to end; not applied",
                          rdma::WireReason::kShuttingDown),
                 now);
  return true;
}

}  // namespace osprey::server
