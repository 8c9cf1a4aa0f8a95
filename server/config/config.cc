#include "server/config/config.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "index/layout/layout.h"
#include "index/layout/partitions.h"
#include "index/writer/table.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/config/flag_parsing.h"
#include "server/engine/pollers.h"
#include "server/program/size_flag.h"

namespace osprey::server {
namespace {

absl::StatusOr<PollMode> ParsePoll(absl::string_view text) {
  for (PollMode mode : {PollMode::kBusy, PollMode::kAdaptive, PollMode::kEvent}) {
    if (text == NameOf(mode)) return mode;
  }
  return Wrong("poll",
               absl::StrCat("'", absl::CEscape(text), "' is none of busy, adaptive, event"));
}

absl::StatusOr<EvictMode> ParseEvict(absl::string_view text) {
  for (EvictMode mode : {EvictMode::kNone, EvictMode::kClock}) {
    if (text == NameOf(mode)) return mode;
  }
  return Wrong("evict", absl::StrCat("'", absl::CEscape(text), "' is none of none, clock"));
}

absl::StatusOr<DurabilityMode> ParseDurability(absl::string_view text) {
  for (DurabilityMode mode : {DurabilityMode::kAsync, DurabilityMode::kSync}) {
    if (text == NameOf(mode)) return mode;
  }
  return Wrong("durability", absl::StrCat("'", absl::CEscape(text), "' is none of async, sync"));
}

// Octal digits, as for chmod. Without write permission no client can connect.
absl::StatusOr<mode_t> ParseSocketMode(absl::string_view text) {
  constexpr size_t kDigitsMax = 4;
  mode_t mode = 0;
  bool octal = !text.empty() && text.size() <= kDigitsMax;
  for (char digit : text) {
    octal = octal && digit >= '0' && digit <= '7';
    mode = mode * 8 + static_cast<mode_t>(digit - '0');
  }
  if (!octal || mode > 0777) {
    return Wrong("socket-mode", absl::StrCat("'", absl::CEscape(text),
                                             "' is no mode of a file; write 0600 (this user), 0660 "
                                             "(and the group) or 0666 (every user of this host)"));
  }
  if ((mode & 0200) == 0) {
    return Wrong("socket-mode",
                 absl::StrCat(text, " lets not even this user connect; write 0600, 0660 or 0666"));
  }
  return mode;
}

absl::StatusOr<rdma::AuthKey::Pointer> ReadKey(const std::string& path) {
  if (path.empty()) return rdma::AuthKey::Pointer();
  absl::StatusOr<rdma::AuthKey::Pointer> key = rdma::AuthKey::FromFile(path);
  if (key.ok()) return key;
  return absl::Status(key.status().code(),
                      absl::StrCat("--auth-key-file: ", key.status().message()));
}

absl::StatusOr<std::optional<HttpAddress>> ParseMetrics(absl::string_view text) {
  if (text.empty()) return std::nullopt;
  absl::StatusOr<HttpAddress> address = ParseHttpAddress(text);
  if (!address.ok()) return Wrong("metrics", address.status().message());
  return *std::move(address);
}

// Sets what --data-dir and its companions say.
absl::Status ParseDataDir(const FlagValues& flags, Config& config) {
  config.data_dir = flags.data_dir;
  const absl::StatusOr<DurabilityMode> mode = ParseDurability(flags.durability);
  if (!mode.ok()) return mode.status();
  config.durability = *mode;
  if (config.durability == DurabilityMode::kSync && config.data_dir.empty())
    return Wrong("durability", "sync keeps nothing without --data-dir; name a directory there");
  const absl::StatusOr<absl::Duration> lag =
      ParseTime("durability-lag", flags.durability_lag, absl::Milliseconds(1), absl::Hours(1));
  if (!lag.ok()) return lag.status();
  config.durability_lag = *lag;
  const absl::StatusOr<uint64_t> log_memory =
      ParseBytes("log-memory", flags.log_memory, kLogMemoryLeast, kLogMemoryMost);
  if (!log_memory.ok()) return log_memory.status();
  config.log_memory = *log_memory;
  const absl::StatusOr<uint64_t> checkpoint_log_bytes =
      ParseBytes("checkpoint-log-bytes", flags.checkpoint_log_bytes, kCheckpointLogBytesLeast,
                 kCheckpointLogBytesMost);
  if (!checkpoint_log_bytes.ok()) return checkpoint_log_bytes.status();
  config.checkpoint_log_bytes = *checkpoint_log_bytes;
  const absl::StatusOr<absl::Duration> jump = ParseTime(
      "clock-jump-max", flags.clock_jump_max, absl::ZeroDuration(), absl::Hours(24) * 365 * 100);
  if (!jump.ok()) return jump.status();
  config.clock_jump_max = *jump;
  return absl::OkStatus();
}

// Into how many partitions the memory is cut, and why.
struct Division {
  uint32_t partitions = 1;
  bool is_cluster = false;
  std::string cause;  // the flag
};

Division DivisionOf(const FlagValues& flags, uint32_t pollers) {
  if (!flags.cluster.etcd.uri.empty()) return {kClusterPartitions, true, "--cluster"};
  return {PartitionsFor(pollers), false, absl::StrCat("--pollers=", pollers)};
}

// REQUIRES: each partition of the memory has room for a table.
absl::StatusOr<uint64_t> ParseValueMax(const FlagValues& flags, uint64_t memory,
                                       const Division& division) {
  const uint64_t partition_bytes = index::SpanOfPartition(memory, division.partitions, 0).bytes;
  if (flags.value_max.empty()) return std::min(partition_bytes, index::kValueBytesMax);
  const absl::StatusOr<uint64_t> bytes =
      ParseBytes("value-max", flags.value_max, kValueBytesMaxLeast, index::kValueBytesMax);
  if (!bytes.ok()) return bytes;
  if (*bytes > partition_bytes && division.partitions > 1) {
    return Wrong("value-max", absl::StrCat(flags.value_max, " is more than a value may have: ",
                                           division.cause, " cuts --memory=", flags.memory,
                                           " into parts of ", FormatSize(partition_bytes),
                                           ", and a value lies in one; write less here, or ",
                                           division.is_cluster ? "more there" : "fewer pollers"));
  }
  if (*bytes > memory) {
    return Wrong("value-max", absl::StrCat(flags.value_max, " is more than --memory=", flags.memory,
                                           "; raise that, or write less here"));
  }
  return bytes;
}

// Sets what --cluster and its companions say. `config` has all else.
absl::Status ParseCluster(const FlagValues& flags, Config& config) {
  if (flags.cluster.etcd.uri.empty()) return CheckNoCluster(flags.cluster);
  if (!config.data_dir.empty()) {
    return Wrong("data-dir",
                 "a server with --cluster holds its data in memory only; leave one of them out");
  }
  absl::StatusOr<ClusterConfig> cluster =
      MakeClusterConfig(flags.cluster, {config.listen, config.auth_key});
  if (!cluster.ok()) return cluster.status();
  config.cluster = *std::move(cluster);
  return absl::OkStatus();
}

}  // namespace

absl::string_view NameOf(PollMode mode) {
  switch (mode) {
    case PollMode::kBusy:
      return "busy";
    case PollMode::kAdaptive:
      return "adaptive";
    case PollMode::kEvent:
      return "event";
  }
  return "unknown";
}

absl::string_view NameOf(EvictMode mode) {
  switch (mode) {
    case EvictMode::kNone:
      return "none";
    case EvictMode::kClock:
      return "clock";
  }
  return "unknown";
}

absl::StatusOr<Config> MakeConfig(const FlagValues& flags) {
  const absl::StatusOr<std::vector<rdma::Address>> listen = ParseAddresses("listen", flags.listen);
  if (!listen.ok()) return listen.status();
  const absl::StatusOr<uint64_t> memory =
      ParseBytes("memory", flags.memory, index::Table::RegionBytesMin(), index::kRegionBytesMax);
  if (!memory.ok()) return memory.status();
  const absl::StatusOr<PollMode> poll = ParsePoll(flags.poll);
  if (!poll.ok()) return poll.status();
  if (flags.connections_max < 1 || flags.connections_max > kConnectionsMaxMost) {
    return Wrong(
        "connections-max",
        absl::StrCat(flags.connections_max, " is out of range; write 1 to ", kConnectionsMaxMost));
  }
  if (flags.pollers < 1 || flags.pollers > static_cast<int64_t>(kPollersMax)) {
    return Wrong("pollers",
                 absl::StrCat(flags.pollers, " is out of range; write 1 to ", kPollersMax));
  }
  const auto pollers = static_cast<uint32_t>(flags.pollers);
  const Division division = DivisionOf(flags, pollers);
  const uint32_t partitions = division.partitions;
  const uint64_t partition_bytes = index::SpanOfPartition(*memory, partitions, 0).bytes;
  if (partition_bytes < index::Table::RegionBytesMin()) {
    return Wrong(
        "memory",
        absl::StrCat(flags.memory, " is too small for ", division.cause, ", which cuts it into ",
                     partitions, " parts of at least ", FormatSize(index::Table::RegionBytesMin()),
                     "; write ", FormatSize(partitions * index::Table::RegionBytesMin()),
                     " or more", division.is_cluster ? "" : ", or fewer pollers"));
  }
  const absl::StatusOr<uint64_t> value_max = ParseValueMax(flags, *memory, division);
  if (!value_max.ok()) return value_max.status();
  const absl::StatusOr<EvictMode> evict = ParseEvict(flags.evict);
  if (!evict.ok()) return evict.status();
  if (flags.connections_per_address_max < 0 ||
      flags.connections_per_address_max > flags.connections_max) {
    return Wrong("connections-per-address-max",
                 absl::StrCat(flags.connections_per_address_max,
                              " is out of range; write 1 to --connections-max (",
                              flags.connections_max, "), or 0 for no bound"));
  }
  const absl::StatusOr<mode_t> socket_mode = ParseSocketMode(flags.socket_mode);
  if (!socket_mode.ok()) return socket_mode.status();
  const absl::StatusOr<rdma::AuthKey::Pointer> key = ReadKey(flags.auth_key_file);
  if (!key.ok()) return key.status();
  const absl::StatusOr<std::optional<HttpAddress>> metrics = ParseMetrics(flags.metrics);
  if (!metrics.ok()) return metrics.status();
  Config config;
  if (absl::Status status = ParseDataDir(flags, config); !status.ok()) return status;
  config.listen = *listen;
  config.memory_bytes = *memory;
  config.poll = *poll;
  config.connections_max = static_cast<size_t>(flags.connections_max);
  config.value_bytes_max = *value_max;
  config.huge_pages = flags.huge_pages;
  config.evict = *evict;
  config.connections_per_address_max = static_cast<size_t>(flags.connections_per_address_max);
  config.auth_key = *key;
  config.socket_mode = *socket_mode;
  config.pollers = pollers;
  config.partitions = partitions;
  config.metrics = *metrics;
  if (absl::Status status = ParseCluster(flags, config); !status.ok()) return status;
  return config;
}

}  // namespace osprey::server
