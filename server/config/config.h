// kvserver's configuration: its flags, checked as a whole before any allocation.

#ifndef OSPREY_SERVER_CONFIG_CONFIG_H_
#define OSPREY_SERVER_CONFIG_CONFIG_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/address.h"
#include "rdma/authentication.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/config/cluster_config.h"
#include "server/durability/durability_mode.h"
#include "server/monitoring/http_address.h"

namespace osprey::server {

// How the server waits for work.
enum class PollMode {
  kBusy,      // never sleeps: the lowest latency of writes, one core
  kAdaptive,  // spins for kSpin after work, then sleeps until there is more
  kEvent,     // sleeps whenever there is no work
};
absl::string_view NameOf(PollMode mode);

// The treatment of a write when memory is full.
enum class EvictMode {
  kNone,   // it is refused, and all stored keys stay
  kClock,  // cold keys are evicted for it
};
absl::string_view NameOf(EvictMode mode);

// A client that writes one value after the other is back within a round trip (some 10 us, 100 in
// the lab's virtual machine). A sleep in between would cost it a wake-up of 5 to 50 us each time.
// Longer spinning gains little and heats the CPU.
inline constexpr absl::Duration kSpin() { return absl::Microseconds(100); }

// The limit of --connections-max: each connection costs receives, a queue pair and a session.
inline constexpr int64_t kConnectionsMaxMost = 65536;
inline constexpr uint64_t kValueBytesMaxLeast = 1024;
inline constexpr uint64_t kLogMemoryLeast = 1 << 20;
inline constexpr uint64_t kLogMemoryMost = uint64_t{1} << 40;
inline constexpr uint64_t kCheckpointLogBytesLeast = 1 << 20;
inline constexpr uint64_t kCheckpointLogBytesMost = uint64_t{1} << 50;

// The flags as given.
struct FlagValues {
  std::string listen;
  std::string memory;
  std::string poll;
  int64_t connections_max = 0;
  std::string value_max;  // empty: the longest that the index accepts, or the memory
  bool huge_pages = false;
  std::string evict;
  int64_t connections_per_address_max = 0;
  std::string auth_key_file = "";  // empty: no authentication
  std::string socket_mode = "0600";
  int64_t pollers = 1;
  std::string metrics = "";   // empty: none
  std::string data_dir = "";  // empty: in memory only
  std::string durability = "async";
  std::string durability_lag = "100ms";
  std::string log_memory = "64MiB";
  std::string checkpoint_log_bytes = "2GiB";
  std::string clock_jump_max = "24h";
  ClusterFlags cluster = {};
};

struct Config {
  std::vector<rdma::Address> listen;  // at least one, all distinct
  uint64_t memory_bytes = 0;
  uint32_t shards = 1;  // of the cluster, as its record says
  uint32_t slots = 1;   // into which the memory is cut: each holds one shard
  PollMode poll = PollMode::kAdaptive;
  size_t connections_max = 0;
  uint64_t value_bytes_max = 0;
  bool huge_pages = false;
  EvictMode evict = EvictMode::kNone;
  size_t connections_per_address_max = 0;  // 0: no limit
  rdma::AuthKey::Pointer auth_key;         // null: no authentication
  mode_t socket_mode = 0600;
  uint32_t pollers = 1;
  uint32_t partitions = 1;  // of a shard: PartitionsFor(pollers), or kClusterPartitions
  std::optional<HttpAddress> metrics;
  std::string data_dir;  // empty: in memory only; then the others have no meaning
  DurabilityMode durability = DurabilityMode::kAsync;
  absl::Duration durability_lag;
  uint64_t log_memory = 0;
  uint64_t checkpoint_log_bytes = 0;
  absl::Duration clock_jump_max;
  std::optional<ClusterConfig> cluster;  // nothing: a server by itself

  uint64_t shard_bytes() const {
    return cluster.has_value() ? ShardBytes(memory_bytes, slots) : memory_bytes;
  }
};

// Reads the keys' files, and those for etcd; otherwise depends on the flags alone. Errors: one line
// with the flag, the mistake and the fix; INVALID_ARGUMENT, or those of AuthKey::FromFile and of
// MakeClusterConfig.
absl::StatusOr<Config> MakeConfig(const FlagValues& flags);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CONFIG_CONFIG_H_
