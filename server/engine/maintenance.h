// The work on the tables that no request waits for: growth, sweeps of expired keys, eviction,
// compaction and the freeing of dead space, in small steps and in turn.
//
//   maintenance.Run(now)             in each turn: the next steps of tables that were used
//   maintenance.GrowBetween(…)       between requests: growth keeps up with inserts
//   maintenance.Await(…)             a table has no work until then
//   maintenance.timer(), WakeDue     work that comes by time
//
// Thread rule: the engine's thread. Several engines may maintain the same tables, each under its
// lock.

#ifndef OSPREY_SERVER_ENGINE_MAINTENANCE_H_
#define OSPREY_SERVER_ENGINE_MAINTENANCE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "server/requests/tables.h"

namespace osprey::server {

// A table grows by one step (some 100 us) a turn, and by one more after this many writes in a turn.
// While all segments split, about one must split for every 200 new keys.
inline constexpr uint64_t kWritesPerGrowStep = 128;
// The limit of tables with steps in one turn, counting those that need more afterwards.
inline constexpr int kMaintainedPerTurn = 2;
// Timers run at this interval at most, and connections' deadlines are multiples of it: they need no
// higher precision.
inline constexpr absl::Duration kTimerStep() { return absl::Milliseconds(20); }

class Maintenance {
 public:
  // `own_partitions`, a bit each, are those whose timers belong to this engine. The others must
  // outlive this.
  Maintenance(Tables& tables, TableAccess& access, uint64_t own_partitions)
      : tables_(tables),
        access_(access),
        own_partitions_(own_partitions),
        step_at_(tables.partitions(), absl::InfiniteFuture()) {}

  uint64_t own_partitions() const { return own_partitions_; }

  // Runs the next steps of tables that were used, or whose time has come. True while there is more
  // work, so that the poller does not sleep.
  bool Run(absl::Time now) {
    TakeTouched();
    return unmaintained_ != 0 && RunSome(now);
  }
  // Growth and eviction between events, after `writes` in all. So they keep up with a turn full of
  // inserts, and no insert waits for more than a step.
  void GrowBetween(uint64_t writes, absl::Time now) {
    if (writes - grown_at_ >= kWritesPerGrowStep) GrowAt(writes, now);
  }
  // The table of `partition` has no work until `next_step`.
  [[gnu::always_inline]] void Await(uint32_t partition, absl::Time next_step, absl::Time now) {
    step_at_[partition] = next_step;
    if (timer_ <= next_step) return;  // mostly both are never
    timer_ = std::min(timer_, std::max(next_step, now + kTimerStep()));
  }

  // When WakeDue must be called at the latest. InfiniteFuture: not before another Await.
  absl::Time timer() const { return timer_; }
  // Has the next Run maintain all own tables, and those whose time has come. Returns the time at
  // which the first of the others is due.
  absl::Time WakeDue(absl::Time now);

 private:
  bool RunSome(absl::Time now);
  void GrowAt(uint64_t writes, absl::Time now);
  bool MaintainTable(uint32_t partition, absl::Time now);
  uint32_t NextUntended();
  void TakeTouched() {
    const uint64_t touched = access_.TakeTouched();
    unmaintained_ |= touched;
    used_ |= touched;
  }

  Tables& tables_;
  TableAccess& access_;
  const uint64_t own_partitions_;
  // By partition: when a step is due; InfiniteFuture: by another poller.
  std::vector<absl::Time> step_at_;
  // At first all own tables: they may have keys from before, which expire. *Else* these stay until a write comes.
  absl::Time timer_ = absl::InfinitePast();
  uint64_t unmaintained_ = 0;     // partitions that may need a step, a bit each
  uint64_t used_ = 0;             // likewise, those that were used here since step_at_ was set
  uint32_t maintained_last_ = 0;  // a partition: the next one is first in turn
  uint64_t grown_at_ = 0;         // writes until the last step of growth between events
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_MAINTENANCE_H_
