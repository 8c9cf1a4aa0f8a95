#include "server/monitoring/http_address.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace osprey::server {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
constexpr char kExamples[] =
    "write 9100 for 127.0.0.1:9100, or 0.0.0.0:9100 for every IPv4 address of this machine";

absl::Status Wrong(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", absl::CEscape(text), "' ", what, "; ", kExamples));
}

// "HOST:" or "", before the port.
absl::StatusOr<std::string> HostOf(absl::string_view text, absl::string_view before) {
  if (before.empty() || before == ":") return std::string(kLoopback);
  std::string host(before.substr(0, before.size() - 1));
  if (host == "localhost") return std::string(kLoopback);
  in_addr bytes;
  if (inet_pton(AF_INET, host.c_str(), &bytes) == 1) return host;
  return Wrong(text, "does not begin with an IPv4 address in digits");
}

}  // namespace

std::string HttpAddress::ToString() const { return absl::StrCat(host, ":", port); }

absl::StatusOr<HttpAddress> ParseHttpAddress(absl::string_view text) {
  const size_t colon = text.rfind(':');
  const size_t digits = colon == absl::string_view::npos ? 0 : colon + 1;
  const absl::string_view port = text.substr(digits);
  uint32_t number = 0;
  if (port.empty() || !std::all_of(port.begin(), port.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(port, &number) || number > UINT16_MAX) {
    return Wrong(text, "does not end with a port, 0 to 65535");
  }
  absl::StatusOr<std::string> host = HostOf(text, text.substr(0, digits));
  if (!host.ok()) return host.status();
  return HttpAddress{*std::move(host), static_cast<uint16_t>(number)};
}

}  // namespace osprey::server
