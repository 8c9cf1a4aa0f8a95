// The HTTP server of the metrics: what is a request, and that no peer keeps another from its
// answer.

#include "server/monitoring/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/monitoring/http_request.h"
#include "tests/support/scraping.h"

namespace osprey::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// --- Requests

TEST(HttpRequestTest, CompleteRequestParsesToItsPathWithoutTheQuery) {
  for (const char* text :
       {"GET /healthz HTTP/1.1\r\n\r\n", "GET /healthz?x=/y&z HTTP/1.0\r\nHost: a:1\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nX-Empty:\r\nx:\t y \xff\r\n\r\nand what follows"}) {
    const HttpRequest request = ParseHttpRequest(text);
    EXPECT_EQ(request.status, 200) << text;
    EXPECT_EQ(request.path, "/healthz") << text;
    EXPECT_FALSE(request.is_head) << text;
  }
  EXPECT_TRUE(ParseHttpRequest("HEAD / HTTP/1.1\r\n\r\n").is_head);
}

TEST(HttpRequestTest, AnyBeginningOfOneWaitsForTheRestHoweverItComes) {
  const std::string text = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (size_t length = 0; length < text.size(); ++length)
    EXPECT_EQ(ParseHttpRequest(text.substr(0, length)).status, 0) << length;
  for (size_t searched = 0; searched < text.size(); ++searched)
    EXPECT_EQ(ParseHttpRequest(text, searched).status, 200) << searched;
}

TEST(HttpRequestTest, WhatIsNoneIsRefusedWithItsStatus) {
  const auto status = [](const std::string& text) { return ParseHttpRequest(text).status; };
  for (const std::string& text : {std::string("\r\n\r\n"),
                                  std::string("nonsense\r\n\r\n"),
                                  std::string("GET\r\n\r\n"),
                                  std::string("GET / \r\n\r\n"),
                                  std::string("GET  / HTTP/1.1\r\n\r\n"),
                                  std::string("GET / HTTP/1.1 \r\n\r\n"),
                                  std::string("GET nothing HTTP/1.1\r\n\r\n"),
                                  std::string("GET http://a/ HTTP/1.1\r\n\r\n"),
                                  std::string("GET * HTTP/1.1\r\n\r\n"),
                                  std::string("GET /\x01 HTTP/1.1\r\n\r\n"),
                                  std::string("GET /\xc3\xa9 HTTP/1.1\r\n\r\n"),
                                  std::string("G(T / HTTP/1.1\r\n\r\n"),
                                  std::string("GET / HTTQ/1.1\r\n\r\n"),
                                  std::string("GET / HTTP/1.10\r\n\r\n"),
                                  std::string("GET / HTTP/x.1\r\n\r\n"),
                                  std::string("GET / HTTP/1.1\r\nno header\r\n\r\n"),
                                  std::string("GET / HTTP/1.1\r\nA : b\r\n\r\n"),
                                  std::string("GET / HTTP/1.1\r\n: b\r\n\r\n"),
                                  std::string("GET / HTTP/1.1\r\nA: b\r\n goes on\r\n\r\n"),
                                  std::string("GET / HTTP/1.1\r\nA: b\nc\r\n\r\n"),
                                  std::string(10, '\0') + "\r\n\r\n",
                                  std::string("GET / HTTP/1.1\r\nA: \0\r\n\r\n", 24),
                                  std::string(17, 'A') + " / HTTP/1.1\r\n\r\n"})
    EXPECT_EQ(status(text), 400) << text;
  EXPECT_EQ(status("PUT / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"), 405);
  EXPECT_EQ(status("get / HTTP/1.1\r\n\r\n"), 405);
  EXPECT_EQ(status("GET / HTTP/2.0\r\n\r\n"), 505);
  EXPECT_EQ(status("GET /" + std::string(kHttpTargetBytesMax, 'x') + " HTTP/1.1\r\n\r\n"), 414);
  std::string headers;
  for (size_t i = 0; i < kHttpHeadersMax; ++i) headers += "a: b\r\n";
  EXPECT_EQ(status("GET / HTTP/1.1\r\n" + headers + "\r\n"), 200);
  EXPECT_EQ(status("GET / HTTP/1.1\r\n" + headers + "a: b\r\n\r\n"), 431);
}

