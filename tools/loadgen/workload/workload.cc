#include "tools/loadgen/workload/workload.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/program/spelling.h"
#include "tools/loadgen/workload/distributions.h"

namespace osprey::loadgen {
namespace {

constexpr uint64_t kValueBytesMax = uint64_t{1} << 30;  // the store's
constexpr uint64_t kFieldsMax = 10'000;
constexpr uint64_t kScanMax = 1'000'000;
constexpr uint64_t kZeroPaddingMax = 200;  // so that a key has less than 250 bytes
constexpr uint64_t kDurationSecondsMax = 7 * 24 * 3600;
constexpr uint64_t kPercentilesMax = 20;

// The properties that ParseWorkload reads.
constexpr absl::string_view kUsed[] = {
    "dataintegrity",
    "exponential.frac",
    "exponential.percentile",
    "fieldcount",
    "fieldlength",
    "fieldlengthdistribution",
    "hdrhistogram.percentiles",
    "hotspotdatafraction",
    "hotspotopnfraction",
    "insertcount",
    "insertorder",
    "insertproportion",
    "insertstart",
    "maxexecutiontime",
    "maxscanlength",
    "measurement.interval",
    "minfieldlength",
    "minscanlength",
    "operationcount",
    "readallfields",
    "readmodifywriteproportion",
    "readproportion",
    "recordcount",
    "requestdistribution",
    "scanlengthdistribution",
    "scanproportion",
    "sizes",
    "status",
    "status.interval",
    "target",
    "threadcount",
    "updateproportion",
    "workload",
    "writeallfields",
    "zeropadding",
};

// YCSB's properties without an effect here.
constexpr absl::string_view kIgnored[] = {
    "core_workload_insertion_retry_interval",
    "core_workload_insertion_retry_limit",
    "db",
    "dotransactions",
    "exporter",
    "exportfile",
    "fieldlengthhistogram",
    "fieldnameprefix",
    "hdrhistogram.fileoutput",
    "hdrhistogram.output.path",
    "histogram.buckets",
    "label",
    "measurement.histogram.verbose",
    "measurement.raw.output_file",
    "measurement.trackjvm",
    "measurementtype",
    "readallfieldsbyname",
    "reportlatencyforeacherror",
    "table",
    "timeseries.granularity",
};

template <typename List>
bool Has(const List& names, absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

absl::Status CheckNames(const Properties& properties, std::vector<std::string>& notes) {
  for (const auto& [name, value] : properties) {
    if (Has(kUsed, name)) continue;
    if (Has(kIgnored, name)) {
      notes.push_back(absl::StrCat("property ", name, " changes nothing here"));
      continue;
    }
    std::vector<absl::string_view> known(std::begin(kUsed), std::end(kUsed));
    known.insert(known.end(), std::begin(kIgnored), std::end(kIgnored));
    const std::string nearest = SuggestSpelling(name, known);
    // redis.host, mongodb.url …
    if (nearest.empty() && absl::StrContains(name, '.')) {
      notes.push_back(absl::StrCat("property ", absl::CHexEscape(name),
                                   " is of another database and changes nothing here"));
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no property '", absl::CHexEscape(name), "'",
        nearest.empty() ? "; kvbench --help lists them" : absl::StrCat("; is it ", nearest, "?")));
  }
  return absl::OkStatus();
}

// Takes values from properties; keeps the first error.
class Reader {
 public:
  explicit Reader(const Properties& properties) : properties_(properties) {}

  uint64_t Number(absl::string_view name, uint64_t otherwise, uint64_t least, uint64_t most) {
    const std::string* text = Find(name);
    if (text == nullptr) return otherwise;
    uint64_t value = 0;
    if (!absl::SimpleAtoi(*text, &value) || value < least || value > most) {
      Fail(name, *text, absl::StrCat("a whole number, ", least, " to ", most));
      return otherwise;
    }
    return value;
  }

