#include "index/writer/flusher.h"

#include <algorithm>

#include "index/writer/write_results.h"

namespace osprey::index {
namespace {

constexpr uint32_t ReverseBits(uint32_t bits) {
  bits = (bits >> 1 & 0x55555555) | (bits & 0x55555555) << 1;
  bits = (bits >> 2 & 0x33333333) | (bits & 0x33333333) << 2;
  bits = (bits >> 4 & 0x0f0f0f0f) | (bits & 0x0f0f0f0f) << 4;
  return __builtin_bswap32(bits);
}
static_assert(ReverseBits(1) == 0x80000000 && ReverseBits(0x12345678) == 0x1e6a2c48);

}  // namespace

absl::StatusOr<Flusher::Result> Flusher::Step(uint64_t cursor, uint64_t version_bound,
                                              uint64_t keys_max, Delete delete_key) {
  keys_max = std::clamp<uint64_t>(keys_max, 1, kFlushKeysMax);
  const uint64_t from = cursor == 0 ? 0 : cursor - 1;
  uint64_t position = from / kLinesPerUnit;  // 32 bits; more: the end
  uint32_t line = static_cast<uint32_t>(from % kLinesPerUnit);
  Result result;
  absl::Status status;
  const uint64_t looks_end = looks_ + kFlushLooksMax;
  for (uint32_t looked = 0; looked < kFlushLinesMax && looks_ < looks_end; ++looked) {
    if (position > 0xffffffff) return result;
    const DirectoryEntry entry = keys_.directory.At(ReverseBits(static_cast<uint32_t>(position)));
    const uint64_t offset = keys_.UnitOffset(entry.unit) + line * kLineBytes;
    if (!FlushLine(offset, version_bound, keys_max, delete_key, result, status)) break;
    if (++line < kLinesPerUnit) continue;
    line = 0;
    const uint64_t interval = uint64_t{1} << (32 - entry.depth);
    position = (position / interval + 1) * interval;
  }
  if (!status.ok()) return status;
  if (position <= 0xffffffff) result.cursor = position * kLinesPerUnit + line + 1;
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
