#include "index/writer/keys/placement.h"

#include <algorithm>
#include <cassert>

#include "index/layout/test_hooks.h"

namespace osprey::index {

// W2, out of place: the new item is finished but not sealed. Then the old one dies, and the line
// leads to the new one. The instant is the seal.
void Placement::ReplaceWithItem(const Location& at, uint64_t slot, const Sealing& sealing,
                                absl::Time now) {
  const bool seal_first = IsMutant(Mutant::kNewItemLiveBeforeOldIsDead);
  const bool out_of_line = at.out_of_line();
  const uint64_t old_item = out_of_line ? at.item() : 0;
  LineEditor line(keys_.writer, keys_.clocks, at.line);
  line.AddSlot(slot, line.Remove(at.entry.at, at.entry.words));
  if (seal_first) keys_.items.Seal(sealing);
  const bool is_move =
      kTestHooks && out_of_line &&
      keys_.items.At(sealing.offset).cas_version == keys_.items.At(old_item).cas_version;
  const bool spared = IsMutant(is_move ? Mutant::kNoDeadMarkOnMove : Mutant::kNoDeadMarkOnUpdate);
  if (out_of_line && !spared) keys_.items.Kill(old_item);
  keys_.PublishLine(line, at.chained);
  if (!seal_first) keys_.items.Seal(sealing);
  if (out_of_line) {
    keys_.items.Retire(old_item, now);
  } else {
    MoveFromOverflow(at.line);  // a slot is shorter than the inline item was
  }
}

// W2, out of place, with the present value and cas version.
void Placement::ReplaceCopied(uint64_t from, const Sealing& sealing, absl::Time now) {
  const Location at = keys_.Locate(keys_.items.At(sealing.offset).key);
  if (!at.out_of_line() || at.item() != from) {
    assert(kTestHooks && !IsMutant(Mutant::kNone));  // some mutants leave live items behind
    if (!at.out_of_line() || !IsMutant(Mutant::kChangedItemMoved)) {
      return keys_.items.Discard(sealing.offset);
    }
  }
  ReplaceWithItem(at, keys_.items.SlotOf(sealing.offset, at.hash.fingerprint()), sealing, now);
}

bool Placement::InsertSlot(uint64_t home, uint64_t slot, uint32_t clock, absl::Time now) {
  absl::optional<uint64_t> room = RoomierLine(home, 1);
  if (!room.has_value() && Demote(home, now)) room = RoomierLine(home, 1);
  if (!room.has_value()) {
    if (!keys_.chains.Add(home, slot, clock)) return false;
    ++keys_.counts.chained_inserts;
    ++keys_.segments[keys_.UnitOf(home)].words;
    return true;
  }
  LineEditor line(keys_.writer, keys_.clocks, *room);
  line.AddSlot(slot, clock);
  keys_.PublishLine(line);
  return true;
}

// The line for an inline item of `words`: its own, or one of the window. None if it does not fit.
absl::optional<uint64_t> Placement::InlineRoom(const Location& at, uint64_t words) const {
  if (!at.found()) return RoomierLine(at.home, static_cast<uint32_t>(words));
  const uint64_t used = UsedWords(LineAt(keys_.writer, at.line)) - at.entry.words;
  return used + words <= kLineWordsUsable ? absl::make_optional(at.line) : absl::nullopt;
}

void Placement::PutInline(const Location& at, uint64_t line_offset, absl::string_view key,
                          ByteSpan value, uint64_t version, absl::Time now) {
  const uint64_t words = InlineWords(key.size(), value.size());
  keys_.Recount(at, keys_.AccountOf(at), keys_.AccountOf(key, value, WordKind::kInline, 0));
  const bool out_of_line = at.out_of_line();
  const uint64_t old_item = out_of_line ? at.item() : 0;
  LineEditor line(keys_.writer, keys_.clocks, line_offset);
  const uint32_t clock =
      at.found() ? line.Remove(at.entry.at, at.entry.words) : keys_.ClockOfNew(at.hash);
  line.AddInline(key, value, version, clock);
  // W2, item to inline: a cached location must not yield the old value any more.
  if (out_of_line && !IsMutant(Mutant::kNoDeadMarkOnUpdate)) keys_.items.Kill(old_item);
  keys_.PublishLine(line);
  if (out_of_line) keys_.items.Retire(old_item, now);
  if (at.found() && words < at.entry.words) MoveFromOverflow(line_offset);
}

// The emptier line of the window, if it has enough free words.
absl::optional<uint64_t> Placement::RoomierLine(uint64_t home, uint32_t words) const {
  const uint32_t used_in_home = UsedWords(LineAt(keys_.writer, home));
  const uint32_t used_in_next = UsedWords(LineAt(keys_.writer, home + kLineBytes));
  if (std::min(used_in_home, used_in_next) + words > kLineWordsUsable) return absl::nullopt;
  return used_in_home <= used_in_next ? home : home + kLineBytes;
}

uint64_t Placement::LeadTo(const Location& at, bool has_expiry) {
  Slot slot = Slot::Unpack(at.entry.head);
  if (slot.has_expiry == has_expiry) return at.entry.head;
  slot.has_expiry = has_expiry;
  LineEditor line(keys_.writer, keys_.clocks, at.line);
  line.AddSlot(slot.Pack(), line.Remove(at.entry.at, 1));
  keys_.PublishLine(line, at.chained);
  return slot.Pack();
}

// Turns the longest inline item of the window into an item; its key stays in its line. False if
// there is none, or no space for it.
bool Placement::Demote(uint64_t home, absl::Time now) {
  uint64_t line_offset = 0;
  LineEntry longest;
  for (const uint64_t offset : {home, home + kLineBytes}) {
    LineCursor cursor(LineAt(keys_.writer, offset));
    while (cursor.Next()) {
      if (cursor.entry().kind != WordKind::kInline) continue;
      if (cursor.entry().words <= longest.words) continue;
      longest = cursor.entry();
      line_offset = offset;
    }
  }
  return longest.words != 0 && DemoteEntry(line_offset, longest, now);
}

bool Placement::DemoteEntry(uint64_t line_offset, const LineEntry& entry, absl::Time now) {
  const absl::optional<uint64_t> item = keys_.items.Begin(entry.key, entry.value.size(), now);
  if (!item.has_value()) return false;
  keys_.items.Fill(*item, entry.value);
  const Sealing sealing = keys_.items.Finish(*item, InlineHead::Unpack(entry.head).cas_version, 0);
  const uint32_t fingerprint = HashKey(entry.key, keys_.options.hash_seed).fingerprint();
  LineEditor line(keys_.writer, keys_.clocks, line_offset);
  const uint32_t clock = line.Remove(entry.at, entry.words);
  line.AddSlot(keys_.items.SlotOf(*item, fingerprint), clock);
  keys_.PublishLine(line);
  keys_.items.Seal(sealing);
  --keys_.counts.inline_keys;
  ++keys_.counts.demotions;
  ++keys_.segments[keys_.UnitOf(line_offset)].small_items;
  return true;
}

// Makes up to `items_max` small items of the line inline while they fit. This is the reverse of
// Demote; W2 holds as for any item that becomes inline.
void Placement::Promote(uint64_t line_offset, int items_max, absl::Time now) {
  for (int i = 0; i < items_max; ++i) {
    LineEditor line(keys_.writer, keys_.clocks, line_offset);
    LineCursor cursor(LineAt(keys_.writer, line_offset));
    bool found = false;
    while (!found && cursor.Next()) {
      if (cursor.entry().kind != WordKind::kSlot) continue;
      const Slot slot = Slot::Unpack(cursor.entry().head);
      if (slot.length_class > kInlineItemClassMax || slot.has_expiry) continue;
      const StoredItem item = keys_.items.At(slot.offset);
      found = MayBeInline(item.key, item.value) &&
              InlineWords(item.key.size(), item.value.size()) <= line.free() + 1 &&
              // A pending write may count on the item, in which its value has room.
              !keys_.IsPending(item.key);
    }
    if (!found) return;
    const uint64_t offset = Slot::Unpack(cursor.entry().head).offset;
    const StoredItem item = keys_.items.At(offset);
    const uint32_t clock = line.Remove(cursor.entry().at, 1);
    line.AddInline(item.key, item.value, item.cas_version, clock);
    if (!IsMutant(Mutant::kNoDeadMarkOnPromotion)) keys_.items.Kill(offset);
    keys_.PublishLine(line);
    keys_.items.Retire(offset, now);
    ++keys_.counts.inline_keys;
    ++keys_.counts.promotions;
    --keys_.segments[keys_.UnitOf(line_offset)].small_items;
  }
}

void Placement::MoveFromOverflow(uint64_t line_offset) {
  const uint32_t moved = keys_.chains.MoveFromOverflow(line_offset);
  keys_.counts.pull_backs += moved;
  keys_.occupied_words += moved;  // the segment's words do not change
}

// W2: the item dies, then leaves the line, which is the instant. Up to `promotions_max` small items
// become inline where they now fit.
void Placement::Remove(const Location& at, int promotions_max, absl::Time now) {
  const bool out_of_line = at.out_of_line();
  const uint64_t old_item = out_of_line ? at.item() : 0;
  keys_.Recount(at, keys_.AccountOf(at), {});
  LineEditor line(keys_.writer, keys_.clocks, at.line);
  line.Remove(at.entry.at, at.entry.words);
  const bool line_first = IsMutant(Mutant::kSlotClearedBeforeDeadMark);
  if (line_first) keys_.PublishLine(line, at.chained);
  if (out_of_line && !IsMutant(Mutant::kNoDeadMarkOnDelete)) keys_.items.Kill(old_item);
  if (!line_first) keys_.PublishLine(line, at.chained);
  if (out_of_line) keys_.items.Retire(old_item, now);
  if (at.chained) {
    --keys_.segments[keys_.UnitOf(at.home)].words;
    keys_.chains.Trim(at.home);
  } else {
    MoveFromOverflow(IsMutant(Mutant::kMoveFromOverflowIntoSecondLine) ? at.home : at.line);
    Promote(at.line, promotions_max, now);
  }
}

// A mutant: a key moves inside its window, or out of it. A reader whose READ fetched the new
// place before the move and the old one after it misses the key.
void Placement::MoveAsNobodyMay(absl::string_view key) {
  const bool inside = IsMutant(Mutant::kMoveInsideWindow);
  if (!inside && !IsMutant(Mutant::kMoveFromWindowToChain)) return;
  const Location at = keys_.Locate(key);
  if (!at.out_of_line() || at.chained) return;
  const bool from_home = at.line == at.home;
  if (from_home != inside) return;
  if (inside) {
    LineEditor to(keys_.writer, keys_.clocks, at.home + kLineBytes);
    if (to.free() == 0) return;
    to.AddSlot(at.entry.head);
    keys_.PublishLine(to);
  } else {
    if (!keys_.chains.Add(at.home, at.entry.head)) return;
    ++keys_.segments[keys_.UnitOf(at.home)].words;
  }
  LineEditor from(keys_.writer, keys_.clocks, at.line);
  from.Remove(at.entry.at, 1);
  keys_.PublishLine(from);
}

}  // namespace osprey::index
