// Servers that a server connects to, and that are not of its cluster or do not keep to the protocol.

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "rdma/authentication.h"
#include "server/cluster/links/link_frames.h"
#include "tests/server/cluster/links/link_world.h"
#include "tests/server/cluster/links/raw_peer.h"

namespace osprey {
namespace {

class HostileAcceptorTest : public RawPeerTest {
 protected:
  HostileAcceptorTest() : peer_(world_) {
    peer_.Listen();
    for (int i = 0; i < 200 && !peer_.connected(); ++i) peer_.Step();
    peer_.Step();
    EXPECT_EQ(peer_.Next(&hello_), static_cast<int>(LinkFrame::kHello));
  }

  LinkWelcomeBody Welcome() {
    LinkWelcomeBody welcome;
    welcome.version = 1;
    welcome.incarnation = 2;
    return welcome;
  }
  // Sends a challenge and takes the response.
  rdma::Nonces Challenge() {
    LinkChallengeBody challenge;
    challenge.nonce[0] = 1;
    peer_.Send(LinkFrameOf(LinkFrame::kChallenge, challenge));
    std::string response;
    EXPECT_EQ(peer_.Next(&response), static_cast<int>(LinkFrame::kResponse));
    rdma::Nonces nonces;
    std::memcpy(nonces.server.data(), challenge.nonce, 32);
    std::memcpy(nonces.client.data(), response.data() + sizeof(LinkHeader), 32);
    return nonces;
  }
  void Prove(LinkWelcomeBody& welcome, const rdma::Nonces& nonces, char key) {
    const rdma::Proof proof =
        rdma::ServerProof(*KeyOf(key), nonces, kWorldCluster, LinkBodyBytes(welcome));
    std::memcpy(welcome.proof, proof.data(), 32);
  }
  void ExpectRefused(absl::string_view logged) {
    peer_.Step();
    EXPECT_TRUE(world_.at("a").connected.empty());
    EXPECT_TRUE(world_.HasLogged(logged)) << logged;
  }

  RawPeer peer_;
  std::string hello_;
};

TEST_F(HostileAcceptorTest, OneThatProvesTheKeyIsConnected) {
  const rdma::Nonces nonces = Challenge();
  LinkWelcomeBody welcome = Welcome();
  Prove(welcome, nonces, 'k');
  peer_.Send(LinkFrameOf(LinkFrame::kWelcome, welcome));
  EXPECT_EQ(world_.at("a").connected.count(2), 1u);
  // … and must answer pings.
  world_.Run(absl::Milliseconds(250));
  peer_.Step();
  EXPECT_EQ(peer_.Next(), static_cast<int>(LinkFrame::kPing));
  peer_.Send(LinkFrameOf(LinkFrame::kPong));
  EXPECT_FALSE(peer_.ended());
  peer_.Send(LinkFrameOf(LinkFrame::kData));
  EXPECT_TRUE(peer_.ended());
  EXPECT_TRUE(world_.at("a").connected.empty());
}

TEST_F(HostileAcceptorTest, OneWithoutAProofIsLeft) {
  peer_.Send(LinkFrameOf(LinkFrame::kWelcome, Welcome()));
  ExpectRefused("at rdma://b:7471: it does not prove that it has the cluster's key");
}

TEST_F(HostileAcceptorTest, OneWithAnotherKeyIsLeft) {
  LinkWelcomeBody welcome = Welcome();
  Prove(welcome, Challenge(), 'x');
  peer_.Send(LinkFrameOf(LinkFrame::kWelcome, welcome));
  ExpectRefused("its proof is not made with the cluster's key; start both servers");
}

TEST_F(HostileAcceptorTest, AnotherIncarnationIsLeft) {
  LinkWelcomeBody welcome = Welcome();
  welcome.incarnation = 3;
  Prove(welcome, Challenge(), 'k');
  peer_.Send(LinkFrameOf(LinkFrame::kWelcome, welcome));
  ExpectRefused("it is another incarnation");
}

TEST_F(HostileAcceptorTest, OneThatChallengesTwiceIsLeft) {
  Challenge();
  peer_.Send(LinkFrameOf(LinkFrame::kChallenge, LinkChallengeBody()));
  ExpectRefused("it challenges twice");
}

TEST_F(HostileAcceptorTest, OneThatSaysNothingIsLeft) {
  world_.Run(absl::Seconds(4));
  ExpectRefused("cannot connect to server b at rdma://b:7471: ");
}

TEST_F(RawPeerTest, AnAcceptorOfShortFramesIsLeft) {
  RawPeer peer(world_);
  rdma::TransportOptions options = kLinkTransportOptions;
  options.frame_bytes_max = kLinkFrameBytesMin - 1;
  peer.Listen(options);
  for (int i = 0; i < 200 && !peer.connected(); ++i) peer.Step();
  peer.Step();
  EXPECT_EQ(peer.Next(), 0) << "it received a Hello";
  EXPECT_TRUE(world_.HasLogged("it takes frames of 511 bytes at most; 512 are the least"));
}

TEST_F(HostileAcceptorTest, RefusalsAreLoggedWithTheirFix) {
  LinkRefusedBody refused;
  refused.version_min = 5;
  refused.version_max = 6;
  const std::vector<std::pair<uint32_t, std::string>> texts = {
      {1, "it speaks versions 5 to 6 of the protocol of links, and this server 1 to 1; install"},
      {2, "it belongs to another cluster; correct"},
      {3, "it is not the incarnation that the configuration names; if this lasts"},
      {4, "does not name this incarnation of server a; if this lasts"},
      {5, "it does not accept this server's proof; start both"},
      {77, "for the reason 77, of a later release; install"}};
  for (const auto& [reason, text] : texts) {
    refused.reason = reason;
    peer_.Send(LinkFrameOf(LinkFrame::kRefused, refused));
    ExpectRefused(text);
    world_.Run(absl::Seconds(1));
    for (int i = 0; i < 500 && peer_.Next() != static_cast<int>(LinkFrame::kHello); ++i)
      peer_.Step();
  }
}

}  // namespace
}  // namespace osprey
