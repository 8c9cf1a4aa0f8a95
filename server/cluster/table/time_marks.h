// How far a primary may judge expiries: up to a mark of server time that all replicas in sync hold.
//
//   pollers:  a write with an expiry ──NoteExpiry        MayJudge: before an answer leaves
//                                          │             ReadsUntil: before a beat
//                                          v                ^
//   owner:                                Due: a mark ──> all hold it ──> NoteHeld
//
// A successor's clock goes on from the last mark (TableReplica::time_mark_ns). So a key that was found to
// have expired does not come back, though the clocks of servers differ. Without keys that expire there are
// no marks, and no bound.
//
// Rules (tests/models/expiry_mark.pml):
//
// - An answer is checked after its contents were taken from the tables. *Else* the clock goes beyond the
//   mark in between.
// - A mark counts when all replicas that may succeed hold it. *Else* one that does not has an earlier
//   clock.
// - The owner asks for a mark before it decides a write that has been noted. So that write takes effect
//   when a mark is held. *Else* the first key that expires is judged without one.
// - READs are bound as soon as a write is noted. *Else* a lease that was given meanwhile outlasts the
//   mark.
//
// Thread rule: NoteExpiry, MayJudge and ReadsUntil any thread, all others the owner's.

#ifndef OSPREY_SERVER_CLUSTER_TABLE_TIME_MARKS_H_
#define OSPREY_SERVER_CLUSTER_TABLE_TIME_MARKS_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace osprey::server {

class TimeMarks {
 public:
  // Of the clock, when a mark is decided.
  static constexpr absl::Duration kAhead() { return absl::Seconds(2); }
  // The next mark follows after this. So the last one bridges the silence of a member (backup_timeout) until
  // it is dropped.
  static constexpr absl::Duration kEvery() { return absl::Milliseconds(250); }
  // How often the owner looks whether keys with an expiry are left.
  static constexpr absl::Duration kReviewEvery() { return absl::Seconds(1); }

  // --- Any thread. Times are server time.
  // A write with an expiry is about to be decided. Under the lock of its partition.
  void NoteExpiry();
  // Whether an answer may leave now. `now`: read after its contents were taken from the tables.
  bool MayJudge(absl::Time now) const;
  // Up to when READs may be judged. InfiniteFuture: there is no bound.
  absl::Time ReadsUntil() const;

  // --- The owner
  // The server is the primary, and all replicas hold this mark (0: none). `has_expiring`: the tables may
  // have keys with an expiry.
  void Begin(uint64_t mark_ns, bool has_expiring);
  // The next mark, which is to be decided at once; nothing: none is due.
  std::optional<uint64_t> Due(absl::Time now);
  // All replicas hold this mark.
  void NoteHeld(uint64_t mark_ns);
  // Ends the bound when no key with an expiry is left. `expiring_keys` counts them, and takes the lock of
  // each partition; `all_made`: whether the changes of all that was decided are made.
  void Review(absl::Time now, absl::FunctionRef<uint64_t()> expiring_keys,
              absl::FunctionRef<bool()> all_made);

 private:
  std::atomic<bool> noted_{false};    // a write since the last review, or since the bound ended
  std::atomic<bool> bounded_{false};  // by held_ns_
  std::atomic<uint64_t> held_ns_{0};
  uint64_t decided_ns_ = 0;  // the last one; 0: none since the bound ended
  absl::Time reviewed_ = absl::InfinitePast();
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_TABLE_TIME_MARKS_H_
