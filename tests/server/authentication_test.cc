// A server with a key: what it sends before the proof, which proofs it accepts, and how many
// unauthenticated peers it admits.

#include "rdma/authentication.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "rdma/errors.h"
#include "server/stats/admission.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using rdma::Opcode;

rdma::AuthKey::Pointer Key(char of = 'k') {
  return rdma::AuthKey::FromBytes(std::string(32, of)).value();
}

class ServerAuthenticationTest : public testing::Test {
 protected:
  static HarnessOptions WithKey() {
    HarnessOptions options;
    options.key = Key();
    return options;
  }
  // Until the challenge.
  void SayHello(RawClient& client, uint64_t resume_session = 0) {
    client.Connect();
    server_.Settle();
    ASSERT_TRUE(client.connected());
    client.Hello(resume_session, kIncarnation);
    server_.Settle();
  }
  void Establish(RawClient& client, uint64_t resume_session = 0) {
    SayHello(client, resume_session);
    client.Respond(*Key());
    server_.Settle();
    ASSERT_TRUE(client.welcomed());
  }
  uint64_t refused() const { return server_.counters().authentication_failures; }

  ServerHarness server_{WithKey()};
};

TEST_F(ServerAuthenticationTest, HelloReceivesOnlyAChallenge) {
  RawClient trusted(server_), client(server_);
  Establish(trusted);
  const uint64_t reads = server_.network().reads_executed();
  SayHello(client);
  EXPECT_TRUE(client.challenged());
  EXPECT_FALSE(client.welcomed());
  EXPECT_EQ(server_.engine().sessions(), 1u);  // the trusted client's
  // The trusted client's data does not help.
  const rdma::WireMemory& region = trusted.welcome().region;
  EXPECT_FALSE(
      client.transport().Attach(client.id(), {region.address, region.length, region.key}).ok());
  rdma::ReadRequest read;
  const auto into = server_.client_domain().Allocate(64, rdma::Access::kLocal).value();
  read.remote_address = region.address;
  read.remote_key = region.key;
  read.segments[0] = {into->data(), 64, into.get()};
  (void)client.transport().PostReads(client.id(), {&read, 1}, 1);
  server_.Settle();
  EXPECT_TRUE(client.disconnected());
  for (size_t i = 0; i < 64; ++i) ASSERT_EQ(into->data()[i], std::byte{0});
  EXPECT_FALSE(trusted.disconnected());
  EXPECT_EQ(server_.network().reads_executed(), reads);
}

TEST_F(ServerAuthenticationTest, TheRightResponseIsWelcomedWithAProofOverAllThatItSays) {
  RawClient client(server_);
  Establish(client);
  rdma::WelcomeBody body = client.welcome();
  rdma::Proof proof;
  std::memcpy(proof.data(), body.proof, proof.size());
  std::memset(body.proof, 0, sizeof(body.proof));
  EXPECT_EQ(proof,
            rdma::ServerProof(*Key(), client.nonces(), client.session(), rdma::BodyBytes(body)));
  EXPECT_EQ(client.Ask(client.PutFrame(1, "key", "value")).code, absl::StatusCode::kOk);
  EXPECT_EQ(refused(), 0u);
}

TEST_F(ServerAuthenticationTest, AWrongKeyIsRefusedAndCounted) {
  RawClient client(server_);
  SayHello(client);
  client.Respond(*Key('x'));
  server_.Settle();
  EXPECT_EQ(client.refused(), Reason::kAuthenticationFailed);
  EXPECT_TRUE(client.disconnected());
  EXPECT_FALSE(client.welcomed());
  EXPECT_EQ(refused(), 1u);
  EXPECT_EQ(server_.closed(CloseReason::kUnauthenticated), 1u);
  EXPECT_EQ(server_.engine().sessions(), 0u);
  EXPECT_EQ(server_.engine().connections(), 0u);
  ASSERT_FALSE(server_.log().empty());
  EXPECT_TRUE(absl::StrContains(server_.log().back(), "unauthenticated"));
}

TEST_F(ServerAuthenticationTest, EveryBitOfTheResponseMustBeRight) {
  for (size_t byte = sizeof(rdma::FrameHeader); byte < sizeof(rdma::FrameHeader) + 64; byte += 7) {
    RawClient client(server_);
    SayHello(client);
    std::string response = client.ResponseFrame(*Key());
    response[byte] = static_cast<char>(response[byte] ^ (1 << byte % 8));
    client.Send(response);
    server_.Settle();
    EXPECT_EQ(client.refused(), Reason::kAuthenticationFailed) << byte;
  }
}

