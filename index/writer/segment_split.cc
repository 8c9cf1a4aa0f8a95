#include "index/writer/segment_split.h"

#include <algorithm>
#include <cassert>

#include "index/layout/hash.h"
#include "index/layout/line.h"
#include "index/writer/line_editor.h"

namespace osprey::index {
namespace {

// Items are scattered in memory, so their headers and keys are prefetched this many keys ahead.
constexpr size_t kPrefetchDistance = 24;

}  // namespace

uint64_t SegmentSplit::Half::words() const {
  uint64_t count = chained.size();
  for (const uint32_t line_used : used) count += line_used;
  return count;
}

uint64_t SegmentSplit::Half::chain_lines() const {
  uint64_t count = 0;
  ForEachChain([&](uint32_t, absl::Span<const Chains::Key> chain) {
    count += (chain.size() + kLineWordsUsable - 1) / kLineWordsUsable;
  });
  return count;
}

void SegmentSplit::Read(uint64_t segment, uint32_t depth) {
  entries_.clear();
  for (Half& half : halves_) {
    half.lines.assign(kLinesPerUnit, Line{});
    half.clocks.assign(kLinesPerUnit, LineClocks());
    half.used.assign(kLinesPerUnit, 0);
    half.chained.clear();
    half.keys = half.small_items = half.expiring = 0;
  }
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) Collect(segment + i * kLineBytes, i, false);
  // Placed after all keys that keep their line.
  for (uint32_t i = 0; i < kHomesPerSegment; ++i) {
    uint64_t link = LineAt(writer_, segment + i * kLineBytes).words[kLinkWord];
    for (; link != 0; link = LineAt(writer_, LinkOffset(link)).words[kLinkWord]) {
      Collect(LinkOffset(link), i, true);
    }
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (i + kPrefetchDistance < entries_.size()) {
      const uint64_t head = writer_.Word(entries_[i + kPrefetchDistance].words_at);
      if (KindOf(head) == WordKind::kSlot) items_.Prefetch(Slot::Unpack(head).offset);
    }
    Part(entries_[i], depth);
  }
}

void SegmentSplit::Collect(uint64_t line_offset, uint32_t line, bool chained) {
  const LineClocks clocks = clocks_.Of(line_offset);
  LineCursor cursor(LineAt(writer_, line_offset));
  while (cursor.Next()) {
    const LineEntry& entry = cursor.entry();
    const uint64_t at = line_offset + offsetof(Line, words) + entry.at * kWordBytes;
    entries_.push_back({at, entry.words, clocks.At(entry.at), line, chained});
  }
}

// The key, possibly in an item, determines its half.
void SegmentSplit::Part(const Entry& entry, uint32_t depth) {
  const uint64_t head = writer_.Word(entry.words_at);
  absl::string_view key;
  bool small_item = false;
  bool expires = false;
  if (KindOf(head) == WordKind::kSlot) {
    const StoredItem item = items_.At(Slot::Unpack(head).offset);
    key = item.key;
    expires = item.expiry_ns != 0;
    small_item = !expires && MayBeInline(item.key, item.value);
  } else {
    const ByteSpan bytes =
        writer_.Bytes(entry.words_at + kWordBytes, InlineHead::Unpack(head).key_length);
    key = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  Half& half = halves_[HashKey(key, hash_seed_).bits >> depth & 1];
  ++half.keys;
  half.small_items += small_item;
  half.expiring += expires;
  Place(entry, half);
}

void SegmentSplit::Place(const Entry& entry, Half& half) {
  uint32_t line = entry.line;
  if (entry.chained) {
    assert(entry.words == 1);
    if (half.used[line] == kLineWordsUsable) ++line;
    if (half.used[line] == kLineWordsUsable) {
      half.chained.push_back({entry.line, {writer_.Word(entry.words_at), entry.clock}});
      return;
    }
  }
  uint32_t& used = half.used[line];
  assert(used + entry.words <= kLineWordsUsable);
  half.clocks[line].Set(used, entry.clock);
  for (uint32_t i = 0; i < entry.words; ++i) {
    half.lines[line].words[used++] = writer_.Word(entry.words_at + i * kWordBytes);
  }
}

}  // namespace osprey::index
