// The client with a key, or without one, and servers with the same key, with another, or with false
// proofs.

#include "rdma/authentication.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "client/reasons.h"
#include "gtest/gtest.h"
#include "tests/client/client_engine_fixture.h"

namespace osprey {
namespace {

using client::ServerConnection;

rdma::AuthKey::Pointer Key(char of = 'k') {
  return rdma::AuthKey::FromBytes(std::string(32, of)).value();
}

class ClientAuthenticationTest : public ClientEngineTest {
 protected:
  // Expects that no connection is made, with this reason.
  Reason ReasonOfFailure() {
    EXPECT_TRUE(RunUntil([&] { return !engine_->connection().last_error().ok(); }));
    RunFor(absl::Milliseconds(100));
    EXPECT_EQ(engine_->connection().times_ready(), 0u);
    EXPECT_EQ(engine_->connection().last_error().code(), absl::StatusCode::kUnauthenticated);
    return ReasonOf(engine_->connection().last_error());
  }
  // Whether the server may READ the liveness word of the client's last Hello.
  bool LivenessIsReadable() {
    return network_.MayRead(server_->connection(), server_->last_hello.liveness.key);
  }
};

TEST_F(ClientAuthenticationTest, AChallengeIsAnsweredWithAProofAndTheServersIsChecked) {
  StartServer();
  server_->auth_key = key_ = Key();
  server_->nonces.server.fill(std::byte{0x5a});
  StartEngine();
  BecomeReady();
  rdma::Proof proof;
  std::memcpy(proof.data(), server_->last_response.mac, proof.size());
  EXPECT_EQ(proof,
            rdma::ClientProof(*Key(), server_->nonces, rdma::BodyBytes(server_->last_hello)));
  ASSERT_TRUE(Put("planet", "saturn").ok());
  EXPECT_EQ(Get("planet")->bytes, "saturn");
}

TEST_F(ClientAuthenticationTest, EachConnectionHasANonceOfItsOwn) {
  StartServer();
  server_->auth_key = key_ = Key();
  StartEngine();
  BecomeReady();
  const rdma::Nonce first = server_->nonces.client;
  network_.Break(id());
  RunFor(absl::Milliseconds(1));
  BecomeReady();
  EXPECT_EQ(server_->responses, 2);
  EXPECT_NE(server_->nonces.client, first);
}

TEST_F(ClientAuthenticationTest, ChallengeWithoutAKeyFailsAsAuthenticationRequired) {
  StartServer();
  server_->auth_key = Key();
  StartEngine();
  EXPECT_EQ(ReasonOfFailure(), Reason::kAuthenticationRequired);
  EXPECT_EQ(server_->responses, 0);
}

TEST_F(ClientAuthenticationTest, ClientWithAKeyRejectsAServerWithoutOne) {
  StartServer();
  key_ = Key();
  StartEngine();
  EXPECT_EQ(ReasonOfFailure(), Reason::kServerUnproven);
  EXPECT_TRUE(absl::StrContains(engine_->connection().last_error().message(), "asks for none"));
}

TEST_F(ClientAuthenticationTest, ClientRejectsAWelcomeFromAServerWithAnotherKey) {
  StartServer();
  key_ = Key();
  server_->auth_key = Key('x');
  StartEngine();
  EXPECT_EQ(ReasonOfFailure(), Reason::kServerUnproven);
}

TEST_F(ClientAuthenticationTest, ClientRejectsATamperedWelcome) {
  using Tamper = std::function<void(rdma::FrameHeader&, rdma::WelcomeBody&)>;
  const std::vector<Tamper> cases = {
      [](auto&, auto& body) { body.region.address += 4096; },
      [](auto&, auto& body) { body.region.length -= 4096; },
      [](auto&, auto& body) { body.region.key ^= 1; },
      [](auto&, auto& body) { body.incarnation ^= 2; },
      [](auto&, auto& body) { body.requests_max ^= 1; },
      [](auto&, auto& body) { body.partitions = 2; },
      [](auto&, auto& body) { body.server_time ^= 1; },
      [](auto& header, auto&) { header.session ^= 1; },
      [](auto&, auto& body) { body.proof[31] ^= 0x80; },
      [](auto&, auto& body) { std::memset(body.proof, 0, sizeof(body.proof)); },
  };
  key_ = Key();
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    StartServer();
    server_->auth_key = Key();
    server_->tamper_welcome = cases[i];
    StartEngine();
    EXPECT_EQ(ReasonOfFailure(), Reason::kServerUnproven);
    CloseEngine();
    KillServer();
  }
}

TEST_F(ClientAuthenticationTest, AProofThatWasOverheardServesNoOtherServer) {
  StartServer();
  server_->auth_key = key_ = Key();
  std::string overheard;
  uint64_t session = 0;
  server_->tamper_welcome = [&](auto& header, auto& body) {
    overheard.assign(reinterpret_cast<const char*>(body.proof), sizeof(body.proof));
    session = header.session;
  };
  StartEngine();
  BecomeReady();
  CloseEngine();
  // The same challenge, the same Welcome: only the client's nonce is another.
  server_->tamper_welcome = [&](auto& header, auto& body) {
    header.session = session;
    std::memcpy(body.proof, overheard.data(), overheard.size());
  };
  StartEngine();
  EXPECT_EQ(ReasonOfFailure(), Reason::kServerUnproven);
}

TEST_F(ClientAuthenticationTest, ItsOwnProofSentBackIsNone) {
  StartServer();
  server_->auth_key = key_ = Key();
  server_->tamper_welcome = [&](auto&, auto& body) {
    std::memcpy(body.proof, server_->last_response.mac, sizeof(body.proof));
  };
  StartEngine();
  EXPECT_EQ(ReasonOfFailure(), Reason::kServerUnproven);
}

TEST_F(ClientAuthenticationTest, ARefusalSaysWhichKeyIsWrong) {
  StartServer();
  server_->auth_key = key_ = Key();
  server_->welcomes = false;
  StartEngine();
  ASSERT_TRUE(RunUntil([&] { return server_->responses == 1; }));
  rdma::RefusedBody body;
  body.reason = WireNumberOf(Reason::kAuthenticationFailed);
  const rdma::Message<rdma::RefusedBody> refused(rdma::Opcode::kRefused, 0, 0, body, 0);
  server_->Send({reinterpret_cast<const char*>(refused.bytes().data()), refused.bytes().size()});
  ASSERT_TRUE(RunUntil([&] { return !engine_->connection().last_error().ok(); }));
  EXPECT_EQ(ReasonOf(engine_->connection().last_error()), Reason::kAuthenticationFailed);
}

TEST_F(ClientAuthenticationTest, ASecondChallengeIsABreachOfTheProtocol) {
  StartServer();
  server_->auth_key = key_ = Key();
  server_->welcomes = false;
  StartEngine();
  ASSERT_TRUE(RunUntil([&] { return server_->responses == 1; }));
  const rdma::Message<rdma::ChallengeBody> again(rdma::Opcode::kChallenge, 0, 0, {}, 0);
  server_->Send({reinterpret_cast<const char*>(again.bytes().data()), again.bytes().size()});
  ASSERT_TRUE(RunUntil([&] { return !engine_->connection().last_error().ok(); }));
  EXPECT_TRUE(absl::StrContains(engine_->connection().last_error().message(), "challenges twice"));
  EXPECT_EQ(server_->responses, 1);
}

TEST_F(ClientAuthenticationTest, NothingOfOursIsReadableBeforeTheServerHasProvedItself) {
  StartServer();
  server_->auth_key = key_ = Key();
  server_->welcomes = false;
  StartEngine();
  ASSERT_TRUE(RunUntil([&] { return server_->responses == 1; }));
  EXPECT_FALSE(LivenessIsReadable());
  CloseEngine();
  server_->welcomes = true;
  StartEngine();
  BecomeReady();
  EXPECT_TRUE(LivenessIsReadable());
}

}  // namespace
}  // namespace osprey
