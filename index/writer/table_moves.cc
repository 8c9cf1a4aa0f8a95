// Moves of keys that are not written: between inline and item, back from a chain (W3), and to other
// places of item space.

#include <cassert>

#include "index/layout/test_hooks.h"
#include "index/writer/table.h"

namespace osprey::index {
// Turns the longest inline item of the window into an item; its key stays in its line. False if
// there is none, or no space for it.
bool Table::Demote(uint64_t home, absl::Time now) {
  uint64_t line_offset = 0;
  LineEntry longest;
  for (const uint64_t offset : {home, home + kLineBytes}) {
    LineCursor cursor(LineAt(writer_, offset));
    while (cursor.Next()) {
      if (cursor.entry().kind != WordKind::kInline) continue;
      if (cursor.entry().words <= longest.words) continue;
      longest = cursor.entry();
      line_offset = offset;
    }
  }
  if (longest.words == 0) return false;
  const absl::optional<uint64_t> item = items_.Begin(longest.key, longest.value.size(), now);
  if (!item.has_value()) return false;
  items_.Fill(*item, longest.value);
  const Sealing sealing = items_.Finish(*item, InlineHead::Unpack(longest.head).cas_version, 0);
  const uint32_t fingerprint = HashKey(longest.key, options_.hash_seed).fingerprint();
  LineEditor line(writer_, clocks_, line_offset);
  const uint32_t clock = line.Remove(longest.at, longest.words);
  line.AddSlot(items_.SlotOf(*item, fingerprint), clock);
  PublishLine(line);
  items_.Seal(sealing);
  --counts_.inline_keys;
  ++counts_.demotions;
  ++segments_[UnitOf(home)].small_items;
  return true;
}

// Makes up to `items_max` small items of the line inline while they fit. This is the reverse of
// Demote; W2 holds as for any item that becomes inline.
void Table::Promote(uint64_t line_offset, int items_max, absl::Time now) {
  for (int i = 0; i < items_max; ++i) {
    LineEditor line(writer_, clocks_, line_offset);
    LineCursor cursor(LineAt(writer_, line_offset));
    bool found = false;
    while (!found && cursor.Next()) {
      if (cursor.entry().kind != WordKind::kSlot) continue;
      const Slot slot = Slot::Unpack(cursor.entry().head);
      if (slot.length_class > kInlineItemClassMax || slot.has_expiry) continue;
      const StoredItem item = items_.At(slot.offset);
      found = MayBeInline(item.key, item.value) &&
              InlineWords(item.key.size(), item.value.size()) <= line.free() + 1;
    }
    if (!found) return;
    const uint64_t offset = Slot::Unpack(cursor.entry().head).offset;
    const StoredItem item = items_.At(offset);
    const uint32_t clock = line.Remove(cursor.entry().at, 1);
    line.AddInline(item.key, item.value, item.cas_version, clock);
    if (!IsMutant(Mutant::kNoDeadMarkOnPromotion)) items_.Kill(offset);
    PublishLine(line);
    items_.Retire(offset, now);
    ++counts_.inline_keys;
    ++counts_.promotions;
    --segments_[UnitOf(line_offset)].small_items;
  }
}

// --- Compaction --------------------------------------------------------------

bool Table::CompactStep(absl::Time now, const CompactionBound& bound) {
  update_room_.TakeBack();
  return compactor_.Step(now, bound);
}

bool Table::StepWanted(absl::Time now) {
  return GrowthWanted() || now >= next_sweep() || EvictionWanted() || EvictionsForced() > 0 ||
         compactor_.StepWanted(now);
}

// Begins a new item, and frees space if there is none. Since any item may then move or end, the key
// is located again if `at` is given.
absl::optional<uint64_t> Table::BeginItem(absl::string_view key, uint64_t value_length,
                                          Location* at, absl::Time now) {
  absl::optional<uint64_t> item = items_.Begin(key, value_length, now, Fit::kTight);
  if (item.has_value()) return item;
  update_room_.TakeBack();
  item = SweepForItem(key, value_length, now);
  if (!item.has_value() && options_.evict) return BeginItemEvicting(key, value_length, at, now);
  if (!item.has_value()) {
    const uint64_t bytes = ItemBytes(key.size(), value_length);
    compactor_.MakeRoom(bytes, now);
    item = items_.Begin(key, value_length, now, Fit::kAny);
    if (!item.has_value()) {
      item = compactor_.MakeSpan(bytes, now);
      if (item.has_value()) items_.BeginAt(*item, key, value_length);
    }
  }
  if (at != nullptr) *at = Locate(key);
  return item;
}

// Whether the value takes no more space than the present one, which stays until the new one is
// complete.
bool Table::MayUseUpdateRoom(absl::string_view key, uint64_t bytes) const {
  if (bytes > update_room_.bytes_max()) return false;
  const Location at = Locate(key);
  return at.out_of_line() && bytes <= items_.space().CapacityOf(at.item());
}

absl::optional<uint64_t> Table::BeginUpdate(absl::string_view key, uint64_t value_length,
                                            absl::Time now) {
  const uint64_t bytes = ItemBytes(key.size(), value_length);
  if (!MayUseUpdateRoom(key, bytes)) return absl::nullopt;
  // In pages of its own, since a slab would keep more of them.
  const uint64_t pages = (bytes + kPageBytes - 1) / kPageBytes;
  update_room_.Lend();
  absl::optional<uint64_t> item = items_.space().TakeRun(pages);
  if (!item.has_value()) {
    compactor_.MakeRoom(bytes, now);
    item = items_.space().TakeRun(pages);
  }
  if (item.has_value()) items_.BeginAt(*item, key, value_length);
  update_room_.TakeBack();
  return item;
}

// W2, out of place, with the present value and cas version.
void Table::ReplaceCopied(uint64_t from, const Sealing& sealing, absl::Time now) {
  const Location at = Locate(items_.At(sealing.offset).key);
  if (!at.out_of_line() || at.item() != from) {
    assert(kTestHooks && !IsMutant(Mutant::kNone));  // some mutants leave live items behind
    if (!at.out_of_line() || !IsMutant(Mutant::kChangedItemMoved)) {
      return items_.Discard(sealing.offset);
    }
  }
  ReplaceWithItem(at, items_.SlotOf(sealing.offset, at.hash.fingerprint()), sealing, now);
}

void Table::MoveFromOverflow(uint64_t line_offset) {
  const uint32_t moved = chains_.MoveFromOverflow(line_offset);
  counts_.pull_backs += moved;
  occupied_words_ += moved;  // the segment's words do not change
}

// A mutant: a key moves inside its window, or out of it. A reader whose READ fetched the new
// place before the move and the old one after it misses the key.
void Table::MoveAsNobodyMay(absl::string_view key) {
  const bool inside = IsMutant(Mutant::kMoveInsideWindow);
  if (!inside && !IsMutant(Mutant::kMoveFromWindowToChain)) return;
  const Location at = Locate(key);
  if (!at.out_of_line() || at.chained) return;
  const bool from_home = at.line == at.home;
  if (from_home != inside) return;
  if (inside) {
    LineEditor to(writer_, clocks_, at.home + kLineBytes);
    if (to.free() == 0) return;
    to.AddSlot(at.entry.head);
    PublishLine(to);
  } else {
    if (!chains_.Add(at.home, at.entry.head)) return;
    ++segments_[UnitOf(at.home)].words;
  }
  LineEditor from(writer_, clocks_, at.line);
  from.Remove(at.entry.at, 1);
  PublishLine(from);
}

void Table::PublishLine(LineEditor& line, bool chained) {
  if (!chained && line.used() != line.used_before()) {
    occupied_words_ += line.used();
    occupied_words_ -= line.used_before();
    uint32_t& words = segments_[UnitOf(line.offset())].words;
    words += line.used();
    words -= line.used_before();
  }
  line.Publish();
}

}  // namespace osprey::index
