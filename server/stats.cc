#include "server/stats.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace osprey::server {
namespace {

void Line(std::string& text, absl::string_view name, uint64_t value) {
  absl::StrAppend(&text, name, "=", value, "\n");
}

// "transport=verbs device=rxe0" becomes a line each; words without = are dropped.
void TransportLines(std::string& text, absl::string_view description) {
  for (absl::string_view word : absl::StrSplit(description, ' ', absl::SkipEmpty())) {
    if (word.find('=') != absl::string_view::npos) absl::StrAppend(&text, word, "\n");
  }
}

void TableLines(std::string& text, const index::Table::Stats& table) {
  Line(text, "keys", table.keys);
  Line(text, "keys_inline", table.inline_keys);
  Line(text, "keys_expiring", table.expiring_keys);
  Line(text, "expiries", table.expiries);
  Line(text, "key_bytes", table.key_bytes);
  Line(text, "value_bytes", table.value_bytes);
  Line(text, "region_bytes", table.region_bytes);
  Line(text, "index_bytes", table.index_bytes);
  Line(text, "item_bytes", table.item_bytes);
  Line(text, "item_space_bytes", table.item_space_bytes);
  Line(text, "quarantine_bytes", table.quarantine_bytes);
  Line(text, "segments", table.segments);
  Line(text, "directory_depth", table.directory_depth);
  Line(text, "splits", table.splits);
  Line(text, "overflow_lines", table.overflow_lines);
  Line(text, "compaction_items", table.compaction_items);
  Line(text, "compaction_bytes", table.compaction_bytes);
  Line(text, "compaction_windows", table.compaction_windows);
  Line(text, "compaction_windows_given_up", table.compaction_windows_given_up);
  Line(text, "evictions", table.evictions);
  Line(text, "evicted_bytes", table.evicted_bytes);
  Line(text, "hints", table.hints);
  Line(text, "hints_unmatched", table.hints_unmatched);
  absl::StrAppendFormat(&text, "load_factor=%.4f\n", table.load_factor);
  Line(text, "cas_version", table.cas_version);
}

void RequestLines(std::string& text, const Counters& counters) {
  // Pings and questions for statistics are the tools' own, so they are no part of the sum.
  Line(text, "requests",
       counters.puts + counters.deletes + counters.increments + counters.appends + counters.gets +
           counters.flushes + counters.expires + counters.touches);
  Line(text, "requests_put", counters.puts);
  Line(text, "requests_delete", counters.deletes);
  Line(text, "requests_increment", counters.increments);
  Line(text, "requests_append", counters.appends);
  Line(text, "requests_get", counters.gets);
  Line(text, "requests_flush", counters.flushes);
  Line(text, "requests_expire", counters.expires);
  Line(text, "requests_touch", counters.touches);
  Line(text, "requests_ping", counters.pings);
  Line(text, "requests_stats", counters.stats);
  Line(text, "batches", counters.batches);
  Line(text, "batched_requests", counters.batched_requests);
  Line(text, "reply_batches", counters.reply_batches);
  Line(text, "keys_flushed", counters.keys_flushed);
  Line(text, "requests_deferred", counters.requests_deferred);
  Line(text, "writes_repeated", counters.writes_repeated);
  Line(text, "writes_forgotten", counters.writes_forgotten);
  Line(text, "long_appends", counters.long_appends);
  Line(text, "rendezvous", counters.rendezvous);
  Line(text, "rendezvous_reads", counters.rendezvous_reads);
  Line(text, "rendezvous_bytes", counters.rendezvous_bytes);
  Line(text, "rendezvous_aborted", counters.rendezvous_aborted);
  Line(text, "liveness_reads", counters.liveness_reads);
  Line(text, "hint_frames", counters.hint_frames);
}

void ConnectionLines(std::string& text, const StatsInput& input, const Counters& counters) {
  Line(text, "connections", input.connections);
  Line(text, "connections_max", input.connections_max);
  Line(text, "connections_accepted", counters.connections_accepted);
  Line(text, "connections_rejected", counters.connections_rejected);
  Line(text, "connections_rejected_full", input.refusals.in_all);
  Line(text, "connections_rejected_per_address", input.refusals.per_source);
  Line(text, "connections_rejected_unauthenticated", input.refusals.strangers);
  absl::StrAppend(&text, "authentication=", input.has_key ? "key" : "none", "\n");
  Line(text, "connections_unauthenticated", input.strangers);
  Line(text, "authentication_failures", counters.authentication_failures);
  for (size_t i = 0; i < kCloseReasons; ++i) {
    Line(text, absl::StrCat("connections_closed_", NameOf(static_cast<CloseReason>(i))),
         counters.connections_closed[i]);
  }
  Line(text, "sessions", input.sessions);
  Line(text, "sessions_kept", input.sessions_kept);
  Line(text, "sessions_created", counters.sessions_created);
  Line(text, "sessions_resumed", counters.sessions_resumed);
  Line(text, "sessions_refused", counters.sessions_refused);
}

// Only those that have been given.
void AnswerLines(std::string& text, const Counters& counters) {
  for (size_t code = 0; code < kStatusCodes; ++code) {
    if (counters.answers[code] == 0) continue;
    const std::string name =
        absl::AsciiStrToLower(absl::StatusCodeToString(static_cast<absl::StatusCode>(code)));
    Line(text, absl::StrCat("answers_", name), counters.answers[code]);
  }
}

}  // namespace

absl::string_view NameOf(CloseReason reason) {
  switch (reason) {
    case CloseReason::kPeer:
      return "peer";
    case CloseReason::kMalformed:
      return "malformed";
    case CloseReason::kHelloTimeout:
      return "hello_timeout";
    case CloseReason::kSilent:
      return "silent";
    case CloseReason::kBlocked:
      return "blocked";
    case CloseReason::kSuperseded:
      return "superseded";
    case CloseReason::kStopping:
      return "stopping";
    case CloseReason::kUnauthenticated:
      return "unauthenticated";
    case CloseReason::kFailed:
      return "failed";
  }
  return "unknown";
}

std::string StatsText(const StatsInput& input, const Counters& counters) {
  std::string text;
  TransportLines(text, input.transport);
  absl::StrAppend(&text, "poll=", input.poll_mode, "\n");
  Line(text, "pollers", input.pollers);
  Line(text, "partitions", input.partitions);
  absl::StrAppend(&text, "evict=", input.evict_mode, "\n");
  absl::StrAppendFormat(&text, "incarnation=%016x\n", input.incarnation);
  absl::StrAppendFormat(&text, "uptime_seconds=%.3f\n", absl::ToDoubleSeconds(input.uptime));
  Line(text, "process_cpu_us", static_cast<uint64_t>(absl::ToInt64Microseconds(input.process_cpu)));
  Line(text, "value_bytes_max", input.value_bytes_max);
  TableLines(text, input.table);
  RequestLines(text, counters);
  ConnectionLines(text, input, counters);
  AnswerLines(text, counters);
  return text;
}

}  // namespace osprey::server
