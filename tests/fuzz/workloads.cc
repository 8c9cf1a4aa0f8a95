// What kvbench takes as its task: property files, -p and -P, times, and the workload that comes of
// them. What is taken is the same when it is written again. A workload that is taken can be run: its
// keys, values and scans keep to what it says.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tests/fuzz/support/input.h"
#include "tools/loadgen/arguments.h"
#include "tools/loadgen/workload/operations.h"
#include "tools/loadgen/workload/pacing.h"
#include "tools/loadgen/workload/properties.h"
#include "tools/loadgen/workload/records.h"
#include "tools/loadgen/workload/workload.h"

namespace osprey::loadgen {
namespace {

// Of a value that is made here; the greatest take too long.
constexpr uint64_t kValueBytesMax = 64 << 10;
constexpr int kDraws = 16;

void MustBeOneLine(const absl::Status& status) {
  OSPREY_MUST(absl::IsInvalidArgument(status) && !status.message().empty() &&
                  !absl::StrContains(status.message(), "\n"),
              "an error of several lines, or of none");
}

// As java.util.Properties.store writes them, as far as that matters to their reader.
std::string Escaped(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n') {
      absl::StrAppend(&escaped, "\\n");
    } else if (c == '\r') {
      absl::StrAppend(&escaped, "\\r");
    } else {
      // A backslash before anything but a letter or a digit is dropped.
      const bool special = absl::StrContains(" \t\f\\=:#!", absl::string_view(&c, 1));
      absl::StrAppend(&escaped, special ? "\\" : "", absl::string_view(&c, 1));
    }
  }
  return escaped;
}

void TakeProperties(const std::string& text) {
  Properties properties;
  const absl::Status taken = ParseProperties(text, properties);
  if (!taken.ok()) return MustBeOneLine(taken);
  std::string anew;
  for (const auto& [name, value] : properties)
    absl::StrAppend(&anew, Escaped(name), "=", Escaped(value), "\n");
  Properties same;
  OSPREY_MUST(ParseProperties(anew, same).ok() && same == properties,
              "properties that differ when written again");
}

void TakeArguments(fuzz::Input& input) {
  constexpr const char* kWords[] = {"-s", "-p", "-P", "run", "--records=5", "-p=a"};
  std::vector<std::string> words;
  while (!input.empty() && words.size() < 12) {
    // No files but one that is not there.
    const bool file = !words.empty() && words.back() == "-P";
    words.push_back(file           ? "/nonexistent/osprey\n"
                    : input.Flag() ? kWords[input.Choice(std::size(kWords))]
                                   : input.Text(20));
  }
  const absl::StatusOr<YcsbArguments> taken = TakeYcsbArguments(words);
  if (!taken.ok()) return MustBeOneLine(taken.status());
  const auto pairs = std::count(words.begin(), words.end(), "-p");
  OSPREY_MUST(taken->rest.size() <= words.size() && taken->given.size() <= words.size() &&
                  (pairs > 0 || taken->rest.size() == words.size()) && taken->files.empty(),
              "words that got lost, or out of nothing");
}

void TakeTimes(fuzz::Input& input) {
  const auto least = absl::Milliseconds(input.UpTo(1000));
  const auto most = least + absl::Seconds(input.UpTo(1'000'000));
  const std::string text = input.Rest();
  const absl::StatusOr<absl::Duration> time = ParseTimeFlag("timeout", text, least, most);
  if (!time.ok()) {
    MustBeOneLine(time.status());
  } else {
    OSPREY_MUST(*time >= least && *time <= most, "a time out of range");
    const absl::StatusOr<absl::Duration> same =
        ParseTimeFlag("timeout", absl::FormatDuration(*time), least, most);
    OSPREY_MUST(same.ok() && *same == *time, "a time that differs when written again");
  }
  if (const auto arrivals = ParseArrivals(text); !arrivals.ok()) MustBeOneLine(arrivals.status());
  if (const auto wait = ParseWait(text); !wait.ok()) MustBeOneLine(wait.status());
  if (const auto preset = PresetWorkload(text); !preset.ok()) MustBeOneLine(preset.status());
  Properties properties;
  if (const auto given = ParseAssignment(text, properties); !given.ok()) MustBeOneLine(given);
}

// ---- The workload.

void MustBeOfWorkload(const Workload& workload, OperationSource::Phase phase,
                      const SharedKeys& shared, const Operation& operation) {
  const bool load = phase == OperationSource::Phase::kLoad;
  const KeyName name(workload, operation.key);
  OSPREY_MUST(!name.view().empty() && name.view().size() <= KeyName::kBytesMax,
              "a key of no length");
  if (load) {
    OSPREY_MUST(operation.key >= workload.insert_start &&
                    operation.key < workload.insert_start + workload.insert_count,
                "a key that is not to be loaded");
  } else if (operation.kind != OperationKind::kInsert) {
    OSPREY_MUST(operation.key <= shared.inserted.last(), "a key that is not there");
  }
  OSPREY_MUST(load || workload.share(operation.kind) > 0,
              "an operation that the workload does not have");
  OSPREY_MUST(
      operation.kind != OperationKind::kScan || (operation.scan_length >= workload.scan_min &&
                                                 operation.scan_length <= workload.scan_max),
      "a scan of another length");
}

