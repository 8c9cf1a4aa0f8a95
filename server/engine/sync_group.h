// How long an engine waits for further requests before a sync, so that they share it.
//
//   round ──> n answers ──> the clients' next n requests, one by one, while the engine polls
//     '──────────────────> m requests, which came during the sync
//
// Without a wait the next sync begins with those m, and the clients' n+m requests split into two
// halves that wait for each other's syncs. So the engine polls on until n+m have come, for a small part
// of a round's time. If that brings too little, it does not wait for some rounds.
//
// A client with one request in flight has m = 0 and n = 1, or both are 1 if it is fast. So the engine
// waits only for a third request.
//
// Pure logic. Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_SYNC_GROUP_H_
#define OSPREY_SERVER_ENGINE_SYNC_GROUP_H_

#include <cstddef>
#include <functional>
#include <utility>

#include "absl/time/time.h"

namespace osprey::server {

class SyncGroup {
 public:
  // The engine waits for this part of a round's time at most …
  static constexpr int kWaitPart = 4;
  // … and no longer than this: a disk may be slow once.
  static constexpr absl::Duration kWaitMax() { return absl::Microseconds(200); }
  // Rounds without a wait after one that brought too little.
  static constexpr int kRoundsWithoutWait = 15;
  // Awaited requests, with those that have come: no wait for fewer.
  static constexpr size_t kAwaitedMin = 3;

  // `clock` goes on during a turn. Empty: the engine never waits.
  explicit SyncGroup(std::function<absl::Time()> clock) : clock_(std::move(clock)) {}

  void BeginTurn();
  // After each poll of a turn, with the requests that have come and have no answer: whether to poll
  // again before they are executed. False for the rest of a turn in which requests were executed.
  bool Awaits(size_t requests);

  // Around the execution of so many requests, with its sync.
  void BeginRound();
  void EndRound(size_t requests);

 private:
  enum class State {
    kExecuted,  // requests of this turn were executed
    kFresh,     // the next poll is the first one since then
    kPolled,    // it was
  };

  void JudgeWait(size_t requests, absl::Time end);

  const std::function<absl::Time()> clock_;
  State state_ = State::kFresh;
  size_t answered_ = 0;  // by the rounds since the last wait was considered
  size_t awaited_ = 0;   // requests that are in flight, as far as known
  absl::Duration round_took_;
  absl::Time round_began_;
  absl::Time wait_began_ = absl::InfiniteFuture();  // InfiniteFuture: there is no wait
  size_t came_before_ = 0;                          // the wait
  int rounds_without_wait_ = 0;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_SYNC_GROUP_H_
