#include "tools/loadgen/reports/json.h"

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tools/loadgen/reports/text.h"

namespace osprey::loadgen {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "osprey-kvbench-1";
constexpr size_t kFactsMax = 1000;
constexpr size_t kSecondsMax = 7 * 24 * 3600 + 3600;
constexpr double kRunSecondsMax = 1e9;

struct Counter {
  const char* name;
  uint64_t Measurements::*field;
};
constexpr Counter kCounters[] = {
    {"operations", &Measurements::operations}, {"scanned_items", &Measurements::scanned},
    {"checked", &Measurements::checked},       {"wrong", &Measurements::wrong},
    {"stale", &Measurements::stale},           {"gets", &Measurements::gets},
    {"reads", &Measurements::reads},           {"scan_reads", &Measurements::scan_reads},
    {"torn_reads", &Measurements::torn},       {"retries", &Measurements::retries},
    {"rpc_gets", &Measurements::rpc_gets},     {"messages", &Measurements::messages},
    {"reconnects", &Measurements::connects}};

struct HistogramField {
  const char* name;
  Histogram KindMeasurements::*field;
};
constexpr HistogramField kHistograms[] = {{"service", &KindMeasurements::service},
                                          {"service_failed", &KindMeasurements::service_failed},
                                          {"intended", &KindMeasurements::intended},
                                          {"intended_failed", &KindMeasurements::intended_failed}};

struct RowField {
  const char* name;
  uint64_t SeriesRow::*field;
};
constexpr RowField kRow[] = {
    {"second", &SeriesRow::second},    {"operations", &SeriesRow::operations},
    {"p50_ns", &SeriesRow::p50_ns},    {"p99_ns", &SeriesRow::p99_ns},
    {"p99.9_ns", &SeriesRow::p999_ns}, {"max_ns", &SeriesRow::max_ns}};

Json HistogramJson(const Histogram& histogram) {
  Json json;
  json["count"] = histogram.count();
  json["min_ns"] = histogram.min();
  json["mean_ns"] = histogram.mean();
  json["p50_ns"] = histogram.ValueAt(0.5);
  json["p90_ns"] = histogram.ValueAt(0.9);
  json["p95_ns"] = histogram.ValueAt(0.95);
  json["p99_ns"] = histogram.ValueAt(0.99);
  json["p99.9_ns"] = histogram.ValueAt(0.999);
  json["max_ns"] = histogram.max();
  json["sum_ns"] = histogram.sum();
  Json buckets = Json::array();
  for (const Histogram::Bucket& bucket : histogram.Buckets())
    buckets.push_back({bucket.highest, bucket.count});
  json["buckets"] = std::move(buckets);
  return json;
}

Json KindJson(const KindMeasurements& kind) {
  Json json;
  for (const auto& [code, count] : kind.returns)
    json["returns"][absl::StatusCodeToString(code)] = count;
  for (const HistogramField& histogram : kHistograms) {
    if ((kind.*histogram.field).count() > 0)
      json[histogram.name] = HistogramJson(kind.*histogram.field);
  }
  return json;
}

Json FactsJson(const Facts& facts) {
  Json json = Json::object();
  for (const auto& [name, value] : facts) json[name] = value;
  return json;
}

// Reads the output of ToJson. A missing field, or one of another type, throws nlohmann's exception.
// FromJson turns it into a status; no other code handles exceptions.
uint64_t ReadWhole(const Json& json, uint64_t most) {
  // (get() would also convert -1, 1.5 or 1e300.)
  if (!json.is_number_unsigned() || json.get<uint64_t>() > most)
    throw Json::other_error::create(501, absl::StrCat("a number is not whole, 0 to ", most), &json);
  return json.get<uint64_t>();
}
uint64_t ReadCount(const Json& json) { return ReadWhole(json, kCountMax); }
uint64_t ReadNanos(const Json& json) { return ReadWhole(json, UINT64_MAX); }

Histogram ReadHistogram(const Json& json) {
  std::vector<Histogram::Bucket> buckets;
  for (const Json& bucket : json.at("buckets")) {
    Histogram::Bucket& read = buckets.emplace_back();
    read.highest = ReadNanos(bucket.at(0));
    read.count = ReadCount(bucket.at(1));
  }
  Histogram histogram;
  if (!histogram.Restore(buckets, ReadNanos(json.at("min_ns")), ReadNanos(json.at("max_ns")),
                         json.at("sum_ns").get<double>())) {
    throw Json::other_error::create(501, "a histogram's buckets cannot be of one histogram", &json);
  }
  return histogram;
}

absl::StatusCode ReadCode(const std::string& name) {
  constexpr int kCodes = 17;
  for (int code = 0; code < kCodes; ++code) {
    if (absl::StatusCodeToString(static_cast<absl::StatusCode>(code)) == name)
      return static_cast<absl::StatusCode>(code);
  }
  throw Json::other_error::create(501, "an operation ended as none can", nullptr);
}

KindMeasurements ReadKind(const Json& json) {
  KindMeasurements kind;
  if (json.contains("returns")) {
    for (const auto& [name, count] : json.at("returns").items())
      kind.returns[ReadCode(name)] += ReadCount(count);
  }
  for (const HistogramField& histogram : kHistograms) {
    if (json.contains(histogram.name))
      kind.*histogram.field = ReadHistogram(json.at(histogram.name));
  }
  return kind;
}

Facts ReadFacts(const Json& json) {
  Facts facts;
  for (const auto& [name, value] : json.items()) {
    if (facts.size() == kFactsMax) break;
    facts.emplace_back(name, value.get<std::string>());
  }
  return facts;
}

RunResult Read(const Json& json) {
  RunResult result;
  result.phase = json.at("phase").get<std::string>();
  result.environment = ReadFacts(json.at("environment"));
  result.settings = ReadFacts(json.at("settings"));
  result.notes = json.at("notes").get<std::vector<std::string>>();
  std::string why;
  if (!absl::ParseTime(absl::RFC3339_full, json.at("began").get<std::string>(), &result.began,
                       &why))
    throw Json::other_error::create(501, "'began' is no time", &json);
  result.seconds = json.at("seconds").get<double>();
  if (!(result.seconds >= 0 && result.seconds <= kRunSecondsMax))
    throw Json::other_error::create(501, "'seconds' is no time that a run takes", &json);
  result.open_loop = json.at("open_loop").get<bool>();
  result.interrupted = json.at("interrupted").get<bool>();
  result.behind_ns = static_cast<int64_t>(ReadWhole(json.at("behind_ns"), INT64_MAX));
  result.processes = ReadCount(json.at("processes"));
  result.percentiles = json.at("percentiles").get<std::vector<double>>();
  for (const double percentile : result.percentiles) {
    if (!(percentile >= 0 && percentile <= 100))
      throw Json::other_error::create(501, "a percentile is not 0 to 100", &json);
  }
  result.show_service = json.at("show_service").get<bool>();
  result.show_intended = json.at("show_intended").get<bool>();
  for (const Counter& counter : kCounters)
    result.measured.*counter.field = ReadCount(json.at(counter.name));
  result.measured.first_wrong = json.at("first_wrong").get<std::string>();
  result.measured.first_failure = json.at("first_failure").get<std::string>();
  for (size_t i = 0; i < kOperationKinds; ++i) {
    const std::string name(NameOf(static_cast<OperationKind>(i)));
    if (json.at("kinds").contains(name))
      result.measured.kinds[i] = ReadKind(json.at("kinds").at(name));
  }
  result.measured.cleanup = ReadKind(json.at("cleanup"));
  for (const Json& row : json.at("series")) {
    if (result.series.size() == kSecondsMax)
      throw Json::other_error::create(501, "the series is longer than any run", &json);
    SeriesRow& read = result.series.emplace_back();
    for (const RowField& field : kRow)
      read.*field.field = ReadWhole(row.at(field.name), UINT64_MAX);
  }
  return result;
}

}  // namespace

