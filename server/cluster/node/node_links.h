// The links of a server of a cluster, under whatever incarnation it has: a new incarnation has new links.
//
// Thread rule: one thread at a time: the cluster's, or a poller that drives (cluster_node.h).

#ifndef OSPREY_SERVER_CLUSTER_NODE_NODE_LINKS_H_
#define OSPREY_SERVER_CLUSTER_NODE_NODE_LINKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/cluster/configuration/configuration_watch.h"
#include "server/cluster/links/peer_links.h"
#include "server/cluster/member/replica_host.h"

namespace osprey::server {

class NodeLinks final : public PeerSender {
 public:
  // Makes the transports of links (kLinkTransportOptions), one of each scheme of `listen`.
  using NewPorts = std::function<absl::StatusOr<std::vector<LinkPort>>()>;

  // `options`: without an incarnation. `listen`: where other servers connect to; each has its port.
  NodeLinks(LinkOptions options, std::vector<std::string> listen, NewPorts new_ports)
      : options_(std::move(options)),
        listen_(std::move(listen)),
        new_ports_(std::move(new_ports)) {}

  // Ends all links, and listens under this incarnation. Errors: those of Transport::Listen.
  absl::Status Begin(uint64_t incarnation, absl::Time now);
  // The servers of the cluster, as the store names them; and of these, by ID, those to which there are to be links.
  void SetServers(const std::map<std::string, WatchedServer>& servers,
                  const std::set<std::string>& needed);
  bool Poll(absl::Time now, std::vector<LinkEvent>& events) { return links_->Poll(now, events); }
  void Flush(absl::Time now) { links_->Flush(now); }
  const PeerLinks& links() const { return *links_; }
  PeerLinks& links() { return *links_; }
  uint64_t incarnation() const { return options_.incarnation; }

  // --- PeerSender
  uint64_t RoomFor(uint64_t incarnation) const override { return links_->RoomFor(incarnation); }
  void Send(uint64_t incarnation, PeerMessageKind kind, std::string bytes) override;

 private:
  LinkOptions options_;
  const std::vector<std::string> listen_;
  const NewPorts new_ports_;
  std::unique_ptr<PeerLinks> links_;  // null before Begin
  LinkPeers peers_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_NODE_NODE_LINKS_H_
