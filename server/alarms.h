// When each of an engine's connections wants to be called next, without looking at all of them.
//
// A connection's time may move at any moment, mostly to later: with whatever it hears of its peer.
// So it stays in the queue where it was, and when that time comes it is asked for the time that it
// has then.
//
//   alarms.Set(*connection, connection->deadline());         after whatever happened to it
//   while (Connection* due = alarms.TakeDue(now)) …           out of the queue: Set it again
//   alarms.Remove(*connection);                               before its end
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_ALARMS_H_
#define OSPREY_SERVER_ALARMS_H_

#include <cstdint>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"

namespace osprey::server {

// What one thing has of its place in the queue.
struct Alarm {
  absl::Time at = absl::InfiniteFuture();  // not queued
  uint64_t number = 0;                     // 0: never was
};

// REQUIRES of Thing: a method `Alarm& alarm()`.
template <typename Thing>
class Alarms {
 public:
  // `step`: times are rounded up to multiples of it, so that who sleeps between them is woken once
  // for all whose times are close together.
  explicit Alarms(absl::Duration step) : step_(step) {}

  // At `at`, rounded up, or before. InfiniteFuture: no matter when. Things with the same time come
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

  // The first one whose time has come, not queued any more; nullptr if there is none.
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

#endif  // OSPREY_SERVER_ALARMS_H_
