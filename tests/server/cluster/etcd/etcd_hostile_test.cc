// EtcdClient beside servers that are broken, hostile, silent or away: each call ends in time, with an
// error that names the endpoint, and says of a transaction only what is sure.

#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cluster/etcd/etcd_client.h"
#include "tests/server/cluster/etcd/scripted_http.h"
#include "tests/support/allocation_count.h"

namespace osprey {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr absl::Duration kTimeout = absl::Seconds(20);  // not reached on a loaded machine
constexpr absl::Duration kShort = absl::Milliseconds(300);

constexpr char kHeader[] = R"("header":{"cluster_id":"1","member_id":"2","revision":"3"})";

std::string Good() { return HttpAnswerOf(200, absl::StrCat("{", kHeader, ",\"succeeded\":true}")); }

std::string GrpcError(int http_status, int code, const std::string& message) {
  return HttpAnswerOf(http_status, absl::StrCat("{\"error\":\"", message, "\",\"message\":\"",
                                                message, "\",\"code\":", code, "}"));
}

// A port where nothing listens.
uint16_t ClosedPort() { return ScriptedHttp(ScriptedHttp::Hangup()).port(); }

std::unique_ptr<EtcdClient> ClientOf(const std::vector<uint16_t>& ports) {
  std::string hosts;
  for (const uint16_t port : ports)
    absl::StrAppend(&hosts, hosts.empty() ? "" : ",", "127.0.0.1:", port);
  EtcdOptions options;
  options.uri = *ParseEtcdUri(absl::StrCat("etcd://", hosts, "/test"));
  return *EtcdClient::Create(options);
}

// Without operations, so that Good() is its answer.
TransactionResult Commit(EtcdClient& client, absl::Duration timeout = kTimeout) {
  Transaction transaction;
  transaction.compares = {StoreCompare::Absent("a")};
  return client.Execute(transaction, timeout);
}

std::string Endpoint(uint16_t port) { return absl::StrCat("etcd at 127.0.0.1:", port, ": "); }

// --- One endpoint

TEST(EtcdHostileTest, RequestIsAsTheGatewayTakesIt) {
  ScriptedHttp server(ScriptedHttp::Always(Good()));
  const auto client = ClientOf({server.port()});
  ASSERT_TRUE(client->Range({"a"}, kTimeout).ok());
  ASSERT_EQ(Commit(*client).outcome, TransactionOutcome::kApplied);
  const std::vector<std::string> requests = server.Requests();
  ASSERT_THAT(requests, SizeIs(2));
  EXPECT_THAT(requests[0], AllOf(HasSubstr("POST /v3/kv/range HTTP/1.1\r\n"),
                                 HasSubstr("Content-Type: application/json\r\n"),
                                 HasSubstr("Grpc-Metadata-hasleader: true\r\n"),
                                 HasSubstr("\r\n\r\n{\"key\":\"YQ==\"}")));
  EXPECT_THAT(requests[1], AllOf(HasSubstr("POST /v3/kv/txn HTTP/1.1\r\n"),
                                 Not(HasSubstr("Expect")), Not(HasSubstr("Authorization"))));
}

TEST(EtcdHostileTest, BrokenAnswersAreErrorsOfTheEndpoint) {
  for (const std::string& answer :
       {HttpAnswerOf(200, ""), HttpAnswerOf(200, "nonsense"), HttpAnswerOf(200, "{}"),
        HttpAnswerOf(200, std::string(1 << 20, '[')), HttpAnswerOf(204, ""),
        HttpAnswerOf(404, "Not Found"), HttpAnswerOf(500, "{\"error\":7}"),
        HttpAnswerOf(401, std::string(1 << 20, 'x')), HttpAnswerOf(999, "\x1b[31m"),
        std::string("SSH-2.0-OpenSSH_9.2\r\n\r\n"), std::string("HTTP/1.1 200 OK\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nzz\r\n")}) {
    ScriptedHttp server([&answer](ScriptedHttp& self, int connection, int) {
      self.Send(connection, answer);
      return false;
    });
    // Each on a new connection: the server closes the one that it has answered on.
    const auto read = ClientOf({server.port()})->Range({"a"}, kTimeout);
    EXPECT_TRUE(absl::IsDataLoss(read.status()) || absl::IsUnavailable(read.status()))
        << read.status() << "\n"
        << Excerpt(answer);
    EXPECT_THAT(std::string(read.status().message()),
                AllOf(HasSubstr(Endpoint(server.port())), HasSubstr("; check that"),
                      Not(HasSubstr("\x1b")), SizeIs(::testing::Lt(600u))));
    const TransactionResult result = Commit(*ClientOf({server.port()}));
    EXPECT_EQ(result.outcome, TransactionOutcome::kUnknown) << Excerpt(answer);
    EXPECT_FALSE(result.status.ok());
    EXPECT_THAT(server.Requests(), SizeIs(2)) << "sent again: " << Excerpt(answer);
  }
}

TEST(EtcdHostileTest, AnswerThatNeverEndsIsCutOff) {
  const std::string part(1 << 20, 'x');
  for (const char* head :
       {"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n"}) {
    int parts = 0;
    {
      ScriptedHttp server([&](ScriptedHttp& self, int connection, int) {
        for (bool goes_on = self.Send(connection, head); goes_on; ++parts)
          goes_on = self.Send(connection, part);
        return false;
      });
      const auto read = ClientOf({server.port()})->Range({"a"}, kTimeout);
      EXPECT_TRUE(absl::IsDataLoss(read.status())) << read.status();
      EXPECT_THAT(std::string(read.status().message()), HasSubstr("exceeds 4194304 bytes"));
    }
    EXPECT_LT(parts, 40);
  }
}

// An answer that is as long as any, of the shortest parts.
TEST(EtcdHostileTest, LongestAnswersTakeBoundedMemory) {
  for (const std::string part : {"{}", "[]", "0", "[[[],[],[]]]", "\"\"", R"({"a":{"a":{}}})"}) {
    std::string text = absl::StrCat("{", kHeader, ",\"kvs\":[", part);
    while (text.size() + part.size() + 3 < kEtcdAnswerBytesMax) absl::StrAppend(&text, ",", part);
    text += "]}";
    const uint64_t before = AllocatedBytesSoFar();
    EXPECT_FALSE(ParseRangeAnswer(text, {"a"}).ok());
    EXPECT_LT(AllocatedBytesSoFar() - before, 200u << 20) << part;
  }
}

TEST(EtcdHostileTest, HeadThatNeverEndsIsCutOff) {
  ScriptedHttp server([](ScriptedHttp& self, int connection, int) {
    bool goes_on = self.Send(connection, "HTTP/1.1 200 OK\r\n");
    while (goes_on) goes_on = self.Send(connection, "A: b\r\n");
    return false;
  });
  const TransactionResult result = Commit(*ClientOf({server.port()}), absl::Seconds(5));
  EXPECT_EQ(result.outcome, TransactionOutcome::kUnknown);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr(Endpoint(server.port())));
}

