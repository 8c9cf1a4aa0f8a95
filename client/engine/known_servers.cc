#include "client/engine/known_servers.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace osprey::client {

using rdma::Address;

KnownServers::KnownServers(absl::string_view uri)
    : scheme_(absl::StartsWith(uri, "shm:") ? Address::Scheme::kShm : Address::Scheme::kRdma) {}

void KnownServers::Asked(absl::Time now) {
  asked_at_ = now;
  due_at_ = now + kAskEvery();
}

void KnownServers::Connected() { due_at_ = std::min(due_at_, asked_at_ + kAskAtMostEvery()); }

void KnownServers::Learn(absl::string_view text) {
  std::vector<Address> servers;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    absl::StatusOr<Address> address = rdma::ParseAddress(line);
    if (!address.ok() || address->scheme != scheme_ || servers.size() == kServersMax) continue;
    if (scheme_ == Address::Scheme::kRdma && !rdma::HasIpAddress(*address)) continue;
    servers.push_back(*std::move(address));
  }
  if (servers == servers_) return;
  servers_ = std::move(servers);
  ++revision_;
}

std::vector<std::string> KnownServers::OfShard(uint32_t shard) const {
  std::vector<std::string> uris;
  for (const Address& server : servers_) {
    const absl::StatusOr<Address> own = rdma::ShardAddress(server, shard);
    if (own.ok()) uris.push_back(own->ToString());
  }
  return uris;
}

}  // namespace osprey::client