TEST(HttpRequestTest, OneThatHasNoEndIsRefused) {
  const std::string begins = "GET / HTTP/1.1\r\nA: ";
  const std::string most = begins + std::string(kHttpRequestBytesMax - begins.size(), 'x');
  EXPECT_EQ(ParseHttpRequest(most.substr(0, most.size() - 1)).status, 0);
  EXPECT_EQ(ParseHttpRequest(most).status, 431);
  EXPECT_EQ(ParseHttpRequest(most + "\r\n\r\n").status, 431);
}

// --- The server

// A peer, at an address of its own if need be.
class Peer {
 public:
  explicit Peer(uint16_t port, const char* address = "127.0.0.1")
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own = {};
    own.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, address, &own.sin_addr), 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
    sockaddr_in server = {};
    server.sin_family = AF_INET;
    server.sin_port = htons(port);
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&server), sizeof(server)), 0);
  }
  ~Peer() {
    if (fd_ >= 0) close(fd_);
  }
  Peer(Peer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

  void Send(absl::string_view bytes) const {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Sends until the server has reset the connection, or `bytes_max` were taken: then false.
  bool IsResetWithin(size_t bytes_max) const {
    const std::string piece(1 << 16, 'x');
    for (size_t sent = 0; sent < bytes_max;) {
      const ssize_t count = send(fd_, piece.data(), piece.size(), MSG_NOSIGNAL);
      if (count < 0) return true;
      sent += static_cast<size_t>(count);
    }
    return false;
  }
  void HalfClose() const { EXPECT_EQ(shutdown(fd_, SHUT_WR), 0); }
  // Of the server: until it closes, or `time` is over.
  bool IsClosedWithin(absl::Duration time) const { return !ReadAll(time).second; }
  // What comes until then.
  std::string Answer(absl::Duration time = absl::Seconds(20)) const { return ReadAll(time).first; }

 private:
  std::pair<std::string, bool> ReadAll(absl::Duration time) const {
    std::string text;
    for (const absl::Time end = absl::Now() + time;;) {
      pollfd wait = {fd_, POLLIN, 0};
      const int64_t left_ms = absl::ToInt64Milliseconds(end - absl::Now());
      if (poll(&wait, 1, static_cast<int>(std::max<int64_t>(left_ms, 0))) <= 0) return {text, true};
      char bytes[1 << 14];
      const ssize_t count = recv(fd_, bytes, sizeof(bytes), 0);
      if (count <= 0) return {text, false};
      text.append(bytes, static_cast<size_t>(count));
    }
  }

  int fd_;
};

constexpr char kGet[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

class HttpServerTest : public ::testing::Test {
 protected:
  void Open(const HttpLimits& limits = {}) {
    const auto answer = [this](absl::string_view path) {
      ++answers_;
      HttpPage page;
      page.status = path == "/healthz" || path == "/long" ? 200 : 404;
      page.body = path == "/long" ? std::string(kLongBytes, 'x') : absl::StrCat(path, "\n");
      return page;
    };
    absl::StatusOr<std::unique_ptr<HttpServer>> door =
        HttpServer::Open(HttpAddress{"127.0.0.1", 0}, answer, limits);
    ASSERT_TRUE(door.ok()) << door.status();
    door_ = *std::move(door);
    port_ = door_->address().port;
  }
  void ExpectHealthy() const {
    const absl::StatusOr<HttpAnswer> answer = GetHttp(port_, "/healthz");
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, "/healthz\n");
  }

  static constexpr size_t kLongBytes = 16 << 20;  // more than sockets hold
  std::atomic<int> answers_{0};
  std::unique_ptr<HttpServer> door_;
  uint16_t port_ = 0;
};

TEST_F(HttpServerTest, AnswersGetAndHeadAndRefusesAllElse) {
  Open();
  const absl::StatusOr<HttpAnswer> found = AskHttp(port_, "GET /healthz?a=b HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->head,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 9\r\n"
            "Connection: close");
  EXPECT_EQ(found->body, "/healthz\n");
  EXPECT_EQ(GetHttp(port_, "/other")->status, 404);
  const absl::StatusOr<HttpAnswer> head = AskHttp(port_, "HEAD /healthz HTTP/1.1\r\n\r\n");
  EXPECT_EQ(head->status, 200);
  EXPECT_THAT(head->head, HasSubstr("Content-Length: 9"));
  EXPECT_EQ(head->body, "");
  const absl::StatusOr<HttpAnswer> put =
      AskHttp(port_, "PUT /healthz HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_EQ(put->status, 405);
  EXPECT_THAT(put->head, HasSubstr("Allow: GET, HEAD"));
  EXPECT_EQ(AskHttp(port_, "nonsense\r\n\r\n")->status, 400);
}

TEST_F(HttpServerTest, ARequestInPiecesOrBehindAHalfCloseIsAnswered) {
  Open();
  const Peer pieces(port_);
  for (const char c : absl::string_view(kGet)) pieces.Send(absl::string_view(&c, 1));
  EXPECT_THAT(pieces.Answer(), HasSubstr("200 OK"));
  const Peer half(port_);
  half.Send(kGet);
  half.HalfClose();
  EXPECT_THAT(half.Answer(), HasSubstr("200 OK"));
}

// The answer is not lost to a reset because of what was not read.
TEST_F(HttpServerTest, WhatFollowsARequestIsDroppedAndTheAnswerComes) {
  Open();
  for (int i = 0; i < 20; ++i) {
    const Peer peer(port_);
    peer.Send(absl::StrCat(kGet, std::string(100'000, 'x')));
    const std::string answer = peer.Answer();
    EXPECT_THAT(answer, HasSubstr("200 OK"));
    EXPECT_EQ(answer.find("HTTP/", 1), answer.npos) << "one request is all";
  }
}

TEST_F(HttpServerTest, EndlessBytesAfterARequestResetTheConnection) {
  HttpLimits limits;
  limits.connection_time_max = absl::Hours(1);
  Open(limits);
  const Peer peer(port_);
  peer.Send(kGet);
  EXPECT_TRUE(peer.IsResetWithin(64 << 20));
  ExpectHealthy();
}

TEST_F(HttpServerTest, OldestConnectionGivesItsDescriptorWhenNoneIsLeft) {
  HttpLimits limits;
  limits.connection_time_max = absl::Hours(1);
  Open(limits);
  const Peer idle(port_);
  ExpectHealthy();  // so the one before it has been accepted
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<int> taken;
  // Twice: meanwhile the server closes the connection that it answered.
  for (int i = 0; i < 2; ++i) {
    for (int fd = dup(STDIN_FILENO); fd >= 0; fd = dup(STDIN_FILENO)) taken.push_back(fd);
    EXPECT_EQ(errno, EMFILE);
    absl::SleepFor(absl::Milliseconds(200));
  }
  close(taken.back());
  taken.pop_back();
  {
    const Peer late(port_);
    late.Send(kGet);
    EXPECT_THAT(late.Answer(), HasSubstr("200 OK"));
    EXPECT_TRUE(idle.IsClosedWithin(absl::Seconds(20)));
  }
  for (const int fd : taken) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(HttpServerTest, APeerThatReadsNothingDelaysNoOther) {
  Open();
  std::vector<Peer> peers;
  for (int i = 0; i < 10; ++i) {
    peers.emplace_back(port_);
    peers.back().Send("GET /long HTTP/1.1\r\n\r\n");
  }
  ExpectHealthy();
  const absl::StatusOr<HttpAnswer> whole = GetHttp(port_, "/long");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->body.size(), kLongBytes);
}

TEST_F(HttpServerTest, EveryConnectionEndsByItsTimeWhateverItDoes) {
  HttpLimits limits;
  limits.connection_time_max = absl::Milliseconds(300);
  Open(limits);
  const Peer idle(port_), slow(port_), behind(port_), deaf(port_);
  slow.Send("GET /");
  behind.Send(kGet);
  deaf.Send("GET /long HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(idle.IsClosedWithin(absl::Seconds(20)));
  EXPECT_TRUE(slow.IsClosedWithin(absl::Seconds(20)));
  EXPECT_TRUE(behind.IsClosedWithin(absl::Seconds(20)));
  absl::SleepFor(absl::Milliseconds(600));
  EXPECT_LT(deaf.Answer().size(), kLongBytes);
}

TEST_F(HttpServerTest, NewConnectionReplacesTheOldestOfItsAddress) {
  HttpLimits limits;
  limits.connections_max = 8;
  limits.connections_per_address_max = 4;
  limits.connection_time_max = absl::Hours(1);
  Open(limits);
  std::vector<Peer> peers;
  for (int i = 0; i < 4; ++i) peers.emplace_back(port_);
  EXPECT_FALSE(peers[0].IsClosedWithin(absl::Milliseconds(50)));
  peers.emplace_back(port_);
  EXPECT_TRUE(peers[0].IsClosedWithin(absl::Seconds(20)));
  for (size_t i = 1; i < peers.size(); ++i) {
    peers[i].Send(kGet);
    EXPECT_THAT(peers[i].Answer(), HasSubstr("200 OK")) << i;
  }
}

TEST_F(HttpServerTest, OneAddressShutsOutNoOther) {
  HttpLimits limits;
  limits.connections_max = 8;
  limits.connections_per_address_max = 6;
  limits.connection_time_max = absl::Hours(1);
  Open(limits);
  const Peer early(port_, "127.0.0.2");
  std::vector<Peer> many;
  for (int i = 0; i < 100; ++i) many.emplace_back(port_);
  ExpectHealthy();
  // Full in all: of 127.0.0.1, which has most, the oldest goes.
  const Peer third(port_, "127.0.0.3"), fourth(port_, "127.0.0.4");
  ExpectHealthy();
  for (const Peer* peer : {&early, &third, &fourth}) {
    peer->Send(kGet);
    EXPECT_THAT(peer->Answer(), HasSubstr("200 OK"));
  }
}

TEST_F(HttpServerTest, RequestsOfOneTurnShareAnAnswer) {
  HttpLimits limits;
  limits.connection_time_max = absl::Hours(1);  // on a slow machine the answers take long
  Open(limits);
  std::vector<Peer> peers;
  for (int i = 0; i < 4; ++i) peers.emplace_back(port_);
  // While the thread makes a long answer and sends some of it, the others' requests come.
  for (const Peer& peer : peers) peer.Send("GET /long HTTP/1.1\r\n\r\n");
  for (const Peer& peer : peers) EXPECT_GT(peer.Answer(absl::Minutes(5)).size(), kLongBytes);
  EXPECT_LT(answers_, 4);
}

TEST_F(HttpServerTest, IsShutAtOnceWhateverIsConnected) {
  Open();
  const Peer idle(port_), deaf(port_);
  deaf.Send("GET /long HTTP/1.1\r\n\r\n");
  ExpectHealthy();
  door_.reset();
  EXPECT_TRUE(idle.IsClosedWithin(absl::Seconds(20)));
  EXPECT_TRUE(absl::IsUnavailable(GetHttp(port_, "/healthz").status()));
  Open();
  ExpectHealthy();
}

TEST_F(HttpServerTest, AnAddressThatCannotBeHadIsSaid) {
  Open();
  const auto answer = [](absl::string_view) { return HttpPage(); };
  const auto taken = HttpServer::Open(door_->address(), answer);
  EXPECT_TRUE(absl::IsUnavailable(taken.status()));
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("Address already in use"));
  const auto foreign = HttpServer::Open(HttpAddress{"192.0.2.1", 0}, answer);
  EXPECT_TRUE(absl::IsUnavailable(foreign.status())) << foreign.status();
}

}  // namespace
}  // namespace osprey::server
