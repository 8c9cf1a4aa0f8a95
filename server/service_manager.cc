#include "server/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "rdma/unique_fd.h"

namespace osprey::server {

void TellServiceManager(absl::string_view state) {
  const char* const named = std::getenv("NOTIFY_SOCKET");
  if (named == nullptr) return;
  const absl::string_view name = named;
  sockaddr_un address = {};
  // A path, or @NAME for an abstract socket.
  if (name.size() < 2 || name.size() > sizeof(address.sun_path) ||
      (name[0] != '/' && name[0] != '@')) {
    return;
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';
  const rdma::UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return;
  (void)sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
               reinterpret_cast<const sockaddr*>(&address),
               static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size()));
}

}  // namespace osprey::server
