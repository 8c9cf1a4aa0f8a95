#include "server/stats/metric_table.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace osprey::server {
namespace {

using Kind = MetricRow::Kind;
using Table = index::Table::Stats;

// --- The functions for the values

template <uint64_t Counters::*kField>
uint64_t Counted(const StatsInput& input, size_t) {
  return input.counters.*kField;
}

template <uint64_t Table::*kField>
uint64_t OfTable(const StatsInput& input, size_t) {
  return input.table.*kField;
}

template <auto kField>
uint64_t OfServer(const StatsInput& input, size_t) {
  return static_cast<uint64_t>(input.*kField);
}

template <uint64_t Admission::Refusals::*kField>
uint64_t Refused(const StatsInput& input, size_t) {
  return input.refusals.*kField;
}

uint64_t ClosedFor(const StatsInput& input, size_t reason) {
  return input.counters.connections_closed[reason];
}

template <uint64_t ClientGetCounts::*kField>
uint64_t Reported(const StatsInput& input, size_t) {
  return input.client_gets.*kField;
}

uint64_t AnsweredWith(const StatsInput& input, size_t code) { return input.counters.answers[code]; }

template <auto kField>
uint64_t OfDurability(const StatsInput& input, size_t) {
  return static_cast<uint64_t>((*input.durability).*kField);
}

template <absl::Duration DurabilityStats::*kField>
double SecondsOfDurability(const StatsInput& input, size_t) {
  return absl::ToDoubleSeconds((*input.durability).*kField);
}

double CheckpointTime(const StatsInput& input, size_t) {
  return absl::ToDoubleSeconds(input.durability->checkpoint_at - absl::UnixEpoch());
}

template <auto kField>
uint64_t OfCluster(const StatsInput& input, size_t) {
  return static_cast<uint64_t>((*input.cluster).*kField);
}

uint64_t Moves(const StatsInput& input, size_t) { return input.cluster->moves.size(); }

double RightLeft(const StatsInput& input, size_t) {
  return absl::ToDoubleSeconds(input.cluster->right_left);
}

double LoadFactor(const StatsInput& input, size_t) { return input.table.load_factor; }

uint64_t Requests(const StatsInput& input, size_t) { return input.counters.requests(); }

uint64_t ItemsFree(const StatsInput& input, size_t) { return ItemBytesFree(input.table); }

uint64_t Unused(const StatsInput& input, size_t) {
  const Table& table = input.table;
  const uint64_t taken = table.index_bytes + table.item_space_bytes;
  return table.region_bytes - std::min(taken, table.region_bytes);
}

// --- The table

constexpr char kMemoryHelp[] =
    "Bytes of the table's memory by use; their sum is --memory, but for rounding.";
constexpr char kRequestsHelp[] =
    "Requests executed or refused, by kind. A get is one by message, a client's last resort: the "
    "server does not see READs.";
constexpr char kRejectedHelp[] = "Connections rejected at a bound, by the bound.";
constexpr char kClosedHelp[] = "Connections closed, by reason.";
constexpr char kClientGetsHelp[] = "GETs of clients, as they report them, by result.";
constexpr char kAnswersHelp[] = "Answers given to requests, by status.";

using Count = uint64_t (*)(const StatsInput&, size_t);

MetricRow Of(Kind kind, const char* stat, const char* metric, const char* help, Count count) {
  MetricRow row;
  row.kind = kind;
  row.stat = stat;
  row.metric = metric;
  row.help = help;
  row.count = count;
  return row;
}

MetricRow Counter(const char* stat, const char* metric, const char* help, Count count) {
  return Of(Kind::kCounter, stat, metric, help, count);
}

MetricRow Gauge(const char* stat, const char* metric, const char* help, Count count) {
  return Of(Kind::kGauge, stat, metric, help, count);
}

MetricRow Labelled(MetricRow row, const char* label, std::string value) {
  row.label = label;
  row.label_value = std::move(value);
  return row;
}

MetricRow Memory(const char* stat, const char* use, Count count) {
  return Labelled(Gauge(stat, "memory_bytes", kMemoryHelp, count), "use", use);
}

// Omitted if clients send no reports.
MetricRow OfClients(const char* stat, const char* metric, const char* help, Count count) {
  MetricRow row = Counter(stat, metric, help, count);
  row.unless_zero = true;
  return row;
}

MetricRow ClientGet(const char* stat, const char* result, Count count) {
  return Labelled(OfClients(stat, "client_gets_total", kClientGetsHelp, count), "result", result);
}

MetricRow Request(const char* kind, Count count) {
  MetricRow row = Counter("", "requests_total", kRequestsHelp, count);
  row.stat = absl::StrCat("requests_", kind);
  return Labelled(std::move(row), "kind", kind);
}

MetricRow Rejected(const char* stat, const char* bound, Count count) {
  return Labelled(Counter(stat, "connections_rejected_at_bound_total", kRejectedHelp, count),
                  "bound", bound);
}

void AddTable(std::vector<MetricRow>& figures) {
  MetricRow load = Gauge("load_factor", "load_factor",
                         "Occupied words over all words of the index's segments.", nullptr);
  load.ratio = LoadFactor;
  figures.insert(
      figures.end(),
      {Gauge("keys", "keys", "Keys stored.", OfTable<&Table::keys>),
       Gauge("keys_inline", "keys_inline", "Keys stored in the index itself.",
             OfTable<&Table::inline_keys>),
       Gauge("keys_expiring", "keys_expiring", "Keys with a time to live.",
             OfTable<&Table::expiring_keys>),
       Counter("expiries", "expiries_total", "Keys that expired.", OfTable<&Table::expiries>),
       Gauge("key_bytes", "key_bytes", "Bytes of all keys stored.", OfTable<&Table::key_bytes>),
       Gauge("value_bytes", "value_bytes", "Bytes of all values stored.",
             OfTable<&Table::value_bytes>),
       Gauge("region_bytes", "memory_size_bytes", "Bytes of the table's memory in all (--memory).",
             OfTable<&Table::region_bytes>),
       Memory("index_bytes", "index", OfTable<&Table::index_bytes>),
       Memory("item_bytes", "items_live", OfTable<&Table::item_bytes>),
       Gauge("item_space_bytes", "", "", OfTable<&Table::item_space_bytes>),
       Memory("quarantine_bytes", "items_dead", OfTable<&Table::quarantine_bytes>),
       Memory("", "items_free", ItemsFree),
       Memory("", "free", Unused),
       Gauge("segments", "index_segments", "Segments of the index.", OfTable<&Table::segments>),
       Gauge("directory_depth", "index_directory_depth", "Depth of the deepest directory.",
             OfTable<&Table::directory_depth>),
       Counter("splits", "index_splits_total", "Segments of the index that were split.",
               OfTable<&Table::splits>),
       Counter("merges", "index_merges_total", "Pairs of segments of the index that were merged.",
               OfTable<&Table::merges>),
       Counter("segment_moves", "index_segment_moves_total",
               "Segments of the index that were moved, so that long values find space.",
               OfTable<&Table::segment_moves>),
       Gauge("overflow_lines", "index_overflow_lines",
             "Lines of the index for keys whose window was full.", OfTable<&Table::overflow_lines>),
       Counter("index_chains_full", "index_chains_full_total",
               "Writes refused because too many keys share a line of the index.",
               OfTable<&Table::chains_full>),
       Counter("compaction_items", "compaction_items_total", "Items that compaction moved.",
               OfTable<&Table::compaction_items>),
       Counter("compaction_bytes", "compaction_bytes_total", "Bytes that compaction moved.",
               OfTable<&Table::compaction_bytes>),
       Counter("compaction_windows", "compaction_windows_total",
               "Windows of the item space that compaction emptied.",
               OfTable<&Table::compaction_windows>),
       Counter("compaction_windows_given_up", "compaction_windows_given_up_total",
               "Windows of the item space that compaction could not empty.",
               OfTable<&Table::compaction_windows_given_up>),
       Counter("evictions", "evictions_total", "Keys evicted to make room.",
               OfTable<&Table::evictions>),
       Counter("evicted_bytes", "evicted_bytes_total", "Bytes of keys and values evicted.",
               OfTable<&Table::evicted_bytes>),
       Counter("hints", "hints_total", "Hits that clients reported, for eviction.",
               OfTable<&Table::hints>),
       Counter("hints_unmatched", "hints_unmatched_total", "Hints whose key was no longer stored.",
               OfTable<&Table::hints_unmatched>),
       load,
       Gauge("cas_version", "", "", OfTable<&Table::cas_version>)});
}

void AddRequests(std::vector<MetricRow>& figures) {
  figures.insert(
      figures.end(),
      {Counter("requests", "", "", Requests),
       Request("put", Counted<&Counters::puts>),
       Request("delete", Counted<&Counters::deletes>),
       Request("increment", Counted<&Counters::increments>),
       Request("append", Counted<&Counters::appends>),
       Request("get", Counted<&Counters::gets>),
       Request("flush", Counted<&Counters::flushes>),
       Request("expire", Counted<&Counters::expires>),
       Request("touch", Counted<&Counters::touches>),
       Request("ping", Counted<&Counters::pings>),
       Request("stats", Counted<&Counters::stats>),
       Counter("batches", "request_batches_total", "Frames that held several requests.",
               Counted<&Counters::batches>),
       Counter("batched_requests", "batched_requests_total",
               "Requests that shared a frame with others.", Counted<&Counters::batched_requests>),
       Counter("reply_batches", "reply_batches_total", "Frames that held several replies.",
               Counted<&Counters::reply_batches>),
       Counter("keys_flushed", "flushed_keys_total", "Keys deleted by flushes.",
               Counted<&Counters::keys_flushed>),
       Counter("requests_deferred", "requests_deferred_total",
               "Requests deferred to a later turn, because their client had used its share.",
               Counted<&Counters::requests_deferred>),
       Counter("writes_repeated", "writes_repeated_total",
               "Repeated writes that were answered from memory, not applied again.",
               Counted<&Counters::writes_repeated>),
       Counter("writes_forgotten", "writes_forgotten_total",
               "Repeated writes whose answer was forgotten.", Counted<&Counters::writes_forgotten>),
       Counter("long_appends", "long_appends_total", "Appends executed in steps.",
               Counted<&Counters::long_appends>),
       Counter("rendezvous", "rendezvous_total", "Values that the server READ from clients.",
               Counted<&Counters::rendezvous>),
       Counter("rendezvous_reads", "rendezvous_reads_total", "READs of values from clients.",
               Counted<&Counters::rendezvous_reads>),
       Counter("rendezvous_bytes", "rendezvous_bytes_total",
               "Bytes of values that the server READ and stored.",
               Counted<&Counters::rendezvous_bytes>),
       Counter("rendezvous_aborted", "rendezvous_aborted_total",
               "Values not READ completely, because the connection ended.",
               Counted<&Counters::rendezvous_aborted>),
       Counter("liveness_reads", "heartbeats_total", "READs of a silent client's liveness word.",
               Counted<&Counters::liveness_reads>),
       Counter("hint_frames", "hint_messages_total", "Messages with hints.",
               Counted<&Counters::hint_frames>),
       Counter("report_frames", "report_messages_total",
               "Messages with clients' statistics of GETs.", Counted<&Counters::report_frames>),
       Counter("received_bytes", "received_bytes_total",
               "Bytes of frames from clients, without the values that the server READs.",
               Counted<&Counters::received_bytes>),
       Counter("sent_bytes", "sent_bytes_total",
               "Bytes of frames to clients, without what they READ.",
               Counted<&Counters::sent_bytes>)});
}

void AddConnections(std::vector<MetricRow>& figures) {
  figures.insert(
      figures.end(),
      {Gauge("connections", "connections", "Open connections.", OfServer<&StatsInput::connections>),
       Gauge("connections_max", "connections_max", "Bound of open connections (--connections-max).",
             OfServer<&StatsInput::connections_max>),
       Counter("connections_accepted", "connections_accepted_total", "Connections accepted.",
               Counted<&Counters::connections_accepted>),
       Counter("connections_rejected", "connections_rejected_total",
               "Connections rejected, for any reason.", Counted<&Counters::connections_rejected>),
       Rejected("connections_rejected_full", "all", Refused<&Admission::Refusals::in_all>),
       Rejected("connections_rejected_per_address", "per_address",
                Refused<&Admission::Refusals::per_source>),
       Rejected("connections_rejected_unauthenticated", "unauthenticated",
                Refused<&Admission::Refusals::unauthenticated>),
       Rejected("connections_rejected_descriptors", "descriptors",
                Refused<&Admission::Refusals::descriptors>),
       Gauge("connections_unauthenticated", "connections_unauthenticated",
             "Open connections that have not authenticated yet.",
             OfServer<&StatsInput::unauthenticated>),
       Counter("authentication_failures", "authentication_failures_total",
               "Connections closed because authentication failed.",
               Counted<&Counters::authentication_failures>)});
  for (size_t reason = 0; reason < kCloseReasons; ++reason) {
    const std::string name(NameOf(static_cast<CloseReason>(reason)));
    MetricRow row =
        Labelled(Counter("", "connections_closed_total", kClosedHelp, ClosedFor), "reason", name);
    row.stat = absl::StrCat("connections_closed_", name);
    row.index = reason;
    figures.push_back(std::move(row));
  }
  figures.insert(
      figures.end(),
      {Gauge("sessions", "sessions", "Sessions remembered.", OfServer<&StatsInput::sessions>),
       Gauge("sessions_kept", "sessions_kept",
             "Sessions without a connection, which their client may resume.",
             OfServer<&StatsInput::sessions_kept>),
       Counter("sessions_created", "sessions_created_total", "Sessions begun.",
               Counted<&Counters::sessions_created>),
       Counter("sessions_resumed", "sessions_resumed_total", "Sessions that a client resumed.",
               Counted<&Counters::sessions_resumed>),
       Counter("sessions_refused", "sessions_refused_total",
               "Attempts to resume a session that the server does not have.",
               Counted<&Counters::sessions_refused>)});
}

// The rows of a server with a data directory.
void AddDurability(std::vector<MetricRow>& figures) {
  using Stats = DurabilityStats;
  const auto seconds = [](const char* name, const char* help, auto ratio) {
    MetricRow row = Gauge(name, name, help, nullptr);
    row.ratio = ratio;
    return row;
  };
  std::vector<MetricRow> rows = {
      seconds("log_lag_seconds",
              "Seconds since the oldest record of the log that is not synced was written, or 0.",
              SecondsOfDurability<&Stats::log_lag>),
      Gauge("log_unsynced_bytes", "log_unsynced_bytes",
            "Bytes of the log that are written and not synced.",
            OfDurability<&Stats::log_unsynced_bytes>),
      Counter("log_syncs", "log_syncs_total", "Syncs of the log.", OfDurability<&Stats::log_syncs>),
      Counter("log_entries", "log_entries_total", "Changes that the log received.",
              OfDurability<&Stats::log_entries>),
      Counter("log_written_bytes", "log_written_bytes_total", "Bytes written to the log.",
              OfDurability<&Stats::log_written_bytes>),
      Counter("log_late_commits", "log_late_commits_total",
              "Commits that waited, because the disk was further behind than --durability-lag.",
              OfDurability<&Stats::log_late_commits>),
      Gauge("log_bytes", "log_bytes", "Bytes of the log's files.", OfDurability<&Stats::log_bytes>),
      Gauge("disk_free_bytes", "disk_free_bytes", "Free bytes of the data directory's disk.",
            OfDurability<&Stats::disk_free_bytes>),
      Gauge("disk_needed_bytes", "disk_needed_bytes",
            "Bytes that must be free on that disk: with fewer the server refuses writes.",
            OfDurability<&Stats::disk_needed_bytes>),
      Gauge("disk_full", "disk_full", "1 while writes are refused because of a full disk, else 0.",
            OfDurability<&Stats::disk_full>),
      Counter("checkpoints", "checkpoints_total", "Checkpoints written.",
              OfDurability<&Stats::checkpoints>),
      Counter("checkpoint_failures", "checkpoint_failures_total",
              "Checkpoints that failed. The log grows until one succeeds.",
              OfDurability<&Stats::checkpoint_failures>),
      Gauge("checkpoint_bytes", "checkpoint_bytes",
            "Bytes of keys and values in the last checkpoint since the start.",
            OfDurability<&Stats::checkpoint_bytes>),
      seconds("checkpoint_duration_seconds", "Seconds that the last checkpoint took.",
              SecondsOfDurability<&Stats::checkpoint_took>),
      seconds("checkpoint_timestamp_seconds",
              "Unix time of the last checkpoint since the start, or 0.", CheckpointTime),
      Gauge("keys_loaded", "keys_loaded", "Keys loaded at the start.",
            OfDurability<&Stats::loaded_keys>),
      Gauge("loaded_bytes", "loaded_bytes", "Bytes of the keys and values loaded at the start.",
            OfDurability<&Stats::loaded_bytes>),
      seconds("load_duration_seconds", "Seconds that loading took.",
              SecondsOfDurability<&Stats::load_took>),
      Gauge("versions_left", "versions_left",
            "Versions of values that are left, of 2^48. Each write takes one.",
            OfDurability<&Stats::versions_left>)};
  for (MetricRow& row : rows) {
    row.durable = true;
    figures.push_back(std::move(row));
  }
}

// The rows of a server of a cluster.
void AddCluster(std::vector<MetricRow>& figures) {
  using Stats = ClusterStats;
  MetricRow right =
      Gauge("cluster_right_seconds", "cluster_right_seconds",
            "Seconds for which the server may serve without another renewal in etcd.", nullptr);
  right.ratio = RightLeft;
  std::vector<MetricRow> rows = {
      Gauge("cluster_primary", "cluster_primary",
            "Shards whose primary this server is, and which it may serve.",
            OfCluster<&Stats::primaries>),
      Gauge("cluster_shards", "cluster_shards", "Shards that these figures are of.",
            OfCluster<&Stats::shards>),
      Gauge("cluster_slots", "cluster_slots", "Shards that there is memory for.",
            OfCluster<&Stats::slots>),
      Gauge("cluster_slots_used", "cluster_slots_used",
            "Shards that have memory: of these there is a copy, or one is made or cleared.",
            OfCluster<&Stats::slots_used>),
      Gauge("cluster_moves", "cluster_moves",
            "Copies of shards that are to be at another server, and are not yet.", Moves),
      Gauge("cluster_term", "cluster_term",
            "The highest term of a shard: each change of its primary begins one.",
            OfCluster<&Stats::term>),
      Gauge("cluster_in_sync", "cluster_in_sync",
            "Servers in sync, the primary included, of the shard that has the fewest.",
            OfCluster<&Stats::in_sync>),
      Gauge("cluster_replicas", "cluster_replicas", "Servers that should be in sync.",
            OfCluster<&Stats::replicas>),
      std::move(right),
      Gauge("cluster_links", "cluster_links", "Connections to other servers of the cluster.",
            OfCluster<&Stats::links>),
      Counter("cluster_promotions", "cluster_promotions_total",
              "Times that this server became the primary of a shard.",
              OfCluster<&Stats::promotions>),
      Counter("cluster_groups", "cluster_groups_total",
              "Groups of changes that this server has decided as the primary.",
              OfCluster<&Stats::groups>),
      Gauge("cluster_groups_waiting", "cluster_groups_waiting",
            "Groups of changes that are not on all servers in sync yet.",
            OfCluster<&Stats::groups_waiting>)};
  for (MetricRow& row : rows) {
    row.clustered = true;
    figures.push_back(std::move(row));
  }
}

void AddClients(std::vector<MetricRow>& figures) {
  using Gets = ClientGetCounts;
  figures.insert(
      figures.end(),
      {ClientGet("client_get_hits", "hit", Reported<&Gets::hits>),
       ClientGet("client_get_misses", "miss", Reported<&Gets::misses>),
       ClientGet("client_get_failures", "failure", Reported<&Gets::failures>),
       OfClients("client_reads", "client_reads_total",
                 "READs of clients for the GETs that they report.", Reported<&Gets::reads>),
       OfClients("client_read_bytes", "client_read_bytes_total", "Bytes requested by those READs.",
                 Reported<&Gets::read_bytes>),
       OfClients("client_torn_reads", "client_torn_reads_total",
                 "Torn records, which clients READ again.", Reported<&Gets::torn>),
       OfClients("client_rpc_gets", "client_rpc_gets_total",
                 "GETs by message, as clients report them: their last resort.",
                 Reported<&Gets::rpc_gets>)});
}

void AddAnswers(std::vector<MetricRow>& figures) {
  for (size_t code = 0; code < kStatusCodes; ++code) {
    const std::string name =
        absl::AsciiStrToLower(absl::StatusCodeToString(static_cast<absl::StatusCode>(code)));
    MetricRow row =
        Labelled(Counter("", "answers_total", kAnswersHelp, AnsweredWith), "status", name);
    row.stat = absl::StrCat("answers_", name);
    row.unless_zero = true;
    row.index = code;
    figures.push_back(std::move(row));
  }
}

}  // namespace

const std::vector<MetricRow>& MetricTable() {
  static const auto* const figures = [] {
    auto* const all = new std::vector<MetricRow>;
    AddTable(*all);
    AddRequests(*all);
    AddConnections(*all);
    AddDurability(*all);
    AddCluster(*all);
    AddClients(*all);
    AddAnswers(*all);
    return all;
  }();
  return *figures;
}

}  // namespace osprey::server
