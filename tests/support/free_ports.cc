#include "tests/support/free_ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <random>

namespace osprey {

// They lie below those that the kernel gives, so that none is taken away while its member does not run.
std::vector<uint16_t> FreePorts(size_t count) {
  constexpr uint16_t kFirst = 12000, kLast = 32000;
  std::random_device random;
  std::uniform_int_distribution<uint16_t> any(kFirst, kLast);
  std::vector<uint16_t> ports;
  while (ports.size() < count) {
    const uint16_t port = any(random);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    if (is_free && std::find(ports.begin(), ports.end(), port) == ports.end())
      ports.push_back(port);
  }
  return ports;
}

}  // namespace osprey
