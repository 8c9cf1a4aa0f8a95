#include "tools/loadgen/result.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace osprey::loadgen {
namespace {

constexpr char kDiffers[] = " (differs)";

void MergeFacts(const Facts& other, Facts& facts) {
  for (auto& fact : facts) {
    std::string& value = fact.second;
    const auto same = std::find_if(other.begin(), other.end(),
                                   [&](const auto& its) { return its.first == fact.first; });
    const bool marked =
        value.size() >= sizeof(kDiffers) - 1 &&
        value.compare(value.size() - (sizeof(kDiffers) - 1), std::string::npos, kDiffers) == 0;
    if (!marked && (same == other.end() || same->second != value)) value += kDiffers;
  }
}

void MergeSeries(const std::vector<SeriesRow>& other, std::vector<SeriesRow>& rows) {
  for (size_t i = 0; i < other.size(); ++i) {
    if (i == rows.size()) {
      rows.push_back(other[i]);
      continue;
    }
    rows[i].operations += other[i].operations;
    rows[i].p50_ns = std::max(rows[i].p50_ns, other[i].p50_ns);
    rows[i].p99_ns = std::max(rows[i].p99_ns, other[i].p99_ns);
    rows[i].p999_ns = std::max(rows[i].p999_ns, other[i].p999_ns);
    rows[i].max_ns = std::max(rows[i].max_ns, other[i].max_ns);
  }
}

}  // namespace

absl::StatusOr<RunResult> Merge(absl::Span<const RunResult> results) {
  if (results.empty()) return absl::InvalidArgumentError("no results to merge");
  RunResult merged = results[0];
  absl::Time first = merged.began;
  absl::Time last = merged.began;
  for (const RunResult& result : results.subspan(1)) {
    if (result.phase != merged.phase)
      return absl::InvalidArgumentError("a load and a run cannot be merged");
    MergeFacts(result.environment, merged.environment);
    MergeFacts(result.settings, merged.settings);
    for (const std::string& note : result.notes) {
      if (std::find(merged.notes.begin(), merged.notes.end(), note) == merged.notes.end())
        merged.notes.push_back(note);
    }
    first = std::min(first, result.began);
    last = std::max(last, result.began);
    merged.seconds = std::max(merged.seconds, result.seconds);
    merged.open_loop |= result.open_loop;
    merged.interrupted |= result.interrupted;
    merged.show_service |= result.show_service;
    merged.show_intended |= result.show_intended;
    merged.behind_ns = std::max(merged.behind_ns, result.behind_ns);
    merged.processes += result.processes;
    merged.measured.Add(result.measured);
    if (std::max(merged.processes, merged.measured.LargestCount()) > kCountMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("results with more than ", kCountMax, " of something cannot be merged"));
    }
    MergeSeries(result.series, merged.series);
  }
  merged.began = first;
  // Rates of runs that were not side by side must not be added silently.
  const double apart = absl::ToDoubleSeconds(last - first);
  if (apart > std::max(1.0, merged.seconds / 10)) {
    merged.notes.push_back(absl::StrFormat(
        "the processes began up to %.1f s apart: what they did together is not their sum", apart));
  }
  return merged;
}

}  // namespace osprey::loadgen
