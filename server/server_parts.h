// What a server consists of, and how it is made: domains, memory, tables, data, engines.
//
// Thread rule: the main thread.

#ifndef OSPREY_SERVER_SERVER_PARTS_H_
#define OSPREY_SERVER_SERVER_PARTS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "rdma/address.h"
#include "rdma/host_memory.h"
#include "rdma/transport.h"
#include "server/clock.h"
#include "server/cluster/node/cluster_node.h"
#include "server/cluster_service.h"
#include "server/config/config.h"
#include "server/durability/durability.h"
#include "server/engine/engine.h"
#include "server/engine/pollers.h"
#include "server/engine/session_snapshots.h"
#include "server/log.h"
#include "server/monitoring/http_server.h"
#include "server/monitoring/monitor.h"
#include "server/monitoring/poller_heartbeat.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"
#include "server/stats/admission.h"
#include "server/stats/client_gets.h"

namespace osprey::server {

// The domains and memory of one scheme.
struct Place {
  rdma::Address::Scheme scheme;
  std::unique_ptr<rdma::Domain> domain;
  std::unique_ptr<rdma::Memory> region;
  std::vector<std::unique_ptr<rdma::Memory>> scratch;  // by poller: the target of their READs
};

// In the order of dependency: destroyed from the end.
struct Server {
  std::vector<Place> places;  // the domains must outlive …
  std::unique_ptr<rdma::HostMemory> memory;
  std::unique_ptr<ClusterParts> cluster;  // only with --cluster
  std::unique_ptr<Tables> tables;
  std::unique_ptr<Durability> durability;       // only with --data-dir
  std::unique_ptr<SessionSnapshots> snapshots;  // likewise
  std::unique_ptr<Admission> admission;
  ClientLog client_log;
  std::unique_ptr<Pollers> pollers;
  ClientGets client_gets;
  std::vector<PollerHeartbeat> heartbeats;       // by poller
  std::unique_ptr<ClusterNode> node;             // only with --cluster; outlives the engines
  std::vector<std::unique_ptr<Engine>> engines;  // by poller
  std::unique_ptr<Monitor> monitor;              // only with …
  std::unique_ptr<HttpServer> metrics;           // … this, which uses all above
  bool runs = false;                             // the tables' clock

  Server() = default;
  ~Server() {
    metrics.reset();
    engines.clear();
    if (snapshots != nullptr) snapshots->Close();
    node.reset();
    durability.reset();
    tables.reset();
    for (Place& place : places) {
      place.region.reset();  // … their registrations, which must end before `memory`
      place.scratch.clear();
    }
  }
};

// Returns a random number other than 0.
uint64_t Random();
// CPU time of the process.
absl::Duration ProcessCpu();

// Errors of all that follow: one line, with the flag and the fix.
absl::Status OpenDomains(const Config& config, Server& server);
absl::Status MakeMemory(const Config& config, Server& server);
// Empty tables of this incarnation, a random number.
absl::Status MakeTables(const Config& config, uint64_t incarnation, const Clock& clock,
                        Server& server);
// Fills the tables, where there is a data directory, and lets the clock run. Returns the sessions of
// the last life. CANCELLED: `stop` became true.
absl::StatusOr<std::vector<SessionImage>> Load(const Config& config, Clock& clock,
                                               const std::atomic<bool>& stop, Server& server);
// What all engines share.
void MakeShared(const Config& config, Server& server);
// REQUIRES: MakeShared; there are no engines.
absl::Status MakeEngines(const Config& config, uint64_t incarnation,
                         absl::Span<const SessionImage> sessions, const Clock& clock,
                         Server& server);
absl::StatusOr<std::vector<std::string>> ListenAll(const Config& config, Server& server);
absl::Status StartDurability(const Clock& clock, Server& server);
// REQUIRES: the engines have ended.
absl::Status EndDurability(Server& server);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_SERVER_PARTS_H_
