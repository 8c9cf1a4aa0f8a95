#include "tools/loadgen/runner.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tools/loadgen/driver.h"
#include "tools/loadgen/environment.h"

namespace osprey::loadgen {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(20);
// Threads report a second at most this long after its end.
constexpr int64_t kReportsNs = 200'000'000;
constexpr double kNanos = 1e9;

class Run {
 public:
  explicit Run(const RunnerOptions& options)
      : options_(options), workload_(options.workload), keys_(options.workload) {}

  absl::StatusOr<RunResult> Do() {
    for (uint64_t i = 0; i < workload_.threads; ++i) {
      absl::StatusOr<std::unique_ptr<Store>> store = options_.connect();
      if (!store.ok()) return store.status();
      stores_.push_back(*std::move(store));
      if (Interrupted()) break;
    }
    RunResult result;
    result.environment = FactsOf(stores_[0]->Describe());
    result.began = absl::Now() + options_.warm_up;
    start_ns_ = SystemClock().NowNs() + absl::ToInt64Nanoseconds(options_.warm_up);
    MakeDrivers();
    std::vector<std::thread> threads;
    for (size_t i = 0; i < drivers_.size(); ++i) threads.emplace_back([this, i] { DoThread(i); });
    Watch();
    for (std::thread& thread : threads) thread.join();
    Collect(result);
    return result;
  }

 private:
  bool Interrupted() const { return options_.interrupted != nullptr && *options_.interrupted; }

  uint64_t Operations() const {
    if (options_.phase == OperationSource::Phase::kLoad) return workload_.insert_count;
    return workload_.operations;
  }

  int64_t EndNs() const {
    if (workload_.duration == absl::ZeroDuration()) return INT64_MAX;
    return start_ns_ + absl::ToInt64Nanoseconds(workload_.duration);
  }

  void MakeDrivers() {
    const uint64_t threads = stores_.size();
    for (uint64_t i = 0; i < threads; ++i) {
      DriverOptions options;
      options.phase = options_.phase;
      options.depth = options_.depth;
      // As even as possible; a thread without a share has no work. A load's threads share its keys.
      const uint64_t share = Operations() / threads + (i < Operations() % threads ? 1 : 0);
      if (Operations() > 0 && share == 0) break;
      options.operations = options_.phase == OperationSource::Phase::kLoad ? 0 : share;
      options.start_ns = start_ns_;
      options.end_ns = EndNs();
      options.verify = workload_.verify;
      options.serial = Mix64(options_.seed) + (i << 48);
      options.seed = Mix64(options_.seed + i + 1);
      if (workload_.target > 0) {
        const auto count = static_cast<double>(threads);
        options.pacer.emplace(options_.arrivals, workload_.target / count,
                              static_cast<double>(i) / count, Mix64(~options.seed),
                              SystemClock().NowNs());
      }
      drivers_.push_back(
          std::make_unique<Driver>(options, workload_, keys_, *stores_[i], SystemClock(), state_));
    }
  }

  void DoThread(size_t i) {
    Driver& driver = *drivers_[i];
    driver.Run();
    const int64_t closing_ns = SystemClock().NowNs();
    stores_[i].reset();
    driver.measurements().cleanup.Record(absl::StatusCode::kOk,
                                         static_cast<uint64_t>(SystemClock().NowNs() - closing_ns));
    const std::lock_guard<std::mutex> lock(mutex_);
    ++ended_;
    changed_.notify_one();
  }

  // Runs until all threads have ended: prints status lines, and passes an interruption on.
  void Watch() {
    const int64_t every_ns = absl::ToInt64Nanoseconds(workload_.status_every);
    int64_t next_ns = start_ns_ + every_ns + kReportsNs;
    std::unique_lock<std::mutex> lock(mutex_);
    while (ended_ < drivers_.size()) {
      changed_.wait_for(lock, kLookEvery);
      if (Interrupted()) state_.stop = true;
      const int64_t now_ns = SystemClock().NowNs();
      if (now_ns < next_ns || !options_.status) continue;
      const int64_t second = (next_ns - kReportsNs - start_ns_) / 1'000'000'000;
      next_ns += every_ns;
      options_.status(StatusLine(static_cast<uint64_t>(second), now_ns));
    }
  }

  // The line of the second that ended at `second`.
  std::string StatusLine(uint64_t second, int64_t now_ns) const {
    uint64_t operations = 0;
    for (const auto& driver : drivers_) operations += driver->operations();
    const SeriesRow row = state_.series.Row(second - 1);
    std::string line = absl::StrFormat(
        "%d s: %d operations, %d/s, p50 %.1f us, p99 %.1f us", second, operations, row.operations,
        static_cast<double>(row.p50_ns) / 1000, static_cast<double>(row.p99_ns) / 1000);
    double left_s = -1;
    const double elapsed_s = static_cast<double>(now_ns - start_ns_) / kNanos;
    if (Operations() > 0 && operations > 0) {
      const uint64_t more = Operations() - std::min(operations, Operations());
      left_s = static_cast<double>(more) * elapsed_s / static_cast<double>(operations);
    }
    if (EndNs() != INT64_MAX) {
      const double by_time = std::max(0.0, static_cast<double>(EndNs() - now_ns) / kNanos);
      left_s = left_s < 0 ? by_time : std::min(left_s, by_time);
    }
    if (left_s >= 0)
      absl::StrAppend(&line, ", ",
                      absl::FormatDuration(absl::Seconds(static_cast<int64_t>(left_s + 0.5))),
                      " left");
    return line;
  }

  void Collect(RunResult& result) {
    result.phase = options_.phase == OperationSource::Phase::kLoad ? "load" : "run";
    int64_t end_ns = start_ns_;
    for (const auto& driver : drivers_) {
      result.measured.Add(driver->measurements());
      result.behind_ns = std::max(result.behind_ns, driver->behind_ns());
      end_ns = std::max(end_ns, driver->ended_ns());
    }
    result.seconds = static_cast<double>(end_ns - start_ns_) / kNanos;
    result.open_loop = workload_.target > 0;
    result.interrupted =
        stores_.size() < workload_.threads ||
        std::any_of(drivers_.begin(), drivers_.end(), [](const auto& d) { return d->stopped(); });
    result.percentiles = workload_.percentiles;
    result.show_service = workload_.interval != "intended" || !result.open_loop;
    result.show_intended = result.open_loop && workload_.interval != "op";
    result.series = state_.series.Rows();
  }

  const RunnerOptions& options_;
  const Workload& workload_;
  SharedKeys keys_;
  RunState state_;
  int64_t start_ns_ = 0;
  std::vector<std::unique_ptr<Store>> stores_;
  std::vector<std::unique_ptr<Driver>> drivers_;  // by thread

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t ended_ = 0;  // guarded by mutex_
};

}  // namespace

absl::StatusOr<RunResult> RunWorkload(const RunnerOptions& options) { return Run(options).Do(); }

}  // namespace osprey::loadgen
