#include "tools/loadgen/reports/text.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/program/printable.h"

namespace osprey::loadgen {
namespace {

double Micros(double nanos) { return nanos / 1000; }
double Micros(uint64_t nanos) { return static_cast<double>(nanos) / 1000; }

template <typename T>
void Line(absl::string_view group, absl::string_view name, const T& value, std::string& text) {
  absl::StrAppend(&text, "[", group, "], ", name, ", ", value, "\n");
}

void Line(absl::string_view group, absl::string_view name, double value, std::string& text) {
  Line(group, name, absl::StrFormat("%.3f", value), text);
}

void AppendReturns(const KindMeasurements& kind, absl::string_view name, std::string& text) {
  uint64_t errors = 0;
  for (const auto& [code, count] : kind.returns) {
    if (code == absl::StatusCode::kOk || code == absl::StatusCode::kNotFound) {
      Line(name, absl::StrCat("Return=", absl::StatusCodeToString(code)), count, text);
    } else {
      errors += count;
    }
  }
  if (errors > 0) Line(name, "Return=ERROR", errors, text);
}

void AppendLatencies(const LatencySet& set, const std::vector<double>& percentiles,
                     std::string& text) {
  const Histogram& nanos = *set.nanos;
  Line(set.name, "Operations", nanos.count(), text);
  Line(set.name, "AverageLatency(us)", Micros(nanos.mean()), text);
  Line(set.name, "MinLatency(us)", Micros(nanos.min()), text);
  Line(set.name, "MaxLatency(us)", Micros(nanos.max()), text);
  for (const double percentile : percentiles) {
    Line(set.name, absl::StrCat(Ordinal(percentile), "PercentileLatency(us)"),
         Micros(nanos.ValueAt(percentile / 100)), text);
  }
}

void AppendClient(const Measurements& measured, std::string& text) {
  if (measured.gets > 0) {
    Line("CLIENT", "ReadsPerGet",
         static_cast<double>(measured.reads) / static_cast<double>(measured.gets), text);
  }
  if (measured.scanned > 0) {
    Line("CLIENT", "ScannedItems", measured.scanned, text);
    Line("CLIENT", "ScanReads", measured.scan_reads, text);
  }
  const auto per_operation = [&](uint64_t count) {
    return measured.operations == 0
               ? 0
               : static_cast<double>(count) / static_cast<double>(measured.operations);
  };
  Line("CLIENT", "TornReads", measured.torn, text);
  Line("CLIENT", "TornReadsPerOperation", absl::StrFormat("%.6f", per_operation(measured.torn)),
       text);
  Line("CLIENT", "Retries", measured.retries, text);
  Line("CLIENT", "RetriesPerOperation", absl::StrFormat("%.6f", per_operation(measured.retries)),
       text);
  Line("CLIENT", "RpcGets", measured.rpc_gets, text);
  Line("CLIENT", "Messages", measured.messages, text);
  if (measured.connects > 0) Line("CLIENT", "Reconnects", measured.connects, text);
}

// name=value name="value of words"
std::string Joined(const Facts& facts) {
  return absl::StrJoin(facts, " ", [](std::string* out, const auto& fact) {
    // A merged file may have any text.
    const std::string value = Printable(fact.second);
    const char* quote = absl::StrContains(value, ' ') ? "\"" : "";
    absl::StrAppend(out, Printable(fact.first), "=", quote, value, quote);
  });
}

}  // namespace

std::string Ordinal(double percentile) {
  // In Java's format of a double with a fraction.
  if (percentile != std::floor(percentile)) return absl::StrCat(percentile);
  const int number = static_cast<int>(percentile);
  const bool teens = number % 100 >= 11 && number % 100 <= 13;
  const int last = teens ? 0 : number % 10;
  return absl::StrCat(number, last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th");
}

std::vector<LatencySet> LatencySets(const RunResult& result) {
  std::vector<LatencySet> sets;
  const auto add = [&](const std::string& name, const Histogram& nanos, bool intended, bool failed,
                       const KindMeasurements* kind) {
    if (nanos.count() > 0) sets.push_back({name, &nanos, kind, intended, failed});
  };
  for (const bool intended : {false, true}) {
    if (!(intended ? result.show_intended : result.show_service)) continue;
    for (size_t i = 0; i < kOperationKinds; ++i) {
      const KindMeasurements& kind = result.measured.kinds[i];
      const std::string name =
          absl::StrCat(intended ? "Intended-" : "", NameOf(static_cast<OperationKind>(i)));
      const bool counted = intended == !result.show_service;
      add(name, intended ? kind.intended : kind.service, intended, false,
          counted ? &kind : nullptr);
      add(name + "-FAILED", intended ? kind.intended_failed : kind.service_failed, intended, true,
          nullptr);
    }
  }
  return sets;
}

std::string YcsbText(const RunResult& result) {
  std::string text;
  absl::StrAppend(&text, "# kvbench ", Printable(result.phase), ": ", Joined(result.settings),
                  "\n");
  absl::StrAppend(&text, "# ", Joined(result.environment), "\n");
  if (result.processes > 1)
    absl::StrAppend(&text, "# the results of ", result.processes, " processes\n");
  for (const std::string& note : result.notes) absl::StrAppend(&text, "# ", Printable(note), "\n");
  if (result.interrupted)
    absl::StrAppend(&text, "# interrupted: this is what was done until then\n");
  const Measurements& measured = result.measured;
  Line("OVERALL", "RunTime(ms)", static_cast<int64_t>(std::llround(result.seconds * 1000)), text);
  Line("OVERALL", "Throughput(ops/sec)", result.throughput(), text);
  Line("OVERALL", "Operations", measured.operations, text);
  if (result.open_loop)
    Line("OVERALL", "BehindAtEnd(ms)", static_cast<double>(result.behind_ns) / 1e6, text);
  AppendClient(measured, text);
  for (const LatencySet& set : LatencySets(result)) {
    AppendLatencies(set, result.percentiles, text);
    if (set.kind != nullptr) AppendReturns(*set.kind, set.name, text);
  }
  // Kinds without a success, which have no set above.
  for (size_t i = 0; i < kOperationKinds; ++i) {
    const KindMeasurements& kind = measured.kinds[i];
    if (kind.service.count() == 0 && !kind.empty())
      AppendReturns(kind, NameOf(static_cast<OperationKind>(i)), text);
  }
  if (measured.cleanup.service.count() > 0)
    AppendLatencies({"CLEANUP", &measured.cleanup.service}, result.percentiles, text);
  if (measured.checked > 0) {
    const uint64_t bad = measured.wrong + measured.stale;
    Line("VERIFY", "Operations", measured.checked, text);
    Line("VERIFY", "Return=OK", measured.checked - bad, text);
    Line("VERIFY", "Return=UNEXPECTED_STATE", bad, text);
  }
  return text;
}

std::string SeriesCsv(const RunResult& result) {
  std::string text = absl::StrCat("second,operations,p50_us,p99_us,p99.9_us,max_us\n");
  for (const SeriesRow& row : result.series) {
    absl::StrAppendFormat(&text, "%d,%d,%.3f,%.3f,%.3f,%.3f\n", row.second, row.operations,
                          Micros(row.p50_ns), Micros(row.p99_ns), Micros(row.p999_ns),
                          Micros(row.max_ns));
  }
  return text;
}

}  // namespace osprey::loadgen
