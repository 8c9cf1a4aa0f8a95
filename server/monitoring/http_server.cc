#include "server/monitoring/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <map>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rdma/unique_fd.h"
#include "server/monitoring/http_request.h"
#include "server/monitoring/signals_blocked.h"

namespace osprey::server {
namespace {

using rdma::UniqueFd;
using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 128;
// Of one turn. Fewer than may come from one address, so that a new connection outlives the turn
// after the one that accepted it.
constexpr int kAcceptsMax = 16;
constexpr size_t kReadBytes = 4096;
// Behind a request. A peer that sends more is reset.
constexpr size_t kDrainedBytesMax = 256 << 10;
// While no descriptor is left, nothing is accepted.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
// Where epoll_wait fails, which it has no reason to.
constexpr auto kFailurePause = std::chrono::milliseconds(10);

absl::Status SystemError(absl::string_view call) {
  return absl::ResourceExhaustedError(absl::StrCat(
      call, ": ", std::strerror(errno), "; allow more open files (ulimit -n), or free memory"));
}

absl::Status Unavailable(absl::string_view call) {
  return absl::UnavailableError(absl::StrCat(call, ": ", std::strerror(errno)));
}

// Sets the port that was found.
absl::StatusOr<UniqueFd> ListenAt(HttpAddress& address) {
  sockaddr_in bound = {};
  bound.sin_family = AF_INET;
  bound.sin_port = htons(address.port);
  const int is_address = inet_pton(AF_INET, address.host.c_str(), &bound.sin_addr);
  assert(is_address == 1);  // as ParseHttpAddress makes it
  (void)is_address;
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SystemError("socket");
  // A server that was started again need not wait for the connections of the one before it.
  const int on = 1;
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  socklen_t length = sizeof(bound);
  auto* const name = reinterpret_cast<sockaddr*>(&bound);
  if (bind(fd.get(), name, length) != 0) return Unavailable("bind");
  if (listen(fd.get(), kBacklog) != 0) return Unavailable("listen");
  if (getsockname(fd.get(), name, &length) != 0) return Unavailable("getsockname");
  address.port = ntohs(bound.sin_port);
  return fd;
}

std::string TextOf(const HttpPage& page, bool is_head) {
  return absl::StrCat("HTTP/1.1 ", page.status, " ", HttpReason(page.status),
                      "\r\nContent-Type: ", page.content_type, "\r\n", page.headers,
                      "Content-Length: ", page.body.size(), "\r\nConnection: close\r\n",
                      page.status == 405 ? "Allow: GET, HEAD\r\n" : "", "\r\n",
                      is_head ? "" : page.body);
}

HttpPage Refusal(int status) {
  HttpPage page;
  page.status = status;
  page.body = status == 405 ? "this takes GET and HEAD\n" : absl::StrCat(HttpReason(status), "\n");
  return page;
}

enum class State { kReading, kAnswering, kWriting, kDraining, kClosed };

struct Connection {
  UniqueFd fd;
  in_addr_t peer = 0;
  Clock::time_point end;
  State state = State::kReading;
  std::string input;
  HttpRequest request;
  std::string output;
  size_t sent = 0;
  size_t drained = 0;
};

}  // namespace

// All of it but its construction, Start and Stop is for its thread.
class HttpServer::Loop {
 public:
  Loop(Answer answer, const HttpLimits& limits) : answer_(std::move(answer)), limits_(limits) {}

