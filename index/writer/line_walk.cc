#include "index/writer/line_walk.h"

#include <algorithm>

#include "index/layout/test_hooks.h"
#include "index/segments/segment_order.h"

namespace osprey::index {
namespace {

// A cursor, as line_walk.h draws it. Cursor 0 is the beginning.
struct Place {
  uint64_t position = 0;
  uint32_t line = 0;
  uint32_t depth = 0;

  static constexpr int kLineBits = 8;
  static constexpr int kDepthBits = 5;
  static_assert(1 << kLineBits == kLinesPerUnit && 1 << kDepthBits > kDirectoryDepthMax);

  static Place Unpack(uint64_t cursor) {
    const uint64_t word = cursor == 0 ? 0 : cursor - 1;
    return {word >> (kLineBits + kDepthBits), static_cast<uint32_t>(word % kLinesPerUnit),
            static_cast<uint32_t>(word >> kLineBits & ((1 << kDepthBits) - 1))};
  }
  uint64_t Pack() const {
    if (position >= kSegmentPositionEnd) return 0;
    return (position << (kLineBits + kDepthBits) | uint64_t{depth} << kLineBits | line) + 1;
  }
};

// So that keys without bytes are bounded too: about what the checkpoint adds to each.
constexpr uint64_t kBytesPerKey = 64;

}  // namespace

uint64_t WalkLines(const Keys& keys, uint64_t cursor, uint32_t lines_max,
                   absl::FunctionRef<bool(uint64_t line, uint32_t depth)> visit) {
  Place at = Place::Unpack(cursor);
  // The last line may hold keys of the home before it, which a merge may have put back there.
  if (at.line > 0 && !IsMutant(Mutant::kMergeMissedByCursor)) --at.line;
  for (uint32_t visited = 0; visited < lines_max && at.position < kSegmentPositionEnd; ++visited) {
    const DirectoryEntry entry = keys.directory.At(ReverseBits(static_cast<uint32_t>(at.position)));
    // At the first line nothing of the segment is done.
    at.depth = at.line == 0 ? entry.depth : std::max(at.depth, entry.depth);
    if (!visit(keys.UnitOffset(entry.unit) + at.line * kLineBytes, entry.depth)) break;
    if (++at.line < kLinesPerUnit) continue;
    at.line = 0;
    const uint64_t interval =
        SegmentInterval(IsMutant(Mutant::kMergeMissedByCursor) ? entry.depth : at.depth);
    at.position = (at.position / interval + 1) * interval;
  }
  return at.Pack();
}

bool VisitEntries(const Keys& keys, uint64_t line,
                  absl::FunctionRef<bool(uint64_t line, const LineEntry& entry)> visit) {
  for (uint64_t at = line; at != 0;) {
    const Line& bytes = LineAt(keys.writer, at);
    for (LineCursor cursor(bytes); cursor.Next();) {
      const LineEntry& entry = cursor.entry();
      if (entry.kind == WordKind::kSlot) keys.items.Prefetch(Slot::Unpack(entry.head).offset);
    }
    for (LineCursor cursor(bytes); cursor.Next();) {
      if (!visit(at, cursor.entry())) return false;
    }
    at = bytes.words[kLinkWord] == 0 ? 0 : LinkOffset(bytes.words[kLinkWord]);
  }
  return true;
}

uint64_t WalkKeys(const Keys& keys, const Expirer& expirer, const Segments& segments,
                  uint64_t cursor, uint64_t bytes_max, ExpiredKeys expired,
                  absl::FunctionRef<void(const WalkedKey&)> visit) {
  uint64_t bytes = 0;
  uint32_t lines = 0;
  const auto shallowest = static_cast<uint8_t>(segments.ShallowestDepth());
  return WalkLines(keys, cursor, kFlushLinesMax, [&](uint64_t line, uint32_t depth) {
    if (bytes >= bytes_max && lines >= 2) return false;
    ++lines;
    return VisitEntries(keys, line, [&](uint64_t at, const LineEntry& entry) {
      WalkedKey key;
      key.depths = {static_cast<uint8_t>(depth), shallowest};
      if (entry.kind == WordKind::kInline) {
        key.key = entry.key;
        key.value = entry.value;
        key.version = InlineHead::Unpack(entry.head).cas_version;
      } else {
        const uint64_t offset = Slot::Unpack(entry.head).offset;
        const StoredItem item = keys.items.At(offset);
        // A hidden one lives longer, by a write that is logged.
        if (expired == ExpiredKeys::kAbsent && expirer.HasExpired(item.expiry_ns) &&
            !keys.items.IsHidden(offset))
          return true;
        key.key = item.key;
        key.value = item.value;
        key.version = item.cas_version;
        key.expiry_ns = item.expiry_ns;
      }
      key.clock = static_cast<uint8_t>(keys.clocks.Of(at).At(entry.at));
      bytes += kBytesPerKey + key.key.size() +
               (key.value.size() <= kWalkedValueBytesMax ? key.value.size() : 0);
      visit(key);
      return true;
    });
  });
}

}  // namespace osprey::index
