// Ctrl-C (SIGINT) and SIGTERM, for commands that must clean up: restore the terminal, delete their
// key, print how to resume.
//
//   CatchInterrupts catching;
//   while (!Interrupted()) …
//
// Thread rule: one thread.

#ifndef OSPREY_TOOLS_TERMINAL_INTERRUPT_H_
#define OSPREY_TOOLS_TERMINAL_INTERRUPT_H_

#include <signal.h>

#include "absl/time/time.h"

namespace osprey {

// While an object exists, both signals are recorded instead of ending the process, and system calls
// end with EINTR.
class CatchInterrupts {
 public:
  CatchInterrupts();
  ~CatchInterrupts();
  CatchInterrupts(const CatchInterrupts&) = delete;
  CatchInterrupts& operator=(const CatchInterrupts&) = delete;
};

// While an object exists, both signals wait. For a short write to a C++ stream or a FILE: if a signal
// ended it, the stream would count as broken.
class HoldInterrupts {
 public:
  HoldInterrupts();
  ~HoldInterrupts();
  HoldInterrupts(const HoldInterrupts&) = delete;
  HoldInterrupts& operator=(const HoldInterrupts&) = delete;

  // The signals that were blocked before.
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

// Whether a signal came since the last ForgetInterrupt.
bool Interrupted();
// Whether it was SIGTERM: then the process must end.
bool Terminated();
// For SIGINT alone.
void ForgetInterrupt();
// Waits until `fd` can be read, or is at its end. False: a signal came, possibly just before the
// call. A plain read would miss a signal that comes just before it.
bool AwaitReadable(int fd);
// Sleeps for `time`, or until a signal comes.
void SleepUnlessInterrupted(absl::Duration time);

}  // namespace osprey

#endif  // OSPREY_TOOLS_TERMINAL_INTERRUPT_H_
