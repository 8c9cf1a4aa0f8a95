#include "server/config/flag_parsing.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/program/size_flag.h"

namespace osprey::server {

absl::Status Wrong(absl::string_view flag, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", what));
}

absl::StatusOr<std::vector<rdma::Address>> ParseAddresses(absl::string_view flag,
                                                          absl::string_view text) {
  std::vector<rdma::Address> addresses;
  std::vector<std::string> seen;
  for (absl::string_view uri : absl::StrSplit(text, ',')) {
    absl::StatusOr<rdma::Address> address = rdma::ParseAddress(uri);
    if (!address.ok()) return Wrong(flag, address.status().message());
    const std::string normal = address->ToString();
    // Port 0 requests any free port: twice means two ports.
    const bool any_port = address->scheme == rdma::Address::Scheme::kRdma && address->port == 0;
    if (!any_port && std::find(seen.begin(), seen.end(), normal) != seen.end()) {
      return Wrong(flag,
                   absl::StrCat(absl::CEscape(normal), " is given twice; name each address once"));
    }
    seen.push_back(normal);
    addresses.push_back(*std::move(address));
  }
  return addresses;
}

absl::StatusOr<absl::Duration> ParseTime(absl::string_view flag, absl::string_view text,
                                         absl::Duration least, absl::Duration most) {
  absl::Duration time;
  if (!absl::ParseDuration(text, &time)) {
    return Wrong(flag, absl::StrCat("'", absl::CEscape(text),
                                    "' is no duration; write one such as 100ms, 2s or 1h30m"));
  }
  if (time < least || time > most) {
    return Wrong(flag, absl::StrCat(text, " is out of range; write ", absl::FormatDuration(least),
                                    " to ", absl::FormatDuration(most)));
  }
  return time;
}

absl::StatusOr<uint64_t> ParseBytes(absl::string_view flag, absl::string_view text, uint64_t least,
                                    uint64_t most) {
  const absl::StatusOr<uint64_t> bytes = ParseSize(text);
  if (!bytes.ok()) return Wrong(flag, bytes.status().message());
  if (*bytes < least)
    return Wrong(flag, absl::StrCat(text, " is too small; it takes at least ", FormatSize(least)));
  if (*bytes > most)
    return Wrong(flag,
                 absl::StrCat(text, " is too large; at most ", FormatSize(most), " can be used"));
  return bytes;
}

}  // namespace osprey::server
