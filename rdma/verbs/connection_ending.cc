#include "rdma/verbs/connection_ending.h"

#include <rdma/rdma_cma.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "rdma/blocking_executor.h"
#include "rdma/verbs/device/objects.h"
#include "rdma/verbs/link.h"

namespace osprey::rdma {
namespace {

using State = ConnectionState;

// The longest wait of a disconnect notice for READs before it and for the peer's acknowledgement.
// It takes microseconds, or tens of milliseconds on an overloaded machine. A longer wait has no use
// if the peer does not answer.
constexpr std::chrono::milliseconds kDisconnectNoticeMax(100);
// The longest flush of a broken queue pair. It takes microseconds; destroying it ends the wait in
// any case.
constexpr std::chrono::milliseconds kDrainMax(200);

}  // namespace

void ConnectionEnding::Disconnect(ConnectionId id) {
  VerbsConnection* const connection = state_.connections.Find(id);
  if (connection == nullptr) return;
  connection->ended_by_us = true;
  if (connection->state == State::kConnected) return StartDisconnectNotice(*connection);
  if (connection->state != State::kSendingDisconnectNotice) Break(*connection, absl::OkStatus());
}

void ConnectionEnding::Break(VerbsConnection& connection, absl::Status status) {
  switch (connection.state) {
    case State::kResolvingAddress:
    case State::kResolvingRoute:
    case State::kConnecting:
    case State::kRequested:
    case State::kAccepting:
      // No READ was posted yet. Destroying the id rejects the peer. The rejection is sent now, as
      // the id may have to wait for others. It fails if Reject was first, which does no harm.
      if (connection.state == State::kRequested)
        (void)rdma_reject(connection.cm_id.get(), nullptr, 0);
      connection.end_status = std::move(status);
      return Destroy(connection);
    case State::kBuilding:
      if (!connection.given_up) connection.end_status = std::move(status);
      connection.given_up = true;
      return;
    case State::kConnected:
    case State::kSendingDisconnectNotice:
      connection.end_status = connection.ended_by_us ? absl::OkStatus() : std::move(status);
      return StartBreaking(connection);
    case State::kBreaking:
    case State::kDraining:
    case State::kDestroying:
    case State::kEnded:
      return;
  }
}

void ConnectionEnding::StartDisconnectNotice(VerbsConnection& connection) {
  connection.link->SendDisconnectNotice();
  connection.bound = std::chrono::steady_clock::now() + kDisconnectNoticeMax;
  state_.SetState(connection, State::kSendingDisconnectNotice);
  ending_.push_back(connection.id);
}

void ConnectionEnding::StartBreaking(VerbsConnection& connection) {
  connection.link->StopPosting();
  state_.SetState(connection, State::kBreaking);
  state_.blocking_executor->Add(
      BlockingExecutor::kEnd,
      [link = connection.link.get(), id = connection.cm_id.get()] {
        link->Flush();
        (void)rdma_disconnect(id);  // fails if the peer was first, which does no harm
      },
      [this, id = connection.id] { StartDrain(*state_.connections.Find(id)); });
}

void ConnectionEnding::StartDrain(VerbsConnection& connection) {
  connection.bound = std::chrono::steady_clock::now() + kDrainMax;
  state_.SetState(connection, State::kDraining);
  ending_.push_back(connection.id);
}

void ConnectionEnding::Finish(bool seen_all) {
  const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
  // True if this one has left ending_.
  const auto finish = [&](ConnectionId id) {
    VerbsConnection& connection = *state_.connections.Find(id);
    // The bound limits the device and the peer, so it does not apply while completions wait for
    // this thread.
    const bool late = seen_all && now >= connection.bound;
    if (connection.state == State::kSendingDisconnectNotice) {
      if (late) StartBreaking(connection);
      return late;
    }
    if (connection.state != State::kDraining) return true;  // it broke after its disconnect notice
    if (!connection.link->drained() && !late) return false;
    Destroy(connection);
    return true;
  };
  ending_.erase(std::remove_if(ending_.begin(), ending_.end(), finish), ending_.end());
}

void ConnectionEnding::Destroy(VerbsConnection& connection) {
  QueuePair queue_pair;
  if (connection.link != nullptr) queue_pair = connection.link->TakeQueuePair();
  if (queue_pair == nullptr) return End(connection);
  state_.SetState(connection, State::kDestroying);
  state_.blocking_executor->Add(
      BlockingExecutor::kEnd,
      [queue_pair = std::move(queue_pair)]() mutable { queue_pair.reset(); },
      [this, id = connection.id] { End(*state_.connections.Find(id)); });
}

// No READ can land any more.
void ConnectionEnding::End(VerbsConnection& connection) {
  const absl::Status unread =
      connection.end_status.ok()
          ? absl::CancelledError("the connection ended before these READs were done")
          : connection.end_status;
  while (connection.link != nullptr && connection.link->has_batches()) {
    state_.batches_in_flight--;
    Event& done = events_.Queue(Event::Kind::kReadsDone, connection.id, unread);
    done.cookie = connection.link->PopBatch();
  }
  // The kernel may take long.
  state_.reaper->DestroyLater(std::move(connection.cm_id));
  state_.SetState(connection, State::kEnded);
  events_.Queue(Event::Kind::kDisconnected, connection.id, connection.end_status);
}

}  // namespace osprey::rdma
