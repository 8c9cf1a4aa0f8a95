#include "server/cluster/node/node_links.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "rdma/authentication.h"
#include "tests/support/split_mix64.h"
#include "tests/support/transports/fake_transport.h"

namespace osprey::server {
namespace {

class NodeLinksTest : public ::testing::Test {
 protected:
  // A server at its address, whatever its incarnation.
  struct Node {
    std::unique_ptr<rdma::Domain> domain;
    std::unique_ptr<NodeLinks> links;
    std::vector<LinkEvent> events;
  };

  static std::string AddressOf(const std::string& server) {
    return absl::StrCat("rdma://", server, ":7471");
  }

  Node& Add(const std::string& name, uint64_t incarnation) {
    Node& node = nodes_[name];
    node.domain = network_.NewDomain(name);
    LinkOptions options;
    options.server = name;
    options.cluster_id = 1;
    options.key = rdma::AuthKey::FromBytes(std::string(32, 'k')).value();
    options.random = [this] { return random_.Next(); };
    const auto new_ports = [&node]() -> absl::StatusOr<std::vector<LinkPort>> {
      std::vector<LinkPort> ports;
      ports.push_back(
          {rdma::Address::Scheme::kRdma, node.domain->NewTransport(kLinkTransportOptions).value()});
      return ports;
    };
    node.links = std::make_unique<NodeLinks>(options, std::vector{AddressOf(name)}, new_ports);
    Begin(name, incarnation);
    return node;
  }

  // The server has this incarnation from now on, and all know it.
  void Begin(const std::string& name, uint64_t incarnation) {
    const absl::Status begun = nodes_[name].links->Begin(incarnation, now_);
    ASSERT_TRUE(begun.ok()) << begun;
    servers_[name].record = ServerRecord{incarnation, {AddressOf(name)}, 1};
    needed_.insert(name);
  }

  bool Until(const std::function<bool()>& condition) {
    for (const absl::Time end = now_ + absl::Seconds(10); now_ < end;
         now_ += absl::Milliseconds(1)) {
      for (auto& [name, node] : nodes_) {
        node.links->SetServers(servers_, needed_);
        node.links->Poll(now_, node.events);
      }
      if (condition()) return true;
    }
    return false;
  }

  static bool Has(const Node& node, LinkEvent::Kind kind, uint64_t incarnation,
                  const std::string& body = "") {
    for (const LinkEvent& event : node.events) {
      if (event.kind == kind && event.incarnation == incarnation && event.body == body) return true;
    }
    return false;
  }

  SplitMix64 random_{1};
  fake::Network network_;
  std::map<std::string, Node> nodes_;
  std::map<std::string, WatchedServer> servers_;
  std::set<std::string> needed_;  // by all
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

TEST_F(NodeLinksTest, MessagesGoToTheIncarnationThatTheStoreNames) {
  Node& a = Add("a", 1);
  Node& b = Add("b", 2);
  servers_["c"];  // it has no readable record
  ASSERT_TRUE(Until([&] {
    return Has(a, LinkEvent::Kind::kConnected, 2) && Has(b, LinkEvent::Kind::kConnected, 1);
  }));
  EXPECT_GT(a.links->RoomFor(2), 0u);
  a.links->Send(2, PeerMessageKind::kAppend, "hello");
  EXPECT_TRUE(Until([&] { return Has(b, LinkEvent::Kind::kMessage, 1, "hello"); }));
}

TEST_F(NodeLinksTest, ANewIncarnationHasNewLinksAtTheSameAddress) {
  Node& a = Add("a", 1);
  Node& b = Add("b", 2);
  ASSERT_TRUE(Until([&] {
    return Has(a, LinkEvent::Kind::kConnected, 2) && Has(b, LinkEvent::Kind::kConnected, 1);
  }));
  a.events.clear();
  Begin("a", 11);
  EXPECT_EQ(a.links->incarnation(), 11u);
  EXPECT_EQ(a.links->RoomFor(2), 0u);
  ASSERT_TRUE(Until([&] {
    return Has(a, LinkEvent::Kind::kConnected, 2) && Has(b, LinkEvent::Kind::kConnected, 11);
  }));
  EXPECT_TRUE(Has(b, LinkEvent::Kind::kDisconnected, 1));
  EXPECT_EQ(b.links->RoomFor(1), 0u);
  b.links->Send(11, PeerMessageKind::kAck, "to the new one");
  a.links->Send(2, PeerMessageKind::kAppend, "from the new one");
  EXPECT_TRUE(Until([&] {
    return Has(a, LinkEvent::Kind::kMessage, 2, "to the new one") &&
           Has(b, LinkEvent::Kind::kMessage, 11, "from the new one");
  }));
}

TEST_F(NodeLinksTest, AServerThatIsNotNeededIsNotConnectedTo) {
  Node& a = Add("a", 1);
  Node& b = Add("b", 2);
  needed_ = {"a"};
  ASSERT_TRUE(Until([&] { return Has(b, LinkEvent::Kind::kConnected, 1); }));
  b.links->Send(1, PeerMessageKind::kCopy, "may I?");
  ASSERT_TRUE(Until([&] { return Has(a, LinkEvent::Kind::kMessage, 2, "may I?"); }));
  EXPECT_EQ(a.links->RoomFor(2), 0u);
  needed_.insert("b");
  ASSERT_TRUE(Until([&] { return Has(a, LinkEvent::Kind::kConnected, 2); }));
  EXPECT_GT(a.links->RoomFor(2), 0u);
}

TEST_F(NodeLinksTest, WhatIsSentWithoutALinkIsLost) {
  Node& a = Add("a", 1);
  a.links->Send(7, PeerMessageKind::kAppend, "lost");
  Node& b = Add("b", 7);
  ASSERT_TRUE(Until([&] { return Has(b, LinkEvent::Kind::kConnected, 1); }));
  a.links->Send(7, PeerMessageKind::kAppend, "sent");
  ASSERT_TRUE(Until([&] { return Has(b, LinkEvent::Kind::kMessage, 1, "sent"); }));
  EXPECT_FALSE(Has(b, LinkEvent::Kind::kMessage, 1, "lost"));
}

TEST_F(NodeLinksTest, AnAddressThatIsTakenIsAnError) {
  Add("a", 1);
  Node& other = nodes_["other"];
  other.domain = network_.NewDomain("a");
  LinkOptions options;
  options.server = "other";
  options.cluster_id = 1;
  options.key = rdma::AuthKey::FromBytes(std::string(32, 'k')).value();
  options.random = [this] { return random_.Next(); };
  NodeLinks links(options, {AddressOf("a")}, [&]() -> absl::StatusOr<std::vector<LinkPort>> {
    std::vector<LinkPort> ports;
    ports.push_back(
        {rdma::Address::Scheme::kRdma, other.domain->NewTransport(kLinkTransportOptions).value()});
    return ports;
  });
  EXPECT_FALSE(links.Begin(3, now_).ok());
}

}  // namespace
}  // namespace osprey::server
