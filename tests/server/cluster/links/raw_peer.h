// A peer of a server's links that sends what the test says, over the fake transport.

#ifndef OSPREY_TESTS_SERVER_CLUSTER_LINKS_RAW_PEER_H_
#define OSPREY_TESTS_SERVER_CLUSTER_LINKS_RAW_PEER_H_

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "rdma/authentication.h"
#include "rdma/transport.h"
#include "server/cluster/links/link_frames.h"
#include "server/cluster/links/peer_links.h"
#include "tests/server/cluster/links/link_world.h"

namespace osprey {

// It is server "b", incarnation 2, of the configuration. Thread rule: that of its world.
class RawPeer {
 public:
  explicit RawPeer(LinkWorld& world, const std::string& source = "b")
      : world_(world), domain_(world.network.NewDomain(source)) {}

  void Connect(const rdma::TransportOptions& options = kLinkTransportOptions) {
    transport_ = domain_->NewTransport(options).value();
    id_ = transport_->Connect(AddressOf("a")).value();
    ended_ = false;
    connected_ = false;
    frames_.clear();
    Step();
  }
  // Instead: server b, to which server a connects.
  void Listen(const rdma::TransportOptions& options = kLinkTransportOptions) {
    transport_ = domain_->NewTransport(options).value();
    ASSERT_TRUE(transport_->Listen(AddressOf("b"), 2).ok());
  }

  void Step() {
    for (int i = 0; i < 4; ++i) {
      world_.Step();
      std::vector<rdma::Event> events(64);
      const size_t count = transport_->Poll(absl::MakeSpan(events));
      for (size_t k = 0; k < count; ++k) Take(events[k]);
    }
  }
  void Send(const std::string& frame) {
    SendUnread(frame);
    Step();
  }
  // The peer reads nothing meanwhile, so it returns no credits.
  void SendUnread(const std::string& frame) {
    ASSERT_TRUE(
        transport_->Send(id_, {{reinterpret_cast<const std::byte*>(frame.data()), frame.size()}})
            .ok());
    world_.Step();
  }
  // The type of the next frame that came, and the frame; 0: none came.
  int Next(std::string* frame = nullptr) {
    if (frames_.empty()) return 0;
    const std::string first = frames_.front();
    frames_.pop_front();
    if (frame != nullptr) *frame = first;
    return first[4];
  }

  LinkHelloBody Hello() {
    LinkHelloBody hello;
    hello.cluster_id = kWorldCluster;
    hello.server = LinkServerNameOf("b");
    hello.incarnation = 2;
    hello.expected_incarnation = 1;
    return hello;
  }
  // The answer to that challenge.
  static LinkResponseBody Response(const LinkHelloBody& hello, const std::string& challenge,
                                   char key) {
    rdma::Nonces nonces;
    nonces.client.fill(std::byte{7});
    std::memcpy(nonces.server.data(), challenge.data() + sizeof(LinkHeader), 32);
    const rdma::Proof proof = rdma::ClientProof(*KeyOf(key), nonces, LinkBodyBytes(hello));
    LinkResponseBody response;
    std::memcpy(response.nonce, nonces.client.data(), 32);
    std::memcpy(response.mac, proof.data(), 32);
    return response;
  }
  // Up to Welcome.
  void Greet(const rdma::TransportOptions& options = kLinkTransportOptions) {
    Connect(options);
    Send(LinkFrameOf(LinkFrame::kHello, Hello()));
    std::string challenge;
    ASSERT_EQ(Next(&challenge), static_cast<int>(LinkFrame::kChallenge));
    Send(LinkFrameOf(LinkFrame::kResponse, Response(Hello(), challenge, 'k')));
    ASSERT_EQ(Next(), static_cast<int>(LinkFrame::kWelcome));
  }
  // The reason of the Refused that comes next; 0: another frame, or none.
  uint32_t Refusal() {
    std::string frame;
    if (Next(&frame) != static_cast<int>(LinkFrame::kRefused)) return 0;
    LinkRefusedBody body;
    std::memcpy(&body, frame.data() + sizeof(LinkHeader), sizeof(body));
    return body.reason;
  }
  bool connected() const { return connected_; }
  bool ended() const { return ended_; }

 private:
  void Take(const rdma::Event& event) {
    if (event.kind == rdma::Event::Kind::kConnectRequest) {
      id_ = event.connection;
      EXPECT_TRUE(transport_->Accept(id_).ok());
      ended_ = false;
      frames_.clear();
    }
    if (event.connection != id_) return;
    if (event.kind == rdma::Event::Kind::kConnected) connected_ = true;
    if (event.kind == rdma::Event::Kind::kDisconnected) ended_ = true;
    if (event.kind == rdma::Event::Kind::kReceived) {
      frames_.emplace_back(reinterpret_cast<const char*>(event.frame.data()), event.frame.size());
    }
  }

  LinkWorld& world_;
  std::unique_ptr<rdma::Domain> domain_;
  std::unique_ptr<rdma::Transport> transport_;
  rdma::ConnectionId id_ = rdma::ConnectionId::kNone;
  std::deque<std::string> frames_;
  bool connected_ = false;
  bool ended_ = false;
};

// Server a, whose configuration names b, which a RawPeer plays, and c, which does not run.
class RawPeerTest : public testing::Test {
 protected:
  RawPeerTest() {
    world_.Start("a", 1);
    LinkPeers peers = world_.peers();
    peers["b"] = {2, {AddressOf("b")}};
    peers["c"] = {3, {AddressOf("c")}};
    world_.links("a").SetPeers(peers);
  }

  LinkWorld world_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SERVER_CLUSTER_LINKS_RAW_PEER_H_
