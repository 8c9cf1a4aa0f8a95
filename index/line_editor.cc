#include "index/line_editor.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace osprey::index {

uint32_t UsedWords(const Line& line) {
  LineCursor cursor(line);
  uint32_t used = 0;
  while (cursor.Next()) used = cursor.entry().at + cursor.entry().words;
  assert(!cursor.malformed());
  return used;
}

const Line& LineAt(const RegionWriter& writer, uint64_t offset) {
  return *reinterpret_cast<const Line*>(writer.Bytes(offset, kLineBytes).data());
}

LineEditor::LineEditor(RegionWriter& writer, uint64_t offset, const Line& line)
    : writer_(&writer), offset_(offset), line_(line), used_(UsedWords(line)) {}

LineEditor::LineEditor(RegionWriter& writer, uint64_t offset)
    : LineEditor(writer, offset, LineAt(writer, offset)) {}

LineEditor LineEditor::Empty(RegionWriter& writer, uint64_t offset, uint32_t generation) {
  Line line{};
  line.record.tag = generation;
  return LineEditor(writer, offset, line);
}

void LineEditor::AddSlot(uint64_t slot) {
  assert(free() >= 1 && KindOf(slot) == WordKind::kSlot);
  line_.words[used_++] = slot;
}

void LineEditor::AddInline(absl::string_view key, ByteSpan value, uint64_t cas_version) {
  const InlineHead head{static_cast<uint32_t>(key.size()), static_cast<uint32_t>(value.size()),
                        cas_version};
  assert(free() >= head.words() && head.words() <= kInlineWordsMax);
  line_.words[used_] = head.Pack();
  std::byte* const bytes = reinterpret_cast<std::byte*>(&line_.words[used_ + 1]);
  std::memcpy(bytes, key.data(), key.size());  // the words were 0, so the padding is
  if (!value.empty()) std::memcpy(bytes + key.size(), value.data(), value.size());
  used_ += head.words();
}

void LineEditor::Remove(uint32_t at, uint32_t words) {
  assert(words > 0 && at + words <= used_);
  std::copy(line_.words + at + words, line_.words + used_, line_.words + at);
  std::fill(line_.words + used_ - words, line_.words + used_, 0);
  used_ -= words;
}

void LineEditor::Publish() {
  const uint32_t version = writer_->NextRecordVersion(offset_);
  writer_->WriteRecord(
      offset_, version, line_.record.tag,
      ByteSpan(reinterpret_cast<const std::byte*>(line_.words), sizeof(line_.words)));
  line_.record = writer_->Header(offset_);
}

}  // namespace osprey::index
