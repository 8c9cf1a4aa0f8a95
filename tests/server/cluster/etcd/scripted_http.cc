#include "tests/server/cluster/etcd/scripted_http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cassert>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

constexpr int kPollMs = 5;

bool IsReady(int fd, short events) {
  pollfd waited = {fd, events, 0};
  return poll(&waited, 1, kPollMs) > 0;
}

// The length of the first whole request in `bytes`; 0: it is not whole.
size_t RequestLength(const std::string& bytes) {
  const size_t head = bytes.find("\r\n\r\n");
  if (head == bytes.npos) return 0;
  const size_t field = bytes.find("Content-Length: ");
  const size_t body = field < head ? std::strtoul(bytes.c_str() + field + 16, nullptr, 10) : 0;
  const size_t length = head + 4 + body;
  return bytes.size() >= length ? length : 0;
}

}  // namespace

ScriptedHttp::ScriptedHttp(Script script) : script_(std::move(script)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const bool listens =
      bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      listen(listener_, 16) == 0 &&
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  assert(listens);
  (void)listens;
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Serve(); });
}

ScriptedHttp::~ScriptedHttp() {
  ends_ = true;
  thread_.join();
  close(listener_);
}

std::vector<std::string> ScriptedHttp::Requests() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return requests_;
}

bool ScriptedHttp::Send(int connection, absl::string_view bytes) const {
  while (!bytes.empty()) {
    if (ends_) return false;
    if (!IsReady(connection, POLLOUT)) continue;
    const ssize_t sent = send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return !ends_;
}

void ScriptedHttp::WaitForEnd(int connection) const {
  char byte;
  while (!ends_) {
    if (IsReady(connection, POLLIN) && recv(connection, &byte, 1, MSG_DONTWAIT) <= 0) return;
  }
}

void ScriptedHttp::Serve() {
  while (!ends_) {
    if (!IsReady(listener_, POLLIN)) continue;
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    ServeConnection(connection);
    close(connection);
  }
}

void ScriptedHttp::ServeConnection(int connection) {
  std::string bytes;
  char buffer[65536];
  while (!ends_) {
    if (!IsReady(connection, POLLIN)) continue;
    const ssize_t got = recv(connection, buffer, sizeof(buffer), 0);
    if (got <= 0) return;
    bytes.append(buffer, static_cast<size_t>(got));
    const size_t length = RequestLength(bytes);
    if (length == 0) continue;
    int number = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      requests_.push_back(bytes.substr(0, length));
      number = static_cast<int>(requests_.size());
    }
    bytes.erase(0, length);
    if (!script_(*this, connection, number)) return;
  }
}

ScriptedHttp::Script ScriptedHttp::Always(const std::string& bytes) {
  return
      [bytes](ScriptedHttp& server, int connection, int) { return server.Send(connection, bytes); };
}

ScriptedHttp::Script ScriptedHttp::Silence() {
  return [](ScriptedHttp& server, int connection, int) {
    server.WaitForEnd(connection);
    return false;
  };
}

ScriptedHttp::Script ScriptedHttp::Hangup() {
  return [](ScriptedHttp&, int, int) { return false; };
}

std::string HttpAnswerOf(int status, absl::string_view body) {
  return absl::StrCat("HTTP/1.1 ", status, " Some Reason\r\nContent-Length: ", body.size(),
                      "\r\nConnection: keep-alive\r\n\r\n", body);
}

}  // namespace osprey