  absl::Status Start(UniqueFd listener) {
    listener_ = std::move(listener);
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_.valid()) return SystemError("epoll_create1");
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return SystemError("pipe2");
    stopped_.reset(ends[0]);
    stop_.reset(ends[1]);
    if (!Watch(EPOLL_CTL_ADD, stopped_.get(), 0, &stopped_) ||
        !Watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN, &listener_)) {
      return SystemError("epoll_ctl");
    }
    try {
      const SignalsBlocked blocked;
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error&) {
      return absl::ResourceExhaustedError(
          "there is no thread for it; allow more of them (ulimit -u, TasksMax)");
    }
    return absl::OkStatus();
  }

  void Stop() {
    stop_.reset();  // the thread sees the other end hang up
    if (thread_.joinable()) thread_.join();
  }

 private:
  bool Watch(int operation, int fd, uint32_t events, void* what) {
    epoll_event event = {};
    event.events = events;
    event.data.ptr = what;
    return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
  }

  void Run() {
    pthread_setname_np(pthread_self(), "metrics-http");
    // Each connection may be ready, besides the two.
    std::vector<epoll_event> events(limits_.connections_max + 2);
    while (true) {
      const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   WaitMs(Clock::now()));
      if (count < 0 && errno != EINTR) std::this_thread::sleep_for(kFailurePause);
      bool is_called = false;
      for (int i = 0; i < count; ++i) {
        void* const what = events[static_cast<size_t>(i)].data.ptr;
        if (what == &stopped_) return;
        if (what == &listener_) {
          is_called = true;
        } else {
          ContinueWith(*static_cast<Connection*>(what));
        }
      }
      AnswerAll();
      const Clock::time_point now = Clock::now();
      CloseExpired(now);
      if (is_paused_ && now >= pause_end_) SetPaused(false);
      // Last, since it may close others, whose requests have been read by now.
      if (is_called) AcceptSome(now);
      connections_.remove_if([](const Connection& one) { return one.state == State::kClosed; });
    }
  }

  // Until the next time that something is due; -1: for ever.
  int WaitMs(Clock::time_point now) const {
    Clock::time_point next = Clock::time_point::max();
    if (!connections_.empty()) next = connections_.front().end;
    if (is_paused_) next = std::min(next, pause_end_);
    if (next == Clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
    return static_cast<int>(std::max<int64_t>(left, 0));
  }

  void ContinueWith(Connection& connection) {
    switch (connection.state) {
      case State::kReading:
        return Read(connection);
      case State::kWriting:
        return Write(connection);
      case State::kDraining:
        return Drain(connection);
      case State::kAnswering:
      case State::kClosed:
        return;
    }
  }

  void Read(Connection& connection) {
    char bytes[kReadBytes];
    const ssize_t count = recv(connection.fd.get(), bytes, sizeof(bytes), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return Close(connection);
    const size_t searched = connection.input.size();
    connection.input.append(bytes, static_cast<size_t>(count));
    connection.request = ParseHttpRequest(connection.input, searched);
    if (connection.request.status != 0) connection.state = State::kAnswering;
  }

  // What follows the request is read and dropped: closing a socket with unread bytes would reset
  // the connection, and the peer might not get its answer.
  void Drain(Connection& connection) {
    char bytes[kReadBytes];
    const ssize_t count = recv(connection.fd.get(), bytes, sizeof(bytes), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return Close(connection);
    connection.drained += static_cast<size_t>(count);
    if (connection.drained > kDrainedBytesMax) Close(connection);
  }

  void AnswerAll() {
    std::map<std::string, HttpPage> pages;  // of this turn, by path
    for (Connection& connection : connections_) {
      if (connection.state != State::kAnswering) continue;
      const HttpRequest& request = connection.request;
      if (request.status == 200) {
        const auto [page, is_new] = pages.try_emplace(request.path);
        if (is_new) page->second = answer_(request.path);
        connection.output = TextOf(page->second, request.is_head);
      } else {
        connection.output = TextOf(Refusal(request.status), request.is_head);
      }
      connection.state = State::kWriting;
      Write(connection);
    }
  }

  void Write(Connection& connection) {
    const absl::string_view rest = absl::string_view(connection.output).substr(connection.sent);
    const ssize_t count = send(connection.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return Close(connection);
    if (count > 0) connection.sent += static_cast<size_t>(count);
    uint32_t events = EPOLLOUT;
    if (connection.sent == connection.output.size()) {
      if (shutdown(connection.fd.get(), SHUT_WR) != 0) return Close(connection);
      connection.state = State::kDraining;
      connection.output = {};
      events = EPOLLIN;
    }
    if (!Watch(EPOLL_CTL_MOD, connection.fd.get(), events, &connection)) Close(connection);
  }

  // It leaves the list at the end of the turn: events of this turn may still name it.
  void Close(Connection& connection) {
    connection.fd.reset();
    connection.state = State::kClosed;
  }

  void CloseExpired(Clock::time_point now) {
    for (Connection& connection : connections_) {
      if (connection.end > now) return;  // they are in the order of their acceptance
      Close(connection);
    }
  }

  void AcceptSome(Clock::time_point now) {
    for (int i = 0; i < kAcceptsMax; ++i) {
      sockaddr_in peer = {};
      socklen_t length = sizeof(peer);
      UniqueFd fd(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &length,
                          SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          // The call fails even when no connection waits any more. The next turn tells.
          if (i > 0) return;
          // The newest wins here, too: the next turn has its descriptor.
          if (!CloseOldest([](const Connection&) { return true; })) Pause(now);
          return;
        }
        if (errno == EAGAIN) return;
        continue;  // this one has gone again
      }
      MakeRoomFor(peer.sin_addr.s_addr);
      Connection& connection = connections_.emplace_back();
      connection.fd = std::move(fd);
      connection.peer = peer.sin_addr.s_addr;
      connection.end = now + absl::ToChronoNanoseconds(limits_.connection_time_max);
      if (!Watch(EPOLL_CTL_ADD, connection.fd.get(), EPOLLIN, &connection)) Close(connection);
    }
  }

  void MakeRoomFor(in_addr_t peer) {
    size_t all = 0;
    std::map<in_addr_t, size_t> by_address;
    for (const Connection& connection : connections_) {
      if (connection.state == State::kClosed) continue;
      ++all;
      ++by_address[connection.peer];
    }
    if (by_address[peer] < limits_.connections_per_address_max) {
      if (all < limits_.connections_max) return;
      // Of the address that has most.
      peer =
          std::max_element(by_address.begin(), by_address.end(), [](const auto& a, const auto& b) {
            return a.second < b.second;
          })->first;
    }
    CloseOldest([peer](const Connection& connection) { return connection.peer == peer; });
  }

  // False: there is none such.
  template <typename IsSuch>
  bool CloseOldest(IsSuch is_such) {
    const auto oldest =
        std::find_if(connections_.begin(), connections_.end(), [&](const Connection& connection) {
          return connection.state != State::kClosed && is_such(connection);
        });
    if (oldest == connections_.end()) return false;
    Close(*oldest);
    return true;
  }

  // While nothing is accepted, the listener must not wake the thread.
  void Pause(Clock::time_point now) {
    pause_end_ = now + kAcceptPause;
    SetPaused(true);
  }
  void SetPaused(bool is_paused) {
    if (Watch(EPOLL_CTL_MOD, listener_.get(), is_paused ? 0u : uint32_t{EPOLLIN}, &listener_))
      is_paused_ = is_paused;
  }

  const Answer answer_;
  const HttpLimits limits_;
  UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd stopped_;                   // the end of a pipe that the thread watches
  UniqueFd stop_;                      // the other one
  std::list<Connection> connections_;  // by acceptance
  bool is_paused_ = false;
  Clock::time_point pause_end_;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Open(const HttpAddress& address,
                                                             Answer answer,
                                                             const HttpLimits& limits) {
  HttpAddress found = address;
  absl::StatusOr<UniqueFd> listener = ListenAt(found);
  if (!listener.ok()) return listener.status();
  auto loop = std::make_unique<Loop>(std::move(answer), limits);
  if (absl::Status started = loop->Start(*std::move(listener)); !started.ok()) return started;
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(found), std::move(loop)));
}

HttpServer::HttpServer(HttpAddress address, std::unique_ptr<Loop> loop)
    : address_(std::move(address)), loop_(std::move(loop)) {}

HttpServer::~HttpServer() { loop_->Stop(); }

}  // namespace osprey::server
