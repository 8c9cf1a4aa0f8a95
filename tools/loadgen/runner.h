// A whole run: a store and a driver for each thread, a status line a second, and their sum.

#ifndef OSPREY_TOOLS_LOADGEN_RUNNER_H_
#define OSPREY_TOOLS_LOADGEN_RUNNER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/loadgen/result.h"
#include "tools/loadgen/store.h"
#include "tools/loadgen/workload/operations.h"
#include "tools/loadgen/workload/pacing.h"
#include "tools/loadgen/workload/workload.h"

namespace osprey::loadgen {

struct RunnerOptions {
  OperationSource::Phase phase = OperationSource::Phase::kRun;
  Workload workload;
  uint32_t depth = 1;  // operations in flight in each thread
  Arrivals arrivals = Arrivals::kPoisson;
  absl::Duration warm_up = absl::ZeroDuration();
  uint64_t seed = 0;
  // Makes the store of one thread; called by the thread that calls RunWorkload.
  std::function<absl::StatusOr<std::unique_ptr<Store>>()> connect;
  // Takes a line about each interval, in the thread that calls RunWorkload; no lines if empty.
  std::function<void(const std::string&)> status;
  // Set from outside, such as by a signal: the run ends early. Must outlive the call.
  const std::atomic<bool>* interrupted = nullptr;
};

// Runs, and blocks until it has ended. The caller fills environment, notes and settings, except the
// store's own description. Errors: those of `connect`; then nothing ran.
absl::StatusOr<RunResult> RunWorkload(const RunnerOptions& options);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_RUNNER_H_
