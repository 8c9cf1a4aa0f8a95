// The CLOCK counters of all keys. Eviction decrements them (evictor.h). They are private to the server; the region does not hold them.
//
// Four bits for each word of a line; one word for each line:
//
//   word of the line   0            1     2     3            4           …
//                      slot         inline item (3 words)    slot
//   counter            1 … 15       1…15  0     0            1 … 15
//
// A word at which no key begins has 0. A key keeps its counter while it moves within the index,
// inline or not. The cost is 8 B for each line of 128 B, and nothing if eviction is off.
//
// Not thread-safe.

#ifndef OSPREY_INDEX_SEGMENTS_CLOCK_COUNTERS_H_
#define OSPREY_INDEX_SEGMENTS_CLOCK_COUNTERS_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "index/layout/layout.h"

namespace osprey::index {

// Measured by tests/benchmarks/evict_benchmark; README.md gives the reasons.
inline constexpr uint32_t kClockMax = 15;
inline constexpr uint32_t kClockNew = 1;       // the next pass of the hand evicts the key
inline constexpr uint32_t kClockReturned = 2;  // of a key whose ghost is remembered (ghosts.h)
inline constexpr uint32_t kClockPerHint = 6;   // a hint stands for several unsampled hits
inline constexpr uint32_t kClockPerWrite = 1;

// The counters of one line's keys.
class LineClocks {
 public:
  constexpr explicit LineClocks(uint64_t packed = 0) : packed_(packed) {}
  constexpr uint64_t packed() const { return packed_; }

  constexpr uint32_t At(uint32_t word) const {
    return static_cast<uint32_t>(packed_ >> 4 * word & kClockMax);
  }
  constexpr void Set(uint32_t word, uint32_t clock) {
    packed_ &= ~(uint64_t{kClockMax} << 4 * word);
    packed_ |= uint64_t{clock} << 4 * word;
  }
  // No effect on a word where no key begins.
  constexpr void Add(uint32_t word, uint32_t clock) {
    if (At(word) != 0) Set(word, std::min(At(word) + clock, kClockMax));
  }
  // Removes `words` words from `word` on; the counters after them move up.
  constexpr void Remove(uint32_t word, uint32_t words) {
    const uint64_t below = packed_ & ((uint64_t{1} << 4 * word) - 1);
    packed_ = below | packed_ >> 4 * (word + words) << 4 * word;
  }
  // Decrements each counter above 1.
  constexpr void Age() { packed_ -= AboveOne(); }
  // Whether some counter is 1.
  constexpr bool AnyLast() const { return (packed_ & kOnes & ~AboveOne()) != 0; }
  // How many are.
  constexpr uint64_t CountLast() const {
    return static_cast<uint64_t>(std::popcount(packed_ & kOnes & ~AboveOne()));
  }

 private:
  static_assert(4 * kLineWords <= 64);
  static constexpr uint64_t kOnes = 0x1111'1111'1111'1111;
  // 1 in the place of each counter of 2 or more.
  constexpr uint64_t AboveOne() const {
    return (packed_ >> 1 | packed_ >> 2 | packed_ >> 3) & kOnes;
  }

  uint64_t packed_;
};

// The counters of all lines, by unit.
class ClockCounters {
 public:
  // Lines start at `units_offset`. With `on` false it stores nothing.
  ClockCounters(uint64_t units_offset, bool on) : units_offset_(units_offset), on_(on) {}

  bool on() const { return on_; }
  LineClocks Of(uint64_t line_offset) const {
    const LineClocks* const clocks = Find(NumberOf(line_offset));
    return clocks != nullptr ? *clocks : LineClocks();
  }
  void Set(uint64_t line_offset, LineClocks clocks) {
    if (!on_) return;
    const uint64_t number = NumberOf(line_offset);
    const uint64_t unit = number / kLinesPerUnit;
    if (unit >= units_.size()) units_.resize(unit + 1);
    if (units_[unit] == nullptr) {
      units_[unit] = std::make_unique<Unit>();
      lines_ += kLinesPerUnit;
    }
    LineClocks& present = (*units_[unit])[number % kLinesPerUnit];
    last_ += clocks.CountLast() - present.CountLast();
    present = clocks;
  }
  void Add(uint64_t line_offset, uint32_t word, uint32_t clock) {
    LineClocks* const clocks = Find(NumberOf(line_offset));
    if (clocks == nullptr) return;
    last_ -= clocks->At(word) == 1;
    clocks->Add(word, clock);
    last_ += clocks->At(word) == 1;
  }
  // Forgets the lines of the unit at `unit_offset`, which are no longer lines.
  void DropUnit(uint64_t unit_offset) {
    const uint64_t unit = NumberOf(unit_offset) / kLinesPerUnit;
    if (unit >= units_.size() || units_[unit] == nullptr) return;
    for (const LineClocks& clocks : *units_[unit]) last_ -= clocks.CountLast();
    units_[unit] = nullptr;
    lines_ -= kLinesPerUnit;
  }

  // The number of keys whose counter is 1.
  uint64_t last() const { return last_; }
  // The number of lines that have counters.
  uint64_t count() const { return lines_; }
  // The first line with counters whose number is not below `number`, from number 0 again after the
  // last. REQUIRES: count() > 0.
  uint64_t NextFrom(uint64_t number) const {
    for (;;) {
      const uint64_t unit = number / kLinesPerUnit;
      if (unit < units_.size() && units_[unit] != nullptr) return number;
      number = unit < units_.size() ? (unit + 1) * kLinesPerUnit : 0;
    }
  }
  uint64_t OffsetOf(uint64_t number) const { return units_offset_ + number * kLineBytes; }

 private:
  using Unit = std::array<LineClocks, kLinesPerUnit>;

  uint64_t NumberOf(uint64_t line_offset) const {
    return (line_offset - units_offset_) / kLineBytes;
  }
  LineClocks* Find(uint64_t number) const {
    const uint64_t unit = number / kLinesPerUnit;
    if (unit >= units_.size() || units_[unit] == nullptr) return nullptr;
    return &(*units_[unit])[number % kLinesPerUnit];
  }

  uint64_t units_offset_;
  bool on_;
  std::vector<std::unique_ptr<Unit>> units_;  // null: no counters
  uint64_t lines_ = 0;
  uint64_t last_ = 0;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SEGMENTS_CLOCK_COUNTERS_H_
