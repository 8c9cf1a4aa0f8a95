#include "server/run.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/log.h"
#include "server/service_manager.h"

namespace osprey::server {

StopBell::StopBell() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
StopBell::~StopBell() { close(fd_); }

void StopBell::Ring() {
  const int saved_errno = errno;
  rung_.store(true, std::memory_order_relaxed);
  const uint64_t one = 1;
  // Fails only when it is readable already.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
  errno = saved_errno;
}

namespace {

struct Runner {
  Engine* engine = nullptr;
  PollMode mode = PollMode::kAdaptive;
  const std::function<absl::Time()>* now = nullptr;
  StopBell* bell = nullptr;
  bool first = false;
  pthread_t thread = {};
};

// Until a descriptor is readable or the engine's next timer is due.
void Sleep(Engine& engine, const Runner& runner, bool stopping) {
  if (!engine.Arm()) return;
  std::vector<pollfd> waits;
  if (!stopping) waits.push_back({runner.bell->fd(), POLLIN, 0});
  for (int fd : engine.fds()) waits.push_back({fd, POLLIN, 0});
  if (engine.next_timer() == absl::InfiniteFuture()) {
    poll(waits.data(), waits.size(), -1);
    return;
  }
  const timespec timeout =
      absl::ToTimespec(std::max(engine.next_timer() - (*runner.now)(), absl::ZeroDuration()));
  ppoll(waits.data(), waits.size(), &timeout, nullptr);
}

void RunOne(const Runner& runner) {
  Engine& engine = *runner.engine;
  absl::Time worked = (*runner.now)();
  bool stopping = false;
  while (!engine.done()) {
    const absl::Time now = (*runner.now)();
    if (!engine.failure().ok()) runner.bell->Ring();
    if (!stopping && runner.bell->rung()) {
      stopping = true;
      if (!engine.failure().ok()) {
        Log(absl::StrCat("ending: ", engine.failure().message()));
        TellServiceManager(absl::StrCat("STOPPING=1\nSTATUS=ending: ", engine.failure().message()));
      } else if (runner.first) {
        Log("ending");
        TellServiceManager("STOPPING=1\nSTATUS=ending");
      }
      engine.Stop(now);
      continue;
    }
    if (engine.Poll(now)) {
      worked = now;
      continue;
    }
    switch (runner.mode) {
      case PollMode::kBusy:
        break;
      case PollMode::kAdaptive:
        if (now - worked >= kSpin()) Sleep(engine, runner, stopping);
        break;
      case PollMode::kEvent:
        Sleep(engine, runner, stopping);
        break;
    }
  }
}

void* Run(void* runner) {
  RunOne(*static_cast<const Runner*>(runner));
  return nullptr;
}

// Signals are for the first thread.
absl::Status Start(Runner& runner, size_t number) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&runner.thread, nullptr, &Run, &runner);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start the thread of poller ", number,
                                                     ": ", std::strerror(error),
                                                     "; write a smaller --pollers"));
  }
  pthread_setname_np(runner.thread, absl::StrCat("poller-", number).c_str());
  return absl::OkStatus();
}

}  // namespace

absl::Status RunEngines(absl::Span<Engine* const> engines, PollMode mode,
                        const std::function<absl::Time()>& now, StopBell& bell) {
  assert(!engines.empty());
  std::vector<Runner> runners;
  for (Engine* const engine : engines) runners.push_back({engine, mode, &now, &bell, false, {}});
  runners[0].first = true;
  size_t started = 1;
  absl::Status status;
  for (; started < runners.size() && status.ok(); ++started) {
    status = Start(runners[started], started);
    if (!status.ok()) break;
  }
  if (!status.ok()) bell.Ring();
  RunOne(runners[0]);
  for (size_t i = 1; i < started; ++i) pthread_join(runners[i].thread, nullptr);
  for (Engine* const engine : engines) {
    if (status.ok()) status = engine->failure();
  }
  return status;
}

}  // namespace osprey::server
