// Values made of chunks. Each chunk shows its number and is checked, so that a value that was read
// shows the writes that made it.
//
//   number 8 B | length 8 B | filling, from the number | XXH3 of all before 8 B
//
// Thread rule: pure functions.

#ifndef OSPREY_TESTS_DURABILITY_CHUNKS_H_
#define OSPREY_TESTS_DURABILITY_CHUNKS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace osprey {

inline constexpr size_t kChunkBytesMin = 24;

// `length` is at least kChunkBytesMin.
std::string Chunk(int64_t number, size_t length);

// The text for a chunk in histories: "7;".
std::string NameOfChunk(int64_t number);

// The names of a value's chunks in their order; "" for an empty value. nullopt: some byte was not
// made by Chunk.
absl::optional<std::string> NamesOfChunks(absl::string_view value);

}  // namespace osprey

#endif  // OSPREY_TESTS_DURABILITY_CHUNKS_H_
