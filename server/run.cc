#include "server/run.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/monitoring/signals_blocked.h"

namespace osprey::server {

StopBell::StopBell() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
StopBell::~StopBell() { close(fd_); }

void StopBell::Ring() {
  const int saved_errno = errno;
  rung_.store(true, std::memory_order_relaxed);
  const uint64_t one = 1;
  // Fails only if the descriptor is readable already.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
  errno = saved_errno;
}

namespace {

struct Runner {
  Engine* engine = nullptr;
  PollerHeartbeat* heartbeat = nullptr;
  PollMode mode = PollMode::kAdaptive;
  const std::function<absl::Time()>* now = nullptr;
  const std::function<void(const absl::Status&)>* ending = nullptr;
  StopBell* bell = nullptr;
  bool first = false;
  pthread_t thread = {};
};

// Sleeps until a descriptor is readable or the engine's next timer is due.
void Sleep(Engine& engine, const Runner& runner, bool stopping) {
  if (!engine.Arm()) return;
  std::vector<pollfd> waits;
  if (!stopping) waits.push_back({runner.bell->fd(), POLLIN, 0});
  for (int fd : engine.fds()) waits.push_back({fd, POLLIN, 0});
  if (engine.next_timer() == absl::InfiniteFuture()) {
    runner.heartbeat->Sleeps(absl::InfiniteFuture());
    poll(waits.data(), waits.size(), -1);
    return;
  }
  const absl::Time now = (*runner.now)();
  const absl::Time until = SleepEnd(engine.next_timer(), now);
  runner.heartbeat->Sleeps(until);
  const timespec timeout = absl::ToTimespec(until - now);
  ppoll(waits.data(), waits.size(), &timeout, nullptr);
}

// A poller that has found nothing for so long lets another thread run, if one waits for the
// processor: perhaps the client whose request it waits for. Then it goes on for so long again.
constexpr absl::Duration kGiveWayAfter = absl::Microseconds(10);

void RunOne(const Runner& runner) {
  Engine& engine = *runner.engine;
  bool stopping = false;
  bool busy = false;
  absl::Time gives_way_at = absl::InfinitePast();
  while (!engine.done()) {
    const absl::Time now = (*runner.now)();
    runner.heartbeat->Turns(now, busy);
    if (!engine.failure().ok()) runner.bell->Ring();
    if (!stopping && runner.bell->rung()) {
      stopping = true;
      if (!engine.failure().ok() || runner.first) (*runner.ending)(engine.failure());
      engine.Stop(now);
      continue;
    }
    busy = engine.Poll(now);
    if (busy) {
      gives_way_at = now + kGiveWayAfter;
      continue;
    }
    const bool sleeps = runner.mode == PollMode::kEvent || (runner.mode == PollMode::kAdaptive &&
                                                            runner.heartbeat->Idle(now) >= kSpin());
    if (sleeps) {
      Sleep(engine, runner, stopping);
    } else if (now >= gives_way_at) {
      sched_yield();
      gives_way_at = now + kGiveWayAfter;
    }
  }
  runner.heartbeat->Sleeps(absl::InfiniteFuture());
}

void* Run(void* runner) {
  RunOne(*static_cast<const Runner*>(runner));
  return nullptr;
}

absl::Status Start(Runner& runner, size_t number) {
  const int error = [&runner] {
    const SignalsBlocked blocked;
    return pthread_create(&runner.thread, nullptr, &Run, &runner);
  }();
  if (error != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start the thread of poller ", number,
                                                     ": ", std::strerror(error),
                                                     "; write a smaller --pollers"));
  }
  pthread_setname_np(runner.thread, absl::StrCat("poller-", number).c_str());
  return absl::OkStatus();
}

}  // namespace

absl::Status RunEngines(absl::Span<Engine* const> engines, absl::Span<PollerHeartbeat> heartbeats,
                        PollMode mode, const std::function<absl::Time()>& now,
                        const std::function<void()>& started,
                        const std::function<void(const absl::Status&)>& ending, StopBell& bell) {
  assert(!engines.empty() && engines.size() == heartbeats.size());
  std::vector<Runner> runners;
  for (size_t i = 0; i < engines.size(); ++i)
    runners.push_back({engines[i], &heartbeats[i], mode, &now, &ending, &bell, false, {}});
  size_t threads = 1;
  absl::Status status;
  for (; threads < runners.size() && status.ok(); ++threads) {
    status = Start(runners[threads], threads);
    if (!status.ok()) break;
  }
  runners[0].first = status.ok();
  if (status.ok()) started();
  if (!status.ok()) bell.Ring();
  RunOne(runners[0]);
  for (size_t i = 1; i < threads; ++i) pthread_join(runners[i].thread, nullptr);
  for (Engine* const engine : engines) {
    if (status.ok()) status = engine->failure();
  }
  return status;
}

}  // namespace osprey::server
