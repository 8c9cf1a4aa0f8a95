// Self-describing values: a reader can verify that a value was written to this key, and is whole.
//
//   number 8 B | key's number 8 B | length 8 B | filling, from the number | XXH3 of all before 8 B
//
// A key is "PREFIX/rN" or, of a counter, "PREFIX/nN".
//
// Thread rule: pure functions.

#ifndef OSPREY_TESTS_HISTORY_VALUE_H_
#define OSPREY_TESTS_HISTORY_VALUE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace osprey {

// Keys [0, kRegisters) hold values, the others numbers. They are few, so that operations collide.
// They are many enough that no key has more writes with an unknown result than the judge can
// handle.
inline constexpr uint16_t kRegisters = 40;
inline constexpr uint16_t kFaultKeys = 52;

std::string FaultKey(absl::string_view prefix, uint16_t key);

// `number` is not 0. Its low bits determine the length. Most values fit the index or a frame; the
// server READs some; clients READ a few in pieces.
std::string FaultValue(uint16_t key, int64_t number);

// The number of a value that FaultValue made for `key`; nullopt for any other value.
absl::optional<int64_t> NumberOfFaultValue(uint16_t key, absl::string_view value);

}  // namespace osprey

#endif  // OSPREY_TESTS_HISTORY_VALUE_H_
