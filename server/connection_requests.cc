// The requests of an established connection.

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/connection.h"

namespace osprey::server {

void Connection::TakeFrame(rdma::FrameBytes frame, absl::Time now) {
  const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  if (!header.ok()) return Malformed(header.status().message());
  if (header->session != session_->id) return Malformed("session is not this connection's");
  switch (static_cast<rdma::Opcode>(header->opcode)) {
    case rdma::Opcode::kPut:
      return TakePut(*header, frame, now);
    case rdma::Opcode::kDelete:
      return TakeDelete(*header, frame, now);
    case rdma::Opcode::kGet:
      return TakeGet(*header, frame, now);
    case rdma::Opcode::kPing:
    case rdma::Opcode::kStats:
      return TakeQuestion(*header, frame, now);
    case rdma::Opcode::kGoodbye:
      return TakeGoodbye(frame);
    case rdma::Opcode::kHello:
    case rdma::Opcode::kWelcome:
    case rdma::Opcode::kReply:
    case rdma::Opcode::kIncrement:
    case rdma::Opcode::kAppend:
    case rdma::Opcode::kFlush:
    case rdma::Opcode::kBatch:
      return Malformed(
          absl::StrCat("opcode ", header->opcode, " is none that an established client sends"));
  }
}

void Connection::TakePut(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now) {
  const absl::StatusOr<rdma::PutRequest> request = rdma::ParsePut(frame);
  if (!request.ok()) return Malformed(request.status().message());
  ++shared_.counters.puts;
  if (SettledWithoutTable(header.sequence, now) || Refused(header.sequence, now)) return;
  if (request->body.rendezvous == 1) return BeginRendezvous(*request, header.sequence, now);
  AnswerWrite(header.sequence, ExecutePut(shared_.table, *request, shared_.value_bytes_max, now),
              now);
}

void Connection::TakeDelete(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                            absl::Time now) {
  const absl::StatusOr<rdma::DeleteRequest> request = rdma::ParseDelete(frame);
  if (!request.ok()) return Malformed(request.status().message());
  ++shared_.counters.deletes;
  if (SettledWithoutTable(header.sequence, now) || Refused(header.sequence, now)) return;
  AnswerWrite(header.sequence, ExecuteDelete(shared_.table, *request, now), now);
}

// Reading may be repeated at will: its answer is not remembered.
void Connection::TakeGet(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now) {
  const absl::StatusOr<rdma::GetRequest> request = rdma::ParseGet(frame);
  if (!request.ok()) return Malformed(request.status().message());
  ++shared_.counters.gets;
  if (Refused(header.sequence, now)) return;
  Reply(header.sequence, ExecuteGet(shared_.table, *request, ReplyDataMax(), now), now);
}

void Connection::TakeQuestion(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                              absl::Time now) {
  if (absl::Status status = rdma::ParseEmpty(frame); !status.ok())
    return Malformed(status.message());
  const bool ping = header.opcode == static_cast<uint8_t>(rdma::Opcode::kPing);
  ++(ping ? shared_.counters.pings : shared_.counters.stats);
  if (Refused(header.sequence, now)) return;
  const std::string text = ping ? "" : shared_.stats_text(port_.transport.Describe(id_), now);
  Reply(header.sequence, AnswerOf(absl::StatusCode::kOk, text), now);
}

// The client leaves for good: nobody will come back for its session.
void Connection::TakeGoodbye(rdma::FrameBytes frame) {
  if (absl::Status status = rdma::ParseEmpty(frame); !status.ok())
    return Malformed(status.message());
  shared_.sessions.Forget(*std::exchange(session_, nullptr));
  Close(CloseReason::kPeer, "goodbye");
}

// True when a write is over already: its answer is known, or no longer known, or the client breaks
// the rules.
bool Connection::SettledWithoutTable(uint64_t sequence, absl::Time now) {
  for (const std::unique_ptr<Rendezvous>& rendezvous : rendezvous_) {
    if (rendezvous->sequence() != sequence) continue;
    Malformed("sequence is that of a write that is under way");
    return true;
  }
  const ResultWindow::Lookup known = session_->results.Find(sequence);
  switch (known.seen) {
    case ResultWindow::Seen::kNew:
      return false;
    case ResultWindow::Seen::kAnswered: {
      ++shared_.counters.writes_repeated;
      Answer answer = AnswerOf(known.result.code, "");
      answer.body.version = known.result.version;
      answer.body.slot = known.result.slot;
      Reply(sequence, answer, now);
      return true;
    }
    case ResultWindow::Seen::kForgotten:
      ++shared_.counters.writes_forgotten;
      Reply(
          sequence,
          AnswerOf(absl::StatusCode::kUnknown, "the answer to this write is no longer remembered"),
          now);
      return true;
  }
  return false;
}

// True when the server is about to end and begins nothing new.
bool Connection::Refused(uint64_t sequence, absl::Time now) {
  if (state_ == State::kEstablished) return false;
  Reply(sequence,
        AnswerOf(absl::StatusCode::kUnavailable, "the server is about to end; not applied"), now);
  return true;
}

void Connection::AnswerWrite(uint64_t sequence, const Answer& answer, absl::Time now) {
  session_->results.Remember(sequence, {answer.code(), answer.body.version, answer.body.slot});
  Reply(sequence, answer, now);
}

// --- Rendezvous ---------------------------------------------------------------------------------

void Connection::BeginRendezvous(const rdma::PutRequest& request, uint64_t sequence,
                                 absl::Time now) {
  if (rendezvous_.size() >= requests_max_)
    return Malformed("more requests under way than requests_max");
  const rdma::WireMemory& source = request.body.source;
  absl::Status attached = port_.transport.Attach(id_, {source.address, source.length, source.key});
  if (!attached.ok()) {
    return AnswerWrite(
        sequence, AnswerOf(attached.code(), absl::StrCat("source: ", attached.message())), now);
  }
  absl::StatusOr<std::unique_ptr<Rendezvous>> rendezvous =
      Rendezvous::Begin(shared_.table, request, sequence, shared_.value_bytes_max, now);
  if (!rendezvous.ok()) {
    return AnswerWrite(sequence,
                       AnswerOf(rendezvous.status().code(), rendezvous.status().message()), now);
  }
  ++shared_.counters.rendezvous;
  rendezvous_.push_back(std::move(*rendezvous));
  AdvanceRendezvous(now);
}

// Finishes the one that has landed, if any, and posts READs for those that have some to post, the
// oldest first.
void Connection::AdvanceRendezvous(absl::Time now) {
  auto landed = std::find_if(rendezvous_.begin(), rendezvous_.end(),
                             [](const auto& rendezvous) { return rendezvous->landed(); });
  if (landed != rendezvous_.end()) {
    const std::unique_ptr<Rendezvous> done = std::move(*landed);
    rendezvous_.erase(landed);
    const uint64_t bytes = done->value_length();
    const Answer answer = done->Finish(now);
    if (answer.code() == absl::StatusCode::kOk) {
      shared_.counters.rendezvous_bytes += bytes;
    } else {
      ++shared_.counters.rendezvous_aborted;
    }
    AnswerWrite(done->sequence(), answer, now);
  }
  for (const std::unique_ptr<Rendezvous>& rendezvous : rendezvous_) {
    if (state_ == State::kClosing) return;
    // The last place is the liveness READ's, unless it is the only one.
    const size_t room = port_.transport.ReadRoom(id_);
    if (room == 0) break;
    const absl::StatusOr<size_t> posted =
        rendezvous->Post(port_.transport, id_, port_.region, std::max<size_t>(room - 1, 1));
    if (!posted.ok()) return Close(CloseReason::kFailed, posted.status().message());
    shared_.counters.rendezvous_reads += *posted;
  }
  LeaveWhenAnswered(now);
}

}  // namespace osprey::server
