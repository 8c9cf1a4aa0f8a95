// Dead space that waits before it is used again (W4), and the leases that keep space from reuse.
//
//   Add --> waiting --grace, or lack of memory--> free
//              +------ leased: until the lease ends ---^
//
// A lease may be of space in use: it counts once the space is dead.

#ifndef OSPREY_INDEX_SPACE_QUARANTINE_H_
#define OSPREY_INDEX_SPACE_QUARANTINE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace osprey::index {

// Not thread-safe.
class Quarantine {
 public:
  // Takes the space at `offset`, which waits no longer.
  using Free = absl::FunctionRef<void(uint64_t offset)>;

  // Beyond `bytes_max`, is_full() says so.
  Quarantine(absl::Duration grace, uint64_t bytes_max) : grace_(grace), bytes_max_(bytes_max) {}

  // The space at `offset` is dead.
  void Add(uint64_t offset, uint64_t bytes, absl::Time now);
  // Frees the place that has waited longest, or defers it to the end of its lease. False: none
  // waits.
  bool FreeOldest(absl::Time now, Free free);
  // Frees a few places whose grace, or lease, has ended. True if there was one.
  bool FreeDue(absl::Time now, Free free);
  // When FreeDue has work next; InfiniteFuture if nothing waits.
  absl::Time next_due() const {
    absl::Time next = absl::InfiniteFuture();
    if (!waiting_.empty()) next = waiting_.front().until;
    if (!lease_order_.empty()) next = std::min(next, lease_order_.front().until);
    return next;
  }

  // Keeps the space at `offset` from reuse until `until`, or longer if it is leased already.
  void Lease(uint64_t offset, absl::Time until);
  bool IsLeased(uint64_t offset, absl::Time now) const;
  // All leased offsets, in any order.
  std::vector<uint64_t> Leased(absl::Time now) const;
  // Entries kept for leases: at most one for each place, however often it is renewed.
  size_t leases() const { return lease_order_.size(); }

  uint64_t bytes() const { return bytes_; }
  // More waits than should. (A single place may.)
  bool is_full() const { return bytes_ > bytes_max_ && waiting_.size() > 1; }

 private:
  struct Place {
    uint64_t offset;
    uint64_t bytes;
    absl::Time until;
  };

  const absl::Duration grace_;
  const uint64_t bytes_max_;
  uint64_t bytes_ = 0;
  std::deque<Place> waiting_;  // oldest first
  absl::flat_hash_map<uint64_t, absl::Time> leases_;
  std::deque<Place> lease_order_;  // each lease once, in the order of its end when last seen
  absl::flat_hash_map<uint64_t, uint64_t> leased_dead_;  // bytes; past their grace, but leased
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SPACE_QUARANTINE_H_
