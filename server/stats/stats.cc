#include "server/stats/stats.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "server/stats/metric_table.h"

namespace osprey::server {
namespace {

void Line(std::string& text, absl::string_view name, uint64_t value) {
  absl::StrAppend(&text, name, "=", value, "\n");
}

// Splits "transport=verbs device=rxe0" into lines; words without = are dropped.
void TransportLines(std::string& text, absl::string_view description) {
  for (absl::string_view word : absl::StrSplit(description, ' ', absl::SkipEmpty())) {
    if (word.find('=') != absl::string_view::npos) absl::StrAppend(&text, word, "\n");
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
    case CloseReason::kNotServing:
      return "not_serving";
    case CloseReason::kWrongShard:
      return "wrong_shard";
  }
  return "unknown";
}

void Counters::AddPuts(uint64_t count, absl::Duration time) {
  const auto ns = static_cast<uint64_t>(std::max<int64_t>(absl::ToInt64Nanoseconds(time), 0));
  put_latencies[rdma::LatencyBucketOf(ns)] += count;
  put_latency_ns += count * ns;
}

uint64_t ItemBytesFree(const index::Table::Stats& table) {
  const uint64_t used = table.item_bytes + table.quarantine_bytes;
  return table.item_space_bytes - std::min(used, table.item_space_bytes);
}

std::string StatsText(const StatsInput& input) {
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
  absl::StrAppend(&text, "authentication=", input.has_key ? "key" : "none", "\n");
  if (input.durability.has_value())
    absl::StrAppend(&text, "durability=", input.durability->mode, "\n");
  for (const MetricRow& row : MetricTable()) {
    if (row.stat.empty() || !row.IsIn(input)) continue;
    if (row.ratio != nullptr) {
      absl::StrAppendFormat(&text, "%s=%.4f\n", row.stat, row.ratio(input, row.index));
      continue;
    }
    const uint64_t count = row.count(input, row.index);
    if (count != 0 || !row.unless_zero) Line(text, row.stat, count);
  }
  return text;
}

std::string WholeLines(absl::string_view text, size_t bytes_max) {
  constexpr absl::string_view kLast = "truncated=yes\n";
  if (text.size() <= bytes_max) return std::string(text);
  const absl::string_view fits = text.substr(0, bytes_max - std::min(bytes_max, kLast.size()));
  return absl::StrCat(fits.substr(0, fits.rfind('\n') + 1), kLast);
}

}  // namespace osprey::server
