#include "index/segments/chains.h"

#include <bit>
#include <cassert>

#include "index/layout/test_hooks.h"

namespace osprey::index {

bool Chains::AddUnit() {
  const absl::optional<uint64_t> offset = space_.TakeUnit();
  if (!offset.has_value()) return false;
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    LineEditor::Empty(writer_, clocks_, *offset + i * kLineBytes, kGenerationNone).Publish();
  }
  Unit& unit = units_[*offset];
  unit.free_lines = kLinesPerUnit;
  for (uint64_t& word : unit.free) word = ~uint64_t{0};
  Offer(*offset, unit);
  return true;
}

void Chains::Offer(uint64_t offset, const Unit& unit) {
  free_lines_ += unit.free_lines;
  if (unit.free_lines > 0) units_with_room_.insert(offset);
}

absl::optional<uint64_t> Chains::Vacate(uint64_t offset) {
  const Unit& unit = units_.at(offset);
  if (vacated_ != offset) {
    EndVacating();
    if (!IsEnough(free_lines_ - unit.free_lines)) return absl::nullopt;
    vacated_ = offset;
    free_lines_ -= unit.free_lines;
    units_with_room_.erase(offset);
  }
  for (uint64_t line = 0; line < kLinesPerUnit; ++line) {
    const Line& bytes = LineAt(writer_, offset + line * kLineBytes);
    const bool in_use = (unit.free[line / 64] >> line % 64 & 1) == 0;
    if (in_use && UsedWords(bytes) > 0) return bytes.words[0];
  }
  return absl::nullopt;
}

void Chains::EndVacating() {
  if (!vacated_.has_value()) return;
  Offer(*vacated_, units_.at(*vacated_));
  vacated_.reset();
}

absl::optional<uint64_t> Chains::TakeLine() {
  if (free_lines_ <= kept_ && !Reserve(1)) return absl::nullopt;
  const uint64_t offset = *units_with_room_.begin();
  Unit& unit = units_[offset];
  uint32_t word = 0;
  while (unit.free[word] == 0) ++word;
  const uint32_t line = word * 64 + static_cast<uint32_t>(std::countr_zero(unit.free[word]));
  unit.free[word] &= unit.free[word] - 1;
  if (--unit.free_lines == 0) units_with_room_.erase(offset);
  --free_lines_;
  ++lines_;
  return offset + line * kLineBytes;
}

void Chains::FreeLine(uint64_t offset) {
  const uint64_t in_unit = (offset - space_.units_offset()) % kUnitBytes;
  const auto found = units_.find(offset - in_unit);
  assert(found != units_.end());
  Unit& unit = found->second;
  const uint64_t line = in_unit / kLineBytes;
  assert((unit.free[line / 64] >> line % 64 & 1) == 0);  // freed twice
  unit.free[line / 64] |= uint64_t{1} << line % 64;
  --lines_;
  ++unit.free_lines;
  const bool vacated = vacated_ == found->first;
  if (!vacated) {
    units_with_room_.insert(found->first);
    ++free_lines_;
  }
  if (unit.free_lines < kLinesPerUnit) return;
  if (vacated) {
    vacated_.reset();
  } else if (!IsEnough(free_lines_ - kLinesPerUnit)) {
    return;
  } else {
    free_lines_ -= kLinesPerUnit;
    units_with_room_.erase(found->first);
  }
  clocks_.DropUnit(found->first);
  space_.FreeUnit(found->first);
  units_.erase(found);
}

bool Chains::Add(uint64_t home, uint64_t slot, uint32_t clock) {
  uint64_t last = home;
  uint32_t length = 0;
  for (uint64_t at = LinkOf(LineAt(writer_, home)); at != 0; at = LinkOf(LineAt(writer_, at))) {
    LineEditor line(writer_, clocks_, at);
    if (line.free() > 0) {
      line.AddSlot(slot, clock);
      line.Publish();
      return true;
    }
    last = at;
    ++length;
  }
  assert(length <= kChainLinesMax);
  if (length == kChainLinesMax) return false;
  const absl::optional<uint64_t> offset = TakeLine();
  if (!offset.has_value()) return false;
  LineEditor before(writer_, clocks_, last);
  LineEditor line = LineEditor::Empty(writer_, clocks_, *offset, before.generation());
  line.AddSlot(slot, clock);
  line.Publish();
  before.SetLink(*offset);
  before.Publish();
  return true;
}

uint64_t Chains::LastOf(uint64_t home) const {
  uint64_t last = home;
  for (uint64_t at = LinkOf(LineAt(writer_, home)); at != 0; at = LinkOf(LineAt(writer_, at))) {
    last = at;
  }
  return last;
}

