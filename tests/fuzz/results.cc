// The results of kvbench that `kvbench merge` reads: whole, damaged, or of any bytes. What is taken
// is the same when it is written again. Every report can be made of it, and of several together, in
// bounded time and space.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "tests/fuzz/support/input.h"
#include "tools/loadgen/reports/hdr_text.h"
#include "tools/loadgen/reports/json.h"
#include "tools/loadgen/reports/svg_plot.h"
#include "tools/loadgen/reports/text.h"
#include "tools/loadgen/result.h"

namespace osprey::loadgen {
namespace {

// Five levels for each halving of the distance to all values, of which there are 2^64 at most.
constexpr size_t kLevelsMax = 5 * 65 + 2;
// Of a picture with seven sets of latencies, beside the names that it is given.
constexpr size_t kSvgBytesMax = size_t{256} << 10;

void MustBeOneLine(const absl::Status& status) {
  OSPREY_MUST(absl::IsInvalidArgument(status) && !status.message().empty() &&
                  !absl::StrContains(status.message(), "\n"),
              "an error of several lines, or of none");
}

void MustBePlotted(const Histogram& nanos) {
  const std::vector<PercentileLevel> levels = PercentileLevels(nanos);
  OSPREY_MUST(!levels.empty() && levels.size() <= kLevelsMax, "levels without number");
  OSPREY_MUST(levels.back().level == 1 && levels.back().count == nanos.count() &&
                  levels.back().value == nanos.max(),
              "a last level that is not all");
  const auto falls = [](const PercentileLevel& a, const PercentileLevel& b) {
    return a.value > b.value || a.level > b.level || a.count > b.count;
  };
  OSPREY_MUST(std::adjacent_find(levels.begin(), levels.end(), falls) == levels.end(),
              "levels that fall");
  const std::string text = HdrPercentileText(nanos);
  OSPREY_MUST(
      std::count(text.begin(), text.end(), '\n') == static_cast<ptrdiff_t>(levels.size()) + 5,
      "another number of lines than of levels");
}

// Of text that the file itself holds.
size_t WordBytes(const RunResult& result) {
  size_t bytes = result.phase.size() + result.measured.first_wrong.size();
  for (const Facts* facts : {&result.environment, &result.settings}) {
    for (const auto& [name, value] : *facts) bytes += name.size() + value.size();
  }
  return bytes;
}

void MustBeReported(const RunResult& result) {
  for (const LatencySet& set : LatencySets(result)) MustBePlotted(*set.nanos);
  const std::string text = YcsbText(result);
  OSPREY_MUST(!text.empty() && text.back() == '\n', "a line without an end");
  for (const absl::string_view line : absl::StrSplit(text.substr(0, text.size() - 1), '\n'))
    OSPREY_MUST(!line.empty() && (line[0] == '#' || line[0] == '['), "a line that is not YCSB's");
  const std::string series = SeriesCsv(result);
  OSPREY_MUST(std::count(series.begin(), series.end(), '\n') ==
                  static_cast<ptrdiff_t>(result.series.size()) + 1,
              "another number of lines than of seconds");
  const std::string svg = SvgPlot(result);
  OSPREY_MUST(absl::EndsWith(svg, "</svg>\n"), "half of a picture");
  // An ampersand takes five.
  OSPREY_MUST(svg.size() <= kSvgBytesMax + 6 * WordBytes(result), "a picture without bounds");
  OSPREY_MUST(
      std::none_of(svg.begin(), svg.end(),
                   [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n'; }),
      "a character that XML does not have");
}

void MustComeBack(const RunResult& result) {
  const std::string text = ToJson(result);
  const absl::StatusOr<RunResult> same = FromJson(text);
  OSPREY_MUST(same.ok(), "a result of ours that is not taken");
  OSPREY_MUST(ToJson(*same) == text, "a result that differs when written again");
}

const Histogram& Service(const RunResult& result, size_t kind) {
  return result.measured.kinds[kind].service;
}

// Several processes' together.
void MustMerge(const RunResult& a, const RunResult& b) {
  const absl::StatusOr<RunResult> merged = Merge({a, b});
  if (!merged.ok()) return MustBeOneLine(merged.status());
  OSPREY_MUST(merged->measured.operations == a.measured.operations + b.measured.operations &&
                  merged->measured.operations >= a.measured.operations,
              "operations that got lost");
  for (size_t kind = 0; kind < kOperationKinds; ++kind) {
    const Histogram& both = Service(*merged, kind);
    OSPREY_MUST(both.count() == Service(a, kind).count() + Service(b, kind).count() &&
                    both.count() >= Service(a, kind).count(),
                "latencies that got lost");
    OSPREY_MUST(both.max() == std::max(Service(a, kind).max(), Service(b, kind).max()),
                "a greatest latency that got lost");
  }
  MustComeBack(*merged);
  MustBeReported(*merged);
}

void Use(const RunResult& result) {
  MustComeBack(result);
  MustBeReported(result);
  MustMerge(result, result);
}

Facts TakeFacts(fuzz::Input& input) {
  constexpr const char* kNames[] = {"workload", "records", "transport", "device", "<&\">"};
  Facts facts;
  for (const char* name : kNames) {
    if (!input.Flag()) continue;
    // What a program that counts bytes for characters may do to them.
    facts.emplace_back(name, input.Text(20));
  }
  return facts;
}

void TakeLatencies(fuzz::Input& input, KindMeasurements& kind) {
  for (uint32_t left = input.Choice(8); left > 0; --left) {
    const auto code = static_cast<absl::StatusCode>(input.Choice(17));
    kind.Record(code, input.Number());
    if (input.Flag()) kind.RecordIntended(code, input.Number());
  }
  // More than can be recorded one by one.
  if (input.OneIn(4)) {
    const uint64_t many = input.UpTo(kCountMax / 2);
    kind.service.RecordMany(input.Number(), many);
    kind.returns[absl::StatusCode::kOk] += many;
  }
}

RunResult TakeResult(fuzz::Input& input) {
  RunResult result;
  result.phase = input.Flag() ? "run" : "load";
  result.environment = TakeFacts(input);
  result.settings = TakeFacts(input);
  if (input.Flag()) result.notes = {"a note"};
  result.began = absl::FromUnixSeconds(input.Any<uint32_t>());
  result.seconds = static_cast<double>(input.UpTo(1 << 20)) / 16;
  result.open_loop = input.Flag();
  result.interrupted = input.Flag();
  result.behind_ns = input.Any<uint32_t>();
  result.processes = input.UpTo(1000);
  for (uint32_t left = input.Choice(4); left > 0; --left)
    result.percentiles.push_back(static_cast<double>(input.UpTo(10'000)) / 100);
  result.show_service = input.Flag();
  result.show_intended = input.Flag();
  for (KindMeasurements& kind : result.measured.kinds) TakeLatencies(input, kind);
  TakeLatencies(input, result.measured.cleanup);
  Measurements& measured = result.measured;
  for (uint64_t* count : {&measured.operations, &measured.scanned, &measured.gets, &measured.reads,
                          &measured.torn, &measured.checked, &measured.wrong, &measured.stale})
    *count = input.UpTo(kCountMax / 2);
  measured.first_failure = input.Text(20);
  for (uint32_t left = input.Choice(8); left > 0; --left) {
    result.series.push_back({result.series.size(), input.UpTo(kCountMax / 2), input.Number(),
                             input.Number(), input.Number(), input.Number()});
  }
  return result;
}

// One value of it, the `number`th, becomes another.
std::string Damaged(std::string json, size_t number, absl::string_view value) {
  constexpr char kEnds[] = ",\n]}";
  for (size_t at = json.find_first_of(":[,"); at != std::string::npos;
       at = json.find_first_of(":[,", at + 1)) {
    if (number-- > 0) continue;
    const size_t end = json.find_first_of(kEnds, at + 1);
    if (end == std::string::npos) return json;
    return json.replace(at + 1, end - at - 1, std::string(value));
  }
  return json;
}

void TakeDamaged(fuzz::Input& input) {
  constexpr absl::string_view kValues[] = {"-1",
                                           "0",
                                           "1",
                                           "1.5",
                                           "-0.0",
                                           "1e300",
                                           "1e-300",
                                           "9007199254740993",
                                           "null",
                                           "[]",
                                           "{}",
                                           "\"\"",
                                           "true",
                                           "[[0,1]]",
                                           "[1]",
                                           "18446744073709551615",
                                           "\"x\n\"",
                                           "",
                                           "\"a\":1",
                                           "[[1,1],[1,1]]",
                                           "[[1,9223372036854775808],[2,9223372036854775808]]"};
  const size_t number = input.Any<uint16_t>() % 512;
  const absl::string_view value = kValues[input.Choice(std::size(kValues))];
  const size_t other_number = input.Flag() ? input.Any<uint16_t>() % 512 : SIZE_MAX;
  const absl::string_view other_value = kValues[input.Choice(std::size(kValues))];
  const RunResult whole = TakeResult(input);
  const std::string damaged =
      Damaged(Damaged(ToJson(whole), number, value), other_number, other_value);
  const absl::StatusOr<RunResult> result = FromJson(damaged);
  if (!result.ok()) return MustBeOneLine(result.status());
  Use(*result);
  MustMerge(whole, *result);
}

void One(fuzz::Input input) {
  enum { kFile, kWhole, kDamaged, kKinds };
  switch (input.Choice(kKinds)) {
    case kFile: {
      const absl::StatusOr<RunResult> result = FromJson(input.Rest());
      if (!result.ok()) return MustBeOneLine(result.status());
      return Use(*result);
    }
    case kWhole: {
      const RunResult a = TakeResult(input);
      Use(a);
      return MustMerge(a, TakeResult(input));
    }
    case kDamaged:
      return TakeDamaged(input);
  }
}

}  // namespace
}  // namespace osprey::loadgen

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::loadgen::One(osprey::fuzz::Input(data, size));
  return 0;
}
