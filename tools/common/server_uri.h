// The choice of a tool's server.
//
// Thread rule: any.

#ifndef OSPREY_TOOLS_COMMON_SERVER_URI_H_
#define OSPREY_TOOLS_COMMON_SERVER_URI_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey {

// The address at which the installed service accepts clients of its host
// (tools/packaging/kvserver.flags.head).
inline constexpr char kInstalledSocket[] = "/run/osprey/osprey.sock";

// The value of --server. If that is empty, the environment's OSPREY_SERVER; if that is empty, too,
// the socket of the installed service, if it exists. Errors: INVALID_ARGUMENT: there is none.
absl::StatusOr<std::string> ServerUriOf(absl::string_view flag,
                                        const std::string& installed_socket = kInstalledSocket);

}  // namespace osprey

#endif  // OSPREY_TOOLS_COMMON_SERVER_URI_H_
