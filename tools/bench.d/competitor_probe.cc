// competitor_probe: sends requests to a Redis or memcached server, as standard input says, and prints
// how long they took.
//
//   competitor_probe --protocol=redis|memcached --address=tcp://IP:PORT|unix://PATH [--nospin]
//               [--connections=N]
//
//   fill keys=a count=1000 size=64
//   get keys=a of=1000 count=2000 size=64 [depth=32]
//   set …
//
// With --spin (the default) it polls its sockets without pause, which no packaged client does; else
// it sleeps in recv(). depth: requests that are sent at once, on each connection, and all of them
// are answered before the next. Every answer is known to the byte, and compared. Exit status as
// osprey_probe's.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gflags/gflags.h"
#include "server/program/flags.h"
#include "tools/bench.d/probe.h"

DEFINE_string(protocol, "", "redis or memcached");
DEFINE_string(address, "", "tcp://IP:PORT or unix://PATH");
DEFINE_bool(spin, true, "poll without pause");
DEFINE_int32(connections, 1, "connections, used in turns");

namespace osprey::bench {
namespace {

constexpr uint64_t kCountMax = 1'000'000'000;
constexpr uint64_t kKeysMax = 10'000'000;
// What is sent at once must fit the sockets' buffers, since nothing is read meanwhile.
constexpr uint64_t kBatchBytesMax = 64 << 10;
constexpr uint64_t kDepthMax = 4096;
constexpr uint64_t kWarmup = 100;
constexpr int kConnectionsMax = 64;
constexpr uint64_t kAnswerNsMax = 10'000'000'000;

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<int> ConnectTo(int family, const sockaddr* address, socklen_t length) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return SystemError("socket");
  if (connect(fd, address, length) == 0) return fd;
  const absl::Status status = SystemError(absl::StrCat("connecting to ", FLAGS_address));
  close(fd);
  return status;
}

absl::StatusOr<int> Connect() {
  absl::string_view rest = FLAGS_address;
  if (absl::ConsumePrefix(&rest, "unix://")) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    if (rest.size() >= sizeof(address.sun_path)) return absl::InvalidArgumentError("a long path");
    std::memcpy(address.sun_path, rest.data(), rest.size());
    return ConnectTo(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  uint32_t port = 0;
  const size_t colon = rest.rfind(':');
  if (!absl::ConsumePrefix(&rest, "tcp://") ||
      !absl::SimpleAtoi(rest.substr(rest.rfind(':') + 1), &port) || port > 65535 ||
      colon == absl::string_view::npos ||
      inet_pton(AF_INET, std::string(rest.substr(0, rest.rfind(':'))).c_str(), &address.sin_addr) !=
          1) {
    return absl::InvalidArgumentError("--address is tcp://IP:PORT or unix://PATH");
  }
  address.sin_port = htons(static_cast<uint16_t>(port));
  absl::StatusOr<int> fd =
      ConnectTo(AF_INET, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int on = 1;
  if (fd.ok()) (void)setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

struct Exchange {
  std::string request;
  std::string answer;
};

class Competitor {
 public:
  explicit Competitor(std::vector<int> sockets) : sockets_(std::move(sockets)) {}
  ~Competitor() {
    for (const int fd : sockets_) close(fd);
  }

  absl::StatusOr<Json> Answer(Request& request) {
    set_ = request.Text("keys", "k");
    of_ = std::max<uint64_t>(1, request.Number("of", 1, kKeysMax));
    const uint64_t count = request.Number("count", 1, kCountMax);
    size_ = request.Number("size", 8, kBatchBytesMax);
    const uint64_t depth = std::max<uint64_t>(1, request.Number("depth", 1, kDepthMax));
    if (absl::Status status = request.error(); !status.ok()) return status;
    if (depth * (size_ + 64) > kBatchBytesMax && depth > 1)
      return absl::InvalidArgumentError("size times depth is above 64 KiB");
    if (request.what() == "fill") return Fill(count);
    if (request.what() != "get" && request.what() != "set")
      return absl::InvalidArgumentError("no such request");
    return Measure(request.what() == "get", count, depth);
  }

 private:
  void AddGet(const std::string& key, Exchange& exchange) const {
    const std::string value = ValueOf(key, size_);
    if (FLAGS_protocol == "redis") {
      absl::StrAppend(&exchange.request, "*2\r\n$3\r\nGET\r\n$", key.size(), "\r\n", key, "\r\n");
      absl::StrAppend(&exchange.answer, "$", size_, "\r\n", value, "\r\n");
    } else {
      absl::StrAppend(&exchange.request, "get ", key, "\r\n");
      absl::StrAppend(&exchange.answer, "VALUE ", key, " 0 ", size_, "\r\n", value, "\r\nEND\r\n");
    }
  }
  void AddSet(const std::string& key, Exchange& exchange) const {
    const std::string value = ValueOf(key, size_);
    if (FLAGS_protocol == "redis") {
      absl::StrAppend(&exchange.request, "*3\r\n$3\r\nSET\r\n$", key.size(), "\r\n", key, "\r\n$",
                      size_, "\r\n", value, "\r\n");
      absl::StrAppend(&exchange.answer, "+OK\r\n");
    } else {
      absl::StrAppend(&exchange.request, "set ", key, " 0 0 ", size_, "\r\n", value, "\r\n");
      absl::StrAppend(&exchange.answer, "STORED\r\n");
    }
  }

  static absl::Status Send(int fd, const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t count = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count < 0 && errno != EINTR) return SystemError("send");
      sent += static_cast<size_t>(std::max<ssize_t>(count, 0));
    }
    return absl::OkStatus();
  }

  // Into received_, whose size is what is awaited.
  absl::Status Receive(int fd) {
    const uint64_t late = NowNs() + kAnswerNsMax;
    for (size_t got = 0; got < received_.size();) {
      const ssize_t count =
          recv(fd, &received_[got], received_.size() - got, FLAGS_spin ? MSG_DONTWAIT : 0);
      if (count > 0) {
        got += static_cast<size_t>(count);
        continue;
      }
      if (count == 0) return absl::UnavailableError("the server closed the connection");
      if (errno != EAGAIN && errno != EINTR) return SystemError("recv");
      if (NowNs() > late) return absl::DeadlineExceededError("no answer");
    }
    return absl::OkStatus();
  }

  absl::Status Compare(const Exchange& exchange) const {
    if (received_ == exchange.answer) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("a wrong answer: ", received_.substr(0, 80)));
  }

  absl::StatusOr<Json> Fill(uint64_t count) {
    constexpr uint64_t kTogether = 16;
    for (uint64_t i = 0; i < count;) {
      Exchange exchange;
      do {
        AddSet(KeyOf(set_, i++), exchange);
      } while (i < count && i % kTogether != 0 && exchange.request.size() < kBatchBytesMax / 2);
      received_.resize(exchange.answer.size());
      absl::Status status = Send(sockets_[0], exchange.request);
      if (status.ok()) status = Receive(sockets_[0]);
      if (status.ok()) status = Compare(exchange);
      if (!status.ok()) return status;
    }
    return Json{{"count", count}};
  }

  // Batches of `depth`, one on each connection; what is between two of them is not timed.
  absl::StatusOr<Json> Measure(bool is_get, uint64_t count, uint64_t depth) {
    Histogram times;
    uint64_t done = 0;
    uint64_t spent = 0;
    const uint64_t warmup = depth == 1 ? kWarmup : 0;
    for (uint64_t i = 0; done < count; ++i) {
      std::vector<Exchange> exchanges(sockets_.size());
      for (Exchange& exchange : exchanges) {
        for (uint64_t j = 0; j < depth; ++j) {
          const std::string key = KeyOf(set_, random_() % of_);
          is_get ? AddGet(key, exchange) : AddSet(key, exchange);
        }
      }
      const absl::StatusOr<uint64_t> took = ExchangeAll(exchanges);
      if (!took.ok()) return took.status();
      if (i < warmup) continue;
      times.Record(*took);
      spent += *took;
      done += depth * sockets_.size();
    }
    Json json = Summary(times);
    json["per_second"] = static_cast<double>(done) / (static_cast<double>(spent) / 1e9);
    return json;
  }

  absl::StatusOr<uint64_t> ExchangeAll(const std::vector<Exchange>& exchanges) {
    const uint64_t began = NowNs();
    for (size_t c = 0; c < sockets_.size(); ++c) {
      if (absl::Status status = Send(sockets_[c], exchanges[c].request); !status.ok())
        return status;
    }
    uint64_t ended = began;
    for (size_t c = 0; c < sockets_.size(); ++c) {
      received_.resize(exchanges[c].answer.size());
      if (absl::Status status = Receive(sockets_[c]); !status.ok()) return status;
      ended = NowNs();
      if (absl::Status status = Compare(exchanges[c]); !status.ok()) return status;
    }
    return ended - began;
  }

  const std::vector<int> sockets_;
  std::minstd_rand random_{std::random_device()()};
  std::string set_;
  uint64_t of_ = 1;
  uint64_t size_ = 8;
  std::string received_;
};

int Run(int argc, char** argv) {
  const absl::StatusOr<std::vector<std::string>> rest = ParseFlags(ArgumentsOf(argc, argv));
  const bool known = FLAGS_protocol == "redis" || FLAGS_protocol == "memcached";
  if (!rest.ok() || !rest->empty() || !known || FLAGS_connections < 1 ||
      FLAGS_connections > kConnectionsMax) {
    std::cerr
        << "usage: competitor_probe --protocol=redis|memcached --address=tcp://IP:PORT|unix://PATH "
           "[--nospin] [--connections=1…64], requests on standard input\n";
    return 2;
  }
  std::vector<int> sockets;
  for (int i = 0; i < FLAGS_connections; ++i) {
    const absl::StatusOr<int> fd = Connect();
    if (!fd.ok()) {
      std::cerr << "competitor_probe: " << fd.status().message() << "\n";
      return 1;
    }
    sockets.push_back(*fd);
  }
  Competitor competitor(std::move(sockets));
  return Serve([&](Request& request) { return competitor.Answer(request); });
}

}  // namespace
}  // namespace osprey::bench

int main(int argc, char** argv) { return osprey::bench::Run(argc, argv); }
