// Copies and compares bytes of any number. Most keys have one or two words, for which a call would
// take longer than the work.

#ifndef OSPREY_INDEX_LAYOUT_SHORT_BYTES_H_
#define OSPREY_INDEX_LAYOUT_SHORT_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace osprey::index {

// Whether `bytes` are the first and the last word together, which may overlap.
constexpr bool AreTwoWords(size_t bytes) { return bytes - sizeof(uint64_t) <= sizeof(uint64_t); }

inline uint64_t WordOf(const void* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

inline bool EqualBytes(const void* a, const void* b, size_t bytes) {
  if (!AreTwoWords(bytes)) return std::memcmp(a, b, bytes) == 0;
  const size_t last = bytes - sizeof(uint64_t);
  return WordOf(a) == WordOf(b) &&
         WordOf(static_cast<const char*>(a) + last) == WordOf(static_cast<const char*>(b) + last);
}

// REQUIRES: they do not overlap, and bytes > 0.
inline void CopyBytes(void* to, const void* from, size_t bytes) {
  if (!AreTwoWords(bytes)) {
    std::memcpy(to, from, bytes);
    return;
  }
  const size_t last = bytes - sizeof(uint64_t);
  const uint64_t first_word = WordOf(from);
  const uint64_t last_word = WordOf(static_cast<const char*>(from) + last);
  std::memcpy(to, &first_word, sizeof(first_word));
  std::memcpy(static_cast<char*>(to) + last, &last_word, sizeof(last_word));
}

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LAYOUT_SHORT_BYTES_H_
