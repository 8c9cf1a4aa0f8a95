// Runs many seeds of tests/simulation.h, in several processes, and says how it goes:
//
//   simulate --first-seed=1 --seeds=100000 --operations=5000 --jobs=2
//
// Progress is told on stderr every ten seconds, with the seed up to which all were right: who was
// interrupted goes on from there. Ends at the first failure, with what was wrong and the command
// that shows it again, and exits with 1.
//   --aim=NAME   only seeds of that aim (simulation_plan.h)
//   --mutant=N   with the N-th mistake of index/test_hooks.h: to find seeds that show it

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "index/test_hooks.h"
#include "tests/simulation.h"
#include "tests/simulation_plan.h"

namespace osprey {
namespace {

constexpr int kJobsMax = 64;
constexpr int kUndecidedPerMillionMax = 500;

struct Flags {
  uint64_t first_seed = 1;
  uint64_t seeds = 1000;
  int operations = 5000;
  int jobs = 1;
  int mutant = 0;
  std::string aim;
};

// What a process tells of itself, in memory that all share.
struct Progress {
  std::atomic<uint64_t> next_seed;  // all of its before this are done
  std::atomic<uint64_t> done;
  std::atomic<uint64_t> operations;
  std::atomic<uint64_t> histories;
  std::atomic<uint64_t> undecided;
  std::atomic<uint64_t> failed_seed;  // 0: none
};

double Seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The seeds that leave `job` when divided by the number of jobs.
int RunJob(const Flags& flags, int job, Progress& progress) {
  const auto jobs = static_cast<uint64_t>(flags.jobs);
  const uint64_t end = flags.first_seed + flags.seeds;
  for (uint64_t seed = flags.first_seed + static_cast<uint64_t>(job); seed < end; seed += jobs) {
    if (flags.aim.empty() || flags.aim == NameOf(AimOf(seed))) {
      const SimulationReport report = Simulate({seed, flags.operations});
      progress.operations += report.operations;
      progress.histories += report.histories;
      progress.undecided += report.undecided;
      ++progress.done;
      if (!report.wrong.empty()) {
        progress.failed_seed = seed;
        std::cout << absl::StrCat("WRONG: ", report.wrong, "\nagain: simulate --first-seed=", seed,
                                  " --seeds=1 --operations=", flags.operations,
                                  flags.mutant == 0 ? "" : absl::StrCat(" --mutant=", flags.mutant),
                                  "\n")
                  << std::flush;
        return 1;
      }
      if (flags.seeds == 1)
        std::cout << absl::StrFormat("seed %d, aim %s: %d operations, trace %016x\n", seed,
                                     report.aim, report.operations, report.trace_hash)
                  << std::flush;
    }
    progress.next_seed = seed + jobs;
  }
  return 0;
}

void Tell(const Flags& flags, const Progress* all, double seconds, bool is_last) {
  uint64_t done = 0;
  uint64_t operations = 0;
  uint64_t histories = 0;
  uint64_t undecided = 0;
  uint64_t resume = UINT64_MAX;
  for (int i = 0; i < flags.jobs; ++i) {
    done += all[i].done;
    operations += all[i].operations;
    histories += all[i].histories;
    undecided += all[i].undecided;
    resume = std::min(resume, all[i].next_seed.load());
  }
  std::cerr << absl::StrFormat(
      "%s%d seeds, %d operations in %.0f s (%.0f a second), %d of %d histories undecided; all "
      "seeds "
      "below %d are right\n",
      is_last ? "done: " : "", done, operations, seconds,
      static_cast<double>(operations) / std::max(seconds, 1e-3), undecided, histories,
      std::min(resume, flags.first_seed + flags.seeds));
}

int Run(const Flags& flags) {
  auto* const all =
      static_cast<Progress*>(mmap(nullptr, sizeof(Progress) * kJobsMax, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (all == MAP_FAILED) return std::perror("simulate: mmap"), 2;
  index::seeded_bug = static_cast<index::SeededBug>(flags.mutant);
  std::vector<pid_t> children;
  for (int i = 0; i < flags.jobs; ++i) {
    all[i].next_seed = flags.first_seed + static_cast<uint64_t>(i);
    const pid_t child = fork();
    if (child < 0) return std::perror("simulate: fork"), 2;
    if (child == 0) _exit(RunJob(flags, i, all[i]));
    children.push_back(child);
  }
  const double begun = Seconds();
  double told = begun;
  bool failed = false;
  for (size_t left = children.size(); left > 0;) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended > 0) {
      --left;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      failed = true;
      const auto job = std::find(children.begin(), children.end(), ended) - children.begin();
      if (WIFSIGNALED(status)) {
        std::cout << "CRASHED by signal " << WTERMSIG(status)
                  << "\nagain: simulate --first-seed=" << all[job].next_seed
                  << " --seeds=1 --operations=" << flags.operations << "\n";
      }
      for (const pid_t child : children) {
        if (child != ended) kill(child, SIGTERM);
      }
      continue;
    }
    if (Seconds() - told >= 10) {
      told = Seconds();
      Tell(flags, all, told - begun, false);
    }
    usleep(20'000);
  }
  Tell(flags, all, Seconds() - begun, true);
  uint64_t histories = 0;
  uint64_t undecided = 0;
  for (int i = 0; i < flags.jobs; ++i) {
    histories += all[i].histories;
    undecided += all[i].undecided;
  }
  if (undecided * 1'000'000 > histories * kUndecidedPerMillionMax + 1'000'000) {
    std::cout << "too many histories were undecided\n";
    failed = true;
  }
  return failed ? 1 : 0;
}

bool Parse(absl::string_view argument, Flags& flags) {
  const auto number = [&](absl::string_view name, auto& value) {
    absl::string_view rest = argument;
    return absl::ConsumePrefix(&rest, name) && absl::SimpleAtoi(rest, &value);
  };
  if (absl::ConsumePrefix(&argument, "--aim=")) return flags.aim = std::string(argument), true;
  return number("--first-seed=", flags.first_seed) || number("--seeds=", flags.seeds) ||
         number("--operations=", flags.operations) || number("--jobs=", flags.jobs) ||
         number("--mutant=", flags.mutant);
}

}  // namespace
}  // namespace osprey

int main(int argc, char** argv) {
  osprey::Flags flags;
  bool good = true;
  for (int i = 1; i < argc; ++i) good &= osprey::Parse(argv[i], flags);
  if (!good || flags.jobs < 1 || flags.jobs > osprey::kJobsMax || flags.operations < 1) {
    std::cerr << "usage: simulate [--first-seed=N] [--seeds=N] [--operations=N] [--jobs=N] "
                 "[--aim=NAME] [--mutant=N]\n";
    return 2;
  }
  return osprey::Run(flags);
}
