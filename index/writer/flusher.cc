#include "index/writer/flusher.h"

#include <algorithm>

#include "index/layout/test_hooks.h"
#include "index/segments/segment_order.h"
#include "index/writer/write_results.h"

namespace osprey::index {
namespace {

// A cursor, as flusher.h draws it. Cursor 0 is the beginning.
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

}  // namespace

absl::StatusOr<Flusher::Result> Flusher::Step(uint64_t cursor, uint64_t version_bound,
                                              uint64_t keys_max, Delete delete_key) {
  keys_max = std::clamp<uint64_t>(keys_max, 1, kFlushKeysMax);
  Place at = Place::Unpack(cursor);
  // The last line may hold keys of the home before it, which a merge may have put back there.
  if (at.line > 0 && !IsMutant(Mutant::kMergeMissedByCursor)) --at.line;
  Result result;
  absl::Status status;
  const uint64_t looks_end = looks_ + kFlushLooksMax;
  for (uint32_t looked = 0; looked < kFlushLinesMax && looks_ < looks_end; ++looked) {
    if (at.position >= kSegmentPositionEnd) return result;
    const DirectoryEntry entry =
        keys_.directory.At(ReverseBits(static_cast<uint32_t>(at.position)));
    // At the first line nothing of the segment is done.
    at.depth = at.line == 0 ? entry.depth : std::max(at.depth, entry.depth);
    const uint64_t offset = keys_.UnitOffset(entry.unit) + at.line * kLineBytes;
    if (!FlushLine(offset, version_bound, keys_max, delete_key, result, status)) break;
    if (++at.line < kLinesPerUnit) continue;
    at.line = 0;
    const uint64_t interval =
        SegmentInterval(IsMutant(Mutant::kMergeMissedByCursor) ? entry.depth : at.depth);
    at.position = (at.position / interval + 1) * interval;
  }
  if (!status.ok()) return status;
  result.cursor = at.Pack();
  return result;
}

// Flushes one line and the chain of its home. False when keys_max are deleted or a delete failed.
bool Flusher::FlushLine(uint64_t line, uint64_t version_bound, uint64_t keys_max, Delete delete_key,
                        Result& result, absl::Status& status) {
  std::string key;
  while (FirstUpTo(line, version_bound, key)) {
    if (result.deleted == keys_max) return false;
    status = delete_key(key);
    if (absl::IsNotFound(status)) {
      status = CheckVersionsLeft(keys_.writer);
      if (status.ok()) continue;  // it had expired, and was removed
    }
    if (!status.ok()) return false;
    ++result.deleted;
  }
  return true;
}

// The first key in a line, or in the chain after it, whose version is at most the bound.
bool Flusher::FirstUpTo(uint64_t line, uint64_t version_bound, std::string& key) {
  for (uint64_t at = line; at != 0;) {
    const Line& bytes = LineAt(keys_.writer, at);
    for (LineCursor cursor(bytes); cursor.Next();) {
      const LineEntry& entry = cursor.entry();
      if (entry.kind == WordKind::kSlot) keys_.items.Prefetch(Slot::Unpack(entry.head).offset);
    }
    for (LineCursor cursor(bytes); cursor.Next();) {
      const LineEntry& entry = cursor.entry();
      ++looks_;
      if (entry.kind == WordKind::kInline) {
        if (InlineHead::Unpack(entry.head).cas_version > version_bound) continue;
        key.assign(entry.key.data(), entry.key.size());
        return true;
      }
      const StoredItem item = keys_.items.At(Slot::Unpack(entry.head).offset);
      if (item.cas_version > version_bound) continue;
      key.assign(item.key.data(), item.key.size());
      return true;
    }
    at = bytes.words[kLinkWord] == 0 ? 0 : LinkOffset(bytes.words[kLinkWord]);
  }
  return false;
}

}  // namespace osprey::index
