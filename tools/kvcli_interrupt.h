// Ctrl-C (SIGINT) and SIGTERM, for what must end in order: put the terminal right, delete its key,
// say how to go on.
//
//   CatchInterrupts catching;
//   while (!Interrupted()) …
//
// Thread rule: one thread.

#ifndef OSPREY_TOOLS_KVCLI_INTERRUPT_H_
#define OSPREY_TOOLS_KVCLI_INTERRUPT_H_

#include "absl/time/time.h"

namespace osprey {

// While one is alive, both signals are noted instead of ending the process, and system calls end
// with EINTR.
class CatchInterrupts {
 public:
  CatchInterrupts();
  ~CatchInterrupts();
  CatchInterrupts(const CatchInterrupts&) = delete;
  CatchInterrupts& operator=(const CatchInterrupts&) = delete;
};

// Whether one of them came since the last ForgetInterrupt.
bool Interrupted();
// Whether it was SIGTERM: then the process is to end.
bool Terminated();
// Of SIGINT alone.
void ForgetInterrupt();
// Waits until `fd` can be read, or is at its end; false: it was interrupted, be it just before. Not
// for a call of read, which misses a signal that comes a moment too early.
bool AwaitReadable(int fd);
// Sleeps for `time`, or until a signal comes.
void SleepUnlessInterrupted(absl::Duration time);

}  // namespace osprey

#endif  // OSPREY_TOOLS_KVCLI_INTERRUPT_H_
