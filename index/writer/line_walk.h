// Walks over all keys in steps, between which the table changes.
//
// A cursor is a position in the order of the segments (segment_order.h), and a line:
//
//   bit 44 … 13: position    bit 12 … 8: depth    bit 7 … 0: line     all plus 1, so that 0 is the start
//
// All keys before the position are done; and of the keys that share with it the low `depth` bits
// of their hashes, those of the homes before the line before. A split divides these keys, and the
// other half is visited from its first line. A merge adds other keys to them, so the walk returns to
// the segment for those. A key keeps its home, which is its line or the line before.
//
// Pure functions of the table's memory, for the thread that may change it.

#ifndef OSPREY_INDEX_WRITER_LINE_WALK_H_
#define OSPREY_INDEX_WRITER_LINE_WALK_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "index/layout/layout.h"
#include "index/layout/line.h"
#include "index/writer/keys/expirer.h"
#include "index/writer/keys/keys.h"
#include "index/writer/segments.h"

namespace osprey::index {

// Visits lines of segments, with the segment's depth, from `cursor` on, 0 being the start: at most
// `lines_max`, and only until `visit` returns false. That line counts as not visited. Returns the
// cursor of the next step; 0: the end. A step visits the line before its cursor again, so only one
// of two lines or more makes progress. Chains belong to the line that links to them.
uint64_t WalkLines(const Keys& keys, uint64_t cursor, uint32_t lines_max,
                   absl::FunctionRef<bool(uint64_t line, uint32_t depth)> visit);

// Visits the entries of the line at `line` and of its chain, and prefetches their items. False, at
// once, when `visit` returns false.
bool VisitEntries(const Keys& keys, uint64_t line,
                  absl::FunctionRef<bool(uint64_t line, const LineEntry& entry)> visit);

// How far the index had grown where a key is.
struct SegmentDepths {
  uint8_t own = 0;         // of the key's segment
  uint8_t shallowest = 0;  // of any segment
};

// A key as a walk finds it. Valid during the call.
struct WalkedKey {
  absl::string_view key;
  ByteSpan value;
  uint64_t version = 0;
  uint64_t expiry_ns = 0;  // nanoseconds of server time; 0: never
  uint8_t clock = 0;       // its CLOCK counter; 0 without eviction
  SegmentDepths depths;
};

// A longer value does not count for the bytes of a step of WalkKeys. A visitor should copy it later.
inline constexpr uint64_t kWalkedValueBytesMax = 64 << 10;

// Whether a key counts that has expired and was not removed yet.
enum class ExpiredKeys { kAbsent, kPresent };

// As Table::Walk.
uint64_t WalkKeys(const Keys& keys, const Expirer& expirer, const Segments& segments,
                  uint64_t cursor, uint64_t bytes_max, ExpiredKeys expired,
                  absl::FunctionRef<void(const WalkedKey&)> visit);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_LINE_WALK_H_