void MustMakeValues(const Workload& workload, uint64_t seed) {
  if (workload.value_bytes_max() > kValueBytesMax && workload.sizes != Sizes::kEtc) return;
  RecordMaker maker(workload, 1, seed);
  for (int i = 0; i < 4; ++i) {
    const KeyName key(workload, seed + static_cast<uint64_t>(i));
    std::string value(maker.Make(key.view()));
    const auto fits = [&] {
      return value.size() <= workload.value_bytes_max() &&
             (workload.sizes == Sizes::kEtc || workload.field_lengths == Lengths::kConstant ||
              value.size() >= workload.field_count * workload.field_bytes_min);
    };
    OSPREY_MUST(fits() && IsRecordOf(key.view(), value), "a value of another length, or key");
    maker.ChangeField(key.view(), value);
    OSPREY_MUST(fits() && IsRecordOf(key.view(), value),
                "a changed value of another length, or key");
  }
}

void MustRun(const Workload& workload, uint64_t seed) {
  double sum = 0;
  for (const double share : workload.shares) sum += share;
  OSPREY_MUST(sum > 0.999 && sum < 1.001, "shares that are no whole");
  OSPREY_MUST(workload.records >= 1 && workload.threads >= 1 && workload.threads <= kThreadsMax &&
                  workload.insert_count >= 1 &&
                  workload.insert_start + workload.insert_count <= workload.records &&
                  workload.target >= 0 && workload.target <= kTargetMax &&
                  workload.duration >= absl::ZeroDuration() &&
                  workload.status_every > absl::ZeroDuration(),
              "a workload that cannot be");
  using Phase = OperationSource::Phase;
  for (const Phase phase : {Phase::kLoad, Phase::kRun}) {
    SharedKeys shared(workload);
    OperationSource source(phase, workload, shared, seed);
    for (int i = 0; i < kDraws; ++i) {
      const std::optional<Operation> operation = source.Next();
      if (!operation.has_value()) break;
      MustBeOfWorkload(workload, phase, shared, *operation);
      if (phase == Phase::kRun && operation->kind == OperationKind::kInsert)
        shared.inserted.Acknowledge(operation->key);
    }
  }
  MustMakeValues(workload, seed);
}

// What a property may say: numbers, words of properties, and what is nearly so.
std::string TakeValue(fuzz::Input& input) {
  constexpr const char* kValues[] = {"0",
                                     "1",
                                     "0.5",
                                     "100",
                                     "1000000000000",
                                     "1e9",
                                     "-1",
                                     "nan",
                                     "true",
                                     "FALSE",
                                     "zipfian",
                                     "uniform",
                                     "latest",
                                     "hotspot",
                                     "constant",
                                     "sequential",
                                     "exponential",
                                     "ordered",
                                     "hashed",
                                     "etc",
                                     "ycsb",
                                     "both",
                                     "50,99.9",
                                     "site.ycsb.workloads.CoreWorkload",
                                     " 7 ",
                                     "1e-300",
                                     "99.999"};
  if (input.Flag()) return kValues[input.Choice(std::size(kValues))];
  return input.Flag() ? absl::StrCat(input.Number()) : input.Text(20);
}

void TakeWorkload(fuzz::Input& input) {
  Properties properties = {{"recordcount", absl::StrCat(1 + input.Number() / 2)}};
  const absl::Span<const absl::string_view> names = PropertyNames();
  for (uint32_t left = input.Choice(12); left > 0; --left) {
    const absl::string_view name = names[input.Choice(static_cast<uint32_t>(names.size()))];
    properties[std::string(name)] = TakeValue(input);
  }
  if (input.OneIn(8)) properties[input.Text(30)] = TakeValue(input);
  std::vector<std::string> notes;
  const absl::StatusOr<Workload> workload = ParseWorkload(properties, notes);
  for (const std::string& note : notes)
    OSPREY_MUST(!note.empty() && !absl::StrContains(note, "\n"),
                "a note of several lines, or of none");
  if (!workload.ok()) return MustBeOneLine(workload.status());
  MustRun(*workload, input.Number());
}

void TakePacer(fuzz::Input& input) {
  constexpr Arrivals kArrivals[] = {Arrivals::kPoisson, Arrivals::kFixed, Arrivals::kEtc};
  const Arrivals arrivals = kArrivals[input.Choice(3)];
  // As a target says, divided among the threads.
  const double rate = static_cast<double>(1 + input.UpTo(999'999'999)) /
                      static_cast<double>(1 + input.UpTo(kThreadsMax - 1));
  Pacer pacer(arrivals, rate, static_cast<double>(input.Byte()) / 256, input.Number(), 1000);
  int64_t before = 1000;
  for (int i = 0; i < kDraws; ++i, pacer.Advance()) {
    OSPREY_MUST(pacer.due_ns() >= before, "an operation that is due before the last one");
    before = pacer.due_ns();
  }
}

void One(fuzz::Input input) {
  enum { kProperties, kArguments, kTimes, kWorkload, kPacer, kKinds };
  switch (input.Choice(kKinds)) {
    case kProperties:
      return TakeProperties(input.Rest());
    case kArguments:
      return TakeArguments(input);
    case kTimes:
      return TakeTimes(input);
    case kWorkload:
      return TakeWorkload(input);
    case kPacer:
      return TakePacer(input);
  }
}

}  // namespace
}  // namespace osprey::loadgen

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::loadgen::One(osprey::fuzz::Input(data, size));
  return 0;
}
