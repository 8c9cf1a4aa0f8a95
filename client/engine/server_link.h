// What the parts of the client's engine share: the connection to the server with its session and
// clock, registered memory, caches and counters.

#ifndef OSPREY_CLIENT_ENGINE_SERVER_LINK_H_
#define OSPREY_CLIENT_ENGINE_SERVER_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/client.h"
#include "client/common/buffer_pool.h"
#include "client/common/server_clock.h"
#include "client/engine/client_get_stats.h"
#include "client/engine/connection.h"
#include "client/engine/session.h"
#include "client/read/access_sampler.h"
#include "client/read/get_operation.h"
#include "client/read/location_cache.h"
#include "client/read/read_lease.h"
#include "client/read/reads_in_flight.h"
#include "rdma/transport.h"

namespace osprey::client {

// The limit for key and value of a PUT in its frame. The frame may set a lower one: over shared memory
// it has 8192 bytes, over verbs 5120 (rdma/open_domain.h). The server READs a longer value. Measured by
// tests/benchmarks/eager_benchmark, us a PUT, eager / by rendezvous:
//
//   value bytes                      64         1024         8000
//   soft-RoCE, one at a time      35 / 73      49 / 85    130 / 182
//   shared memory, one at a time 1.4 / 1.9    1.0 / 1.2    2.8 / 2.8
//   shared memory, 32 at once    .33 / 1.29   .91 / 1.34   2.4 / 2.8
//
// So every PUT that fits goes eager. Longer frames would gain nothing over shared memory. Over verbs
// they would be pinned for each connection.
inline constexpr uint64_t kEagerBytesMax = 8192;

struct EngineOptions {
  ConnectionOptions connection;
  int operations_max = 256;
  // Registered memory for READs, and as much again for values on their way to the server.
  uint64_t buffer_bytes_max = 64 << 20;
  uint64_t slot_cache_bytes = 16 << 20;
  // The limit for key and value of a PUT in its frame; the server and the frame may set a lower
  // one.
  uint64_t eager_bytes_max = kEagerBytesMax;
  // Reads Poll's clock again: Poll's argument is too old to date an arrival. Null: that argument is
  // accurate enough, as in virtual time.
  std::function<absl::Time()> clock;
  // The clock by which leases last (rdma/lease_clock.h), read only with a server in a cluster. Null:
  // `clock`, as in virtual time.
  std::function<absl::Time()> lease_clock;
  // As `clock`, cheaper and up to some ms behind. It is read before answers are delivered, to detect
  // deadlines that passed while the process was stopped. Null: they are not detected.
  std::function<absl::Time()> coarse_clock;
};

// A struct: the engine owns it, and its parts change its members. Not thread-safe.
struct ServerLink {
  // `domain` must outlive this; `transport` is of that domain.
  ServerLink(std::unique_ptr<rdma::Transport> transport, rdma::Domain& domain,
             std::unique_ptr<rdma::Memory> liveness, const EngineOptions& options,
             std::vector<std::string> uris);

  // --- Time.
  absl::Time ReadClock() const { return options.clock ? options.clock() : polled_at; }
  // Events were taken from the transport: clocks are read again.
  void Arrived() {
    received_by.reset();
    lease.Arrived();
  }
  // A time at which all events under way had arrived.
  absl::Time ReceivedBy();
  // The bounds of the server's clock from the post of a READ until the events under way.
  index::ServerTimeBounds TimeSince(absl::Time posted);
  // Whether the deadline has passed while the process was stopped.
  bool IsLate(absl::Time deadline) const {
    return options.coarse_clock && options.coarse_clock() >= deadline;
  }

  // The connection is ready: sets `source`, `item_read_bytes_max` and what `lease` has to know.
  void OnReady();

  const EngineOptions options;
  Counters counters;

  // In the order of dependency: buffers outlive the transport, whose destruction ensures that
  // nothing lands in them.
  std::unique_ptr<rdma::Memory> liveness;
  BufferPool read_buffers;
  BufferPool value_buffers;
  std::unique_ptr<rdma::Transport> transport;
  ReadsInFlight reads{*transport};
  Session session;
  LocationCache location_cache;
  AccessSampler sampler;
  ReadLease lease{reads, read_buffers, counters,
                  options.lease_clock ? options.lease_clock : [this] { return ReadClock(); }};
  GetContext get_context{counters, location_cache, sampler, lease};
  ClientGetStats report;
  std::unique_ptr<ServerConnection> connection;

  // REQUIRES: the connection is ready. The longest item of this server has so many bytes; a longer
  // READ cannot be right.
  ReadSource source;
  uint64_t item_read_bytes_max = 0;

  absl::Time polled_at = absl::InfinitePast();  // `now` of the last Poll
  std::optional<absl::Time> received_by;        // of the events under way
  ServerClock server_clock;                     // of the server of the present connection
  // An item with an expiry was READ recently, so that the server's time is still requested.
  absl::Time clock_used_until = absl::InfinitePast();
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_SERVER_LINK_H_
