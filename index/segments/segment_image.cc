#include "index/segments/segment_image.h"

#include <cassert>

namespace osprey::index {

void PrefetchItemOf(const RegionWriter& writer, const ItemStore& items, const SegmentEntry& entry) {
  const uint64_t head = writer.Word(entry.words_at);
  if (KindOf(head) == WordKind::kSlot) items.Prefetch(Slot::Unpack(head).offset);
}

absl::string_view InlineKeyAt(const RegionWriter& writer, uint64_t words_at) {
  const InlineHead head = InlineHead::Unpack(writer.Word(words_at));
  const ByteSpan key = writer.Bytes(words_at + kWordBytes, head.key_length);
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

void SegmentImage::Clear() {
  lines.assign(kLinesPerUnit, Line{});
  clocks.assign(kLinesPerUnit, LineClocks());
  used.assign(kLinesPerUnit, 0);
  chained.clear();
  keys = small_items = expiring = 0;
  expires_from_ns = UINT64_MAX;
}

void SegmentImage::Place(const RegionWriter& writer, const SegmentEntry& entry, uint32_t line) {
  assert(entry.words <= free(line));
  clocks[line].Set(used[line], entry.clock);
  for (uint32_t i = 0; i < entry.words; ++i) {
    lines[line].words[used[line]++] = writer.Word(entry.words_at + i * kWordBytes);
  }
}

void SegmentImage::PlaceChained(const RegionWriter& writer, const SegmentEntry& entry) {
  assert(entry.words == 1);
  if (free(entry.line) > 0) return Place(writer, entry, entry.line);
  if (free(entry.line + 1) > 0) return Place(writer, entry, entry.line + 1);
  chained.push_back({entry.line, {writer.Word(entry.words_at), entry.clock}});
}

uint64_t SegmentImage::words() const {
  uint64_t count = chained.size();
  for (const uint32_t line_used : used) count += line_used;
  return count;
}

uint64_t SegmentImage::chain_lines() const {
  uint64_t count = 0;
  ForEachChain([&](uint32_t, absl::Span<const Chains::Key> chain) {
    count += (chain.size() + kLineWordsUsable - 1) / kLineWordsUsable;
  });
  return count;
}

bool SegmentImage::chains_fit() const {
  bool fit = true;
  ForEachChain([&](uint32_t, absl::Span<const Chains::Key> chain) {
    fit &= chain.size() <= kChainLinesMax * kLineWordsUsable;
  });
  return fit;
}

}  // namespace osprey::index
