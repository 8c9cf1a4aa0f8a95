// The writes of a table that were decided and are not yet made (Table::Prepare). Each holds what it
// needs, so that making it cannot fail.
//
//   Prepare ──> Add: item, place, hidden item ──log──> Take ──> Apply…: uses or frees them
//                                              │
//                                              '─────> TakeAll ──> DropPrepared: frees them
//
//   item     begun, for a value that may need a new one
//   place    a free overflow line, for a key that may be new. Other keys do not get it (Chains::Keep).
//            With eviction none is needed: the write evicts a key of its line.
//   hidden   the key's present item, if the write extends the key's life (R8)
//
// A replica's writes were decided by another server, and several may wait for one key. Only their places
// are here (AddHeldPlace); each HeldWrite has the rest.

#ifndef OSPREY_INDEX_WRITER_KEYS_PENDING_WRITES_H_
#define OSPREY_INDEX_WRITER_KEYS_PENDING_WRITES_H_

#include <cassert>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/optional.h"
#include "index/layout/hash.h"
#include "index/layout/layout.h"

namespace osprey::index {

struct PendingWrite {
  absl::optional<uint64_t> item;      // its offset
  absl::optional<ItemHeader> hidden;  // the header before
  uint64_t hidden_at = 0;             // that item's offset, at which it stays
  bool has_place = false;
  bool was_evicted = false;  // the key, at last: so is what the write makes
};

// What a replica's write holds: its item, and whether it holds a place for its key.
struct HeldWrite {
  KeyHash hash;
  absl::optional<uint64_t> item;
  bool has_place = false;
};

// Not thread-safe.
class PendingWrites {
 public:
  bool empty() const { return writes_.empty(); }
  // Of a key with this hash.
  bool Contains(KeyHash hash) const { return writes_.contains(hash.bits); }
  // How many hold a place, and a hidden item.
  uint64_t places() const { return places_ + held_places_; }
  uint64_t hidden() const { return hidden_; }
  void ForEachPlace(absl::FunctionRef<void(KeyHash)> visit) const {
    for (const auto& [bits, write] : writes_) {
      if (write.has_place) visit(KeyHash{bits});
    }
    for (const auto& of_home : held_by_home_) {
      for (const auto& [bits, count] : of_home) visit(KeyHash{bits});
    }
  }
  // Likewise, of hashes that have their home where `hash` has it, in any segment; and some others.
  void ForEachPlaceLike(KeyHash hash, absl::FunctionRef<void(KeyHash)> visit) const {
    if (places_ > 0) {
      for (const auto& [bits, write] : writes_) {
        if (write.has_place) visit(KeyHash{bits});
      }
    }
    if (held_by_home_.empty()) return;
    for (const auto& [bits, count] : held_by_home_[hash.home()]) visit(KeyHash{bits});
  }

  // --- Places of a replica's writes.
  bool HoldsPlace(KeyHash hash) const {
    return !held_by_home_.empty() && held_by_home_[hash.home()].contains(hash.bits);
  }
  // A key that comes and goes several times holds a line each time, and needs room for itself once.
  void AddHeldPlace(KeyHash hash) {
    if (held_by_home_.empty()) held_by_home_.resize(kHomesPerSegment);
    held_places_ += ++held_by_home_[hash.home()][hash.bits] == 1;
  }
  // REQUIRES: HoldsPlace(hash).
  void RemoveHeldPlace(KeyHash hash) {
    auto& of_home = held_by_home_[hash.home()];
    const auto found = of_home.find(hash.bits);
    assert(found != of_home.end());
    if (--found->second > 0) return;
    of_home.erase(found);
    --held_places_;
  }

  // REQUIRES: !Contains(hash).
  void Add(KeyHash hash, const PendingWrite& write) {
    assert(!Contains(hash));
    places_ += write.has_place;
    hidden_ += write.hidden.has_value();
    writes_.emplace(hash.bits, write);
  }
  // The write's condition was judged before: a reader that misses the key must not find it again.
  void NoteEvicted(KeyHash hash) {
    if (const auto found = writes_.find(hash.bits); found != writes_.end())
      found->second.was_evicted = true;
  }
  // Removes it. REQUIRES: Contains(hash).
  PendingWrite Take(KeyHash hash) {
    const auto found = writes_.find(hash.bits);
    assert(found != writes_.end());
    const PendingWrite write = found->second;
    places_ -= write.has_place;
    hidden_ -= write.hidden.has_value();
    writes_.erase(found);
    return write;
  }
  // Removes all of them, but not a replica's places.
  std::vector<PendingWrite> TakeAll() {
    std::vector<PendingWrite> all;
    all.reserve(writes_.size());
    for (const auto& [bits, write] : writes_) all.push_back(write);
    writes_.clear();
    places_ = hidden_ = 0;
    return all;
  }

 private:
  absl::flat_hash_map<uint64_t, PendingWrite> writes_;  // by hash
  uint64_t places_ = 0;
  // A replica's: by home within a segment, how many writes of each hash. Empty: there never were any.
  std::vector<absl::flat_hash_map<uint64_t, uint32_t>> held_by_home_;
  uint64_t held_places_ = 0;  // hashes in it
  uint64_t hidden_ = 0;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_KEYS_PENDING_WRITES_H_