TEST_F(ServerAuthenticationTest, ReplayedResponseIsRefused) {
  RawClient client(server_), thief(server_);
  SayHello(client);
  const std::string overheard = client.ResponseFrame(*Key());
  client.Send(overheard);
  server_.Settle();
  ASSERT_TRUE(client.welcomed());
  SayHello(thief);
  EXPECT_NE(thief.nonces().server, client.nonces().server);
  thief.Send(overheard);
  server_.Settle();
  EXPECT_EQ(thief.refused(), Reason::kAuthenticationFailed);
}

TEST_F(ServerAuthenticationTest, AResponseIsForItsOwnHelloOnly) {
  // A peer that makes a client answer its challenge must not resume another's session with it.
  RawClient victim(server_), client(server_);
  Establish(victim);
  SayHello(client, victim.session());
  const rdma::HelloBody innocent = [&] {
    rdma::HelloBody hello = client.hello();
    hello.resume_session = hello.resume_incarnation = 0;
    return hello;
  }();
  const rdma::Proof proof = rdma::ClientProof(*Key(), client.nonces(), rdma::BodyBytes(innocent));
  std::string response = client.ResponseFrame(*Key());
  std::memcpy(&response[sizeof(rdma::FrameHeader) + 32], proof.data(), proof.size());
  client.Send(response);
  server_.Settle();
  EXPECT_EQ(client.refused(), Reason::kAuthenticationFailed);
  EXPECT_FALSE(victim.disconnected());
}

TEST_F(ServerAuthenticationTest, NoSessionIsClaimedBeforeTheProof) {
  RawClient victim(server_), thief(server_);
  Establish(victim);
  SayHello(thief, victim.session());
  thief.Respond(*Key('x'));
  server_.Settle();
  EXPECT_FALSE(victim.disconnected());
  EXPECT_EQ(victim.Ask(victim.PutFrame(1, "key", "value")).code, absl::StatusCode::kOk);
  // The session's own client may resume it.
  RawClient again(server_);
  Establish(again, victim.session());
  EXPECT_EQ(again.welcome().resumed, 1u);
  EXPECT_TRUE(victim.disconnected());
}

TEST_F(ServerAuthenticationTest, RequestBeforeResponseFailsAsUnauthenticated) {
  for (const Opcode opcode : {Opcode::kPing, Opcode::kStats, Opcode::kDisconnectNotice}) {
    RawClient client(server_);
    SayHello(client);
    rdma::FrameHeader header;
    header.opcode = static_cast<uint8_t>(opcode);
    header.length = sizeof(header);
    header.session = 1;
    header.sequence = opcode == Opcode::kDisconnectNotice ? 0 : 1;
    client.Send({reinterpret_cast<const char*>(&header), sizeof(header)});
    server_.Settle();
    EXPECT_EQ(client.refused(), Reason::kAuthenticationRequired);
    EXPECT_EQ(client.replies(), 0u);
    EXPECT_TRUE(client.disconnected());
  }
  EXPECT_EQ(refused(), 3u);
}

TEST_F(ServerAuthenticationTest, AResponseOutOfPlaceEndsTheConnection) {
  RawClient early(server_), late(server_);
  early.Connect();
  server_.Settle();
  early.Send(early.ResponseFrame(*Key()));
  Establish(late);
  late.Send(late.ResponseFrame(*Key()));
  server_.Settle();
  EXPECT_TRUE(early.disconnected());
  EXPECT_TRUE(late.disconnected());
  EXPECT_EQ(server_.closed(CloseReason::kMalformed), 2u);
}

TEST_F(ServerAuthenticationTest, UnansweredChallengeTimesOut) {
  RawClient client(server_);
  SayHello(client);
  server_.Advance(kHelloTimeout() - absl::Seconds(1));
  EXPECT_FALSE(client.disconnected());
  server_.Advance(absl::Seconds(2));
  EXPECT_TRUE(client.disconnected());
  EXPECT_EQ(server_.closed(CloseReason::kHelloTimeout), 1u);
}

TEST_F(ServerAuthenticationTest, LivenessReadsStartAfterTheClientCanHoldTheProof) {
  RawClient client(server_);
  SayHello(client);
  server_.Advance(absl::Seconds(3));  // long silent
  client.Respond(*Key());
  server_.Settle();
  server_.Advance(kWelcomeTakenMax());
  EXPECT_EQ(server_.counters().liveness_reads, 0u);
  server_.Advance(2 * kSilenceMax());
  EXPECT_GE(server_.counters().liveness_reads, 1u);
  EXPECT_FALSE(client.disconnected());
}

