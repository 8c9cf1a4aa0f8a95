#include "index/segments/line_editor.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace osprey::index {

LineEditor::LineEditor(RegionWriter& writer, ClockCounters& all_lives, uint64_t offset,
                       const Line& line, LineClocks clocks)
    : writer_(&writer),
      all_clocks_(&all_lives),
      offset_(offset),
      line_(line),
      clocks_(clocks),
      used_(UsedWords(line)),
      used_before_(used_) {}

LineEditor::LineEditor(RegionWriter& writer, ClockCounters& clocks, uint64_t offset)
    : LineEditor(writer, clocks, offset, LineAt(writer, offset), clocks.Of(offset)) {}

LineEditor LineEditor::Empty(RegionWriter& writer, ClockCounters& clocks, uint64_t offset,
                             uint32_t generation) {
  Line line{};
  line.record.tag = generation;
  return LineEditor(writer, clocks, offset, line, LineClocks());
}

void LineEditor::AddSlot(uint64_t slot, uint32_t clock) {
  assert(free() >= 1 && KindOf(slot) == WordKind::kSlot);
  clocks_.Set(used_, clock);
  line_.words[used_++] = slot;
}

void LineEditor::AddInline(absl::string_view key, ByteSpan value, uint64_t cas_version,
                           uint32_t clock) {
  const InlineHead head{static_cast<uint32_t>(key.size()), static_cast<uint32_t>(value.size()),
                        cas_version};
  assert(free() >= head.words() && head.words() <= kInlineWordsMax);
  clocks_.Set(used_, clock);
  line_.words[used_] = head.Pack();
  std::byte* const bytes = reinterpret_cast<std::byte*>(&line_.words[used_ + 1]);
  std::memcpy(bytes, key.data(), key.size());  // the words were 0, and so is the padding
  if (!value.empty()) std::memcpy(bytes + key.size(), value.data(), value.size());
  used_ += head.words();
}

uint32_t LineEditor::Remove(uint32_t at, uint32_t words) {
  assert(words > 0 && at + words <= used_);
  const uint32_t clock = clocks_.At(at);
  clocks_.Remove(at, words);
  std::copy(line_.words + at + words, line_.words + used_, line_.words + at);
  std::fill(line_.words + used_ - words, line_.words + used_, 0);
  used_ -= words;
  return clock;
}

void LineEditor::Publish() {
  const uint32_t version = writer_->NextRecordVersion(offset_);
  writer_->WriteRecord(offset_, version, line_.record.tag, WordBytesOf(line_));
  line_.record = writer_->Header(offset_);
  all_clocks_->Set(offset_, clocks_);
  used_before_ = used_;
}

}  // namespace osprey::index
