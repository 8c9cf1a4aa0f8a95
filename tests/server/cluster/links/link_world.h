// Servers with PeerLinks over the fake transport, in virtual time.
//
//   LinkWorld world(seed);
//   world.Start("a", 1);  world.Start("b", 2);     each connects to all others
//   world.Until([&] { return world.AllConnected(); });
//
// Thread rule: one thread.

#ifndef OSPREY_TESTS_SERVER_CLUSTER_LINKS_LINK_WORLD_H_
#define OSPREY_TESTS_SERVER_CLUSTER_LINKS_LINK_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/authentication.h"
#include "rdma/transport.h"
#include "server/cluster/links/peer_links.h"
#include "tests/support/split_mix64.h"
#include "tests/support/transports/fake_transport.h"

namespace osprey {

inline constexpr uint64_t kWorldCluster = 0xC105;

// The key of 32 times that character.
rdma::AuthKey::Pointer KeyOf(char character);
// Where a server of the world listens.
std::string AddressOf(absl::string_view server);

class LinkWorld {
 public:
  struct Server {
    uint64_t incarnation = 0;
    std::unique_ptr<rdma::Domain> domain;
    std::unique_ptr<PeerLinks> links;
    std::vector<LinkEvent> events;       // all messages so far, unless they were taken
    std::set<uint64_t> connected;        // by the events: incarnations with a link
    std::map<uint64_t, uint64_t> times;  // how often that was so
  };

  explicit LinkWorld(uint64_t seed = 1) : random_(seed) {}
  ~LinkWorld();

  // What a server has: its options but for those of its name.
  LinkOptions Options();
  // Starts a server, or another incarnation of it in place of the one that runs.
  Server& Start(const std::string& name, uint64_t incarnation);
  Server& Start(const std::string& name, uint64_t incarnation, LinkOptions options);
  void Stop(const std::string& name);
  Server& at(const std::string& name) { return servers_.at(name); }
  PeerLinks& links(const std::string& name) { return *servers_.at(name).links; }

  // The configuration: all servers that run, for each of them.
  void Configure();
  LinkPeers peers() const;

  // Time passes, and each server has a turn.
  void Step(absl::Duration step = absl::Milliseconds(1));
  // Steps until the condition holds; false if it does not within that time.
  bool Until(const std::function<bool()>& condition, absl::Duration within = absl::Seconds(10));
  void Run(absl::Duration duration);
  // Each server has a link to each other.
  bool AllConnected() const;

  // Ends of connections that are up, in both directions.
  std::vector<rdma::ConnectionId> Connections();

  bool HasLogged(absl::string_view part) const;

  fake::Network network;
  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  std::vector<std::string> log;

 private:
  SplitMix64 random_;
  uint64_t last_id_ = 0;  // no connection has a higher one
  std::map<std::string, Server> servers_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SERVER_CLUSTER_LINKS_LINK_WORLD_H_
