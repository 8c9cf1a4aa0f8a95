// Judges the journals of client processes, and prints its findings as one line of JSON.
//
//   history_checker [--end=NS] [--losses=FROM:TO,…] [--stops=NUMBER:FROM:TO,…] [--killed=NUMBER,…]
//               JOURNAL…
//
// A journal's NUMBER is its place among the arguments, from 0. Times are of the steady clock.
// Exit status 0; 2: it cannot read them.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gflags/gflags.h"
#include "nlohmann/json.hpp"
#include "tests/history/history_checker.h"

DEFINE_int64(end, 0, "when the fault was over; 0: no recovery is asked for");
DEFINE_string(losses, "", "when the server lost what it had: FROM:TO,…");
DEFINE_string(stops, "", "when a process was stopped: NUMBER:FROM:TO,…");
DEFINE_string(killed, "", "processes that were killed: NUMBER,…");

namespace osprey {
namespace {

// "1:2,3:4" as {{1, 2}, {3, 4}}; empty for other text.
std::vector<std::vector<int64_t>> Tuples(const std::string& text, size_t length) {
  std::vector<std::vector<int64_t>> tuples;
  for (absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    std::vector<int64_t>& tuple = tuples.emplace_back();
    for (absl::string_view word : absl::StrSplit(part, ':')) {
      if (!absl::SimpleAtoi(word, &tuple.emplace_back())) return {};
    }
    if (tuple.size() != length) return {};
  }
  return tuples;
}

int Main(int argc, char** argv) {
  std::vector<ClientProcess> processes;
  for (int i = 1; i < argc; ++i) {
    absl::StatusOr<std::vector<JournalRecord>> records = Journal::Read(argv[i]);
    if (!records.ok()) {
      std::fprintf(stderr, "history_checker: %s\n", records.status().ToString().c_str());
      return 2;
    }
    processes.emplace_back().records = *std::move(records);
  }
  FaultTimes times;
  times.end_ns = FLAGS_end;
  for (const std::vector<int64_t>& loss : Tuples(FLAGS_losses, 2))
    times.losses.emplace_back(loss[0], loss[1]);
  for (const std::vector<int64_t>& stop : Tuples(FLAGS_stops, 3))
    processes.at(static_cast<size_t>(stop[0])).stops.emplace_back(stop[1], stop[2]);
  for (const std::vector<int64_t>& killed : Tuples(FLAGS_killed, 1))
    processes.at(static_cast<size_t>(killed[0])).killed = true;

  const Judgement judgement = Judge(processes, times);
  constexpr double kSecond = 1e9;
  const nlohmann::json line = {
      {"operations", judgement.operations},
      {"failed", judgement.failed},
      {"failed_gets", judgement.failed_gets},
      {"failed_by_process", judgement.failed_by_process},
      {"open_by_process", judgement.open_by_process},
      {"losses_at_work", judgement.losses_at_work},
      {"unknown", judgement.unknown},
      {"wrong", judgement.wrong},
      {"undecided", judgement.undecided},
      {"overrun_s", static_cast<double>(judgement.overrun_ns) / kSecond},
      {"believed_late_s", static_cast<double>(judgement.believed_late_ns) / kSecond},
      {"recovery_s", static_cast<double>(judgement.recovery_ns) / kSecond},
      {"explanations", judgement.explanations}};
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace osprey

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return osprey::Main(argc, argv);
}
