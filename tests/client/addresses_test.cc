// A client with the addresses of several servers, in virtual time.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/engine/known_servers.h"
#include "client/engine/server_addresses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rdma/authentication.h"
#include "rdma/errors.h"
#include "rdma/handshake.h"
#include "tests/client/client_engine_fixture.h"

namespace osprey {
namespace {

using client::KnownServers;
using client::ServerAddresses;
using client::ServerConnection;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kA[] = "rdma://a:7411";
constexpr char kB[] = "rdma://b:7411";
constexpr char kC[] = "rdma://c:7411";

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

TEST(ServerAddressesTest, EachIsTriedOnceInARound) {
  ServerAddresses addresses({kA, kB, kC});
  EXPECT_TRUE(addresses.round_begins());
  EXPECT_EQ(addresses.present(), kA);
  EXPECT_TRUE(addresses.EndAttempt());
  EXPECT_FALSE(addresses.round_begins());
  EXPECT_EQ(addresses.present(), kB);
  EXPECT_TRUE(addresses.EndAttempt());
  EXPECT_EQ(addresses.present(), kC);
  EXPECT_FALSE(addresses.EndAttempt());
  EXPECT_EQ(addresses.present(), kA);
  EXPECT_TRUE(addresses.EndAttempt());
  // After a connection all others are tried before a pause.
  addresses.Succeed();
  addresses.BeginRound();
  EXPECT_EQ(addresses.present(), kB);
  EXPECT_TRUE(addresses.EndAttempt());
  EXPECT_TRUE(addresses.EndAttempt());
  EXPECT_FALSE(addresses.EndAttempt());
  EXPECT_EQ(addresses.present(), kB);
}

TEST(ServerAddressesTest, OneAddressKeepsItsErrorAsItIs) {
  ServerAddresses addresses({kA});
  EXPECT_TRUE(addresses.error().ok());
  addresses.Note(rdma::NoListenerError(kA));
  EXPECT_EQ(addresses.error(), rdma::NoListenerError(kA));
  EXPECT_FALSE(addresses.EndAttempt());
}

TEST(ServerAddressesTest, TheErrorNamesAllThatWereTried) {
  ServerAddresses addresses({kA, kB, kC});
  addresses.Note(rdma::NoListenerError(kA));
  EXPECT_EQ(ReasonOf(addresses.error()), Reason::kNoConnection) << "two were not tried";
  addresses.EndAttempt();
  addresses.Note(rdma::PeerGoneError("it hung up"));
  addresses.EndAttempt();
  addresses.Note(rdma::TimeoutError("connecting", kC));
  EXPECT_EQ(ReasonOf(addresses.error()), Reason::kNoConnection);
  EXPECT_EQ(TextOf(addresses.error()),
            "none of 3 addresses leads to a server: no server listens at rdma://a:7411; "
            "rdma://b:7411: the connection broke: it hung up; no answer from rdma://c:7411 in time "
            "while connecting; check that one of these servers runs, and the addresses");
}

TEST(ServerAddressesTest, AReasonThatAllShareIsThatOfTheError) {
  ServerAddresses addresses({kA, kB});
  addresses.Note(rdma::NoListenerError(kA));
  addresses.EndAttempt();
  addresses.Note(rdma::NoListenerError(kB));
  EXPECT_EQ(ReasonOf(addresses.error()), Reason::kNoListener);
  EXPECT_EQ(addresses.error().code(), rdma::NoListenerError(kB).code());
}

TEST(ServerAddressesTest, ErrorsBeforeAConnectionAreForgotten) {
  ServerAddresses addresses({kA, kB});
  addresses.Note(rdma::NoListenerError(kA));
  addresses.EndAttempt();
  addresses.Succeed();
  addresses.Note(rdma::PeerGoneError("it hung up"));
  EXPECT_THAT(TextOf(addresses.error()),
              AllOf(HasSubstr("rdma://b:7411: the connection broke"), Not(HasSubstr("a:7411"))));
}

TEST(ServerAddressesTest, LearnedOnesFollowAndArePutInPlaceOfEarlierOnes) {
  ServerAddresses addresses({kB});
  addresses.Note(rdma::NoListenerError(kB));
  addresses.SetLearned({kA, kB, kC});
  EXPECT_EQ(addresses.count(), 3u);
  EXPECT_EQ(addresses.present(), kB);
  EXPECT_TRUE(addresses.EndAttempt());
  EXPECT_EQ(addresses.present(), kA);
  EXPECT_TRUE(addresses.EndAttempt());
  EXPECT_EQ(addresses.present(), kC);
  addresses.Note(rdma::NoListenerError(kC));
  EXPECT_THAT(TextOf(addresses.error()),
              AllOf(HasSubstr("at rdma://b:7411"), HasSubstr("at rdma://c:7411")));
  // The present one stays until it is left.
  addresses.SetLearned({kA});
  EXPECT_EQ(addresses.present(), kC);
  EXPECT_EQ(addresses.count(), 3u);
  EXPECT_FALSE(addresses.EndAttempt());
  EXPECT_EQ(addresses.present(), kB);
  EXPECT_EQ(addresses.count(), 2u);
  EXPECT_TRUE(addresses.EndAttempt());
  EXPECT_EQ(addresses.present(), kA);
}

TEST(ServerAddressesTest, OneThatIsWrittenInAnotherWayIsTheSame) {
  ServerAddresses addresses({"rdma://a", kB});
  addresses.SetLearned({kA, kB});
  EXPECT_EQ(addresses.count(), 2u);
}

TEST(KnownServersTest, AreOfTheSchemeOfTheUriAndLeadToShards) {
  KnownServers servers(kA);
  servers.Learn("rdma://10.0.0.1:7411\nshm:///run/a\nrdma://[fd00::1]:65535\n");
  EXPECT_EQ(servers.revision(), 1u);
  EXPECT_THAT(servers.OfShard(0), ElementsAre("rdma://10.0.0.1:7411", "rdma://[fd00::1]:65535"));
  EXPECT_THAT(servers.OfShard(2), ElementsAre("rdma://10.0.0.1:7413")) << "there is no port for it";
  servers.Learn("rdma://10.0.0.1:7411\nrdma://[fd00::1]:65535\n");
  EXPECT_EQ(servers.revision(), 1u) << "they are the same";
  KnownServers over_shm("shm:///run/a");
  over_shm.Learn("rdma://10.0.0.1:7411\nshm:///run/b\n");
  EXPECT_THAT(over_shm.OfShard(3), ElementsAre("shm:///run/b.3"));
}

// Of later versions, or of a hostile server. A name would be resolved while all operations wait.
TEST(KnownServersTest, WhatIsNoAddressAndNamesAreLeftOut) {
  KnownServers servers(kA);
  servers.Learn("rdma://10.0.0.2:7411\nhttp://c\nrdma://c:7411\n\nrdma://10.0.0.3:99999\n");
  EXPECT_THAT(servers.OfShard(0), ElementsAre("rdma://10.0.0.2:7411"));
  std::string many;
  for (size_t i = 0; i < 2 * KnownServers::kServersMax; ++i)
    absl::StrAppend(&many, "rdma://10.0.0.", i, ":7411\n");
  servers.Learn(many);
  EXPECT_EQ(servers.OfShard(0).size(), KnownServers::kServersMax);
}

TEST(KnownServersTest, AreAskedForAfterAConnectionAndNowAndThen) {
  KnownServers servers(kA);
  absl::Time now = absl::UnixEpoch();
  EXPECT_FALSE(servers.IsDue(now)) << "there is no connection";
  servers.Connected();
  EXPECT_TRUE(servers.IsDue(now));
  servers.Asked(now);
  EXPECT_FALSE(servers.IsDue(now + KnownServers::kAskEvery() - absl::Milliseconds(1)));
  EXPECT_TRUE(servers.IsDue(now + KnownServers::kAskEvery()));
  servers.Connected();
  EXPECT_FALSE(servers.IsDue(now + KnownServers::kAskAtMostEvery() - absl::Milliseconds(1)));
  EXPECT_TRUE(servers.IsDue(now + KnownServers::kAskAtMostEvery()));
}

class ClientAddressesTest : public ClientEngineTest {
 protected:
  ClientAddressesTest() { uris_ = "rdma://a:7411,b:7411,c:7411"; }
  std::unique_ptr<ScriptedServer> ServerAt(const char* uri, uint64_t incarnation) {
    return std::make_unique<ScriptedServer>(network_, uri, incarnation);
  }
};

TEST_F(ClientAddressesTest, AListThatIsNoneIsRefused) {
  for (const char* uris : {"rdma://a,a", "rdma://a,", "a,b", "rdma://a,shm:///b"}) {
    domain_ = network_.NewDomain("client");
    client::EngineOptions options;
    options.connection.uri = uris;
    EXPECT_TRUE(absl::IsInvalidArgument(
        client::ClientEngine::Create(*domain_, domain_->NewTransport({}).value(), options)
            .status()))
        << uris;
  }
}

TEST_F(ClientAddressesTest, TheNextIsTriedWithoutAPause) {
  server_ = ServerAt(kC, 1);
  StartEngine();
  const absl::Time begin = now_;
  BecomeReady();
  EXPECT_LT(now_ - begin, absl::Milliseconds(5));
  EXPECT_EQ(engine_->connection().uri(), kC);
  EXPECT_THAT(engine_->Describe(), HasSubstr("server=rdma://c:7411"));
}

TEST_F(ClientAddressesTest, AfterALossTheOthersAreTriedAtOnce) {
  server_ = ServerAt(kA, 1);
  StartEngine();
  BecomeReady();
  ASSERT_TRUE(Put("planet", "saturn").ok());
  server_ = ServerAt(kC, 2);
  const absl::Time begin = now_;
  ASSERT_TRUE(RunUntil([&] { return engine_->connection().uri() == kC; }));
  BecomeReady();
  EXPECT_LT(now_ - begin, absl::Milliseconds(5));
  EXPECT_TRUE(absl::IsNotFound(Get("planet").status()));
  // And round again.
  server_ = ServerAt(kB, 3);
  ASSERT_TRUE(RunUntil([&] { return engine_->connection().uri() == kB; }));
  BecomeReady();
}

TEST_F(ClientAddressesTest, OnceAllWereTriedAPauseFollows) {
  StartEngine();
  int attempts = 0;
  std::string last;
  for (int i = 0; i < 10000; ++i) {
    Step(absl::Milliseconds(1));
    const bool connects = state() == ServerConnection::State::kConnecting;
    if (connects && engine_->connection().uri() != last) ++attempts;
    last = connects ? engine_->connection().uri() : "";
  }
  // Three times those of one address (BackoffGrowsWithoutAListenerAndKeepsTheReason).
  EXPECT_GE(attempts, 36);
  EXPECT_LE(attempts, 90);
  EXPECT_EQ(ReasonOf(engine_->connection().last_error()), Reason::kNoListener);
}

TEST_F(ClientAddressesTest, WithoutAnyTheErrorNamesAll) {
  StartEngine();
  const absl::Status get = Get("planet").status();
  EXPECT_EQ(ReasonOf(get), Reason::kNoConnection) << get;
  EXPECT_THAT(TextOf(get), AllOf(HasSubstr("no connection to rdma://a:7411,b:7411,c:7411"),
                                 HasSubstr("no server listens at rdma://a:7411;"),
                                 HasSubstr("no server listens at rdma://b:7411;"),
                                 HasSubstr("no server listens at rdma://c:7411;")));
  const absl::Status put = Put("planet", "saturn").status();
  EXPECT_EQ(ReasonOf(put), Reason::kNoConnection) << put;
  EXPECT_FALSE(MayBeApplied(put));
  EXPECT_THAT(engine_->Describe(), HasSubstr("not connected server=rdma://a:7411,b:7411"));
}

TEST_F(ClientAddressesTest, AHostThatDoesNotAnswerHoldsTheNextForASecond) {
  const std::unique_ptr<ScriptedServer> silent = ServerAt(kA, 1);
  silent->accepts = false;
  server_ = ServerAt(kB, 2);
  also_polled_ = [&] { silent->Poll(now_); };
  StartEngine();
  const absl::Time begin = now_;
  BecomeReady();
  also_polled_ = nullptr;
  EXPECT_EQ(engine_->connection().uri(), kB);
  EXPECT_GE(now_ - begin, ServerConnection::kAttemptMaxOfMany());
  EXPECT_LE(now_ - begin, ServerConnection::kAttemptMaxOfMany() + absl::Milliseconds(10));
}

// One that leaves, or refuses, does not hold the client either.
TEST_F(ClientAddressesTest, AServerThatLeavesIsLeftForTheNext) {
  const std::unique_ptr<ScriptedServer> leaving = ServerAt(kA, 1);
  leaving->welcomes = false;
  server_ = ServerAt(kB, 2);
  also_polled_ = [&] {
    leaving->Poll(now_);
    if (state() == ServerConnection::State::kGreeting && engine_->connection().uri() == kA)
      leaving->transport().Disconnect(network_.Peer(id()));
  };
  StartEngine();
  const absl::Time begin = now_;
  BecomeReady();
  also_polled_ = nullptr;
  EXPECT_EQ(engine_->connection().uri(), kB);
  EXPECT_LE(now_ - begin, absl::Milliseconds(10));
}

// A client of a cluster's server, whose URI names that server alone.
class KnownServersOfClientTest : public ClientAddressesTest {
 protected:
  static constexpr char kNext[] = "rdma://10.0.0.3:7411";
  static constexpr char kFurther[] = "rdma://10.0.0.4:7411";

