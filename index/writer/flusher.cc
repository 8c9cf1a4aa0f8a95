#include "index/writer/flusher.h"

#include <algorithm>

#include "index/writer/keys/write_results.h"
#include "index/writer/line_walk.h"

namespace osprey::index {
absl::StatusOr<Flusher::Result> Flusher::Step(uint64_t cursor, uint64_t version_bound,
                                              uint64_t keys_max, Delete delete_key) {
  keys_max = std::clamp<uint64_t>(keys_max, 1, kFlushKeysMax);
  Result result;
  absl::Status status;
  const uint64_t looks_end = looks_ + kFlushLooksMax;
  result.cursor = WalkLines(keys_, cursor, kFlushLinesMax, [&](uint64_t line, uint32_t) {
    return looks_ < looks_end &&
           FlushLine(line, version_bound, keys_max, delete_key, result, status);
  });
  if (!status.ok()) return status;
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
  return !VisitEntries(keys_, line, [&](uint64_t, const LineEntry& entry) {
    ++looks_;
    const auto [found, version] = KeyOf(entry);
    if (version > version_bound) return true;
    key.assign(found.data(), found.size());
    return false;
  });
}

std::pair<absl::string_view, uint64_t> Flusher::KeyOf(const LineEntry& entry) const {
  if (entry.kind == WordKind::kInline)
    return {entry.key, InlineHead::Unpack(entry.head).cas_version};
  const StoredItem item = keys_.items.At(Slot::Unpack(entry.head).offset);
  return {item.key, item.cas_version};
}

// A line that has more keys than are left is not visited, unless it is the first one with any.
Flusher::List Flusher::ListStep(uint64_t cursor, uint64_t version_bound, uint64_t keys_max) {
  keys_max = std::clamp<uint64_t>(keys_max, 1, kFlushKeysMax);
  List list;
  const uint64_t looks_end = looks_ + kFlushLooksMax;
  list.cursor = WalkLines(keys_, cursor, kFlushLinesMax, [&](uint64_t line, uint32_t) {
    if (looks_ >= looks_end) return false;
    const size_t before = list.keys.size();
    VisitEntries(keys_, line, [&](uint64_t, const LineEntry& entry) {
      ++looks_;
      const auto [key, version] = KeyOf(entry);
      if (version <= version_bound) list.keys.push_back({std::string(key), version});
      return true;
    });
    if (list.keys.size() <= keys_max || before == 0) return true;
    list.keys.resize(before);
    return false;
  });
  return list;
}

}  // namespace osprey::index
