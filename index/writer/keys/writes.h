// What a write asks of the table, and what it answers.

#ifndef OSPREY_INDEX_WRITER_KEYS_WRITES_H_
#define OSPREY_INDEX_WRITER_KEYS_WRITES_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "index/layout/layout.h"
#include "index/space/region_writer.h"

namespace osprey::index {

class Changes;

// A segment splits when this part of its usable words is used. It also splits when this part of its
// keys are small items that did not fit inline, each of which costs one more READ.
inline constexpr uint32_t kSplitPercent = 97;
inline constexpr uint32_t kSmallItemsPercent = 11;
// The most keys that one FlushStep deletes, and the most lines that it visits.
inline constexpr uint64_t kFlushKeysMax = 1024;
inline constexpr uint32_t kFlushLinesMax = 1024;
// The most entries that it visits, except that it finishes a line that it began.
inline constexpr uint64_t kFlushLooksMax = 4096;

// A sweep finds expired keys. One SweepStep visits so many lines, and ends so many keys.
inline constexpr uint32_t kSweepLinesMax = 64;
inline constexpr uint64_t kSweepKeysMax = 256;
// The shortest interval between sweeps, and the lines visited in one interval: some 200,000 keys.
inline constexpr absl::Duration kSweepPeriod() { return absl::Milliseconds(250); }
inline constexpr uint32_t kSweepLinesPerPeriod = 64 * kLinesPerUnit;

struct TableOptions {
  uint64_t incarnation = 0;  // random; not 0
  uint64_t hash_seed = 0;    // random
  // How long a dead item's space waits before reuse: longer than any READ takes (W4). If memory is
  // short it is reused earlier.
  absl::Duration reuse_grace = absl::Seconds(1);
  // The receiver of each change; must outlive the table. Null: none.
  Changes* changes = nullptr;
  // The last cas version that counts as used; null: FirstCasVersion of the incarnation. A server
  // that continues the versions of an earlier incarnation sets it. Not with a counter.
  std::optional<uint64_t> cas_version;
  // The source of cas versions if tables share them; must outlive the table. Null: a counter of its
  // own.
  CasCounter* cas_counter = nullptr;
  // Server time, by which keys expire. It never goes back, and every `now` passed to the table was
  // read from it before. The default stands still, for tables whose keys have no time to live.
  std::function<absl::Time()> clock = [] { return absl::UnixEpoch(); };
  uint32_t split_percent = kSplitPercent;  // up to 100; 0 (for tests): after every insertion
  uint32_t small_items_percent = kSmallItemsPercent;
  // When memory is full, cold keys are evicted (index/README.md, "When memory is full").
  bool evict = false;
  // Item space reserved for a Reserve of a key whose present value is as long already, if there is
  // no other space. Without `evict`.
  uint64_t update_room_bytes = 0;
};

// What prefetches found of a key's place. A write that follows uses it, unless the directory or the
// line has changed since.
struct SlotHint {
  uint64_t home = 0;               // offset of line h, …
  uint32_t directory_changes = 0;  // … when the directory had so many; 0: unknown
  uint32_t line_version = 1;       // that of a line with a slot that may be the key's; odd: none
  uint32_t line = 0;               // of the window
  uint32_t at = 0;                 // the slot's word
};

// The condition that must hold at the instant of a write.
struct Condition {
  enum class Kind { kNone, kAbsent, kVersionIs };
  Kind kind = Kind::kNone;
  uint64_t version = 0;  // kVersionIs
};

// The time to live of a key with its new value.
struct Lifetime {
  enum class Kind {
    kForever,
    kLimited,  // for `ttl` from the write on
    kKept,     // as before the write; forever if the key was absent
  };
  static Lifetime Forever() { return {}; }
  // A `ttl` of 0 or less has expired at once.
  static Lifetime For(absl::Duration ttl) { return {Kind::kLimited, ttl}; }
  static Lifetime Kept() { return {Kind::kKept, {}}; }

  Kind kind = Kind::kForever;
  absl::Duration ttl;
};

// The outcome of a write. `status` is OK; INVALID_ARGUMENT (key or value of impossible length, with
// the bound); NOT_FOUND (delete, or kVersionIs, of an absent key);
// ALREADY_EXISTS (kAbsent); FAILED_PRECONDITION (kVersionIs: `version` is the present one);
// RESOURCE_EXHAUSTED (full, IsChainFull or IsVersionsUsedUp; nothing changed).
struct WriteResult {
  absl::Status status;
  uint64_t version = 0;    // of the write; or the present one when a condition failed
  uint64_t slot = 0;       // the item's slot, a hint for readers; 0 if inline or deleted
  uint64_t expiry_ns = 0;  // when the key expires: nanoseconds of server time; 0: never
};

// Whether a write was refused because no cas version is left. This is permanent for the region;
// fullness is not.
bool IsVersionsUsedUp(const absl::Status& status);

// Whether a write was refused because the window and the chain of the key's home hold as many keys
// as they may. Uniform hashes do not fill a chain: such keys were chosen to share a home.
bool IsChainFull(const absl::Status& status);

// Small items that a delete makes inline in the space that it freed: bounded work.
inline constexpr int kPromotionsPerDelete = 2;
// An upper bound of the cas versions that one write draws. It writes some records and, at most, the
// lines of one new unit.
inline constexpr uint64_t kCasVersionsPerWriteMax = 64 + kLinesPerUnit;
// The most keys of a window that one insertion evicts.
inline constexpr int kEvictionsNearMax = 8;

struct TableStats {
  uint64_t keys = 0;
  uint64_t inline_keys = 0;
  uint64_t key_bytes = 0;
  uint64_t value_bytes = 0;
  uint64_t region_bytes = 0;
  uint64_t index_bytes = 0;       // units in use
  uint64_t item_bytes = 0;        // live items, headers and rounding included
  uint64_t item_space_bytes = 0;  // pages that items use, free parts included
  uint64_t quarantine_bytes = 0;  // dead, not yet reusable
  uint64_t segments = 0;
  uint64_t directory_depth = 0;
  uint64_t overflow_lines = 0;
  double load_factor = 0;      // occupied words over all words of segments
  uint64_t cas_version = 0;    // the last that this table used
  uint64_t expiring_keys = 0;  // that have an expiry, whether or not it has passed
  uint64_t expiries = 0;       // keys that expired, since the start
  // Since the start: moves of keys between forms and places.
  uint64_t demotions = 0;
  uint64_t promotions = 0;
  uint64_t pull_backs = 0;
  uint64_t chained_inserts = 0;
  uint64_t chains_full = 0;  // insertions refused with IsChainFull
  uint64_t in_place_updates = 0;
  uint64_t splits = 0;         // of segments
  uint64_t merges = 0;         // likewise, of two
  uint64_t segment_moves = 0;  // likewise, so that their units become free
  // Since the start: items and bytes that compaction moved, and windows that it emptied or
  // abandoned.
  uint64_t compaction_items = 0;
  uint64_t compaction_bytes = 0;
  uint64_t compaction_windows = 0;
  uint64_t compaction_windows_given_up = 0;
  // Since the start.
  uint64_t evictions = 0;        // keys
  uint64_t evicted_bytes = 0;    // their keys and values
  uint64_t hints = 0;            // taken
  uint64_t hints_unmatched = 0;  // of these, hints whose key was gone

  // Adds the stats of another table of the same server: sums; the deeper directory. Does not
  // change load_factor.
  void Add(const TableStats& other);
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_KEYS_WRITES_H_
