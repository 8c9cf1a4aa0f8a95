#include "tests/server/cluster/links/link_world.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace osprey {

rdma::AuthKey::Pointer KeyOf(char character) {
  return rdma::AuthKey::FromBytes(std::string(32, character)).value();
}

std::string AddressOf(absl::string_view server) { return absl::StrCat("rdma://", server, ":7471"); }

LinkWorld::~LinkWorld() { servers_.clear(); }

LinkOptions LinkWorld::Options() {
  LinkOptions options;
  options.cluster_id = kWorldCluster;
  options.key = KeyOf('k');
  options.random = [this] { return random_.Next(); };
  options.log = [this](absl::string_view line) { log.emplace_back(line); };
  return options;
}

LinkWorld::Server& LinkWorld::Start(const std::string& name, uint64_t incarnation) {
  return Start(name, incarnation, Options());
}

LinkWorld::Server& LinkWorld::Start(const std::string& name, uint64_t incarnation,
                                    LinkOptions options) {
  servers_.erase(name);
  Server& server = servers_[name];
  server.incarnation = incarnation;
  server.domain = network.NewDomain(name);
  options.server = name;
  options.incarnation = incarnation;
  std::vector<LinkPort> ports;
  ports.push_back(
      {rdma::Address::Scheme::kRdma, server.domain->NewTransport(kLinkTransportOptions).value()});
  server.links = PeerLinks::Create(options, std::move(ports), now).value();
  EXPECT_TRUE(server.links->Listen(AddressOf(name)).ok());
  Configure();
  return server;
}

void LinkWorld::Stop(const std::string& name) {
  servers_.erase(name);
  Configure();
}

LinkPeers LinkWorld::peers() const {
  LinkPeers peers;
  for (const auto& [name, server] : servers_) peers[name] = {server.incarnation, {AddressOf(name)}};
  return peers;
}

void LinkWorld::Configure() {
  for (const auto& [name, server] : servers_) server.links->SetPeers(peers());
}

void LinkWorld::Step(absl::Duration step) {
  now += step;
  for (auto& [name, server] : servers_) {
    std::vector<LinkEvent> events;
    server.links->Poll(now, events);
    for (LinkEvent& event : events) {
      switch (event.kind) {
        case LinkEvent::Kind::kConnected:
          EXPECT_TRUE(server.connected.insert(event.incarnation).second);
          ++server.times[event.incarnation];
          break;
        case LinkEvent::Kind::kDisconnected:
          EXPECT_EQ(server.connected.erase(event.incarnation), 1u);
          EXPECT_FALSE(event.status.ok());
          break;
        case LinkEvent::Kind::kMessage:
          server.events.push_back(std::move(event));
          break;
      }
    }
  }
}

bool LinkWorld::Until(const std::function<bool()>& condition, absl::Duration within) {
  for (const absl::Time end = now + within; now < end; Step())
    if (condition()) return true;
  return condition();
}

void LinkWorld::Run(absl::Duration duration) {
  for (const absl::Time end = now + duration; now < end;) Step();
}

bool LinkWorld::AllConnected() const {
  for (const auto& [name, server] : servers_) {
    for (const auto& [peer, other] : servers_)
      if (name != peer && server.connected.count(other.incarnation) == 0) return false;
  }
  return true;
}

std::vector<rdma::ConnectionId> LinkWorld::Connections() {
  // Ids rise one by one. Those of attempts have no peer, and are few at a time.
  constexpr uint64_t kAhead = 64;
  std::vector<rdma::ConnectionId> found;
  for (uint64_t id = 1; id <= last_id_ + kAhead; ++id) {
    if (network.Peer(rdma::ConnectionId{id}) == rdma::ConnectionId::kNone) continue;
    found.push_back(rdma::ConnectionId{id});
    last_id_ = std::max(last_id_, id);
  }
  return found;
}

bool LinkWorld::HasLogged(absl::string_view part) const {
  for (const std::string& line : log)
    if (absl::StrContains(line, part)) return true;
  return false;
}

}  // namespace osprey
