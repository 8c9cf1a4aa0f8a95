// How much memory a number of pairs takes: measured, by filling a table as a server has it.

#ifndef OSPREY_SERVER_SIZING_H_
#define OSPREY_SERVER_SIZING_H_

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

// Whether a new server with --memory=`memory_bytes` takes all of them. Errors: those of
// HostMemory::Create; INVALID_ARGUMENT (too small for a table).
absl::StatusOr<bool> HoldsPairs(uint64_t memory_bytes, const Pairs& pairs);

// The least --memory that takes all of them, within 1 %. It fills tables of up to 256 Ki keys and
// 64 MiB for some seconds. Of more keys it takes a half, a quarter, …: an index of twice the keys is
// as full. Errors: as HoldsPairs'.
absl::StatusOr<uint64_t> LeastMemoryFor(const Pairs& pairs);

// A --memory, in whole MiB, of which the pairs take nine tenths. Errors: as HoldsPairs'.
absl::StatusOr<uint64_t> MemoryFor(const Pairs& pairs);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_SIZING_H_
