// How a client and a server meet on a new connection: Hello, if need be Challenge and Response, and
// Welcome. Instead of that a cluster's server that does not serve shard 0 tells where the others are.
//
//   greeting.SayHello(id, limits, now)
//   greeting.Take(frame)              until it is true: the Welcome, whose terms() are checked
//
// The server may READ the liveness memory from Hello on. With a key it must first prove by Welcome
// that it has the same one.

#ifndef OSPREY_CLIENT_ENGINE_GREETING_H_
#define OSPREY_CLIENT_ENGINE_GREETING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/engine/known_servers.h"
#include "client/engine/session.h"
#include "rdma/authentication.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"

namespace osprey::client {

struct ConnectionOptions {
  // As Client::Connect takes it.
  std::string uri;
  // The pause before the first attempt after a loss, and the longest one (rdma/backoff.h).
  absl::Duration backoff_first = absl::Milliseconds(10);
  absl::Duration backoff_last = absl::Seconds(1);
  uint64_t seed = 1;
  // Null: the client connects to no server that requires a key. Otherwise it connects only to a
  // server that has the same.
  rdma::AuthKey::Pointer key;
  std::function<rdma::Nonce()> nonce = rdma::RandomNonce;
  // The shard that the server must have, and the number of the cluster's shards; 0: that of the first Welcome. `uri`
  // names that shard's addresses (rdma::ShardAddress).
  uint32_t shard = 0;
  uint32_t shards = 0;
  // More addresses than those of `uri`, learned of the cluster. Null: those alone.
  std::shared_ptr<KnownServers> servers = nullptr;
};

// The server's limits and wishes from its Welcome, checked.
struct ServerTerms {
  uint64_t session = 0;
  uint64_t incarnation = 0;
  uint64_t data_id = 0;  // of its data directory; 0: its data is in memory
  bool resumed = false;
  rdma::RemoteMemory region;
  uint32_t partitions = 1;
  uint32_t requests_max = 0;
  uint64_t value_bytes_max = 0;
  uint64_t eager_bytes_max = 0;  // key and value together
  // The reading of its clock, taken after `asked_at` by the client's clock and before Welcome
  // arrived.
  absl::Time server_time;
  absl::Time asked_at;
  bool wants_hints = false;    // it evicts
  bool wants_reports = false;  // it requests reports of GETs (client_get_stats.h)
  uint32_t shards = 0;         // of its cluster; 0: no Welcome has come yet
  bool in_cluster = false;     // READs count only under a lease (client/read/read_lease.h)

  // Identifies the keys: another server with the same number has the same ones, hash seed and
  // partitions included.
  uint64_t dataset() const { return data_id != 0 ? data_id : incarnation; }
};

// What a server that does not serve shard 0 tells instead of a Welcome, checked.
struct ClusterServers {
  uint64_t cluster = 0;   // as ServerTerms::data_id
  std::string addresses;  // as KnownServers::Learn takes them
};

// Fixed part of the longest request.
inline constexpr uint64_t kPutFixedBytes = sizeof(rdma::FrameHeader) + sizeof(rdma::PutBody);

// The server sent `what`, which the protocol forbids.
absl::Status BadServer(absl::string_view what);

// Not thread-safe.
class Greeting {
 public:
  // The client's own limit of requests without an answer, whatever a server allows.
  static constexpr uint32_t kRequestsMax = 4096;

  // All must outlive this. `liveness` is the memory by which the server sees that the client lives.
  Greeting(rdma::Transport& transport, const rdma::Memory& liveness, const Session& session,
           const ConnectionOptions& options)
      : transport_(transport), liveness_(liveness), session_(session), options_(options) {}

  // Begins on connection `id` to `uri`, at `now`. Errors: of the transport, and FAILED_PRECONDITION where its
  // frames are too short for a key.
  absl::Status SayHello(rdma::ConnectionId id, absl::string_view uri,
                        const rdma::ConnectionLimits& limits, absl::Time now);
  // Takes the server's next frame. True: it was the Welcome. Errors: why this server cannot serve
  // this client.
  absl::StatusOr<bool> Take(rdma::Bytes frame);
  // Of the last Welcome; its defaults before the first.
  const ServerTerms& terms() const { return terms_; }
  // After an error of Take: this server has told where others are. Null: it has not.
  const ClusterServers* elsewhere() const {
    return elsewhere_.has_value() ? &*elsewhere_ : nullptr;
  }

 private:
  absl::Status TakeChallenge(rdma::Bytes frame);
  absl::Status TakeRefused(rdma::Bytes frame) const;
  absl::Status TakeElsewhere(const rdma::FrameHeader& header, rdma::Bytes frame);
  absl::Status CheckProof(const rdma::FrameHeader& header, rdma::WelcomeBody body) const;
  absl::Status TakeWelcome(const rdma::FrameHeader& header, rdma::Bytes frame);
  uint32_t shards() const { return options_.shards != 0 ? options_.shards : terms_.shards; }
  absl::Status CheckTerms(const rdma::FrameHeader& header, const rdma::WelcomeBody& body);

  rdma::Transport& transport_;
  const rdma::Memory& liveness_;
  const Session& session_;
  const ConnectionOptions& options_;
  rdma::ConnectionId id_ = rdma::ConnectionId::kNone;
  std::string uri_;  // for errors
  uint32_t frame_bytes_max_ = 0;
  ServerTerms terms_;
  rdma::HelloBody hello_;                // as it was sent
  absl::optional<rdma::Nonces> nonces_;  // of the answered challenge
  absl::optional<ClusterServers> elsewhere_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_GREETING_H_