uint32_t Chains::LengthOf(uint64_t home) const {
  uint32_t length = 0;
  uint64_t at = LinkOf(LineAt(writer_, home));
  for (; at != 0; at = LinkOf(LineAt(writer_, at))) ++length;
  return length;
}

bool Chains::IsFull(uint64_t home) const {
  uint32_t length = 0;
  for (uint64_t at = LinkOf(LineAt(writer_, home)); at != 0; at = LinkOf(LineAt(writer_, at))) {
    if (UsedWords(LineAt(writer_, at)) < kLineWordsUsable) return false;
    ++length;
  }
  return length == kChainLinesMax;
}

uint64_t Chains::RoomAt(uint64_t home) const {
  uint64_t room = kChainLinesMax * kLineWordsUsable;
  for (uint64_t at = LinkOf(LineAt(writer_, home)); at != 0; at = LinkOf(LineAt(writer_, at)))
    room -= UsedWords(LineAt(writer_, at));
  return room;
}

bool Chains::Keep() {
  if (!Reserve(1)) return false;
  keeps_ = true;
  ++kept_;
  return true;
}

bool Chains::Reserve(uint64_t lines) {
  lines += kept_;
  if (free_lines_ < lines && vacated_.has_value() && !space_.IsClosed(*vacated_)) EndVacating();
  while (free_lines_ < lines) {
    if (!AddUnit()) return false;
  }
  return true;
}

// From the last line backwards, so that each is written with its link.
uint64_t Chains::Build(absl::Span<const Key> keys, uint32_t generation) {
  assert(!keys.empty() && keys.size() <= kChainLinesMax * kLineWordsUsable);
  uint64_t next = 0;
  while (!keys.empty()) {
    const size_t count = (keys.size() - 1) % kLineWordsUsable + 1;
    const absl::optional<uint64_t> offset = TakeLine();
    assert(offset.has_value());
    LineEditor line = LineEditor::Empty(writer_, clocks_, *offset, generation);
    for (const Key& key : keys.last(count)) line.AddSlot(key.slot, key.clock);
    line.SetLink(next);
    line.Publish();
    next = *offset;
    keys.remove_suffix(count);
  }
  return next;
}

void Chains::Poison(uint64_t home) {
  for (uint64_t at = LinkOf(LineAt(writer_, home)); at != 0;) {
    const uint64_t next = LinkOf(LineAt(writer_, at));
    LineEditor::Empty(writer_, clocks_, at, kGenerationNone).Publish();
    FreeLine(at);
    at = next;
  }
}

// From the chain's last line, so that chains become shorter.
uint32_t Chains::MoveFromOverflow(uint64_t home) {
  uint32_t moved = 0;
  for (uint32_t i = 0; i < kChainLinesMax && LinkOf(LineAt(writer_, home)) != 0; ++i) {
    LineEditor to(writer_, clocks_,
                  IsMutant(Mutant::kMoveFromOverflowIntoSecondLine) ? home + kLineBytes : home);
    if (to.free() == 0) break;
    LineEditor from(writer_, clocks_, LastOf(home));
    while (to.free() > 0 && from.used() > 0) {
      const uint64_t slot = from.line().words[from.used() - 1];
      to.AddSlot(slot, from.Remove(from.used() - 1, 1));
      ++moved;
    }
    // W3: destination before source. In between the slot is in both, and leads to the same item.
    if (IsMutant(Mutant::kChainSourceClearedFirst)) from.Publish();
    to.Publish();
    if (!IsMutant(Mutant::kChainSourceClearedFirst)) from.Publish();
    Trim(home);
  }
  return moved;
}

// For a mutant.
void Chains::UnlinkFirstEmpty(const uint64_t* chain, uint32_t length) {
  for (uint32_t i = 1; i <= length; ++i) {
    if (UsedWords(LineAt(writer_, chain[i])) != 0) continue;
    LineEditor before(writer_, clocks_, chain[i - 1]);
    before.SetLink(LinkOf(LineAt(writer_, chain[i])));
    before.Publish();
    FreeLine(chain[i]);
    return;
  }
}

void Chains::Trim(uint64_t home) {
  uint64_t chain[kChainLinesMax + 1] = {home};
  uint32_t length = 0;
  for (uint64_t at = LinkOf(LineAt(writer_, home)); at != 0; at = LinkOf(LineAt(writer_, at))) {
    chain[++length] = at;
  }
  if (IsMutant(Mutant::kMiddleOfChainUnlinked)) return UnlinkFirstEmpty(chain, length);
  uint32_t keep = length;
  while (keep > 0 && UsedWords(LineAt(writer_, chain[keep])) == 0) --keep;
  if (keep == length) return;
  LineEditor last(writer_, clocks_, chain[keep]);
  last.SetLink(0);
  last.Publish();
  for (uint32_t i = length; i > keep; --i) FreeLine(chain[i]);
}

}  // namespace osprey::index
