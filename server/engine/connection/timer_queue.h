// The next wake-up of each connection of an engine, without a scan of all of them.
//
// A connection's deadline may move at any moment. It mostly moves later, with each message of its
// peer. So the entry stays in the queue, and when it is due the connection is asked for its present
// deadline.
//
//   timers.Set(*connection, connection->deadline());         after every event of it
//   while (Connection* due = timers.TakeDue(now)) …           removed from the queue: Set it again
//   timers.Remove(*connection);                               before its end
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_ENGINE_CONNECTION_TIMER_QUEUE_H_
#define OSPREY_SERVER_ENGINE_CONNECTION_TIMER_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"

namespace osprey::server {

// An object's place in the queue.
struct Timer {
  absl::Time at = absl::InfiniteFuture();  // not queued
  // A time after this, rounded up, is not before `at`.
  absl::Time not_after = absl::InfiniteFuture();
  uint64_t number = 0;  // 0: never queued
};

// REQUIRES of Thing: a method `Timer& timer()`.
template <typename Thing>
class TimerQueue {
 public:
  // Times are rounded up to multiples of `step`, so that a sleeping engine wakes once for all close
  // times.
  explicit TimerQueue(absl::Duration step) : step_(step) {}

  // Due at `at`, rounded up, or earlier. InfiniteFuture: never. Things with the same time are due
  // in the order in which they were set first.
  void Set(Thing& thing, absl::Time at) {
    Timer& timer = thing.timer();
    if (at > timer.not_after) return;
    at = absl::UnixEpoch() + absl::Ceil(at - absl::UnixEpoch(), step_);
    if (at < timer.at) Queue(thing, at, at - step_);
  }
  // Likewise, and not rounded: for the few that others wait for.
  void SetExactly(Thing& thing, absl::Time at) {
    if (at < thing.timer().at) Queue(thing, at, at);
  }
  void Remove(Thing& thing) {
    Timer& timer = thing.timer();
    if (timer.at == absl::InfiniteFuture()) return;
    queue_.erase({timer.at, timer.number});
    timer.at = timer.not_after = absl::InfiniteFuture();
    next_ = queue_.empty() ? absl::InfiniteFuture() : queue_.begin()->first.first;
  }

  // Removes and returns the first thing that is due; nullptr if there is none.
  Thing* TakeDue(absl::Time now) {
    if (next() > now) return nullptr;
    Thing* const thing = queue_.begin()->second;
    Remove(*thing);
    return thing;
  }
  // InfiniteFuture if nothing is queued.
  absl::Time next() const { return next_; }

 private:
  void Queue(Thing& thing, absl::Time at, absl::Time not_after) {
    Remove(thing);
    Timer& timer = thing.timer();
    if (timer.number == 0) timer.number = ++last_number_;
    timer.at = at;
    timer.not_after = not_after;
    queue_.emplace(std::make_pair(at, timer.number), &thing);
    next_ = std::min(next_, at);
  }

  const absl::Duration step_;
  uint64_t last_number_ = 0;
  absl::btree_map<std::pair<absl::Time, uint64_t>, Thing*> queue_;
  absl::Time next_ = absl::InfiniteFuture();  // the first of it, which each turn reads
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_CONNECTION_TIMER_QUEUE_H_
