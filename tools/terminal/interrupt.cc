#include "tools/terminal/interrupt.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "absl/time/clock.h"

namespace osprey {
namespace {

std::atomic<bool> interrupted{false};
std::atomic<bool> terminated{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler stores to it");
int catching = 0;
struct sigaction int_before, term_before;

void Note(int number) { (number == SIGTERM ? terminated : interrupted) = true; }

}  // namespace

CatchInterrupts::CatchInterrupts() {
  if (catching++ > 0) return;
  struct sigaction action = {};
  action.sa_handler = Note;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &int_before);
  sigaction(SIGTERM, &action, &term_before);
}

CatchInterrupts::~CatchInterrupts() {
  if (--catching > 0) return;
  sigaction(SIGINT, &int_before, nullptr);
  sigaction(SIGTERM, &term_before, nullptr);
}

HoldInterrupts::HoldInterrupts() {
  sigset_t both;
  sigemptyset(&both);
  sigaddset(&both, SIGINT);
  sigaddset(&both, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &both, &before_);
}

HoldInterrupts::~HoldInterrupts() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

bool Interrupted() { return interrupted || terminated; }
bool Terminated() { return terminated; }
void ForgetInterrupt() { interrupted = false; }

bool AwaitReadable(int fd) {
  // Both signals can only arrive within ppoll.
  const HoldInterrupts hold;
  pollfd waiting = {fd, POLLIN, 0};
  int ready = 0;
  while (!Interrupted() && ready <= 0) {
    ready = ppoll(&waiting, 1, nullptr, &hold.before());
    if (ready < 0 && errno != EINTR) break;  // read will return the error
  }
  return !Interrupted();
}

void SleepUnlessInterrupted(absl::Duration time) {
  // In steps, because a signal may come just before the call.
  const absl::Time end = absl::Now() + time;
  for (absl::Duration left = time; left > absl::ZeroDuration() && !Interrupted();
       left = end - absl::Now()) {
    const timespec step = absl::ToTimespec(std::min(left, absl::Milliseconds(100)));
    ppoll(nullptr, 0, &step, nullptr);
  }
}

}  // namespace osprey
