// The parts of the table that all its other classes use: the region's writer, item space, lines,
// directory, and the counts. Here keys are found and counted, and lines published.
//
//   Table      conditions, versions, and the form of each write
//     |-- Merger      segments that merge or move, the directory that halves
//     |-- Grower      segments that split, the directory that doubles
//     |-- Segments    how segments begin and end (W7)
//     |-- ItemRoom    space for a new item: swept, evicted, compacted
//     |-- Evictor     CLOCK over all lines
//     |-- Expirer     time to live (R8), sweeps
//     |-- Placement   where in its window or chain a key is, and in which form (W2, W3)
//     '-- Keys        this
//
// Each class uses those below it.

#ifndef OSPREY_INDEX_WRITER_KEYS_KEYS_H_
#define OSPREY_INDEX_WRITER_KEYS_KEYS_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "index/layout/hash.h"
#include "index/layout/layout.h"
#include "index/layout/line.h"
#include "index/segments/chains.h"
#include "index/segments/clock_counters.h"
#include "index/segments/directory.h"
#include "index/segments/ghosts.h"
#include "index/segments/line_editor.h"
#include "index/segments/line_view.h"
#include "index/space/item_store.h"
#include "index/space/region_space.h"
#include "index/space/region_writer.h"
#include "index/writer/keys/pending_writes.h"
#include "index/writer/keys/writes.h"

namespace osprey::index {

// The place of a key, or the place for a new key.
struct Location {
  KeyHash hash;
  uint64_t home = 0;     // offset of line h
  uint64_t line = 0;     // of the line that holds the key
  bool chained = false;  // that line is an overflow line
  LineEntry entry;       // kEmpty: absent
  bool found() const { return entry.kind != WordKind::kEmpty; }
  bool out_of_line() const { return entry.kind == WordKind::kSlot; }
  uint64_t item() const { return Slot::Unpack(entry.head).offset; }
  bool has_expiry() const { return out_of_line() && Slot::Unpack(entry.head).has_expiry; }
};

// The present value of a key. Valid until the next write.
struct Current {
  ByteSpan value;
  uint64_t version = 0;
  uint64_t expiry_ns = 0;
};

// A key's contribution to the counts.
struct KeyAccount {
  uint64_t keys = 0;
  uint64_t inline_keys = 0;
  uint64_t key_bytes = 0;
  uint64_t value_bytes = 0;
  uint32_t small_items = 0;
  uint32_t expiring = 0;
  bool operator==(const KeyAccount&) const = default;
};

// The state of a unit that is a segment.
struct SegmentState {
  uint32_t words = 0;  // used by keys, with chains and without links
  uint32_t keys = 0;
  uint32_t small_items = 0;  // items that would be inline if there had been room
  uint32_t expiring = 0;     // keys that have an expiry
  // No key here expires before that. (Server time; not valid while it is being swept.)
  uint64_t expires_from_ns = UINT64_MAX;
  uint32_t hash_bits = 0;  // its keys' hashes end in as many of them as it is deep
  bool wants_split = false;
  uint8_t hand = 0;  // of eviction within it: a line
};

// A struct: Table owns it, and the classes of this folder, its only users, change its members.
// Not thread-safe.
struct Keys {
  Keys(absl::Span<std::byte> region, const TableOptions& options);

  // --- Places.
  uint64_t UnitOffset(uint32_t unit) const { return space.units_offset() + unit * kUnitBytes; }
  uint32_t UnitOf(uint64_t offset) const {
    return static_cast<uint32_t>((offset - space.units_offset()) / kUnitBytes);
  }
  // The offset of line h.
  uint64_t HomeOf(KeyHash hash) const {
    return UnitOffset(directory.At(hash.bits).unit) + hash.home() * kLineBytes;
  }
  HashedKey Hashed(absl::string_view key) const { return {key, HashKey(key, options.hash_seed)}; }
  Location Locate(absl::string_view key) const { return Locate(Hashed(key)); }
  Location Locate(const HashedKey& hashed) const { return LocateFrom(HomeOf(hashed.hash), hashed); }
  // Likewise, by a hint for this key from this table.
  [[gnu::always_inline]] Location Locate(const HashedKey& hashed, const SlotHint& hint) const {
    if (hint.directory_changes != directory.changes()) return Locate(hashed);
    return IsItsSlot(hashed.key, hint) ? LocationOf(hashed.hash, hint)
                                       : LocateFrom(hint.home, hashed);
  }
  // The key of the item at `offset`, if that is a key's item.
  absl::optional<Location> LocateItem(uint64_t offset) const;
  absl::string_view KeyOf(const Location& at) const;
  Current CurrentOf(const Location& at) const;
  // Whether a write of the key was decided and is not made yet.
  bool IsPending(absl::string_view key) const {
    return !pending.empty() && pending.Contains(Hashed(key).hash);
  }

  // As Table's.
  SlotHint Prefetch(KeyHash hash) const;
  void PrefetchItem(KeyHash hash, SlotHint& hint) const;

  // Publishes the line and updates the count of words of segments' lines.
  void PublishLine(LineEditor& line, bool chained = false);

  // The CLOCK counter of a key that comes, whose ghost is forgotten.
  uint32_t ClockOfNew(KeyHash hash) { return ghosts.Take(hash) ? kClockReturned : kClockNew; }

  // --- Counts.
  KeyAccount AccountOf(const Location& at) const;
  static KeyAccount AccountOf(absl::string_view key, ByteSpan value, WordKind form,
                              uint64_t expiry_ns);
  // `before` is the key's account, computed before the change.
  void Recount(const Location& at, const KeyAccount& before, const KeyAccount& after);
  SegmentState& SegmentOf(const Location& at) { return segments[UnitOf(at.home)]; }

  RegionWriter writer;
  RegionSpace space;
  ItemStore items;
  ClockCounters clocks;
  Chains chains;
  Directory directory;
  Ghosts ghosts;  // of keys that were evicted
  TableOptions options;
  std::vector<SegmentState> segments;  // by unit
  // What writes change follows.
  alignas(64) uint64_t occupied_words = 0;  // of segments' lines, without links
  TableStats counts;                        // counters kept as events occur
  PendingWrites pending;
  bool decides = true;  // Table::SetDecides

 private:
  Location LocateFrom(uint64_t home, const HashedKey& hashed) const;
  void LocateInChain(absl::string_view key, const EntrySearch& search, Location& at) const;
  bool HoldsKey(uint64_t slot, absl::string_view key) const {
    return items.HoldsKey(Slot::Unpack(slot).offset, key);
  }
  const Line& LineOf(const SlotHint& hint) const {
    return LineAt(writer, hint.home + hint.line * kLineBytes);
  }
  // REQUIRES: the directory is the same. Else other records might have that version there.
  bool IsItsSlot(absl::string_view key, const SlotHint& hint) const {
    const Line& line = LineOf(hint);
    return line.record.version == hint.line_version && HoldsKey(line.words[hint.at], key);
  }
  Location LocationOf(KeyHash hash, const SlotHint& hint) const {
    Location at;
    at.hash = hash;
    at.home = hint.home;
    at.line = hint.home + hint.line * kLineBytes;
    at.entry.kind = WordKind::kSlot;
    at.entry.at = hint.at;
    at.entry.words = 1;
    at.entry.head = LineOf(hint).words[hint.at];
    return at;
  }
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_KEYS_KEYS_H_