  double Real(absl::string_view name, double otherwise, double least, double most) {
    const std::string* text = Find(name);
    if (text == nullptr) return otherwise;
    double value = 0;
    // This form refuses NaN as well.
    if (!absl::SimpleAtod(*text, &value) || !(value >= least && value <= most)) {
      Fail(name, *text, absl::StrCat("a number, ", least, " to ", most));
      return otherwise;
    }
    return value;
  }

  bool Switch(absl::string_view name, bool otherwise) {
    const std::string* text = Find(name);
    if (text == nullptr) return otherwise;
    if (absl::EqualsIgnoreCase(*text, "true")) return true;
    if (!absl::EqualsIgnoreCase(*text, "false")) Fail(name, *text, "true or false");
    return false;
  }

  template <typename T>
  T Choice(absl::string_view name, T otherwise,
           std::initializer_list<std::pair<absl::string_view, T>> choices) {
    const std::string* text = Find(name);
    if (text == nullptr) return otherwise;
    std::string all;
    for (const auto& [word, value] : choices) {
      if (word == *text) return value;
      absl::StrAppend(&all, all.empty() ? "" : ", ", word);
    }
    Fail(name, *text, absl::StrCat("one of ", all));
    return otherwise;
  }

  // Without the blanks that a properties file may leave at the end; nullptr if it is absent.
  const std::string* Find(absl::string_view name) {
    const auto found = properties_.find(name);
    if (found == properties_.end()) return nullptr;
    text_ = std::string(absl::StripAsciiWhitespace(found->second));
    return &text_;
  }

  void Fail(absl::string_view name, absl::string_view value, absl::string_view wanted) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("property ", name, "=", absl::CHexEscape(value), " is not ", wanted));
  }

  void Fail(std::string message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(message);
  }

  const absl::Status& status() const { return status_; }

 private:
  const Properties& properties_;
  std::string text_;
  absl::Status status_;
};

void ReadShares(Reader& reader, Workload& workload) {
  constexpr std::pair<absl::string_view, double> kShares[] = {
      {"readproportion", 0.95},  // YCSB's defaults
      {"updateproportion", 0.05},
      {"insertproportion", 0},
      {"scanproportion", 0},
      {"readmodifywriteproportion", 0}};
  static_assert(std::size(kShares) == kOperationKinds);
  double sum = 0;
  for (size_t i = 0; i < kOperationKinds; ++i) {
    workload.shares[i] = reader.Real(kShares[i].first, kShares[i].second, 0, 1);
    sum += workload.shares[i];
  }
  if (sum <= 0) {
    reader.Fail(
        "all proportions are 0; give at least one of readproportion, updateproportion, "
        "insertproportion, scanproportion, readmodifywriteproportion");
    return;
  }
  for (double& share : workload.shares) share /= sum;
}

void ReadRequests(Reader& reader, Workload& workload) {
  workload.requests = reader.Choice<Requests>("requestdistribution", Requests::kUniform,
                                              {{"uniform", Requests::kUniform},
                                               {"zipfian", Requests::kZipfian},
                                               {"latest", Requests::kLatest},
                                               {"hotspot", Requests::kHotspot},
                                               {"sequential", Requests::kSequential},
                                               {"exponential", Requests::kExponential}});
  workload.hot_set = reader.Real("hotspotdatafraction", workload.hot_set, 0, 1);
  workload.hot_operations = reader.Real("hotspotopnfraction", workload.hot_operations, 0, 1);
  workload.exponential_percentile =
      reader.Real("exponential.percentile", workload.exponential_percentile, 0.001, 99.999);
  workload.exponential_fraction =
      reader.Real("exponential.frac", workload.exponential_fraction, 1e-9, 1e9);
}