std::string ToJson(const RunResult& result) {
  const Measurements& measured = result.measured;
  Json json;
  json["format"] = kFormat;
  json["phase"] = result.phase;
  json["began"] = absl::FormatTime(absl::RFC3339_full, result.began, absl::UTCTimeZone());
  json["seconds"] = result.seconds;
  json["operations_per_second"] = result.throughput();
  json["reads_per_get"] =
      measured.gets == 0 ? 0
                         : static_cast<double>(measured.reads) / static_cast<double>(measured.gets);
  for (const Counter& counter : kCounters) json[counter.name] = measured.*counter.field;
  json["first_wrong"] = measured.first_wrong;
  json["first_failure"] = measured.first_failure;
  json["processes"] = result.processes;
  json["open_loop"] = result.open_loop;
  json["behind_ns"] = result.behind_ns;
  json["interrupted"] = result.interrupted;
  json["percentiles"] = result.percentiles;
  json["show_service"] = result.show_service;
  json["show_intended"] = result.show_intended;
  json["environment"] = FactsJson(result.environment);
  json["settings"] = FactsJson(result.settings);
  json["notes"] = result.notes;
  json["kinds"] = Json::object();
  for (size_t i = 0; i < kOperationKinds; ++i) {
    if (!measured.kinds[i].empty())
      json["kinds"][std::string(NameOf(static_cast<OperationKind>(i)))] =
          KindJson(measured.kinds[i]);
  }
  json["cleanup"] = KindJson(measured.cleanup);
  json["series"] = Json::array();
  for (const SeriesRow& row : result.series) {
    Json read;
    for (const RowField& field : kRow) read[field.name] = row.*field.field;
    json["series"].push_back(std::move(read));
  }
  // An error message may quote bytes that are not UTF-8.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<RunResult> FromJson(absl::string_view text) {
  if (text.size() > kJsonBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("more than ", kJsonBytesMax, " bytes"));
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("this is no JSON");
  if (!json.is_object() || json.value("format", Json()) != kFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("this is no result of kvbench ('format' is not ", kFormat, ")"));
  }
  try {
    return Read(json);
  } catch (const Json::exception& why) {
    return absl::InvalidArgumentError(absl::StrCat("this is no result of kvbench: ", why.what()));
  }
}

}  // namespace osprey::loadgen
