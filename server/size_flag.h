// Sizes as people write them: 4096, 64KiB, 512MiB, 4GiB, 1TiB.

#ifndef OSPREY_SERVER_SIZE_FLAG_H_
#define OSPREY_SERVER_SIZE_FLAG_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey::server {

// Bytes. A whole number and B, KiB, MiB, GiB, TiB (K, M, G, T and small letters as well); without a
// unit, bytes. Errors: INVALID_ARGUMENT: quotes `text` and gives an example of what is right.
// Nothing that does not fit into 64 bits.
absl::StatusOr<uint64_t> ParseSize(absl::string_view text);

// The shortest exact form: FormatSize(536870912) is "512MiB".
std::string FormatSize(uint64_t bytes);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_SIZE_FLAG_H_
