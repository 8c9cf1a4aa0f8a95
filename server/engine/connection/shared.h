// What the connections of an engine share, and what each of them is given.
//
// Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_CONNECTION_SHARED_H_
#define OSPREY_SERVER_ENGINE_CONNECTION_SHARED_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/authentication.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"
#include "server/engine/connection/partition_batch.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"
#include "server/requests/write_log.h"
#include "server/stats/client_gets.h"
#include "server/stats/stats.h"

namespace osprey::server {

class Connection;

// What a connection may do in one turn, in units of about a microsecond (turn_budget.h): two
// full Batches of small writes, or one part of a flush. Further requests wait.
inline constexpr uint64_t kTurnCostMax = 256;
// The same for a connection that is the only one to send much, while others send little: those wait
// for two such turns at most. If several send much, the others wait for all of them in any case.
// Short turns would then cost a tenth of the writes, and a quarter with two pollers. Not where each
// turn ends with a sync (WriteLog::AwaitsSync), which takes longer than kTurnCostMax.
inline constexpr uint64_t kTurnCostBesideOthersMax = 32;
// A connection with this cost in a turn counts as sending much.
inline constexpr uint64_t kGreedyCost = kTurnCostBesideOthersMax;

// State that the connections of an engine share. Outlives them.
struct Shared {
  uint64_t incarnation = 0;
  uint64_t value_bytes_max = 0;
  TableAccess& tables;
  Sessions& sessions;
  Counters& counters;
  // Requests that are executed together …
  PartitionBatch& partition_batch;
  // The text of STATS for this connection.
  std::function<std::string(const std::string& transport, absl::Time now)> stats_text;
  // For people; may be empty.
  std::function<void(absl::string_view)> log;
  // Counts the engine's turns.
  uint64_t turn = 0;
  // The server's time for replies, read by the first of them after a transport was polled; 0: not
  // read yet.
  uint64_t server_time_ns = 0;
  // The cost limit of each connection in this turn, and the number that have sent much in it.
  uint64_t turn_cost_max = kTurnCostMax;
  uint32_t greedy = 0;
  // The frames of the Batch in execution. A member to reuse its memory.
  std::vector<rdma::FrameBytes> batch = {};
  // Likewise the access hints for one partition.
  std::vector<uint64_t> hints = {};
  // Null: no authentication.
  rdma::AuthKey::Pointer key = nullptr;
  // … and the function that executes them. Never empty.
  std::function<void(absl::Time now)> execute_batched = nullptr;
  // Connections with long writes that are decided, and are made after the next Commit
  // (Connection::ApplyDecided). Each once.
  std::vector<Connection*> publishing = {};
  // Commits and makes them. REQUIRES: as execute_batched.
  std::function<void(absl::Time now)> publish_decided = nullptr;
  // Null: the server holds its data in memory only.
  WriteLog* write_log = nullptr;
  // As EngineOptions; empty: always.
  std::function<bool()> may_answer = nullptr;
  // Null: clients need not report their GETs.
  ClientGets* client_gets = nullptr;
  // As EngineOptions.
  bool times_puts = false;
  // 64 random bits. REQUIRES: not empty where there is a key.
  std::function<uint64_t()> random = nullptr;
  // Identifies the data directory; 0: data in memory.
  uint64_t data_id = 0;
  // The Welcome says so: READs of clients count only under a lease.
  bool in_cluster = false;
  // As EngineOptions.
  uint32_t shards = 1;
  uint32_t shard = 0;
  std::function<std::string()> cluster_servers = nullptr;
  bool only_tells_servers = false;
};

// The place of a connection: one transport, and the memory registered for it.
struct Port {
  rdma::Transport& transport;
  const rdma::Memory& region;   // the tables; exposed with the Welcome
  const rdma::Memory& scratch;  // the target of all liveness READs, kLivenessBytes; never read
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_CONNECTION_SHARED_H_
