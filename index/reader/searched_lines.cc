#include "index/reader/searched_lines.h"

#include <cassert>
#include <cstddef>

namespace osprey::index {

InLine SearchedLines::Search(ByteSpan line_bytes, uint64_t offset, const DirectoryCache& map,
                             absl::string_view key, InlineItem& item) {
  assert(!full());
  const uint32_t number = count_++;
  lines_[number] = {offset, HeaderOf(line_bytes), false};
  const uint64_t filed_under = FiledUnder(number);
  const InLine found = SearchLine(line_bytes, pattern_, key, item, [&](uint64_t slot) {
    slots_seen_[slots_seen_count_++] = {filed_under, slot};
    if (pattern_.MayBeSlot(slot)) candidates_[candidate_count_++] = {slot, number};
  });
  // Only the home line's link leads to this key's chain, and a chain line's link continues it. The
  // link of the window's second line leads to another home's chain.
  if (found != InLine::kNothing || number == 1) return found;
  uint64_t link;
  std::memcpy(&link, line_bytes.data() + offsetof(Line, words[kLinkWord]), sizeof(link));
  next_link_ = link == 0 ? 0 : LinkOffset(link);
  const bool valid = link == 0 || (KindOf(link) == WordKind::kLink && map.IsLine(next_link_));
  return valid ? InLine::kNothing : InLine::kNonsense;
}

}  // namespace osprey::index
