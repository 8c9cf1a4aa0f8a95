#include "server/cluster/node/node_links.h"

namespace osprey::server {

absl::Status NodeLinks::Begin(uint64_t incarnation, absl::Time now) {
  links_.reset();  // its listeners end before others begin at the same addresses
  peers_.clear();
  options_.incarnation = incarnation;
  absl::StatusOr<std::vector<LinkPort>> ports = new_ports_();
  if (!ports.ok()) return ports.status();
  absl::StatusOr<std::unique_ptr<PeerLinks>> links =
      PeerLinks::Create(options_, *std::move(ports), now);
  if (!links.ok()) return links.status();
  links_ = *std::move(links);
  for (const std::string& uri : listen_) {
    if (const absl::StatusOr<std::string> listening = links_->Listen(uri); !listening.ok())
      return listening.status();
  }
  return absl::OkStatus();
}

void NodeLinks::SetServers(const std::map<std::string, WatchedServer>& servers,
                           const std::set<std::string>& needed) {
  LinkPeers peers;
  for (const auto& [id, server] : servers) {
    if (id == options_.server || !server.record.has_value()) continue;
    peers[id] = {server.record->incarnation, server.record->addresses, needed.contains(id)};
  }
  if (peers == peers_) return;
  peers_ = peers;
  links_->SetPeers(std::move(peers));
}

// What is lost is sent again, or its link has ended.
void NodeLinks::Send(uint64_t incarnation, PeerMessageKind kind, std::string bytes) {
  (void)links_->Send(incarnation, static_cast<uint8_t>(kind), std::move(bytes));
}

}  // namespace osprey::server