void ReadKeys(Reader& reader, Workload& workload) {
  workload.records = reader.Number("recordcount", 0, 1, kRecordsMax);
  workload.operations = reader.Number("operationcount", 0, 0, kRecordsMax);
  workload.insert_start = reader.Number("insertstart", 0, 0, kRecordsMax);
  if (!reader.status().ok()) return;
  if (workload.records == 0) {
    reader.Fail("how many records are there? Give --records=N (property recordcount)");
    return;
  }
  if (workload.insert_start >= workload.records) {
    reader.Fail(absl::StrCat("property insertstart=", workload.insert_start,
                             " is not below recordcount=", workload.records));
    return;
  }
  const uint64_t most = workload.records - workload.insert_start;
  workload.insert_count = reader.Number("insertcount", most, 1, most);
  workload.ordered =
      reader.Choice<bool>("insertorder", false, {{"hashed", false}, {"ordered", true}});
  workload.zero_padding = reader.Number("zeropadding", 1, 0, kZeroPaddingMax);
}

void ReadValues(Reader& reader, Workload& workload, std::vector<std::string>& notes) {
  workload.sizes = reader.Choice<Sizes>("sizes", Sizes::kFields,
                                        {{"ycsb", Sizes::kFields}, {"etc", Sizes::kEtc}});
  workload.field_count = reader.Number("fieldcount", 10, 1, kFieldsMax);
  workload.field_bytes = reader.Number("fieldlength", 100, 0, kValueBytesMax);
  workload.field_lengths = reader.Choice<Lengths>("fieldlengthdistribution", Lengths::kConstant,
                                                  {{"constant", Lengths::kConstant},
                                                   {"uniform", Lengths::kUniform},
                                                   {"zipfian", Lengths::kZipfian}});
  workload.field_bytes_min = reader.Number("minfieldlength", 1, 0, kValueBytesMax);
  if (workload.field_lengths != Lengths::kConstant &&
      workload.field_bytes_min > workload.field_bytes) {
    reader.Fail(absl::StrCat("property minfieldlength=", workload.field_bytes_min,
                             " is above fieldlength=", workload.field_bytes));
  }
  if (reader.status().ok() && workload.value_bytes_max() > kValueBytesMax) {
    reader.Fail(absl::StrCat("fieldcount × fieldlength is ", workload.value_bytes_max(),
                             " bytes; a value has at most ", kValueBytesMax));
  }
  workload.write_all_fields = reader.Switch("writeallfields", true);
  workload.read_all_fields = reader.Switch("readallfields", true);
  if (!workload.read_all_fields)
    notes.push_back("readallfields=false: a value has no parts; the whole of it is read");
}

void ReadScans(Reader& reader, Workload& workload) {
  workload.scan_min = reader.Number("minscanlength", 1, 1, kScanMax);
  workload.scan_max = reader.Number("maxscanlength", 1000, 1, kScanMax);
  if (workload.scan_min > workload.scan_max) {
    reader.Fail(absl::StrCat("property minscanlength=", workload.scan_min,
                             " is above maxscanlength=", workload.scan_max));
  }
  workload.scan_lengths =
      reader.Choice<Lengths>("scanlengthdistribution", Lengths::kUniform,
                             {{"uniform", Lengths::kUniform}, {"zipfian", Lengths::kZipfian}});
}

void ReadPercentiles(Reader& reader, Workload& workload) {
  const std::string* text = reader.Find("hdrhistogram.percentiles");
  if (text == nullptr) return;
  std::vector<double> percentiles;
  for (const absl::string_view word : absl::StrSplit(*text, ',')) {
    double value = 0;
    if (!absl::SimpleAtod(absl::StripAsciiWhitespace(word), &value) ||
        !(value >= 0 && value <= 100) || percentiles.size() >= kPercentilesMax) {
      reader.Fail("hdrhistogram.percentiles", *text, "a list of up to 20 numbers, 0 to 100");
      return;
    }
    percentiles.push_back(value);
  }
  workload.percentiles = std::move(percentiles);
}

