#include "client/engine/server_link.h"

#include <algorithm>
#include <utility>

#include "index/layout/partitions.h"

namespace osprey::client {

ServerLink::ServerLink(std::unique_ptr<rdma::Transport> link_transport, rdma::Domain& domain,
                       std::unique_ptr<rdma::Memory> liveness_memory,
                       const EngineOptions& engine_options, std::vector<std::string> uris)
    : options(engine_options),
      liveness(std::move(liveness_memory)),
      read_buffers(domain, rdma::Access::kLocal, options.buffer_bytes_max),
      value_buffers(domain, rdma::Access::kRemoteRead, options.buffer_bytes_max),
      transport(std::move(link_transport)),
      location_cache(options.slot_cache_bytes),
      sampler(options.connection.seed),
      report(counters, options.connection.seed),
      connection(std::make_unique<ServerConnection>(*transport, *liveness, read_buffers, session,
                                                    options.connection, std::move(uris))) {}

absl::Time ServerLink::ReceivedBy() {
  if (!received_by.has_value()) {
    received_by = options.clock ? std::max(options.clock(), polled_at) : polled_at;
  }
  return *received_by;
}

index::ServerTimeBounds ServerLink::TimeSince(absl::Time posted) {
  return server_clock.During(posted, ReceivedBy());
}

void ServerLink::OnReady() {
  const rdma::ConnectionLimits& limits = connection->limits();
  source = {connection->id(), connection->terms().region, limits.read_bytes_max,
            limits.reads_in_flight_max / size_t{4}};
  const uint64_t item_bytes_max =
      index::ItemBytes(index::kKeyBytesMax, connection->terms().value_bytes_max);
  lease.OnReady(connection->terms().in_cluster, connection->shard(),
                index::IncarnationOfPartition(connection->terms().incarnation, 0));
  item_read_bytes_max = index::ReadLengthOf(index::LengthClassOf(item_bytes_max));
}

}  // namespace osprey::client
