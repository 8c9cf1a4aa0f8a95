#include "index/writer/line_editor.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace osprey::index {

LineEditor::LineEditor(RegionWriter& writer, LineLives& all_lives, uint64_t offset,
                       const Line& line, Lives lives)
    : writer_(&writer),
      all_lives_(&all_lives),
      offset_(offset),
      line_(line),
      lives_(lives),
      used_(UsedWords(line)),
      used_before_(used_) {}

LineEditor::LineEditor(RegionWriter& writer, LineLives& lives, uint64_t offset)
    : LineEditor(writer, lives, offset, LineAt(writer, offset), lives.Of(offset)) {}

LineEditor LineEditor::Empty(RegionWriter& writer, LineLives& lives, uint64_t offset,
                             uint32_t generation) {
  Line line{};
  line.record.tag = generation;
  return LineEditor(writer, lives, offset, line, Lives());
}

void LineEditor::AddSlot(uint64_t slot, uint32_t lives) {
  assert(free() >= 1 && KindOf(slot) == WordKind::kSlot);
  lives_.Set(used_, lives);
  line_.words[used_++] = slot;
}

void LineEditor::AddInline(absl::string_view key, ByteSpan value, uint64_t cas_version,
                           uint32_t lives) {
  const InlineHead head{static_cast<uint32_t>(key.size()), static_cast<uint32_t>(value.size()),
                        cas_version};
  assert(free() >= head.words() && head.words() <= kInlineWordsMax);
  lives_.Set(used_, lives);
  line_.words[used_] = head.Pack();
  std::byte* const bytes = reinterpret_cast<std::byte*>(&line_.words[used_ + 1]);
  std::memcpy(bytes, key.data(), key.size());  // the words were 0, and so is the padding
  if (!value.empty()) std::memcpy(bytes + key.size(), value.data(), value.size());
  used_ += head.words();
}

uint32_t LineEditor::Remove(uint32_t at, uint32_t words) {
  assert(words > 0 && at + words <= used_);
  const uint32_t lives = lives_.At(at);
  lives_.Remove(at, words);
  std::copy(line_.words + at + words, line_.words + used_, line_.words + at);
  std::fill(line_.words + used_ - words, line_.words + used_, 0);
  used_ -= words;
  return lives;
}

void LineEditor::Publish() {
  const uint32_t version = writer_->NextRecordVersion(offset_);
  writer_->WriteRecord(offset_, version, line_.record.tag, WordBytesOf(line_));
  line_.record = writer_->Header(offset_);
  all_lives_->Set(offset_, lives_);
  used_before_ = used_;
}

}  // namespace osprey::index