TEST(EtcdHostileTest, SlowAnswerEndsAtTheDeadline) {
  ScriptedHttp server([](ScriptedHttp& self, int connection, int) {
    bool goes_on = self.Send(connection, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    for (; goes_on; absl::SleepFor(absl::Milliseconds(20))) goes_on = self.Send(connection, " ");
    return false;
  });
  const absl::Time begin = absl::Now();
  const TransactionResult result = Commit(*ClientOf({server.port()}), kShort);
  EXPECT_EQ(result.outcome, TransactionOutcome::kUnknown);
  EXPECT_TRUE(absl::IsDeadlineExceeded(result.status)) << result.status;
  EXPECT_GE(absl::Now() - begin, kShort - absl::Milliseconds(10));
  EXPECT_LT(absl::Now() - begin, kShort + absl::Seconds(5));
}

TEST(EtcdHostileTest, SilenceAfterSendingIsUnknown) {
  ScriptedHttp server(ScriptedHttp::Silence());
  const TransactionResult result = Commit(*ClientOf({server.port()}), kShort);
  EXPECT_EQ(result.outcome, TransactionOutcome::kUnknown);
  EXPECT_TRUE(absl::IsDeadlineExceeded(result.status)) << result.status;
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("no answer"));
}

// A log tells of an error that lasts once, whatever it took.
TEST(EtcdHostileTest, SilenceIsTheSameErrorEachTime) {
  ScriptedHttp server(ScriptedHttp::Silence());
  const auto client = ClientOf({server.port()});
  const std::string first(Commit(*client, kShort).status.message());
  EXPECT_EQ(Commit(*client, kShort + absl::Milliseconds(30)).status.message(), first);
}

