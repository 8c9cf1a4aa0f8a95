#include "server/engine/connection/long_writes.h"

#include <algorithm>
#include <cassert>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "server/requests/sessions.h"

namespace osprey::server {

void LongWrites::Put(const rdma::PutRequest& request, uint64_t sequence, absl::Time now) {
  if (size() >= kRequestsMax)
    return lifecycle_.Malformed("more requests under way than requests_max");
  if (request.body.value_length > shared_.value_bytes_max) {
    return AnswerPut(sequence, now,
                     ValueTooLong(request.body.value_length, shared_.value_bytes_max), now);
  }
  const rdma::WireMemory& source = request.body.source;
  absl::Status attached = port_.transport.Attach(id_, {source.address, source.length, source.key});
  // The connection has ended, and kDisconnected is on its way. The write was not applied, so no
  // result is stored. The client repeats it, in this session, on its next connection.
  if (absl::IsUnavailable(attached)) return;
  if (!attached.ok()) {
    return AnswerPut(sequence, now,
                     AnswerOf(attached.code(), absl::StrCat("source: ", attached.message())), now);
  }
  ++shared_.counters.rendezvous;
  rendezvous_.push_back(
      std::make_unique<Rendezvous>(shared_.tables, request, sequence, ++rendezvous_numbers_, now));
  Advance(now);
}

void LongWrites::Append(const KeyedRequest& request) {
  if (size() >= kRequestsMax)
    return lifecycle_.Malformed("more requests under way than requests_max");
  ++shared_.counters.long_appends;
  appends_.push_back(std::make_unique<LongAppend>(request));
  is_append_due_ |= appends_.size() == 1;
}

// Advances the oldest first. It finishes those that have landed, reserves space for those next in
// line, and posts the READs for which there is room. One that waits for space blocks the requests
// queued behind it.
void LongWrites::Advance(absl::Time now) {
  turn_.Enter();
  StepRendezvous(now);
  PlanAppend(now);
  turn_.ChargeEffort();
}

// When the append in progress takes its next step.
void LongWrites::PlanAppend(absl::Time now) {
  retry_at_ = rendezvous_retry_at_;
  if (appends_.empty()) {
    is_append_due_ = false;
    return;
  }
  const absl::Time next = appends_.front()->retry_at();
  is_append_due_ = next <= now;
  if (!is_append_due_) retry_at_ = std::min(retry_at_, next);
}

void LongWrites::StepRendezvous(absl::Time now) {
  uint64_t reserved_bytes = 0;
  awaits_room_ = false;
  rendezvous_retry_at_ = absl::InfiniteFuture();
  for (size_t i = 0; i < rendezvous_.size() && !lifecycle_.closing();) {
    Rendezvous& rendezvous = *rendezvous_[i];
    // Making space may be expensive. It continues in a turn of its own.
    turn_.ChargeEffort();
    if (turn_.used_up()) {
      awaits_room_ = true;
      return;
    }
    absl::optional<Answer> answer;
    if (!rendezvous.reserved()) {
      // A single value may have any length.
      const bool fits = rendezvous.value_length() <= kReservedBytesMax &&
                        reserved_bytes <= kReservedBytesMax - rendezvous.value_length();
      if (reserved_bytes > 0 && !fits) break;
      const absl::StatusOr<bool> reserved = rendezvous.Reserve(now);
      if (!reserved.ok()) {
        ++shared_.counters.rendezvous_aborted;
        answer = AnswerOf(reserved.status());
      } else if (!*reserved) {
        return AwaitRetry(rendezvous.room_retry_at(), now);
      }
    }
    if (rendezvous.landed() && !rendezvous.decided()) {
      answer = Finish(rendezvous, now);
      // Those behind it go on: it may wait for one of them (WriteLog::BeginUpload).
      if (!answer.has_value() && !rendezvous.decided())
        AwaitRetry(rendezvous.finish_retry_at(), now);
    }
    if (answer.has_value()) {
      const uint64_t sequence = rendezvous.sequence();
      const absl::Time received = rendezvous.received();
      rendezvous_.erase(rendezvous_.begin() + static_cast<ptrdiff_t>(i));
      AnswerPut(sequence, received, *answer, now);
      continue;
    }
    reserved_bytes += rendezvous.value_length();
    ++i;
    if (rendezvous.decided()) continue;
    if (!PostReads(rendezvous)) return;
    if (rendezvous.awaits_disk()) AwaitRetry(now + kUploadStep(), now);
  }
}

// The rendezvous are stepped again then: in the next turn, if it is not later than `now`.
void LongWrites::AwaitRetry(absl::Time at, absl::Time now) {
  if (at <= now) {
    awaits_room_ = true;
  } else {
    rendezvous_retry_at_ = std::min(rendezvous_retry_at_, at);
  }
}

// Of a rendezvous. Others are timed by the engine.
void LongWrites::AnswerPut(uint64_t sequence, absl::Time received, const Answer& answer,
                           absl::Time now) {
  replies_.AnswerWrite(sequence, answer, now);
  if (shared_.times_puts) shared_.counters.AddPuts(1, shared_.tables.ServerTime() - received);
}

absl::optional<Answer> LongWrites::Finish(Rendezvous& rendezvous, absl::Time now) {
  shared_.tables.set_write({replies_.session_id(), rendezvous.sequence(), rdma::Opcode::kPut});
  absl::optional<Answer> answer = rendezvous.Finish(now);
  if (answer.has_value()) Count(rendezvous, *answer);
  if (rendezvous.decided() && !absl::c_linear_search(shared_.publishing, &connection_))
    shared_.publishing.push_back(&connection_);
  return answer;
}

void LongWrites::Count(const Rendezvous& rendezvous, const Answer& answer) {
  if (answer.code() == absl::StatusCode::kOk) {
    shared_.counters.rendezvous_bytes += rendezvous.value_length();
  } else {
    ++shared_.counters.rendezvous_aborted;
  }
}

void LongWrites::ApplyDecided(absl::Time now) {
  for (const std::unique_ptr<Rendezvous>& rendezvous : rendezvous_) {
    if (!rendezvous->decided()) continue;
    const Answer answer = rendezvous->Apply(now);
    Count(*rendezvous, answer);
    AnswerPut(rendezvous->sequence(), rendezvous->received(), answer, now);
  }
  std::erase_if(rendezvous_, [](const auto& rendezvous) { return rendezvous->decided(); });
}

// False if the connection ends.
bool LongWrites::PostReads(Rendezvous& rendezvous) {
  // The last place is reserved for the liveness READ, unless it is the only one.
  const size_t room = port_.transport.ReadRoom(id_);
  if (room == 0) return true;
  const absl::StatusOr<size_t> posted =
      rendezvous.Post(port_.transport, id_, port_.region, std::max<size_t>(room - 1, 1));
  if (posted.ok()) {
    shared_.counters.rendezvous_reads += *posted;
    return true;
  }
  lifecycle_.Close(CloseReason::kFailed, posted.status().message());
  return false;
}

bool LongWrites::OnReadDone(uint64_t cookie, const absl::Status& status) {
  const uint64_t number = Rendezvous::NumberOf(cookie);
  auto it = std::find_if(rendezvous_.begin(), rendezvous_.end(),
                         [&](const auto& rendezvous) { return rendezvous->number() == number; });
  assert(it != rendezvous_.end());
  if (status.ok()) {
    (*it)->OnPieceLanded(cookie);
    return true;
  }
  (*it)->OnPieceFailed();
  // A failed READ breaks the queue pair, so a client that names wrong memory harms only itself.
  // The span is returned when all its READs have ended, with kDisconnected.
  lifecycle_.Close(CloseReason::kPeer, absl::StrCat("READ of a value failed: ", status.message()));
  return false;
}

void LongWrites::Work(absl::Time now) {
  if (awaits_room_) Advance(now);
  if (is_append_due_ && !lifecycle_.closing()) StepAppend(now);
  turn_.ChargeEffort();
}

void LongWrites::StepAppend(absl::Time now) {
  shared_.tables.set_write(
      {replies_.session_id(), appends_.front()->sequence(), rdma::Opcode::kAppend});
  const absl::optional<Answer> answer =
      appends_.front()->Step(shared_.tables, shared_.value_bytes_max, now);
  if (!answer.has_value()) return PlanAppend(now);
  const uint64_t sequence = appends_.front()->sequence();
  appends_.pop_front();
  PlanAppend(now);
  replies_.AnswerWrite(sequence, *answer, now);
}

// appends_ stay until the end, since returning their space takes a lock.
void LongWrites::Stop() {
  // *Else* other long values wait for theirs.
  for (const std::unique_ptr<Rendezvous>& rendezvous : rendezvous_) rendezvous->GiveUp();
  for (const std::unique_ptr<LongAppend>& append : appends_) append->GiveUp();
  awaits_room_ = is_append_due_ = false;
  retry_at_ = absl::InfiniteFuture();
}

void LongWrites::End() {
  for (const std::unique_ptr<Rendezvous>& rendezvous : rendezvous_) {
    assert(!rendezvous->reading());
    ++shared_.counters.rendezvous_aborted;
  }
  rendezvous_.clear();
  appends_.clear();
}

void LongWrites::Abandon() {
  for (const std::unique_ptr<Rendezvous>& rendezvous : rendezvous_) rendezvous->Abandon();
}

}  // namespace osprey::server
