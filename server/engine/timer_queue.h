// The next wake-up of each connection of an engine, without a scan of all of them.
//
// A connection's deadline may move at any moment. It mostly moves later, with each message of its
// peer. So the entry stays in the queue, and when it is due the connection is asked for its present
// deadline.
//
//   alarms.Set(*connection, connection->deadline());         after every event of it
//   while (Connection* due = alarms.TakeDue(now)) …           removed from the queue: Set it again
//   alarms.Remove(*connection);                               before its end
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_ENGINE_TIMER_QUEUE_H_
#define OSPREY_SERVER_ENGINE_TIMER_QUEUE_H_

#include <cstdint>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"

namespace osprey::server {

// An object's place in the queue.
struct Alarm {
  absl::Time at = absl::InfiniteFuture();  // not queued
  uint64_t number = 0;                     // 0: never queued
};

// REQUIRES of Thing: a method `Alarm& alarm()`.
template <typename Thing>
class Alarms {
 public:
  // Times are rounded up to multiples of `step`, so that a sleeping engine wakes once for all close
  // times.
  explicit Alarms(absl::Duration step) : step_(step) {}

  // Due at `at`, rounded up, or earlier. InfiniteFuture: never. Things with the same time are due
  // in the order in which they were set first.
  void Set(Thing& thing, absl::Time at) {
    Alarm& alarm = thing.alarm();
    if (at >= alarm.at) return;
    at = absl::UnixEpoch() + absl::Ceil(at - absl::UnixEpoch(), step_);
    if (at >= alarm.at) return;
    Remove(thing);
    if (alarm.number == 0) alarm.number = ++last_number_;
    alarm.at = at;
    queue_.emplace(std::make_pair(at, alarm.number), &thing);
  }
  void Remove(Thing& thing) {
    Alarm& alarm = thing.alarm();
    if (alarm.at == absl::InfiniteFuture()) return;
    queue_.erase({alarm.at, alarm.number});
    alarm.at = absl::InfiniteFuture();
  }

  // Removes and returns the first thing that is due; nullptr if there is none.
  Thing* TakeDue(absl::Time now) {
    if (next() > now) return nullptr;
    Thing* const thing = queue_.begin()->second;
    Remove(*thing);
    return thing;
  }
  // InfiniteFuture if nothing is queued.
  absl::Time next() const {
    return queue_.empty() ? absl::InfiniteFuture() : queue_.begin()->first.first;
  }

 private:
  const absl::Duration step_;
  uint64_t last_number_ = 0;
  absl::btree_map<std::pair<absl::Time, uint64_t>, Thing*> queue_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_TIMER_QUEUE_H_
