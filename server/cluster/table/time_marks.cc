#include "server/cluster/table/time_marks.h"

#include <algorithm>

#include "server/cluster/replication/test_hooks.h"

namespace osprey::server {
namespace {

uint64_t NanosOf(absl::Time time) {
  return static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixNanos(time), 0));
}

absl::Time TimeOf(uint64_t ns) { return absl::FromUnixNanos(static_cast<int64_t>(ns)); }

}  // namespace

// A note that finds the flag set is one with those before: the partition's lock orders it before the
// count of the next review, or behind the flag's end.
void TimeMarks::NoteExpiry() {
  if (!noted_.load(std::memory_order_relaxed)) noted_.store(true);
}

bool TimeMarks::MayJudge(absl::Time now) const {
  return !bounded_.load() || NanosOf(now) <= held_ns_.load() ||
         IsMistake(ReplicationMistake::kJudgesBeyondMark);
}

// The flag of notes first: when a review ends it, the other one is set.
absl::Time TimeMarks::ReadsUntil() const {
  const bool noted = noted_.load();
  if (!noted && !bounded_.load()) return absl::InfiniteFuture();
  return TimeOf(held_ns_.load());
}

void TimeMarks::Begin(uint64_t mark_ns, bool has_expiring) {
  noted_ = false;
  held_ns_ = mark_ns;
  bounded_ = has_expiring;
  decided_ns_ = 0;
  reviewed_ = absl::InfinitePast();
}

std::optional<uint64_t> TimeMarks::Due(absl::Time now) {
  if (!noted_.load() && !bounded_.load()) return std::nullopt;
  if (decided_ns_ > NanosOf(now + kAhead() - kEvery())) return std::nullopt;
  decided_ns_ = NanosOf(now + kAhead());
  return decided_ns_;
}

void TimeMarks::NoteHeld(uint64_t mark_ns) {
  held_ns_ = std::max(held_ns_.load(), mark_ns);
  bounded_ = true;
}

// A write is noted under the lock of its partition, and decided before its release. So the count comes
// behind the decision of each write that was noted before the flag was reset. Once these are made, and none
// was noted since, the next count has them all.
void TimeMarks::Review(absl::Time now, absl::FunctionRef<uint64_t()> expiring_keys,
                       absl::FunctionRef<bool()> all_made) {
  if (!bounded_.load() || now < reviewed_ + kReviewEvery()) return;
  reviewed_ = now;
  if (noted_.exchange(false)) {
    (void)expiring_keys();
    return;
  }
  if (!all_made() || expiring_keys() > 0) return;
  decided_ns_ = 0;
  bounded_ = false;
}

}  // namespace osprey::server