TEST(EtcdHostileTest, RefusedConnectionIsNotApplied) {
  const uint16_t port = ClosedPort();
  const auto client = ClientOf({port});
  const TransactionResult result = Commit(*client);
  EXPECT_EQ(result.outcome, TransactionOutcome::kNotApplied);
  EXPECT_TRUE(absl::IsUnavailable(result.status));
  EXPECT_THAT(std::string(result.status.message()),
              AllOf(HasSubstr(Endpoint(port)), HasSubstr("cannot connect"),
                    HasSubstr("check that it runs there"), Not(HasSubstr(" ms"))));
}

TEST(EtcdHostileTest, HostWithoutAnAddressIsNotApplied) {
  EtcdOptions options;
  options.uri = *ParseEtcdUri("etcd://no-such-host.invalid/test");
  const TransactionResult result = Commit(**EtcdClient::Create(options), kTimeout);
  EXPECT_EQ(result.outcome, TransactionOutcome::kNotApplied);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("no-such-host.invalid:2379"));
}

TEST(EtcdHostileTest, TimeThatHasPassedSendsNothing) {
  ScriptedHttp server(ScriptedHttp::Always(Good()));
  const auto client = ClientOf({server.port()});
  for (const absl::Duration timeout : {absl::ZeroDuration(), -absl::InfiniteDuration()}) {
    EXPECT_EQ(Commit(*client, timeout).outcome, TransactionOutcome::kNotApplied);
    EXPECT_TRUE(absl::IsDeadlineExceeded(client->Range({"a"}, timeout).status()));
  }
  EXPECT_THAT(server.Requests(), IsEmpty());
  EXPECT_TRUE(client->Range({"a"}, absl::InfiniteDuration()).ok());
}

// libcurl sends such a request again, unless it is refused that.
TEST(EtcdHostileTest, LostConnectionNeverSendsAgain) {
  for (const int lost : {1, 2, 3}) {
    ScriptedHttp server([lost](ScriptedHttp& self, int connection, int number) {
      return number != lost && self.Send(connection, Good());
    });
    const auto client = ClientOf({server.port()});
    for (int number = 1; number < lost; ++number)
      EXPECT_EQ(Commit(*client).outcome, TransactionOutcome::kApplied);
    const TransactionResult result = Commit(*client);
    EXPECT_EQ(result.outcome, TransactionOutcome::kUnknown);
    EXPECT_THAT(std::string(result.status.message()), HasSubstr("no answer: "));
    EXPECT_THAT(server.Requests(), SizeIs(lost));
    EXPECT_EQ(Commit(*client).outcome, TransactionOutcome::kApplied);
    EXPECT_THAT(server.Requests(), SizeIs(lost + 1));
  }
}

TEST(EtcdHostileTest, RedirectsAndProxiesAreNotFollowed) {
  ScriptedHttp other(ScriptedHttp::Always(Good()));
  const std::string url = absl::StrCat("http://127.0.0.1:", other.port(), "/v3/kv/txn");
  for (const int status : {301, 302, 303, 307, 308}) {
    ScriptedHttp server(ScriptedHttp::Always(absl::StrCat(
        "HTTP/1.1 ", status, " Moved\r\nLocation: ", url, "\r\nContent-Length: 0\r\n\r\n")));
    EXPECT_EQ(Commit(*ClientOf({server.port()})).outcome, TransactionOutcome::kUnknown) << status;
  }
  for (const char* name : {"http_proxy", "all_proxy", "ALL_PROXY"}) setenv(name, url.c_str(), 1);
  ScriptedHttp server(ScriptedHttp::Always(Good()));
  EXPECT_EQ(Commit(*ClientOf({server.port()})).outcome, TransactionOutcome::kApplied);
  for (const char* name : {"http_proxy", "all_proxy", "ALL_PROXY"}) unsetenv(name);
  EXPECT_THAT(other.Requests(), IsEmpty());
}

