#include "server/monitoring/page/status_state.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

namespace osprey::server {
namespace {

constexpr char kNone[] = "–";

double Uptime(const StatusInput& input) {
  return std::max(absl::ToDoubleSeconds(input.reading.stats.uptime), 1e-3);
}

StatusRow Text(std::string id, std::string label, std::string value) {
  StatusRow row;
  row.id = std::move(id);
  row.label = std::move(label);
  row.value = std::move(value);
  return row;
}

StatusRow Number(const char* id, const char* label, uint64_t count) {
  return Text(id, label, CountText(count));
}

std::string RateText(double rate) {
  return rate < 100 ? absl::StrFormat("%.3g", rate) : CountText(static_cast<uint64_t>(rate));
}

class Rates {
 public:
  explicit Rates(const StatusInput& input) : seconds_(Uptime(input)) {}
  StatusRow operator()(const char* id, const char* label, uint64_t count) const {
    StatusRow row = Number(id, label, count);
    row.average = RateText(static_cast<double>(count) / seconds_);
    row.count = count;
    return row;
  }

 private:
  const double seconds_;
};

std::string Share(uint64_t part, uint64_t all) {
  return all == 0 ? kNone
                  : absl::StrFormat("%.2f", static_cast<double>(part) / static_cast<double>(all));
}

std::string QuantileText(const std::array<uint64_t, rdma::kLatencyBuckets>& latencies, double q) {
  const std::optional<double> ns = LatencyQuantileNs(latencies, q);
  return ns.has_value() ? TimeText(*ns) : kNone;
}

StatusSection OfServer(const StatusInput& input) {
  const MonitorReading& reading = input.reading;
  const StatsInput& stats = reading.stats;
  StatusSection section{"server", "Server", "", "", "", {}};
  section.rows = {
      Text("version", "Version", stats.version),
      Text("uptime", "Up for", absl::FormatDuration(absl::Trunc(stats.uptime, absl::Seconds(1)))),
      Text("listen", "Serves at", absl::StrJoin(input.listen, ", ")),
      Text("pollers", "Pollers",
           absl::StrCat(reading.pollers.size(), ", --poll=", stats.poll_mode)),
      Text("cpu", "CPU so far",
           absl::FormatDuration(absl::Trunc(stats.process_cpu, absl::Milliseconds(1)))),
      Text("resident", "Memory of the process", BytesText(reading.process.resident_bytes)),
      Text("files", "Open files",
           absl::StrCat(CountText(reading.process.open_fds), " of ",
                        CountText(reading.process.max_fds)))};
  return section;
}

StatusSection OfOperations(const StatusInput& input) {
  const StatsInput& stats = input.reading.stats;
  const Counters& counters = stats.counters;
  const ClientGetCounts& gets = stats.client_gets;
  const Rates rate(input);
  StatusSection section{"operations",           "Operations",    "so far",
                        "a second, on average", "a second, now", {}};
  section.rows = {
      rate("puts", "PUTs", counters.puts),
      rate("deletes", "DELETEs", counters.deletes),
      rate("increments", "INCREMENTs", counters.increments),
      rate("appends", "APPENDs", counters.appends),
      rate("others", "EXPIREs, TOUCHes, FLUSHes",
           counters.expires + counters.touches + counters.flushes),
      rate("message_gets", "GETs by message", counters.gets),
      rate("client_gets", "GETs, as clients report them", gets.hits + gets.misses + gets.failures),
      rate("client_get_misses", "… of these: not found", gets.misses),
      rate("client_get_failures", "… of these: failed", gets.failures),
      rate("resource_exhausted", "Answers: memory or disk is full",
           counters.answers[static_cast<size_t>(absl::StatusCode::kResourceExhausted)])};
  return section;
}

StatusSection OfLatency(const StatusInput& input) {
  const StatsInput& stats = input.reading.stats;
  const Counters& counters = stats.counters;
  const ClientGetCounts& gets = stats.client_gets;
  const uint64_t all = gets.hits + gets.misses + gets.failures;
  StatusSection section{"latency", "Times and READs", "so far", "", "now", {}};
  section.rows = {
      Text("put_p50", "PUT at the server, p50", QuantileText(counters.put_latencies, 0.5)),
      Text("put_p99", "PUT at the server, p99", QuantileText(counters.put_latencies, 0.99)),
      Text("get_p50", "GET at clients, p50", QuantileText(gets.latencies, 0.5)),
      Text("get_p99", "GET at clients, p99", QuantileText(gets.latencies, 0.99)),
      Text("reads_per_get", "READs per GET", Share(gets.reads, all)),
      Text("torn_per_get", "Torn READs per GET", Share(gets.torn, all))};
  return section;
}

StatusSection OfMemory(const StatusInput& input) {
  const index::Table::Stats& table = input.reading.stats.table;
  const Rates rate(input);
  StatusSection section{"memory", "Memory", "now", "a second, on average", "a second, now", {}};
  section.rows = {Text("memory_size", "--memory", BytesText(table.region_bytes))};
  for (const MemoryUse& use : MemoryUses(table))
    section.rows.push_back(Text("memory_" + use.id, use.label, BytesText(use.bytes)));
  section.rows.insert(
      section.rows.end(),
      {Text("load_factor", "Load factor of the index", absl::StrFormat("%.3f", table.load_factor)),
       Number("keys", "Keys", table.keys),
       Number("keys_inline", "… in the index", table.inline_keys),
       Number("keys_expiring", "… with a time to live", table.expiring_keys),
       rate("evictions", "Evictions so far", table.evictions),
       rate("expiries", "Expiries so far", table.expiries)});
  return section;
}

StatusSection OfConnections(const StatusInput& input) {
  const StatsInput& stats = input.reading.stats;
  const Rates rate(input);
  StatusSection section{"connections",          "Connections",   "now",
                        "a second, on average", "a second, now", {}};
  section.rows = {
      Text("connections", "Open",
           absl::StrCat(CountText(stats.connections), " of ", CountText(stats.connections_max))),
      Number("sessions", "Sessions", stats.sessions),
      rate("connections_accepted", "Accepted so far", stats.counters.connections_accepted),
      rate("connections_rejected", "Rejected so far", stats.counters.connections_rejected),
      rate("authentication_failures", "Failed authentications so far",
           stats.counters.authentication_failures)};
  return section;
}

StatusSection OfDurability(const StatusInput& input, const DurabilityStats& stats) {
  const Rates rate(input);
  StatusSection section{"durability",           "Durability",    "now",
                        "a second, on average", "a second, now", {}};
  section.rows = {
      Text("durability", "--durability", std::string(stats.mode)),
      Text("log_lag", "Lag of the log", TimeText(absl::ToDoubleNanoseconds(stats.log_lag))),
      Text("log_unsynced", "Written and not synced", BytesText(stats.log_unsynced_bytes)),
      rate("log_syncs", "Syncs so far", stats.log_syncs),
      rate("log_late_commits", "Commits that waited so far", stats.log_late_commits),
      Text("log_bytes", "Log", BytesText(stats.log_bytes)),
      Text("disk_free", "Free on the disk", BytesText(stats.disk_free_bytes)),
      Text("disk_needed", "Writes are refused below", BytesText(stats.disk_needed_bytes)),
      Text("disk_full", "Writes", stats.disk_full ? "refused: the disk is full" : "accepted"),
      rate("checkpoints", "Checkpoints so far", stats.checkpoints),
      rate("checkpoint_failures", "Checkpoints that failed so far", stats.checkpoint_failures)};
  return section;
}

std::string MemberText(const ClusterStats::Member& member, uint64_t shards) {
  std::vector<std::string> parts = {member.primaries > 0 && shards > 1
                                        ? absl::StrCat("primary of ", member.primaries, " shards")
                                    : member.primaries > 0 ? "primary"
                                    : member.in_sync > 0   ? "in sync"
                                                           : "not in sync"};
  if (shards > 1 && member.in_sync < shards)
    parts.push_back(absl::StrCat("in sync with ", member.in_sync, " of ", shards, " shards"));
  parts.push_back(!member.is_known   ? "not in etcd"
                  : member.is_self   ? "this server"
                  : member.is_linked ? "connected"
                  : member.is_needed ? "not connected"
                                     : "no shard in common");
  return absl::StrJoin(parts, ", ");
}

std::string RoleText(const ClusterStats& stats) {
  if (stats.shards > 1)
    return absl::StrCat("primary of ", stats.primaries, " of ", stats.shards, " shards");
  return stats.primaries > 0 ? "primary: it serves clients" : "backup";
}

std::string MovesText(const ClusterStats& stats) {
  if (stats.moves.empty()) return "none";
  return absl::StrJoin(stats.moves, ", ", [](std::string* out, const ClusterStats::Move& move) {
    absl::StrAppend(out, "shard ", move.shard, " from ", move.from, " to ", move.to);
  });
}

StatusSection OfCluster(const StatusInput& input, const ClusterStats& stats) {
  const Rates rate(input);
  StatusSection section{"cluster", "Cluster", "now", "a second, on average", "a second, now", {}};
  const double right_ns = absl::ToDoubleNanoseconds(stats.right_left);
  section.rows = {
      Text("cluster", "Cluster", input.cluster),
      Text("role", "Role", RoleText(stats)),
      Number("term", "Term", stats.term),
      Text("in_sync", "Servers in sync", absl::StrCat(stats.in_sync, " of ", stats.replicas)),
      Text("slots", "Memory for shards",
           absl::StrCat(stats.slots_used, " of ", stats.slots, " used")),
      Text("moves", "Copies that move", MovesText(stats)),
      Text("right", "May serve for", TimeText(right_ns)),
      Number("links", "Connections to other servers", stats.links),
      rate("groups", "Groups of changes so far", stats.groups),
      Number("groups_waiting", "Groups that wait for other servers", stats.groups_waiting),
      Number("promotions", "Promotions so far", stats.promotions)};
  for (size_t i = 0; i < stats.members.size(); ++i) {
    const ClusterStats::Member& member = stats.members[i];
    section.rows.push_back(Text(absl::StrCat("member_", i), absl::StrCat("Server ", member.server),
                                MemberText(member, stats.shards)));
  }
  return section;
}

}  // namespace

std::vector<StatusSection> StatusSections(const StatusInput& input) {
  const StatsInput& stats = input.reading.stats;
  std::vector<StatusSection> sections;
  if (stats.cluster.has_value()) sections.push_back(OfCluster(input, *stats.cluster));
  sections.push_back(OfOperations(input));
  sections.push_back(OfLatency(input));
  sections.push_back(OfMemory(input));
  sections.push_back(OfConnections(input));
  if (stats.durability.has_value()) sections.push_back(OfDurability(input, *stats.durability));
  sections.push_back(OfServer(input));
  return sections;
}

// Tables are read at different times: no difference may fall below 0.
std::vector<MemoryUse> MemoryUses(const index::Table::Stats& table) {
  uint64_t left = table.region_bytes;
  std::vector<MemoryUse> uses;
  const auto add = [&](const char* id, const char* label, uint64_t bytes) {
    uses.push_back({id, label, std::min(bytes, left)});
    left -= uses.back().bytes;
  };
  add("index", "Index", table.index_bytes);
  add("items_live", "Items", table.item_bytes);
  add("items_dead", "Items that may still be READ", table.quarantine_bytes);
  add("items_free", "Free between items", ItemBytesFree(table));
  add("free", "Free", left);
  return uses;
}

std::string StatusTitle(const StatusInput& input) { return absl::StrCat("Osprey ", input.name); }

std::string HealthText(const absl::Status& health) {
  return health.ok() ? "The server is well" : std::string(health.message());
}

std::optional<double> LatencyQuantileNs(
    const std::array<uint64_t, rdma::kLatencyBuckets>& latencies, double q) {
  assert(q > 0 && q < 1);
  double all = 0;
  for (const uint64_t count : latencies) all += static_cast<double>(count);
  double below = 0;
  for (size_t i = 0; i < latencies.size(); ++i) {
    const auto count = static_cast<double>(latencies[i]);
    if (count == 0 || below + count < q * all) {
      below += count;
      continue;
    }
    const double lower = i == 0 ? 0 : static_cast<double>(rdma::LatencyBucketMaxNs(i - 1));
    if (i + 1 == latencies.size()) return lower;
    const auto upper = static_cast<double>(rdma::LatencyBucketMaxNs(i));
    return lower + (upper - lower) * (q * all - below) / count;
  }
  return std::nullopt;
}

std::string CountText(uint64_t count) {
  std::string text = absl::StrCat(count);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, 1, ',');
  return text;
}

std::string BytesText(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.3g %s", size, kUnits[unit]);
}

std::string TimeText(double ns) {
  constexpr std::pair<const char*, double> kUnits[] = {{"s", 1e9}, {"ms", 1e6}, {"µs", 1e3}};
  for (const auto& [unit, size] : kUnits) {
    if (ns >= size) return absl::StrFormat("%.3g %s", ns / size, unit);
  }
  return ns == 0 ? "0 s" : absl::StrFormat("%.3g ns", ns);
}

}  // namespace osprey::server
