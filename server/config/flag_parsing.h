// Values of kvserver's flags, from text. Every error is one line: "--FLAG: " with the mistake and the
// fix, INVALID_ARGUMENT.
//
// Thread rule: plain functions.

#ifndef OSPREY_SERVER_CONFIG_FLAG_PARSING_H_
#define OSPREY_SERVER_CONFIG_FLAG_PARSING_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/address.h"

namespace osprey::server {

absl::Status Wrong(absl::string_view flag, absl::string_view what);

// One or more addresses, separated by commas; none twice, but for rdma:// with port 0.
absl::StatusOr<std::vector<rdma::Address>> ParseAddresses(absl::string_view flag,
                                                          absl::string_view text);

// From `least` to `most`.
absl::StatusOr<absl::Duration> ParseTime(absl::string_view flag, absl::string_view text,
                                         absl::Duration least, absl::Duration most);
absl::StatusOr<uint64_t> ParseBytes(absl::string_view flag, absl::string_view text, uint64_t least,
                                    uint64_t most);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CONFIG_FLAG_PARSING_H_