TEST(EtcdHostileTest, ErrorsOfEtcdHaveTheirCodeAndFix) {
  const struct {
    int http_status;
    int code;
    const char* message;
    absl::StatusCode status;
    TransactionOutcome outcome;
    const char* fix;
  } kCases[] = {
      {503, 14, "etcdserver: no leader", absl::StatusCode::kUnavailable,
       TransactionOutcome::kNotApplied, "election"},
      {429, 8, "etcdserver: too many requests", absl::StatusCode::kUnavailable,
       TransactionOutcome::kNotApplied, "faster disk"},
      // Version 3.4 may say so of a transaction that it has applied.
      {429, 8, "etcdserver: mvcc: database space exceeded", absl::StatusCode::kResourceExhausted,
       TransactionOutcome::kUnknown, "etcdctl alarm disarm"},
      {401, 16, "etcdserver: invalid auth token", absl::StatusCode::kUnauthenticated,
       TransactionOutcome::kNotApplied, "check"},
      {400, 3, "etcdserver: user name is empty", absl::StatusCode::kUnauthenticated,
       TransactionOutcome::kNotApplied, "give a user"},
      {400, 3, "etcdserver: revision of auth store is old", absl::StatusCode::kUnauthenticated,
       TransactionOutcome::kNotApplied, "repeat"},
      {403, 7, "etcdserver: permission denied", absl::StatusCode::kPermissionDenied,
       TransactionOutcome::kNotApplied, "grant-permission ROLE --prefix readwrite /osprey/test/"},
      {400, 3, "etcdserver: too many operations in txn request", absl::StatusCode::kInvalidArgument,
       TransactionOutcome::kNotApplied, "--max-txn-ops"},
      {400, 3, "etcdserver: request is too large", absl::StatusCode::kInvalidArgument,
       TransactionOutcome::kNotApplied, "--max-request-bytes"},
      {400, 3, "something else", absl::StatusCode::kInvalidArgument,
       TransactionOutcome::kNotApplied, "report"},
      {503, 14, "etcdserver: request timed out", absl::StatusCode::kUnavailable,
       TransactionOutcome::kUnknown, "log"},
      {503, 14, "etcdserver: leader changed", absl::StatusCode::kUnavailable,
       TransactionOutcome::kUnknown, "log"},
      {503, 14, "etcdserver: server stopped", absl::StatusCode::kUnavailable,
       TransactionOutcome::kUnknown, "log"},
      {500, 2, "raft: stopped", absl::StatusCode::kUnavailable, TransactionOutcome::kUnknown,
       "log"},
      {504, 4, "context deadline exceeded", absl::StatusCode::kUnavailable,
       TransactionOutcome::kUnknown, "log"},
      {500, 13, "etcdserver: corrupt cluster", absl::StatusCode::kUnavailable,
       TransactionOutcome::kUnknown, "log"},
  };
  for (const auto& expected : kCases) {
    ScriptedHttp server(
        ScriptedHttp::Always(GrpcError(expected.http_status, expected.code, expected.message)));
    const auto client = ClientOf({server.port()});
    const TransactionResult result = Commit(*client);
    EXPECT_EQ(result.outcome, expected.outcome) << expected.message;
    EXPECT_EQ(result.status.code(), expected.status) << expected.message;
    EXPECT_THAT(std::string(result.status.message()),
                AllOf(HasSubstr(Endpoint(server.port())), HasSubstr(expected.message),
                      HasSubstr(expected.fix)));
    EXPECT_EQ(client->Range({"a"}, kTimeout).status().code(), expected.status);
    EXPECT_THAT(server.Requests(), SizeIs(2)) << expected.message;
  }
}