void ReadRun(Reader& reader, Workload& workload) {
  workload.threads = reader.Number("threadcount", 1, 1, kThreadsMax);
  workload.target = reader.Real("target", 0, 0, kTargetMax);
  workload.duration = absl::Seconds(
      reader.Real("maxexecutiontime", 0, 0, static_cast<double>(kDurationSecondsMax)));
  workload.verify = reader.Switch("dataintegrity", false);
  workload.status = reader.Switch("status", false);
  workload.status_every = absl::Seconds(reader.Number("status.interval", 1, 1, 3600));
  workload.interval = reader.Choice<std::string>(
      "measurement.interval", "", {{"op", "op"}, {"intended", "intended"}, {"both", "both"}});
  ReadPercentiles(reader, workload);
}

void ReadClass(Reader& reader) {
  const std::string* text = reader.Find("workload");
  if (text == nullptr || text->empty()) return;
  const absl::string_view name = absl::string_view(*text).substr(text->rfind('.') + 1);
  if (name != "CoreWorkload")
    reader.Fail(absl::StrCat("property workload=", absl::CHexEscape(*text),
                             ": of YCSB's classes there is CoreWorkload alone"));
}

}  // namespace

absl::string_view NameOf(OperationKind kind) {
  switch (kind) {
    case OperationKind::kRead:
      return "READ";
    case OperationKind::kUpdate:
      return "UPDATE";
    case OperationKind::kInsert:
      return "INSERT";
    case OperationKind::kScan:
      return "SCAN";
    case OperationKind::kReadModifyWrite:
      return "READ-MODIFY-WRITE";
  }
  return "";
}

uint64_t Workload::value_bytes_max() const {
  return sizes == Sizes::kEtc ? etc::kValueBytesMax : field_count * field_bytes;
}

absl::Span<const absl::string_view> PropertyNames() { return kUsed; }

absl::StatusOr<Properties> PresetWorkload(absl::string_view name) {
  // As in YCSB's files workloada … workloadf.
  constexpr absl::string_view kCore[] = {
      "readproportion=0.5\nupdateproportion=0.5\nrequestdistribution=zipfian",
      "readproportion=0.95\nupdateproportion=0.05\nrequestdistribution=zipfian",
      "readproportion=1\nupdateproportion=0\nrequestdistribution=zipfian",
      "readproportion=0.95\nupdateproportion=0\ninsertproportion=0.05\nrequestdistribution=latest",
      "readproportion=0\nupdateproportion=0\nscanproportion=0.95\ninsertproportion=0.05\n"
      "requestdistribution=zipfian\nmaxscanlength=100\nscanlengthdistribution=uniform",
      "readproportion=0.5\nupdateproportion=0\nreadmodifywriteproportion=0.5\n"
      "requestdistribution=zipfian"};
  const absl::string_view letter = absl::StripPrefix(name, "workload");
  Properties properties;
  if (name == "etc") {
    properties = {{"readproportion", absl::StrCat(1 - etc::kUpdates)},
                  {"updateproportion", absl::StrCat(etc::kUpdates)},
                  {"requestdistribution", "zipfian"},
                  {"sizes", "etc"}};
    return properties;
  }
  if (letter.size() != 1 || letter[0] < 'a' || letter[0] > 'f') {
    return absl::InvalidArgumentError(absl::StrCat("--workload=", absl::CHexEscape(name),
                                                   " is not one of a, b, c, d, e, f, etc"));
  }
  const absl::Status status = ParseProperties(kCore[letter[0] - 'a'], properties);
  if (!status.ok()) return status;
  return properties;
}

absl::StatusOr<Workload> ParseWorkload(const Properties& properties,
                                       std::vector<std::string>& notes) {
  if (absl::Status names = CheckNames(properties, notes); !names.ok()) return names;
  Workload workload;
  Reader reader(properties);
  ReadClass(reader);
  ReadShares(reader, workload);
  ReadRequests(reader, workload);
  ReadKeys(reader, workload);
  ReadValues(reader, workload, notes);
  ReadScans(reader, workload);
  ReadRun(reader, workload);
  if (!reader.status().ok()) return reader.status();
  return workload;
}

}  // namespace osprey::loadgen
