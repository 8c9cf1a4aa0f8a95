// What a server consists of, and how it is made: domains, memory, tables, data, engines.
//
// Thread rule: the main thread.

#ifndef OSPREY_SERVER_SERVER_PARTS_H_
#define OSPREY_SERVER_SERVER_PARTS_H_

#include <atomic>
#include <cstdint>
#include <functional>
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
#include "server/directory.h"
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
#include "server/run.h"
#include "server/stats/admission.h"
#include "server/stats/client_gets.h"

namespace osprey::server {

// What all slots of a server share of one scheme.
struct Place {
  rdma::Address::Scheme scheme;
  std::unique_ptr<rdma::Domain> domain;
};

// A slot's memory, as one place gives it to clients.
struct SlotPlace {
  std::unique_ptr<rdma::Memory> region;
  std::vector<std::unique_ptr<rdma::Memory>> scratch;  // by poller: the target of their READs
};

// Memory, tables and engines for one shard of a cluster at a time, or for all keys. Members point to each
// other: it stays where it is. In the order of dependency: destroyed from the end.
struct Slot {
  explicit Slot(uint32_t its_number) : number(its_number) {}
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  const uint32_t number;     // of the slot
  uint32_t shard = 0;        // whose engines there are, or were
  uint64_t incarnation = 0;  // of the region
  Clock clock;
  bool runs = false;                         // the tables' clock
  std::unique_ptr<rdma::HostMemory> memory;  // must outlive …
  std::vector<SlotPlace> places;             // … its registrations, by Server::places
  std::unique_ptr<SlotWrites> writes;        // only in a cluster
  std::unique_ptr<Tables> tables;
  std::unique_ptr<SessionSnapshots> snapshots;  // only in a cluster, or with --data-dir
  std::unique_ptr<Pollers> pollers;
  std::vector<PollerHeartbeat> heartbeats;       // by poller
  std::vector<std::unique_ptr<Engine>> engines;  // by poller
};

// In the order of dependency: destroyed from the end.
struct Server {
  std::vector<Place> places;              // the domains must outlive all memory
  std::unique_ptr<ClusterParts> cluster;  // only with --cluster
  std::unique_ptr<Admission> admission;
  ClientLog client_log;
  ClientGets client_gets;
  std::unique_ptr<Durability> durability;  // only with --data-dir
  std::vector<std::unique_ptr<Slot>> slots;
  std::unique_ptr<ClusterNode> node;     // only with --cluster; outlives the engines
  std::unique_ptr<Directory> directory;  // likewise
  std::unique_ptr<Monitor> monitor;      // only with …
  std::unique_ptr<HttpServer> metrics;   // … this, which uses all above

  Server() = default;
  ~Server();
};

// Returns a random number other than 0.
uint64_t Random();
// CPU time of the process.
absl::Duration ProcessCpu();

// Errors of all that follow: one line, with the flag and the fix.
absl::Status OpenDomains(const Config& config, Server& server);
// Slots with memory and empty tables.
absl::Status MakeSlots(const Config& config, Server& server);
// Fills the tables, where there is a data directory, and lets the clocks run. Returns the sessions of
// the last life. CANCELLED: `stop` became true.
absl::StatusOr<std::vector<SessionImage>> Load(const Config& config, const std::atomic<bool>& stop,
                                               Server& server);
// Makes the engines of `slot`. REQUIRES: MakeSlots; it has none.
absl::Status MakeEngines(const Config& config, absl::Span<const SessionImage> sessions,
                         Server& server, Slot& slot);
// Returns the URIs that clients can use.
absl::StatusOr<std::vector<std::string>> ListenAll(const Config& config, Server& server,
                                                   Slot& slot);
// Runs the engines of `slot` until `bell` rings (RunEngines).
absl::Status RunSlot(const Config& config, const std::function<void()>& started,
                     const std::function<void(const absl::Status&)>& ending, StopBell& bell,
                     Slot& slot);
absl::Status StartDurability(Server& server);
// REQUIRES: the engines have ended.
absl::Status EndDurability(Server& server);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_SERVER_PARTS_H_
