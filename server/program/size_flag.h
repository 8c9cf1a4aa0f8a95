// Sizes in the user's form: 4096, 64KiB, 512MiB, 4GiB, 1TiB.

#ifndef OSPREY_SERVER_PROGRAM_SIZE_FLAG_H_
#define OSPREY_SERVER_PROGRAM_SIZE_FLAG_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey::server {

// A size in bytes: a whole number and B, KiB, MiB, GiB, TiB (also K, M, G, T and lower case);
// without a unit, bytes. Errors: INVALID_ARGUMENT, with `text` and a valid example. Sizes beyond 64
// bits are refused.
absl::StatusOr<uint64_t> ParseSize(absl::string_view text);

// The shortest exact form: FormatSize(536870912) is "512MiB".
std::string FormatSize(uint64_t bytes);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_PROGRAM_SIZE_FLAG_H_
