// The counters of the server, and their text for STATS: lines "name=value".

#ifndef OSPREY_SERVER_STATS_STATS_H_
#define OSPREY_SERVER_STATS_STATS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "index/writer/table.h"
#include "rdma/wire/wire.h"
#include "server/stats/admission.h"
#include "server/stats/client_gets.h"
#include "server/stats/cluster_stats.h"
#include "server/stats/durability_stats.h"

namespace osprey::server {

// Why the server closed a connection.
enum class CloseReason {
  kPeer,             // the client left, or died
  kMalformed,        // a malformed or misplaced frame, or a broken rule of the transport
  kHelloTimeout,     // the handshake did not complete in time
  kSilent,           // no message came, and the READ of its liveness word failed
  kBlocked,          // it does not take its replies
  kSuperseded,       // its session resumed over another connection
  kStopping,         // the server ends
  kUnauthenticated,  // it did not prove that it has the key
  kFailed,           // the transport refused a call that the server needs for it
  kNotServing,       // the server has no right to answer it (EngineOptions::may_answer)
  kWrongShard,       // it requests another shard
};
inline constexpr size_t kCloseReasons = 11;
absl::string_view NameOf(CloseReason reason);

inline constexpr size_t kStatusCodes = 17;  // absl::StatusCode::kOk … kUnauthenticated

// Counts since the server started.
struct Counters {
  // Requests executed or refused, by kind; repetitions included.
  uint64_t puts = 0;
  uint64_t deletes = 0;
  uint64_t gets = 0;  // GETs by message, when READs did not succeed. The server does not see READs
  uint64_t increments = 0;
  uint64_t appends = 0;
  uint64_t flushes = 0;
  uint64_t expires = 0;
  uint64_t touches = 0;
  uint64_t pings = 0;
  uint64_t stats = 0;

  uint64_t batches = 0;           // frames that held several requests
  uint64_t batched_requests = 0;  // requests that came in such frames
  uint64_t reply_batches = 0;     // frames that held several replies
  uint64_t keys_flushed = 0;

  uint64_t requests_deferred = 0;  // to a later turn, because their client had used its share
  uint64_t writes_repeated = 0;    // answered from memory, not applied again
  uint64_t writes_forgotten = 0;   // refused: their number is below the window
  uint64_t long_appends = 0;       // appends that needed several turns
  uint64_t rendezvous = 0;
  uint64_t rendezvous_reads = 0;
  uint64_t rendezvous_bytes = 0;  // published
  uint64_t rendezvous_aborted = 0;

  // Heartbeats, hints and reports, apart from the requests.
  uint64_t liveness_reads = 0;
  uint64_t hint_frames = 0;
  uint64_t report_frames = 0;

  // Bytes of frames, headers included. Values that travel by READ are excluded.
  uint64_t received_bytes = 0;
  uint64_t sent_bytes = 0;

  uint64_t connections_accepted = 0;
  uint64_t connections_rejected = 0;
  std::array<uint64_t, kCloseReasons> connections_closed = {};  // by CloseReason
  uint64_t authentication_failures = 0;  // a wrong response to a challenge, or another message
  uint64_t sessions_created = 0;
  uint64_t sessions_resumed = 0;
  uint64_t sessions_refused = 0;  // unknown here: the client got a new one

  std::array<uint64_t, kStatusCodes> answers = {};  // by absl::StatusCode

  // Answered PUTs by their time at the server, if it is measured (EngineOptions::times_puts).
  std::array<uint64_t, rdma::kLatencyBuckets> put_latencies = {};
  uint64_t put_latency_ns = 0;  // sum over them

  // `count` PUTs took `time` each. A negative time counts as none.
  void AddPuts(uint64_t count, absl::Duration time);

  uint64_t writes() const { return puts + increments + appends; }
  // Pings and requests for statistics come from tools, so they are excluded.
  uint64_t requests() const { return writes() + deletes + gets + flushes + expires + touches; }
};

// Bytes of item space that hold nothing. (Tables are read at different times: no difference may fall
// below 0.)
uint64_t ItemBytesFree(const index::Table::Stats& table);

// The input of the statistics.
struct StatsInput {
  Counters counters;
  std::string version;    // of the program; for the metrics
  std::string transport;  // "transport=… device=…", of the requesting connection
  absl::string_view poll_mode;
  absl::string_view evict_mode;
  absl::Duration uptime;
  absl::Duration process_cpu;
  uint64_t incarnation = 0;
  uint32_t pollers = 1;
  uint32_t partitions = 1;
  size_t connections = 0;
  size_t connections_max = 0;
  bool has_key = false;
  size_t unauthenticated = 0;  // connections that have not authenticated yet
  Admission::Refusals refusals;
  size_t sessions = 0;
  size_t sessions_kept = 0;
  uint64_t value_bytes_max = 0;
  index::Table::Stats table;
  ClientGetCounts client_gets;
  std::optional<DurabilityStats> durability;  // with a data directory
  std::optional<ClusterStats> cluster;        // in a cluster
};

// Its lines are those of metric_table.h, in that order.
std::string StatsText(const StatsInput& input);

// The lines of `text` that fit in `bytes_max`, from the first on; if not all do, `truncated=yes` is the last.
// Such a text is several times as long as that line.
std::string WholeLines(absl::string_view text, size_t bytes_max);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_STATS_STATS_H_
