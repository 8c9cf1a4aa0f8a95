// How much memory a number of pairs takes: measured, by filling a table as a server has it.

#ifndef OSPREY_SERVER_CONFIG_SIZING_H_
#define OSPREY_SERVER_CONFIG_SIZING_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey::server {

struct Pairs {
  uint64_t keys = 0;
  uint64_t key_bytes = 0;    // of each key
  uint64_t value_bytes = 0;  // of each value
};

// Of "KEYS,KEY_BYTES,VALUE_BYTES". Errors: INVALID_ARGUMENT (with a valid example, or the bound).
absl::StatusOr<Pairs> ParsePairs(absl::string_view text);

// The bytes that a table of so many pairs takes of a region in which it need not save any. A table
// in less memory may hold them, or not, as its segments happen to split. It fills a table of up to
// 256 Ki keys and 64 MiB. Of more keys it takes a half, a quarter, …: an index of twice the keys is
// as full. Errors: those of HostMemory::Create.
absl::StatusOr<uint64_t> BytesTaken(const Pairs& pairs);

// A --memory, in whole MiB, of which the pairs take nine tenths, with PartitionsFor(pollers).
// Errors: as BytesTaken's; INVALID_ARGUMENT (more than a server may have).
absl::StatusOr<uint64_t> MemoryFor(const Pairs& pairs, uint32_t pollers);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CONFIG_SIZING_H_