TEST_F(ServerAuthenticationTest, LivenessReadsStartOnTimeAfterAFirstRequest) {
  RawClient client(server_);
  SayHello(client);
  client.Respond(*Key());
  server_.Settle();
  EXPECT_EQ(client.Ask(client.PutFrame(1, "key", "value")).code, absl::StatusCode::kOk);
  server_.Advance(kSilenceMax() - absl::Milliseconds(100));
  EXPECT_EQ(server_.counters().liveness_reads, 0u);
  server_.Advance(absl::Milliseconds(200));
  EXPECT_EQ(server_.counters().liveness_reads, 1u);
}

TEST_F(ServerAuthenticationTest, StoppingServerSendsUnauthenticatedPeersNoNotice) {
  RawClient client(server_);
  SayHello(client);
  server_.engine().Stop(server_.now());
  server_.Settle();
  EXPECT_TRUE(client.disconnected());
  EXPECT_FALSE(client.got_disconnect_notice());
}

TEST_F(ServerAuthenticationTest, StatisticsCountFailuresAndUnauthenticatedPeers) {
  RawClient wrong(server_), client(server_), stranger(server_);
  SayHello(wrong);
  wrong.Respond(*Key('x'));
  server_.Settle();
  SayHello(stranger);
  Establish(client);
  const std::string stats = client.Ask(client.EmptyFrame(Opcode::kStats, 1)).data;
  EXPECT_TRUE(absl::StrContains(stats, "authentication=key\n")) << stats;
  EXPECT_TRUE(absl::StrContains(stats, "authentication_failures=1\n")) << stats;
  EXPECT_TRUE(absl::StrContains(stats, "connections_closed_unauthenticated=1\n")) << stats;
  EXPECT_TRUE(absl::StrContains(stats, "connections_unauthenticated=1\n")) << stats;
}

TEST(ServerAdmissionInEngineTest, UnauthenticatedPeersAreLimitedAndClientsContinue) {
  AdmissionLimits limits;
  limits.connections_max = 64;
  limits.requires_authentication = true;
  Admission admission(limits);
  HarnessOptions options;
  options.connections_max = 64;
  options.key = Key();
  options.admission = &admission;
  ServerHarness server(options);
  RawClient client(server);
  client.Connect();
  server.Settle();
  client.Hello();
  server.Settle();
  client.Respond(*Key());
  server.Settle();
  ASSERT_TRUE(client.welcomed());

  std::vector<std::unique_ptr<RawClient>> unauthenticated;
  for (size_t i = 0; i < 20; ++i) {
    unauthenticated.push_back(std::make_unique<RawClient>(server));
    unauthenticated.back()->Connect();
    server.Settle();
  }
  size_t connected = 0;
  for (const auto& stranger : unauthenticated) {
    if (stranger->connected()) ++connected;
    if (!stranger->connected()) {
      EXPECT_EQ(ReasonOf(stranger->why_disconnected()), Reason::kRefused);
    }
  }
  EXPECT_EQ(connected, limits.unauthenticated_per_source_max());
  EXPECT_EQ(admission.refusals().unauthenticated, 20 - connected);
  EXPECT_EQ(client.Ask(client.PutFrame(1, "key", "value")).code, absl::StatusCode::kOk);
  // Their time runs out, and there is space again.
  for (auto& stranger : unauthenticated) stranger->set_asleep(false);
  server.Advance(kHelloTimeout() + absl::Seconds(1));
  EXPECT_EQ(admission.unauthenticated(), 0u);
  EXPECT_EQ(admission.connections(), 1u);
  unauthenticated.clear();
}

TEST(ServerAdmissionInEngineTest, OneAddressHasAsManyConnectionsAsItMay) {
  AdmissionLimits limits;
  limits.connections_max = 8;
  limits.per_source_max = 2;
  Admission admission(limits);
  HarnessOptions options;
  options.admission = &admission;
  ServerHarness server(options);
  RawClient first(server), second(server), third(server);
  first.Establish();
  second.Establish();
  third.Connect();
  server.Settle();
  ASSERT_TRUE(third.disconnected());
  EXPECT_TRUE(absl::StrContains(third.why_disconnected().message(), "connections-per-address-max"))
      << third.why_disconnected();
  const std::string stats = first.Ask(first.EmptyFrame(Opcode::kStats, 1)).data;
  EXPECT_TRUE(absl::StrContains(stats, "connections_rejected=1\n")) << stats;
  EXPECT_TRUE(absl::StrContains(stats, "connections_rejected_per_address=1\n")) << stats;
  first.transport().Disconnect(first.id());
  server.Settle();
  third.Establish();
}

}  // namespace
}  // namespace osprey::server
