// The writes of a connection that take several turns: values that clients PUT by rendezvous, and
// APPENDs to long values.
//
//   Put ──> room for the value? ──> its READs, as many as the transport takes ──> all landed: answer
//             | no                     ^
//             '──> a later turn ──>────'
//   Append ──> a step a turn ──> … ──> answer
//
// Where a change is made only when it is durable, a value that has landed is decided. It waits for
// the next sync of the turn (Engine::PublishDecided). All that landed before share it.
//
// A write that waits for the disk or for another write goes on at retry_at().
//
// Rendezvous advance together, the oldest first; appends one after the other. Thread rule: the
// engine's thread.

#ifndef OSPREY_SERVER_ENGINE_CONNECTION_LONG_WRITES_H_
#define OSPREY_SERVER_ENGINE_CONNECTION_LONG_WRITES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"
#include "server/engine/connection/lifecycle.h"
#include "server/engine/connection/reply_port.h"
#include "server/engine/connection/shared.h"
#include "server/engine/connection/turn_budget.h"
#include "server/requests/long_append.h"
#include "server/requests/rendezvous.h"
#include "server/requests/requests.h"

namespace osprey::server {

class Connection;

// Space reserved for values of one connection while they are READ. A longer value is READ alone. So
// clients that are slow, or give false lengths, hold little of the region.
inline constexpr uint64_t kReservedBytesMax = 8 << 20;

class LongWrites {
 public:
  // `connection` owns this.
  LongWrites(Connection& connection, Shared& shared, const Port& port, rdma::ConnectionId id,
             Lifecycle& lifecycle, ReplyPort& replies, TurnBudget& turn)
      : connection_(connection),
        shared_(shared),
        port_(port),
        id_(id),
        lifecycle_(lifecycle),
        replies_(replies),
        turn_(turn) {}
  LongWrites(const LongWrites&) = delete;
  LongWrites& operator=(const LongWrites&) = delete;

  // Begins a PUT by rendezvous, or answers it.
  void Put(const rdma::PutRequest& request, uint64_t sequence, absl::Time now);
  // Begins an APPEND that ExecuteKeyed has left (Answer::is_for_later).
  void Append(const KeyedRequest& request);
  bool Contains(uint64_t sequence) const {
    const auto is_it = [sequence](const auto& write) { return write->sequence() == sequence; };
    return absl::c_any_of(rendezvous_, is_it) || absl::c_any_of(appends_, is_it);
  }
  bool empty() const { return rendezvous_.empty() && appends_.empty(); }

  // A READ of a value ended. False if it failed, which closes the connection. Otherwise Advance is
  // due, unless the connection is closing.
  bool OnReadDone(uint64_t cookie, const absl::Status& status);
  // Advances the rendezvous. Due after a READ ended, and at retry_at().
  void Advance(absl::Time now);
  absl::Time retry_at() const { return retry_at_; }
  // What was decided (Shared::publishing) is durable: makes and answers it, whatever became of the
  // connection. Then Advance is due, as after a READ.
  void ApplyDecided(absl::Time now);

  // Work, a bounded step, is due in each turn.
  bool busy() const { return awaits_room_ || is_append_due_; }
  // REQUIRES: TurnBudget::Enter was called in this turn.
  void Work(absl::Time now);

  // Once the connection is closing: none of them advances further. Takes no lock.
  void Stop();
  // Ends them all. REQUIRES: no READ is in flight.
  void End();
  // Likewise without a transport, and its READs with it.
  void Abandon();

 private:
  size_t size() const { return rendezvous_.size() + appends_.size(); }
  void StepRendezvous(absl::Time now);
  void StepAppend(absl::Time now);
  void PlanAppend(absl::Time now);
  void AwaitRetry(absl::Time at, absl::Time now);
  void AnswerPut(uint64_t sequence, absl::Time received, const Answer& answer, absl::Time now);
  absl::optional<Answer> Finish(Rendezvous& rendezvous, absl::Time now);
  void Count(const Rendezvous& rendezvous, const Answer& answer);
  bool PostReads(Rendezvous& rendezvous);

  Connection& connection_;
  Shared& shared_;
  const Port& port_;
  const rdma::ConnectionId id_;
  Lifecycle& lifecycle_;
  ReplyPort& replies_;
  TurnBudget& turn_;
  std::vector<std::unique_ptr<Rendezvous>> rendezvous_;  // the oldest first
  std::deque<std::unique_ptr<LongAppend>> appends_;      // the first one is in progress
  uint64_t rendezvous_numbers_ = 0;                      // the last one assigned
  // The next rendezvous waits for space for its value, or is to be finished. It is tried again in the
  // next turn, or at retry_at_.
  bool awaits_room_ = false;
  bool is_append_due_ = false;  // in the next turn; else at retry_at_, if there is one
  absl::Time rendezvous_retry_at_ = absl::InfiniteFuture();
  absl::Time retry_at_ = absl::InfiniteFuture();  // the earlier one
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_CONNECTION_LONG_WRITES_H_