  void SetUp() override {
    uris_ = kA;
    known_servers_ = std::make_shared<KnownServers>(kA);
  }
  std::unique_ptr<ScriptedServer> MemberAt(const char* uri, uint64_t incarnation,
                                           uint64_t cluster = 0xC1) {
    std::unique_ptr<ScriptedServer> server = ServerAt(uri, incarnation);
    server->tamper_welcome = [cluster](rdma::FrameHeader&, rdma::WelcomeBody& body) {
      body.in_cluster = cluster != 0;
      body.data_id = cluster;
    };
    return server;
  }
};

TEST_F(KnownServersOfClientTest, AServerThatTheUriDoesNotNameIsFound) {
  server_ = MemberAt(kA, 1);
  server_->servers = absl::StrCat("rdma://10.0.0.1:7411\n", kNext, "\n");
  StartEngine();
  BecomeReady();
  ASSERT_TRUE(RunUntil([&] { return known_servers_->revision() == 1; }));
  server_ = MemberAt(kNext, 2);
  const absl::Time begin = now_;
  ASSERT_TRUE(RunUntil([&] { return engine_->connection().uri() == kNext; }));
  BecomeReady();
  EXPECT_LT(now_ - begin, absl::Milliseconds(5));
}

// The server that was learned has gone, and its address is another cluster's, or of a server in none. *Else* that one
// answers for the client's keys.
class LearnedAddressTest : public KnownServersOfClientTest,
                           public testing::WithParamInterface<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Of, LearnedAddressTest, testing::Values(0xC2, 0));

TEST_F(KnownServersOfClientTest, ALearnedAddressOfNoClusterIsLeftAlsoAfterAnother) {
  server_ = MemberAt(kA, 1);
  server_->servers = absl::StrCat(kNext, "\n");
  StartEngine();
  BecomeReady();
  ASSERT_TRUE(RunUntil([&] { return known_servers_->revision() == 1; }));
  server_.reset();
  server_ = MemberAt(kA, 2, 0);
  ASSERT_TRUE(
      RunUntil([&] { return engine_->connection().ready() && known_servers_->cluster() == 0; }));
  server_ = MemberAt(kNext, 3, 0);
  ASSERT_TRUE(RunUntil([&] {
    return absl::StrContains(engine_->connection().last_error().message(), "another cluster now");
  }));
}

TEST_P(LearnedAddressTest, OfAnotherClusterIsLeft) {
  server_ = MemberAt(kA, 1);
  server_->servers = absl::StrCat(kNext, "\n");
  StartEngine();
  BecomeReady();
  ASSERT_TRUE(RunUntil([&] { return known_servers_->revision() == 1; }));
  server_ = MemberAt(kNext, 2, GetParam());
  const auto says_so = [&] {
    return absl::StrContains(engine_->connection().last_error().message(), "another cluster now");
  };
  ASSERT_TRUE(RunUntil(says_so));
  EXPECT_FALSE(engine_->connection().ready());
  server_ = MemberAt(kA, 3, 0xC2);  // what the application names is its own affair
  BecomeReady();
  EXPECT_EQ(known_servers_->cluster(), 0xC2u);
}

TEST_F(KnownServersOfClientTest, IsAskedAgainWithoutABeginningOfAConnection) {
  server_ = MemberAt(kA, 1);
  StartEngine();
  BecomeReady();
  const auto run = [&](absl::Duration time) {
    for (const absl::Time end = now_ + time; now_ < end;) Step(absl::Milliseconds(10));
  };
  run(absl::Seconds(1));
  EXPECT_EQ(server_->servers_asked, 1);
  run(4 * KnownServers::kAskEvery());
  EXPECT_GE(server_->servers_asked, 4);
  EXPECT_LE(server_->servers_asked, 6);
  EXPECT_EQ(engine_->in_flight(), 0) << "no operation";
}

// It names another address of its own: the next attempt would follow at once, and so on.
TEST_F(KnownServersOfClientTest, AServerThatHangsUpAgainAndAgainIsAskedWithPauses) {
  server_ = MemberAt(kA, 1);
  server_->servers = absl::StrCat(kNext, "\n");
  const std::unique_ptr<ScriptedServer> other = MemberAt(kNext, 1);
  StartEngine();
  BecomeReady();
  ASSERT_TRUE(RunUntil([&] { return known_servers_->revision() == 1; }));
  const uint64_t before = engine_->counters().connects;
  const absl::Time end = now_ + absl::Seconds(5);
  also_polled_ = [&] { other->Poll(now_); };
  while (now_ < end) {
    Step();
    if (!engine_->connection().ready()) continue;
    ScriptedServer& server = engine_->connection().uri() == kNext ? *other : *server_;
    server.transport().Disconnect(network_.Peer(id()));
  }
  also_polled_ = nullptr;
  EXPECT_GT(engine_->counters().connects - before, 4u);
  EXPECT_LT(engine_->counters().connects - before, 60u);
}

// … since it has no such question.
TEST_F(KnownServersOfClientTest, AServerOfTheVersionBeforeIsReachedAndNotAsked) {
  network_.SetVersion(kA, rdma::kProtocolVersion - 1);
  server_ = MemberAt(kA, 1);
  StartEngine();
  const absl::Time begin = now_;
  BecomeReady();
  EXPECT_LT(now_ - begin, absl::Milliseconds(5)) << "without a pause";
  ASSERT_TRUE(Put("planet", "saturn").ok());
  for (int i = 0; i < 2000; ++i) Step(absl::Milliseconds(10));
  EXPECT_EQ(server_->servers_asked, 0);
  // It is upgraded, and serves the version before, too: that one is not offered first.
  KillServer();
  network_.SetVersion(kA, rdma::kProtocolVersion);
  server_ = MemberAt(kA, 2);
  BecomeReady();
  ASSERT_TRUE(RunUntil([&] { return server_->servers_asked > 0; }));
}

// The URI names a server that does not serve shard 0: it tells where the others are.
class ElsewhereTest : public KnownServersOfClientTest {
 protected:
  std::unique_ptr<ScriptedServer> TellerAt(const char* uri, const std::string& servers,
                                           uint64_t cluster = 0xC1) {
    std::unique_ptr<ScriptedServer> server = ServerAt(uri, 100);
    server->elsewhere_of = cluster;
    server->servers = servers;
    return server;
  }
  void AlsoPoll(ScriptedServer& server) {
    also_polled_ = [&] { server.Poll(now_); };
  }
};

TEST_F(ElsewhereTest, LeadsToThePrimaryWithoutAPause) {
  const std::unique_ptr<ScriptedServer> teller =
      TellerAt(kA, absl::StrCat("rdma://10.0.0.1:7411\n", kNext, "\n"));
  server_ = MemberAt(kNext, 2);
  AlsoPoll(*teller);
  StartEngine();
  const absl::Time begin = now_;
  BecomeReady();
  EXPECT_LT(now_ - begin, absl::Milliseconds(10));
  EXPECT_EQ(engine_->connection().uri(), kNext);
  EXPECT_EQ(teller->hellos, 1);
  EXPECT_TRUE(Put("planet", "saturn").ok());
  also_polled_ = nullptr;
}

// *Else* the client's keys come from there.
TEST_F(ElsewhereTest, AServerOfAnotherClusterIsLeft) {
  const std::unique_ptr<ScriptedServer> teller = TellerAt(kA, absl::StrCat(kNext, "\n"));
  server_ = MemberAt(kNext, 2, 0xC2);
  AlsoPoll(*teller);
  StartEngine();
  ASSERT_TRUE(RunUntil([&] {
    return absl::StrContains(engine_->connection().last_error().message(), "another cluster now");
  }));
  RunFor(absl::Seconds(1));
  EXPECT_EQ(engine_->connection().times_ready(), 0u);
  also_polled_ = nullptr;
}

TEST_F(ElsewhereTest, WithoutAPrimaryEachIsAskedWithPausesAndTheErrorNamesThem) {
  const std::unique_ptr<ScriptedServer> teller = TellerAt(kA, absl::StrCat(kA, "\n", kNext, "\n"));
  server_ = TellerAt(kNext, absl::StrCat(kNext, "\n"));
  AlsoPoll(*teller);
  StartEngine();
  RunFor(absl::Seconds(10));
  // As OnceAllWereTriedAPauseFollows.
  EXPECT_GE(teller->hellos, 10);
  EXPECT_LE(teller->hellos, 30);
  EXPECT_GE(server_->hellos, 10);
  EXPECT_LE(server_->hellos, 30);
  const absl::Status& error = engine_->connection().last_error();
  EXPECT_EQ(ReasonOf(error), Reason::kNotServing) << error;
  EXPECT_THAT(TextOf(error), AllOf(HasSubstr(kA), HasSubstr(kNext), HasSubstr("does not serve")));
  also_polled_ = nullptr;
}

// *Else* hostile servers lead a client on.
TEST_F(ElsewhereTest, WhatALearnedAddressSaysIsNotTaken) {
  const std::unique_ptr<ScriptedServer> teller = TellerAt(kA, absl::StrCat(kNext, "\n"));
  server_ = TellerAt(kNext, absl::StrCat(kFurther, "\n"));
  const std::unique_ptr<ScriptedServer> further = TellerAt(kFurther, "");
  also_polled_ = [&] {
    teller->Poll(now_);
    further->Poll(now_);
  };
  StartEngine();
  RunFor(absl::Seconds(10));
  EXPECT_GE(server_->hellos, 10);
  EXPECT_LE(server_->hellos, 30);
  EXPECT_EQ(further->hellos, 0);
  also_polled_ = nullptr;
}

TEST_F(ElsewhereTest, WithAKeyItIsTakenOnlyIfItIsProved) {
  for (const bool is_right : {true, false}) {
    SCOPED_TRACE(is_right);
    known_servers_ = std::make_shared<KnownServers>(kA);
    key_ = rdma::AuthKey::FromBytes(std::string(32, 'k')).value();
    server_ = TellerAt(kA, absl::StrCat(kNext, "\n"));
    server_->auth_key = is_right ? key_ : rdma::AuthKey::FromBytes(std::string(32, 'x')).value();
    StartEngine();
    ASSERT_TRUE(RunUntil([&] { return !engine_->connection().last_error().ok(); }));
    RunFor(absl::Seconds(1));
    EXPECT_EQ(known_servers_->OfShard(0).size(), is_right ? 1u : 0u);
    const absl::Status& error = engine_->connection().last_error();
    EXPECT_EQ(ReasonOf(error), is_right ? Reason::kNoConnection : Reason::kServerUnproven) << error;
    CloseEngine();
    server_.reset();
  }
}

// It asks for no proof of the client: it cannot have the key either.
TEST_F(ElsewhereTest, WithAKeyAServerWithoutOneIsRefused) {
  key_ = rdma::AuthKey::FromBytes(std::string(32, 'k')).value();
  server_ = TellerAt(kA, absl::StrCat(kNext, "\n"));
  StartEngine();
  ASSERT_TRUE(RunUntil([&] { return !engine_->connection().last_error().ok(); }));
  EXPECT_EQ(ReasonOf(engine_->connection().last_error()), Reason::kServerUnproven);
  EXPECT_EQ(known_servers_->revision(), 0u);
}

TEST_F(ClientAddressesTest, OfAnEarlierVersionTheErrorSaysSo) {
  uris_ = kA;
  network_.SetVersion(kA, rdma::kProtocolVersion - 2);
  server_ = ServerAt(kA, 1);
  StartEngine();
  ASSERT_TRUE(RunUntil([&] { return !engine_->connection().last_error().ok(); }));
  EXPECT_EQ(ReasonOf(engine_->connection().last_error()), Reason::kVersionMismatch);
  EXPECT_THAT(TextOf(engine_->connection().last_error()),
              HasSubstr(absl::StrCat("speaks protocol version ", rdma::kProtocolVersion)));
}

TEST_F(KnownServersOfClientTest, AServerOutsideOfClustersIsNotAsked) {
  server_ = ServerAt(kA, 1);
  StartEngine();
  BecomeReady();
  for (int i = 0; i < 2000; ++i) Step(absl::Milliseconds(10));
  EXPECT_EQ(server_->servers_asked, 0);
}

}  // namespace
}  // namespace osprey
