// The address of an HTTP server in the user's form: HOST:PORT, :PORT or PORT.

#ifndef OSPREY_SERVER_MONITORING_HTTP_ADDRESS_H_
#define OSPREY_SERVER_MONITORING_HTTP_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey::server {

// An IPv4 address in digits, and a port; 0: any.
struct HttpAddress {
  std::string host;
  uint16_t port = 0;

  // "HOST:PORT", as in URLs.
  std::string ToString() const;
};

// Without a host it is 127.0.0.1: another host must be given explicitly. Errors: INVALID_ARGUMENT
// with the mistake and the fix.
absl::StatusOr<HttpAddress> ParseHttpAddress(absl::string_view text);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_MONITORING_HTTP_ADDRESS_H_
