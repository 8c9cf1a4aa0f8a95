// Runs many seeds of tests/simulation/simulation.h, in several processes, and reports the progress:
//
//   simulate --first-seed=1 --seeds=100000 --operations=5000 --jobs=2
//
// Prints the progress on stderr every ten seconds, later every minute, with the seed up to which
// all were right. An interrupted run continues from there. At the end it prints what happened, and
// fails if too few events occurred to prove anything. At the first failure or crash it prints the
// error and the command that repeats it, and exits with 1.
//   --aim=NAME   only seeds of that aim (plan.h)
//   --durable=1  the server has a data directory
//   --mutant=N   with the N-th mistake of index/layout/test_hooks.h: to find seeds that show it

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "index/layout/test_hooks.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/simulation.h"

namespace osprey {
namespace {

constexpr int kJobsMax = 64;
constexpr uint64_t kSeedsToShowAll = 300;
constexpr double kTellFirstS = 10;
constexpr double kTellS = 60;

struct Flags {
  uint64_t first_seed = 1;
  uint64_t seeds = 1000;
  int operations = 5000;
  int jobs = 1;
  int mutant = 0;
  int durable = 0;
  uint64_t crash_at = 0;  // for the test of the crash report
  std::string aim;
};

// The state of a process, in shared memory.
struct Progress {
  std::atomic<uint64_t> next_seed;  // all its seeds before this are done
  std::atomic<uint64_t> done;
  std::atomic<uint64_t> operations;
  std::atomic<bool> told;   // it has printed the error
  SimulationCounts counts;  // read after its end
};

double Seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::string Again(const Flags& flags, uint64_t seed) {
  return absl::StrCat("again: bazel run //tests/simulation:simulate -- --first-seed=", seed,
                      " --seeds=1 --operations=", flags.operations,
                      flags.durable == 0 ? "" : " --durable=1",
                      flags.mutant == 0 ? "" : absl::StrCat(" --mutant=", flags.mutant), "\n");
}

// The seeds that leave `job` when divided by the number of jobs.
int RunJob(const Flags& flags, int job, Progress& progress) {
  const auto jobs = static_cast<uint64_t>(flags.jobs);
  const uint64_t end = flags.first_seed + flags.seeds;
  for (uint64_t seed = flags.first_seed + static_cast<uint64_t>(job); seed < end; seed += jobs) {
    if (flags.aim.empty() || flags.aim == NameOf(AimOf(seed))) {
      if (seed == flags.crash_at) abort();
      const SimulationReport report = Simulate({seed, flags.operations, flags.durable != 0});
      progress.counts.Add(report);
      progress.operations += report.operations;
      ++progress.done;
      if (!report.wrong.empty()) {
        std::cout << absl::StrCat("WRONG: ", report.wrong, "\n", Again(flags, seed)) << std::flush;
        progress.told = true;
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

uint64_t SeedToResume(const Flags& flags, const Progress* all) {
  uint64_t resume = flags.first_seed + flags.seeds;
  for (int i = 0; i < flags.jobs; ++i) resume = std::min(resume, all[i].next_seed.load());
  return resume;
}

void TellProgress(const Flags& flags, const Progress* all, double seconds) {
  uint64_t done = 0;
  uint64_t operations = 0;
  for (int i = 0; i < flags.jobs; ++i) {
    done += all[i].done;
    operations += all[i].operations;
  }
  const uint64_t resume = SeedToResume(flags, all);
  const uint64_t left = flags.first_seed + flags.seeds - resume;
  std::cerr << absl::StrFormat(
      "%d seeds, %d operations in %.0f s (%.0f a second); all seeds below %d are right%s\n", done,
      operations, seconds, static_cast<double>(operations) / std::max(seconds, 1e-3), resume,
      left == 0 ? "" : absl::StrCat(": go on with --first-seed=", resume, " --seeds=", left));
}

// Whether all processes succeeded. If one did not, the others are ended.
bool WaitForAll(const Flags& flags, std::vector<pid_t> children, Progress* all) {
  const double begun = Seconds();
  double tell_at = begun + kTellFirstS;
  bool failed = false;
  for (size_t left = children.size(); left > 0;) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended <= 0) {
      if (Seconds() >= tell_at) {
        TellProgress(flags, all, Seconds() - begun);
        tell_at += Seconds() - begun < 10 * kTellFirstS ? kTellFirstS : kTellS;
      }
      usleep(20'000);
      continue;
    }
    --left;
    const auto job = std::find(children.begin(), children.end(), ended) - children.begin();
    children[static_cast<size_t>(job)] = 0;
    if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || failed) continue;
    failed = true;
    // A sanitizer ends the process with a status.
    if (!all[job].told) {
      std::cout << "CRASHED, by "
                << (WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                                        : absl::StrCat("status ", WEXITSTATUS(status)))
                << "\n"
                << Again(flags, all[job].next_seed) << std::flush;
    }
    for (const pid_t child : children) {
      if (child != 0) kill(child, SIGTERM);
    }
  }
  TellProgress(flags, all, Seconds() - begun);
  return !failed;
}

int Run(const Flags& flags) {
  auto* const all =
      static_cast<Progress*>(mmap(nullptr, sizeof(Progress) * kJobsMax, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (all == MAP_FAILED) return std::perror("simulate: mmap"), 2;
  index::active_mutant = static_cast<index::Mutant>(flags.mutant);
  std::vector<pid_t> children;
  for (int i = 0; i < flags.jobs; ++i) {
    all[i].next_seed = flags.first_seed + static_cast<uint64_t>(i);
    const pid_t child = fork();
    if (child < 0) return std::perror("simulate: fork"), 2;
    if (child == 0) _exit(RunJob(flags, i, all[i]));
    children.push_back(child);
  }
  const bool all_right = WaitForAll(flags, children, all);
  SimulationCounts counts;
  uint64_t done = 0;
  for (int i = 0; i < flags.jobs; ++i) {
    counts.Add(all[i].counts);
    done += all[i].done;
  }
  if (!all_right) return 1;
  if (flags.seeds > 1) std::cout << done << " seeds: " << counts.ToString() << "\n";
  // Fewer seeds, or those of one aim, do not cover everything.
  const std::string nothing_shown =
      done >= kSeedsToShowAll && flags.aim.empty() ? counts.Void(done, flags.durable != 0) : "";
  if (!nothing_shown.empty()) std::cout << "VOID: " << nothing_shown << "\n";
  return nothing_shown.empty() ? 0 : 1;
}

bool Parse(absl::string_view argument, Flags& flags) {
  const auto number = [&](absl::string_view name, auto& value) {
    absl::string_view rest = argument;
    return absl::ConsumePrefix(&rest, name) && absl::SimpleAtoi(rest, &value);
  };
  if (absl::ConsumePrefix(&argument, "--aim=")) return flags.aim = std::string(argument), true;
  return number("--first-seed=", flags.first_seed) || number("--seeds=", flags.seeds) ||
         number("--operations=", flags.operations) || number("--jobs=", flags.jobs) ||
         number("--mutant=", flags.mutant) || number("--durable=", flags.durable) ||
         number("--crash-at=", flags.crash_at);
}

}  // namespace
}  // namespace osprey

int main(int argc, char** argv) {
  osprey::Flags flags;
  bool good = true;
  for (int i = 1; i < argc; ++i) good &= osprey::Parse(argv[i], flags);
  if (!good || flags.jobs < 1 || flags.jobs > osprey::kJobsMax || flags.operations < 1) {
    std::cerr << "usage: simulate [--first-seed=N] [--seeds=N] [--operations=N] [--jobs=N] "
                 "[--aim=NAME] [--durable=1] [--mutant=N]\n";
    return 2;
  }
  return osprey::Run(flags);
}
