#include "tests/support/notify_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace osprey {

NotifySocket::NotifySocket(const std::string& path) : fd_(socket(AF_UNIX, SOCK_DGRAM, 0)) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
}

NotifySocket::~NotifySocket() { close(fd_); }

std::vector<std::string> NotifySocket::Received() const {
  std::vector<std::string> messages;
  char text[1024];
  for (ssize_t count = 0; (count = recv(fd_, text, sizeof(text), MSG_DONTWAIT)) > 0;)
    messages.emplace_back(text, static_cast<size_t>(count));
  return messages;
}

}  // namespace osprey