// --- Several endpoints

TEST(EtcdHostileTest, NextEndpointIsTriedWhenNothingWasSent) {
  ScriptedHttp good(ScriptedHttp::Always(Good()));
  const auto client = ClientOf({ClosedPort(), ClosedPort(), good.port()});
  EXPECT_EQ(Commit(*client).outcome, TransactionOutcome::kApplied);
  EXPECT_TRUE(client->Range({"a"}, kTimeout).ok());
  EXPECT_THAT(good.Requests(), SizeIs(2));
}

TEST(EtcdHostileTest, NextEndpointIsTriedWithoutALeader) {
  ScriptedHttp lone(ScriptedHttp::Always(GrpcError(503, 14, "etcdserver: no leader")));
  ScriptedHttp good(ScriptedHttp::Always(Good()));
  const auto client = ClientOf({lone.port(), good.port()});
  EXPECT_EQ(Commit(*client).outcome, TransactionOutcome::kApplied);
  EXPECT_EQ(Commit(*client).outcome, TransactionOutcome::kApplied);
  EXPECT_THAT(lone.Requests(), SizeIs(1)) << "the endpoint that answered comes first";
}

TEST(EtcdHostileTest, OnlyReadsGoOnAfterAnUnknownOutcome) {
  for (const ScriptedHttp::Script& script :
       {ScriptedHttp::Hangup(), ScriptedHttp::Silence(),
        ScriptedHttp::Always(GrpcError(503, 14, "etcdserver: request timed out")),
        ScriptedHttp::Always(HttpAnswerOf(200, "nonsense")),
        ScriptedHttp::Always(HttpAnswerOf(404, "Not Found"))}) {
    ScriptedHttp bad(script);
    ScriptedHttp good(ScriptedHttp::Always(Good()));
    EXPECT_EQ(Commit(*ClientOf({bad.port(), good.port()}), kShort).outcome,
              TransactionOutcome::kUnknown);
    EXPECT_THAT(good.Requests(), IsEmpty());
    const auto read = ClientOf({bad.port(), good.port()})->Range({"a"}, absl::Seconds(4));
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_THAT(good.Requests(), SizeIs(1));
  }
}

TEST(EtcdHostileTest, CallAfterAFailureBeginsElsewhere) {
  ScriptedHttp silent(ScriptedHttp::Silence());
  ScriptedHttp good(ScriptedHttp::Always(Good()));
  const auto client = ClientOf({silent.port(), good.port()});
  EXPECT_EQ(Commit(*client, kShort).outcome, TransactionOutcome::kUnknown);
  EXPECT_EQ(Commit(*client).outcome, TransactionOutcome::kApplied);
  EXPECT_EQ(Commit(*client).outcome, TransactionOutcome::kApplied);
}

TEST(EtcdHostileTest, ErrorNamesAllEndpointsThatWereTried) {
  const uint16_t closed = ClosedPort();
  ScriptedHttp lone(ScriptedHttp::Always(GrpcError(503, 14, "etcdserver: no leader")));
  const TransactionResult result = Commit(*ClientOf({closed, lone.port()}));
  EXPECT_EQ(result.outcome, TransactionOutcome::kNotApplied);
  EXPECT_THAT(std::string(result.status.message()),
              AllOf(HasSubstr(Endpoint(closed)), HasSubstr(Endpoint(lone.port()))));
}

TEST(EtcdHostileTest, RefusalOfTheRequestIsNotRepeatedElsewhere) {
  ScriptedHttp first(ScriptedHttp::Always(GrpcError(403, 7, "etcdserver: permission denied")));
  ScriptedHttp second(ScriptedHttp::Always(Good()));
  const auto client = ClientOf({first.port(), second.port()});
  EXPECT_TRUE(absl::IsPermissionDenied(client->Range({"a"}, kTimeout).status()));
  EXPECT_THAT(second.Requests(), IsEmpty());
}

}  // namespace
}  // namespace osprey
