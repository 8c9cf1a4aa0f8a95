#include "server/engine/connection/request_executor.h"

#include <bit>
#include <cassert>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "index/layout/access_hint.h"
#include "index/layout/test_hooks.h"
#include "rdma/wire/shard.h"
#include "server/requests/two_step_writes.h"

namespace osprey::server {
namespace {

uint64_t& CounterOf(rdma::Opcode opcode, Counters& counters) {
  switch (opcode) {
    case rdma::Opcode::kDelete:
      return counters.deletes;
    case rdma::Opcode::kIncrement:
      return counters.increments;
    case rdma::Opcode::kAppend:
      return counters.appends;
    case rdma::Opcode::kGet:
      return counters.gets;
    case rdma::Opcode::kExpire:
      return counters.expires;
    case rdma::Opcode::kTouch:
      return counters.touches;
    default:
      return counters.puts;
  }
}

}  // namespace

// True if a write is over already: its result is stored, or no longer stored, or the client
// violates the rules.
[[gnu::always_inline]] inline bool RequestExecutor::Settled(uint64_t sequence, absl::Time now) {
  if (!writes_.empty() && writes_.Contains(sequence)) {
    lifecycle_.Malformed("sequence is that of a write that is under way");
    return true;
  }
  if (session_->results.SeenOf(sequence) == ResultWindow::Seen::kNew) return false;
  AnswerAgain(sequence, now);
  return true;
}

void RequestExecutor::AnswerAgain(uint64_t sequence, absl::Time now) {
  const ResultWindow::Lookup known = session_->results.Find(sequence);
  if (known.seen == ResultWindow::Seen::kAnswered) {
    ++shared_.counters.writes_repeated;
    return replies_.Reply(sequence, AnswerOf(known.result), now);
  }
  ++shared_.counters.writes_forgotten;
  replies_.Reply(sequence,
                 AnswerOf(absl::StatusCode::kUnknown,
                          "the answer to this write is no longer remembered", Reason::kForgotten),
                 now);
}

// True if the server is about to end and starts no new work.
inline bool RequestExecutor::Refused(uint64_t sequence, absl::Time now) {
  if (lifecycle_.state() == Lifecycle::State::kEstablished) return false;
  Refuse(sequence, now);
  return true;
}

void RequestExecutor::Refuse(uint64_t sequence, absl::Time now) {
  replies_.Reply(sequence,
                 AnswerOf(absl::StatusCode::kUnavailable, "the server is about to end; not applied",
                          Reason::kShuttingDown),
                 now);
}

// True if the request has been answered, as another shard has its key. The answer is not remembered:
// a repetition receives the same one.
bool RequestExecutor::IsOfOtherShard(const KeyedRequest& request, absl::Time now) {
  const uint32_t shard = rdma::ShardOf(request.key, shared_.shards);
  if (shard == shared_.shard) return false;
  const std::string text = absl::StrCat("the key is of shard ", shard, " of ", shared_.shards,
                                        "; this server has shard ", shared_.shard,
                                        ", so not applied; send it to the shard of its key");
  replies_.Reply(request.sequence,
                 AnswerOf(absl::StatusCode::kInvalidArgument, text, Reason::kWrongShard), now);
  return true;
}

// Counts the request. False if it has been answered: a write that is over already, the server is
// about to end, another shard has its key, or its log takes nothing.
[[gnu::always_inline]] inline bool RequestExecutor::IsToExecute(const KeyedRequest& request,
                                                                absl::Time now) {
  ++CounterOf(request.opcode, shared_.counters);
  if (request.is_write() && Settled(request.sequence, now)) return false;
  if (Refused(request.sequence, now)) return false;
  if (shared_.shards > 1 && IsOfOtherShard(request, now)) return false;
  if (shared_.write_log == nullptr || !request.is_write()) return true;
  return IsToLog(request.opcode, request.sequence, now);
}

// Announces a write to the log. False if it takes none, and the write has been answered.
bool RequestExecutor::IsToLog(rdma::Opcode opcode, uint64_t sequence, absl::Time now) {
  if (const absl::Status status = shared_.write_log->MayWrite(); !status.ok()) {
    replies_.AnswerWrite(sequence, AnswerOfLog(status), now);
    return false;
  }
  shared_.tables.set_write({session_->id, sequence, opcode});
  return true;
}

void RequestExecutor::Execute(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                              absl::Time now) {
  switch (static_cast<rdma::Opcode>(header.opcode)) {
    case rdma::Opcode::kPut:
    case rdma::Opcode::kDelete:
    case rdma::Opcode::kIncrement:
    case rdma::Opcode::kAppend:
    case rdma::Opcode::kGet:
    case rdma::Opcode::kExpire:
    case rdma::Opcode::kTouch:
      return TakeRendezvous(header, frame, now);
    case rdma::Opcode::kFlush:
      return TakeFlush(header, frame, now);
    case rdma::Opcode::kPing:
    case rdma::Opcode::kStats:
    case rdma::Opcode::kServers:
      return TakeQuestion(header, frame, now);
    case rdma::Opcode::kHints:
      return TakeHints(header, frame);
    case rdma::Opcode::kReport:
      return TakeReport(header, frame, now);
    case rdma::Opcode::kDisconnectNotice:
      return TakeDisconnectNotice(frame, now);
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

// A PUT by rendezvous, or what is no request on a key: all others are batched (Connection::Take).
void RequestExecutor::TakeRendezvous(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                                     absl::Time now) {
  KeyedRequest request;
  if (absl::Status status = ParseKeyed(header, frame, request); !status.ok())
    return lifecycle_.Malformed(status.message());
  assert(request.rendezvous);
  if (IsToExecute(request, now))
    writes_.Put(rdma::PartsOf<rdma::PutBody>(frame), header.sequence, now);
}

void RequestExecutor::ExecuteKeyed(const KeyedRequest& request, index::Table& table,
                                   absl::Time now) {
  if (IsToExecute(request, now)) ExecuteChecked(request, table, now);
}

absl::optional<Decision> RequestExecutor::DecideKeyed(const KeyedRequest& request,
                                                      index::Table& table, const Decision* replaced,
                                                      absl::Time now) {
  if (!IsToExecute(request, now)) return absl::nullopt;
  if (replaced != nullptr) return Replace(table, *replaced, request);
  Verdict verdict = Decide(table, request, shared_.value_bytes_max, now);
  if (verdict.refusal.has_value()) {
    replies_.AnswerWrite(request.sequence, *verdict.refusal, now);
  } else if (!verdict.decision.has_value()) {
    ExecuteChecked(request, table, now);
  }
  return std::move(verdict.decision);
}

// Its value is in no item.
void RequestExecutor::AnswerReplaced(const KeyedRequest& request, const Decision& decision,
                                     absl::Time now) {
  replies_.AnswerWritten(request.sequence, decision.version, /*slot=*/0, now);
}

bool RequestExecutor::AnswersLater(const KeyedRequest& request, const index::Table& table) const {
  return table.AnswersLater({request.key, request.hash}, replies_.reply_data_max());
}

void RequestExecutor::ApplyKeyed(const KeyedRequest& request, const Decision& decision,
                                 index::Table& table, PartitionChanges& changes, absl::Time now) {
  shared_.tables.set_write({session_->id, request.sequence, request.opcode});
  const Answer answer = Apply(table, request, decision, changes, now);
  replies_.AnswerWrite(request.sequence, answer, now);
}

[[gnu::always_inline]] inline void RequestExecutor::ExecuteChecked(const KeyedRequest& request,
                                                                   index::Table& table,
                                                                   absl::Time now) {
  if (index::IsMutant(index::Mutant::kAckBeforePublish) && request.opcode == rdma::Opcode::kPut &&
      request.condition.kind == index::Condition::Kind::kNone) {
    replies_.AnswerWrite(request.sequence, AnswerOf(absl::StatusCode::kOk, ""), now);
    replies_.Flush(now);
    (void)ExecutePut(table, request, now);
    return;
  }
  if (request.opcode == rdma::Opcode::kPut && request.value.size() <= shared_.value_bytes_max) {
    const index::WriteResult result = ExecutePut(table, request, now);
    if (result.status.ok())
      return replies_.AnswerWritten(request.sequence, result.version, result.slot, now);
    return replies_.AnswerWrite(request.sequence, AnswerOf(result), now);
  }
  const Answer answer = server::ExecuteKeyed(
      table, request, {shared_.value_bytes_max, replies_.reply_data_max()}, now);
  if (answer.is_for_later) return writes_.Append(request);
  // A read may be repeated freely: its answer is not remembered.
  if (!request.is_write()) return replies_.Reply(request.sequence, answer, now);
  replies_.AnswerWrite(request.sequence, answer, now);
}

// A part of a flush is a write like others: a repeated request returns the same number of keys.
void RequestExecutor::TakeFlush(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                                absl::Time now) {
  const absl::StatusOr<rdma::FlushBody> request = rdma::ParseFlush(frame);
  if (!request.ok()) return lifecycle_.Malformed(request.status().message());
  if (request->cursor == 0) ++shared_.counters.flushes;
  // It waits for pending writes. That may decide others, under their names: so it comes before IsToLog.
  shared_.publish_decided(now);
  if (lifecycle_.closing() || Settled(header.sequence, now) || Refused(header.sequence, now))
    return;
  if (shared_.write_log != nullptr && !IsToLog(rdma::Opcode::kFlush, header.sequence, now)) return;
  const Answer answer = ExecuteFlush(shared_.tables, *request, now);
  shared_.counters.keys_flushed += answer.body.value_length;
  replies_.AnswerFlush(header.sequence, answer, now);
}

void RequestExecutor::TakeQuestion(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                                   absl::Time now) {
  if (absl::Status status = rdma::ParseEmpty(frame); !status.ok())
    return lifecycle_.Malformed(status.message());
  const auto question = static_cast<rdma::Opcode>(header.opcode);
  // (A question for servers counts as a PING: it is as cheap and as rare.)
  ++(question == rdma::Opcode::kStats ? shared_.counters.stats : shared_.counters.pings);
  if (Refused(header.sequence, now)) return;
  std::string text;
  if (question == rdma::Opcode::kStats) {
    text = WholeLines(shared_.stats_text(transport_.Describe(id_), now), replies_.reply_data_max());
  } else if (question == rdma::Opcode::kServers && shared_.cluster_servers) {
    text = shared_.cluster_servers();
    // Those that fit.
    if (text.size() > replies_.reply_data_max())
      text.resize(text.rfind('\n', replies_.reply_data_max() - 1) + 1);
  }
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
void RequestExecutor::TakeDisconnectNotice(rdma::FrameBytes frame, absl::Time now) {
  if (absl::Status status = rdma::ParseEmpty(frame); !status.ok())
    return lifecycle_.Malformed(status.message());
  // Its answers are remembered by the session.
  shared_.publish_decided(now);
  if (lifecycle_.closing()) return;
  session_.Forget();
  lifecycle_.Close(CloseReason::kPeer, "disconnect notice");
}

}  // namespace osprey::server
