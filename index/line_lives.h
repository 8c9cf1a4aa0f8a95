// How long each key may stay when memory is wanted: its *lives*, which the hand of eviction takes
// one by one (table_eviction.cc). Private to the server; in the region there is nothing of it.
//
// Four bits for each word of a line, in one word a line:
//
//   word of the line   0            1     2     3            4           …
//                      slot         inline item (3 words)    slot
//   lives              1 … 15       1…15  0     0            1 … 15
//
// 0 where no key begins. A key keeps its lives while it moves within the index, whatever form it
// has. 8 B for each line of 128 B, and nothing where eviction is off.
//
// Not thread-safe.

#ifndef OSPREY_INDEX_LINE_LIVES_H_
#define OSPREY_INDEX_LINE_LIVES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "index/layout.h"

namespace osprey::index {

// Measured by tests/evict_benchmark; why is in README.md.
inline constexpr uint32_t kLivesMax = 15;
inline constexpr uint32_t kLivesNew = 1;      // the next pass of the hand takes it
inline constexpr uint32_t kLivesPerHint = 4;  // a hint stands for some hits that were not sampled
inline constexpr uint32_t kLivesPerWrite = 1;

// The lives of one line's keys.
class Lives {
 public:
  constexpr explicit Lives(uint64_t packed = 0) : packed_(packed) {}
  constexpr uint64_t packed() const { return packed_; }

  constexpr uint32_t At(uint32_t word) const {
    return static_cast<uint32_t>(packed_ >> 4 * word & kLivesMax);
  }
  constexpr void Set(uint32_t word, uint32_t lives) {
    packed_ &= ~(uint64_t{kLivesMax} << 4 * word);
    packed_ |= uint64_t{lives} << 4 * word;
  }
  // Where a key begins. Elsewhere nothing lives.
  constexpr void Add(uint32_t word, uint32_t lives) {
    if (At(word) != 0) Set(word, std::min(At(word) + lives, kLivesMax));
  }
  // Takes the places of `words` words from `word` out; what follows moves up.
  constexpr void Remove(uint32_t word, uint32_t words) {
    const uint64_t below = packed_ & ((uint64_t{1} << 4 * word) - 1);
    packed_ = below | packed_ >> 4 * (word + words) << 4 * word;
  }
  // One life of each that has more than one.
  constexpr void Age() { packed_ -= SeveralLives(); }
  // Whether one has its last.
  constexpr bool AnyLast() const { return (packed_ & kOnes & ~SeveralLives()) != 0; }

 private:
  static_assert(4 * kLineWords <= 64);
  static constexpr uint64_t kOnes = 0x1111'1111'1111'1111;
  // 1 in the place of each that has 2 or more.
  constexpr uint64_t SeveralLives() const {
    return (packed_ >> 1 | packed_ >> 2 | packed_ >> 3) & kOnes;
  }

  uint64_t packed_;
};

// Those of all lines.
class LineLives {
 public:
  // Lines start at `units_offset`. Off, nothing is remembered.
  LineLives(uint64_t units_offset, bool on) : units_offset_(units_offset), on_(on) {}

  bool on() const { return on_; }
  Lives Of(uint64_t line_offset) const {
    const uint64_t number = NumberOf(line_offset);
    return number < lines_.size() ? lines_[number] : Lives();
  }
  void Set(uint64_t line_offset, Lives lives) {
    if (!on_) return;
    const uint64_t number = NumberOf(line_offset);
    // A unit at a time, as lines come.
    if (number >= lines_.size()) lines_.resize((number / kLinesPerUnit + 1) * kLinesPerUnit);
    lines_[number] = lives;
  }
  void Add(uint64_t line_offset, uint32_t word, uint32_t lives) {
    const uint64_t number = NumberOf(line_offset);
    if (number < lines_.size()) lines_[number].Add(word, lives);
  }
  // Lines 0 … count - 1 are those of all units that were ever in use.
  uint64_t count() const { return lines_.size(); }
  uint64_t OffsetOf(uint64_t number) const { return units_offset_ + number * kLineBytes; }

 private:
  uint64_t NumberOf(uint64_t line_offset) const {
    return (line_offset - units_offset_) / kLineBytes;
  }

  uint64_t units_offset_;
  bool on_;
  std::vector<Lives> lines_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LINE_LIVES_H_
