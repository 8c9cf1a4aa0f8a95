#include "tests/simulation/simulation.h"

#include "absl/strings/str_cat.h"
#include "tests/simulation/histories.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/workload.h"
#include "tests/simulation/world.h"
#include "tests/support/split_mix64.h"

namespace osprey {
namespace {

// Steps until all operations are answered, or an error is found. False: neither.
bool RunToTheEnd(World& world, const Workload& workload, int64_t steps_max) {
  for (int64_t step = 0; step < steps_max; ++step) {
    if (workload.all_answered() || !workload.wrong().empty() || !world.wrong().empty()) return true;
    world.Step();
  }
  return false;
}

}  // namespace

SimulationReport Simulate(const SimulationOptions& options) {
  SimulationReport report;
  SplitMix64 rng(options.seed);
  const Aim aim = AimOf(options.seed);
  Plan plan = MakePlan(aim, rng);
  if (options.durable) MakeDurable(plan, rng);
  report.aim = NameOf(aim);
  // In one run of four all keys are deleted at the end, and then nothing may be left.
  const bool cleans = rng.Chance(25);
  World world(plan, rng, report);
  Workload workload(world, options.operations, report);
  world.Populate(workload);
  // Time advances by some microseconds a step: this bounds it to minutes. A server with a disk has
  // many short lives, between which clients wait.
  const int64_t share = options.durable ? 4 : 1;
  bool ended = RunToTheEnd(world, workload, share * (40000 + int64_t{8000} * options.operations));
  if (ended && cleans) {
    world.CalmDown();
    workload.BeginCleaning();
    ended = RunToTheEnd(world, workload, share * 2'000'000);
  }
  report.wrong = world.wrong().empty() ? workload.wrong() : world.wrong();
  if (report.wrong.empty() && !ended)
    report.wrong = absl::StrCat(workload.in_flight(), " operations are never answered");
  if (report.wrong.empty()) {
    const HistoriesVerdict verdict = Judge(workload.histories());
    report.wrong = verdict.wrong;
    report.undecided = verdict.undecided;
    report.histories = workload.histories().keys.size();
  }
  const bool all_right = report.wrong.empty();
  const std::string left_over = world.End(cleans && workload.cleaned());
  if (all_right) report.wrong = left_over.empty() ? workload.wrong() : left_over;
  report.trace_hash = workload.trace_hash();
  if (!report.wrong.empty())
    absl::StrAppend(&report.wrong, "\nseed ", options.seed, ", ", options.operations,
                    " operations, aim ", report.aim);
  return report;
}

}  // namespace osprey
