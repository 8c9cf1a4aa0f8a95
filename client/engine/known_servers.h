// The addresses of a cluster's servers, as any of its servers tells them. So a client finds servers that its URI does
// not name: those that were added later, and the primaries, where the URI names none.
//
//   servers.IsDue(now)          ask a server (Opcode::kServers), then Asked(now)
//   servers.Learn(text)         its answer
//   servers.OfShard(3)          where shard 3 may be served; changed if revision() has
//
// The engines of a client share one. A URI names shard 0's address of a server, and the others follow from it
// (rdma::ShardAddress).
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_ENGINE_KNOWN_SERVERS_H_
#define OSPREY_CLIENT_ENGINE_KNOWN_SERVERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/address.h"

namespace osprey::client {

class KnownServers {
 public:
  // Servers come and go rarely, and those that are known lead to the others.
  static constexpr absl::Duration kAskEvery() { return absl::Seconds(10); }
  // After each connection: where a shard has moved, others may have, too.
  static constexpr absl::Duration kAskAtMostEvery() { return absl::Seconds(1); }
  // Of one answer; others are not learned.
  static constexpr size_t kServersMax = 64;

  // Learns addresses of the scheme of `uri`, the client's.
  explicit KnownServers(absl::string_view uri);

  // A server may be asked, and was not lately.
  bool IsDue(absl::Time now) const { return now >= due_at_; }
  void Asked(absl::Time now);
  // The cluster to whose servers they lead (ServerTerms::data_id); 0: to none that is known.
  uint64_t cluster() const { return cluster_; }
  void SetCluster(uint64_t id) { cluster_ = id; }
  // A connection to a server of the cluster is ready.
  void Connected();
  // A server's answer: one address a line. Left out: what is no address, as later versions may have others; and names of
  // hosts, since the client would wait for their resolution.
  void Learn(absl::string_view text);

  // Grows when the addresses change.
  uint64_t revision() const { return revision_; }
  // In the order of the last answer. Those that shard `shard` cannot have are missing.
  std::vector<std::string> OfShard(uint32_t shard) const;

 private:
  const rdma::Address::Scheme scheme_;
  absl::Time asked_at_ = absl::InfinitePast();
  absl::Time due_at_ = absl::InfiniteFuture();  // no server of a cluster is connected
  uint64_t cluster_ = 0;
  uint64_t revision_ = 0;
  std::vector<rdma::Address> servers_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_KNOWN_SERVERS_H_
