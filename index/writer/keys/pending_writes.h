// The writes of a table that were decided and are not yet made (Table::Prepare). Each holds what it
// needs, so that making it cannot fail.
//
//   Prepare ──> Add: item, place, hidden item ──log──> Take ──> Apply…: uses or frees them
//
//   item     begun, for a value that may need a new one
//   place    a free overflow line, for a key that may be new. Other keys do not get it (Chains::Keep).
//            With eviction none is needed: the write evicts a key of its line.
//   hidden   the key's present item, if the write extends the key's life (R8)

#ifndef OSPREY_INDEX_WRITER_KEYS_PENDING_WRITES_H_
#define OSPREY_INDEX_WRITER_KEYS_PENDING_WRITES_H_

#include <cassert>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/optional.h"
#include "index/layout/hash.h"
#include "index/layout/layout.h"

namespace osprey::index {

struct PendingWrite {
  absl::optional<uint64_t> item;      // its offset
  absl::optional<ItemHeader> hidden;  // the header before
  bool has_place = false;
  bool was_evicted = false;  // the key, at last: so is what the write makes
};

// Not thread-safe.
class PendingWrites {
 public:
  bool empty() const { return writes_.empty(); }
  // Of a key with this hash.
  bool Contains(KeyHash hash) const { return writes_.contains(hash.bits); }
  // How many hold a place, and a hidden item.
  uint64_t places() const { return places_; }
  uint64_t hidden() const { return hidden_; }
  void ForEachPlace(absl::FunctionRef<void(KeyHash)> visit) const {
    for (const auto& [bits, write] : writes_) {
      if (write.has_place) visit(KeyHash{bits});
    }
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

 private:
  absl::flat_hash_map<uint64_t, PendingWrite> writes_;  // by hash
  uint64_t places_ = 0;
  uint64_t hidden_ = 0;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_KEYS_PENDING_WRITES_H_
