#include "tests/history/value.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

struct Head {
  int64_t number;
  uint64_t key;
  uint64_t length;
};

// Inline, an item, an item, by rendezvous, and in pieces.
size_t LengthOf(int64_t number) {
  const uint64_t low = static_cast<uint64_t>(number) % 64;
  if (low < 24) return 32;
  if (low < 44) return 200;
  if (low < 56) return 3000;
  return low < 63 ? 20000 : 400000;
}

}  // namespace

std::string FaultKey(absl::string_view prefix, uint16_t key) {
  return key < kRegisters ? absl::StrCat(prefix, "/r", key)
                          : absl::StrCat(prefix, "/n", key - kRegisters);
}

std::string FaultValue(uint16_t key, int64_t number) {
  const size_t length = LengthOf(number);
  std::string value(length, '\0');
  const Head head{number, key, length};
  std::memcpy(value.data(), &head, sizeof(head));
  // An odd step generates all 64-bit values: no two words of a value are equal.
  uint64_t word = static_cast<uint64_t>(number) * 0x9E3779B97F4A7C15u;
  for (size_t at = sizeof(head); at + sizeof(word) < length; at += sizeof(word)) {
    word += 0xD1342543DE82EF95u;
    std::memcpy(value.data() + at, &word, std::min(sizeof(word), length - 8 - at));
  }
  const uint64_t hash = XXH3_64bits(value.data(), length - sizeof(hash));
  std::memcpy(value.data() + length - sizeof(hash), &hash, sizeof(hash));
  return value;
}

absl::optional<int64_t> NumberOfFaultValue(uint16_t key, absl::string_view value) {
  Head head;
  uint64_t hash = 0;
  if (value.size() < sizeof(head) + sizeof(hash)) return absl::nullopt;
  std::memcpy(&head, value.data(), sizeof(head));
  std::memcpy(&hash, value.data() + value.size() - sizeof(hash), sizeof(hash));
  const bool whole = head.key == key && head.length == value.size() && head.number != 0 &&
                     LengthOf(head.number) == value.size() &&
                     hash == XXH3_64bits(value.data(), value.size() - sizeof(hash));
  if (!whole) return absl::nullopt;
  return head.number;
}

}  // namespace osprey
