#include "index/writer/keys/item_room.h"

namespace osprey::index {
namespace {

// For one item more than WithRoomToMove, whole slabs must be free.
constexpr uint64_t kSlabsBytes = 64 << 10;

}  // namespace

absl::optional<uint64_t> ItemRoom::Begin(absl::string_view key, uint64_t value_length, Location* at,
                                         absl::Time now) {
  absl::optional<uint64_t> item = keys_.items.Begin(key, value_length, now, Fit::kTight);
  if (item.has_value()) return item;
  update_room_.TakeBack();
  item = expirer_.SweepForItem(key, value_length, now);
  if (!item.has_value() && keys_.options.evict)
    return evictor_.BeginItem(key, value_length, at, now);
  if (!item.has_value()) item = BeginMoving(key, value_length, now);
  if (at != nullptr) *at = keys_.Locate(key);
  return item;
}

// Moves other items.
absl::optional<uint64_t> ItemRoom::BeginMoving(absl::string_view key, uint64_t value_length,
                                               absl::Time now) {
  const uint64_t bytes = ItemBytes(key.size(), value_length);
  compactor_.MakeRoom(bytes, now);
  absl::optional<uint64_t> item = keys_.items.Begin(key, value_length, now, Fit::kAny);
  if (item.has_value()) return item;
  item = compactor_.MakeSpan(bytes, now);
  if (item.has_value()) keys_.items.BeginAt(*item, key, value_length);
  return item;
}

absl::optional<uint64_t> ItemRoom::BeginHeld(absl::string_view key, uint64_t value_length,
                                             absl::Time now) {
  absl::optional<uint64_t> item = keys_.items.Begin(key, value_length, now, Fit::kTight);
  if (item.has_value()) return item;
  // No client READs a replica.
  keys_.items.space().EndGrace(now);
  item = BeginMoving(key, value_length, now);
  if (item.has_value()) return item;
  update_room_.Lend();
  item = BeginMoving(key, value_length, now);
  update_room_.TakeBack();
  return item;
}

// Whether the value takes no more space than the present one, which stays until the new one is
// complete.
bool ItemRoom::MayUseUpdateRoom(absl::string_view key, uint64_t bytes) const {
  if (bytes > update_room_.bytes_max()) return false;
  const Location at = keys_.Locate(key);
  return at.out_of_line() && bytes <= keys_.items.space().CapacityOf(at.item());
}

absl::optional<uint64_t> ItemRoom::BeginUpdate(absl::string_view key, uint64_t value_length,
                                               absl::Time now) {
  const uint64_t bytes = ItemBytes(key.size(), value_length);
  if (!MayUseUpdateRoom(key, bytes)) return absl::nullopt;
  // In pages of its own, since a slab would keep more of them.
  const uint64_t pages = (bytes + kPageBytes - 1) / kPageBytes;
  update_room_.Lend();
  absl::optional<uint64_t> item = keys_.items.space().TakeRun(pages);
  if (!item.has_value()) {
    compactor_.MakeRoom(bytes, now);
    item = keys_.items.space().TakeRun(pages);
  }
  if (item.has_value()) keys_.items.BeginAt(*item, key, value_length);
  update_room_.TakeBack();
  return item;
}

bool ItemRoom::MayMakeRoom(absl::string_view key, uint64_t value_length) const {
  if (keys_.options.evict) return evictor_.MayMakeRoom(key, value_length);
  const ItemSpace& space = keys_.items.space();
  const uint64_t bytes = ItemBytes(key.size(), value_length);
  // The space for updates is in use now; or steps move obstacles; or leases end.
  return MayUseUpdateRoom(key, bytes) ||
         space.FreeBytes() + space.stats().waiting_bytes >= WithRoomToMove(bytes) + kSlabsBytes;
}

}  // namespace osprey::index
