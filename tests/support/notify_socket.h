// The messages to a service manager: the socket that NOTIFY_SOCKET names.

#ifndef OSPREY_TESTS_SUPPORT_NOTIFY_SOCKET_H_
#define OSPREY_TESTS_SUPPORT_NOTIFY_SOCKET_H_

#include <string>
#include <vector>

namespace osprey {

class NotifySocket {
 public:
  explicit NotifySocket(const std::string& path);
  ~NotifySocket();
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  // The datagrams received since the last call, concatenated.
  std::vector<std::string> Received() const;

 private:
  const int fd_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SUPPORT_NOTIFY_SOCKET_H_
