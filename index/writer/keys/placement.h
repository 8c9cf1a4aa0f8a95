// Where in its window or chain a key is, and in which form: inline or as an item. Keys change form
// and place in the orders that W2 and W3 of index/README.md require.

#ifndef OSPREY_INDEX_WRITER_KEYS_PLACEMENT_H_
#define OSPREY_INDEX_WRITER_KEYS_PLACEMENT_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "index/space/item_store.h"
#include "index/writer/keys/keys.h"

namespace osprey::index {

// Not thread-safe.
class Placement {
 public:
  // `keys` must outlive this.
  explicit Placement(Keys& keys) : keys_(keys) {}

  // Makes the sealed item at `sealing` the value of a present key (W2, out of place).
  void ReplaceWithItem(const Location& at, uint64_t slot, const Sealing& sealing, absl::Time now);
  // As ReplaceWithItem, with the present value and cas version, for a copy of the item at `from`.
  void ReplaceCopied(uint64_t from, const Sealing& sealing, absl::Time now);
  // Adds a slot to the window, or to the chain. False if there is no place.
  bool InsertSlot(uint64_t home, uint64_t slot, uint32_t clock, absl::Time now);
  // The line for an inline item of `words`: the key's own, or one of the window. None if it does
  // not fit.
  absl::optional<uint64_t> InlineRoom(const Location& at, uint64_t words) const;
  // The instant is the line's. REQUIRES: InlineRoom found `line_offset`.
  void PutInline(const Location& at, uint64_t line_offset, absl::string_view key, ByteSpan value,
                 uint64_t version, absl::Time now);
  // Updates the expiry bit in the slot of a hidden item, and returns the slot.
  uint64_t LeadTo(const Location& at, bool has_expiry);
  // Removes the key, for any reason. Up to `promotions_max` small items become inline where they
  // now fit.
  void Remove(const Location& at, int promotions_max, absl::Time now);
  // Turns an inline item of that line into an item; its key stays in its line. False: there is no
  // space for it.
  bool DemoteEntry(uint64_t line_offset, const LineEntry& entry, absl::Time now);
  // Makes up to `items_max` small items of the line inline while they fit.
  void Promote(uint64_t line_offset, int items_max, absl::Time now);
  void MoveAsNobodyMay(absl::string_view key);  // mutants

 private:
  absl::optional<uint64_t> RoomierLine(uint64_t home, uint32_t words) const;
  bool Demote(uint64_t home, absl::Time now);
  void MoveFromOverflow(uint64_t line_offset);

  Keys& keys_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_KEYS_PLACEMENT_H_
