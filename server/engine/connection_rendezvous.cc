// The READs that a connection posts: of values that clients PUT by rendezvous, and of their
// liveness words.

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/connection.h"

namespace osprey::server {

// --- Values --------------------------------------------------------------------------------------

void Connection::BeginRendezvous(const rdma::PutRequest& request, uint64_t sequence,
                                 absl::Time now) {
  if (UnderWay() >= kRequestsMax)
    return lifecycle_.Malformed("more requests under way than requests_max");
  if (request.body.value_length > shared_.value_bytes_max) {
    return replies_.AnswerWrite(
        sequence, ValueTooLong(request.body.value_length, shared_.value_bytes_max), now);
  }
  const rdma::WireMemory& source = request.body.source;
  absl::Status attached = port_.transport.Attach(id_, {source.address, source.length, source.key});
  // The connection has ended, and kDisconnected is on its way. The write was not applied, so no
  // result is stored. The client repeats it, in this session, on its next connection.
  if (absl::IsUnavailable(attached)) return;
  if (!attached.ok()) {
    return replies_.AnswerWrite(
        sequence, AnswerOf(attached.code(), absl::StrCat("source: ", attached.message())), now);
  }
  ++shared_.counters.rendezvous;
  rendezvous_.push_back(
      std::make_unique<Rendezvous>(shared_.tables, request, sequence, ++rendezvous_numbers_));
  AdvanceRendezvous(now);
}

// Advances the oldest first. It finishes those that have landed, reserves space for those next in
// line, and posts the READs for which there is room. One that waits for space blocks the requests
// queued behind it.
void Connection::AdvanceRendezvous(absl::Time now) {
  EnterTurn();
  StepRendezvous(now);
  spent_ += shared_.tables.TakeEffort();  // or the next request of any client would be charged with
                                          // it
}

void Connection::StepRendezvous(absl::Time now) {
  uint64_t reserved_bytes = 0;
  awaits_room_ = false;
  room_retry_at_ = absl::InfiniteFuture();
  for (size_t i = 0; i < rendezvous_.size() && !lifecycle_.closing();) {
    Rendezvous& rendezvous = *rendezvous_[i];
    // Making space may be expensive. It continues in a turn of its own.
    spent_ += shared_.tables.TakeEffort();
    if (spent_ >= shared_.turn_cost_max) {
      awaits_room_ = true;
      return;
    }
    absl::optional<Answer> answer;
    if (rendezvous.landed()) {
      answer = FinishRendezvous(rendezvous, now);
    } else if (!rendezvous.reserved()) {
      // A single value may have any length.
      const bool fits = rendezvous.value_length() <= kReservedBytesMax &&
                        reserved_bytes <= kReservedBytesMax - rendezvous.value_length();
      if (reserved_bytes > 0 && !fits) break;
      const absl::StatusOr<bool> reserved = rendezvous.Reserve(now);
      if (!reserved.ok()) {
        ++shared_.counters.rendezvous_aborted;
        answer = AnswerOf(index::WriteResult{reserved.status()});
      } else if (!*reserved) {
        awaits_room_ = rendezvous.room_retry_at() <= now;
        if (!awaits_room_) room_retry_at_ = rendezvous.room_retry_at();
        return;
      }
    }
    if (answer.has_value()) {
      const uint64_t sequence = rendezvous.sequence();
      rendezvous_.erase(rendezvous_.begin() + static_cast<ptrdiff_t>(i));
      replies_.AnswerWrite(sequence, *answer, now);
      continue;
    }
    reserved_bytes += rendezvous.value_length();
    if (!PostReads(rendezvous)) return;
    ++i;
  }
  LeaveWhenAnswered(now);
}

Answer Connection::FinishRendezvous(Rendezvous& rendezvous, absl::Time now) {
  Answer answer = rendezvous.Finish(now);
  if (answer.code() == absl::StatusCode::kOk) {
    shared_.counters.rendezvous_bytes += rendezvous.value_length();
  } else {
    ++shared_.counters.rendezvous_aborted;
  }
  return answer;
}

// False if the connection ends.
bool Connection::PostReads(Rendezvous& rendezvous) {
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

void Connection::HandleReadsDone(uint64_t cookie, const absl::Status& status, absl::Time now) {
  if (cookie == 0) return LivenessReadDone(status, now);
  const uint64_t number = Rendezvous::NumberOf(cookie);
  auto it = std::find_if(rendezvous_.begin(), rendezvous_.end(),
                         [&](const auto& rendezvous) { return rendezvous->number() == number; });
  assert(it != rendezvous_.end());
  if (!status.ok()) {
    (*it)->OnPieceFailed();
    // A failed READ breaks the queue pair, so a client that names wrong memory harms only itself.
    // The span is returned when all its READs have ended, with kDisconnected.
    return lifecycle_.Close(CloseReason::kPeer,
                            absl::StrCat("READ of a value failed: ", status.message()));
  }
  heard_ = now;
  (*it)->OnPieceLanded(cookie);
  // While closing, no request is executed. The client will repeat the write, or never learn its
  // result.
  if (!lifecycle_.closing()) AdvanceRendezvous(now);
}

// --- Liveness ------------------------------------------------------------------------------------

void Connection::LivenessReadDone(const absl::Status& status, absl::Time now) {
  liveness_reading_ = false;
  if (!status.ok())
    return lifecycle_.Close(CloseReason::kSilent,
                            absl::StrCat("liveness READ failed: ", status.message()));
  heard_ = now;
  AdvanceRendezvous(now);  // one may have waited for this place
}

// Checks whether a silent peer lives, by a READ that does not wake its process.
void Connection::CheckLiveness(absl::Time now) {
  if (lifecycle_.closing() || now < heard_ + kSilenceMax()) return;
  // Without room, READs of a rendezvous are in flight, which serve as well.
  if (!liveness_reading_ && port_.transport.ReadRoom(id_) > 0) {
    rdma::ReadRequest read;
    read.remote_address = liveness_.address;
    read.remote_key = liveness_.key;
    read.segments[0] = {port_.scratch.data(), kLivenessBytes, &port_.scratch};
    if (!port_.transport.PostReads(id_, {&read, 1}, /*cookie=*/0).ok())
      return;  // kDisconnected is on its way
    ++shared_.counters.liveness_reads;
    liveness_reading_ = true;
    liveness_since_ = now;
  }
  if (now >= std::max(liveness_since_, heard_ + kSilenceMax()) + kLivenessTimeout()) {
    lifecycle_.Close(CloseReason::kSilent, "its liveness word could not be read in time");
  }
}

}  // namespace osprey::server
