// Threads in virtual time: a program's threads, as they ship, run by turns in one thread of the system. All of it
// follows from a seed.
//
//   VirtualThreads threads(seed, options);
//   VirtualHost host("a");
//   threads.Run([&] {                                     // the first virtual thread
//     const VirtualThreads::Id server = threads.Start(host, "server", [] { … });
//     absl::SleepFor(absl::Seconds(1));                   // takes no time
//     threads.Join(server);
//   });
//
// libc_calls.cc has the calls of the C library by which code waits, starts threads, or reads a clock or random
// numbers. These are those of mutexes and condition variables, poll, nanosleep, clock_gettime, getrandom and others. On
// a virtual thread they come here; on others they are the system's. So std::mutex, std::condition_variable,
// absl::SleepFor and absl::Now need nothing. A thread that pthread_create starts is of the host of its creator.
//
// A switch to another thread is possible in these calls alone. Which one goes on is drawn, of those that can. Now
// and then a thread is set aside in such a call: for a moment, or for long. Time passes with each switch, and a little
// with each look at a clock. When no thread can go on, it passes as far as the next timer.
//
// No thread-local storage: all virtual threads share that of the system's thread. Reads that block and
// timed futexes are not covered.
//
// Thread rule: one thread of the system; one object that runs at a time in a process.

#ifndef OSPREY_TESTS_SUPPORT_VIRTUAL_TIME_VIRTUAL_THREADS_H_
#define OSPREY_TESTS_SUPPORT_VIRTUAL_TIME_VIRTUAL_THREADS_H_

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/support/split_mix64.h"

namespace osprey {

// A computer: its clocks, and whether its threads run. All times are virtual nanoseconds.
class VirtualHost {
 public:
  explicit VirtualHost(std::string its_name) : name(std::move(its_name)) {}

  // By how much its clocks run too fast: all but CLOCK_BOOTTIME, and that one.
  void SetRates(int64_t now, int64_t raw_ppm, int64_t boot_time_ppm);
  int64_t RawTime(int64_t now) const { return raw_ + Scaled(now - since_, raw_ppm_); }
  int64_t BootTime(int64_t now) const { return boot_time_ + Scaled(now - since_, boot_time_ppm_); }
  // What passes meanwhile of virtual time.
  int64_t TrueDuration(int64_t raw) const { return raw - Scaled(raw, raw_ppm_) + raw; }

  const std::string name;
  int64_t time_of_day = 0;    // of its raw time 0
  int64_t stopped_until = 0;  // none of its threads runs before

 private:
  static int64_t Scaled(int64_t ns, int64_t ppm) { return ns + ns / 1000 * ppm / 1000; }

  int64_t since_ = 0, raw_ = 0, boot_time_ = 0;
  int64_t raw_ppm_ = 0, boot_time_ppm_ = 0;
};

struct VirtualThreadsOptions {
  uint64_t preempt_per_10k = 0;  // of calls: another thread may go on
  uint64_t stall_percent = 0;    // of these: the thread is set aside for up to …
  uint64_t stall_ns_max = 2'000'000;
};

class VirtualThreads {
 public:
  struct Thread;
  using Id = Thread*;
  static constexpr int64_t kNever = INT64_MAX;

  VirtualThreads(uint64_t seed, const VirtualThreadsOptions& options);
  ~VirtualThreads();
  VirtualThreads(const VirtualThreads&) = delete;
  VirtualThreads& operator=(const VirtualThreads&) = delete;

  // Runs `first` on a virtual thread of a host of its own, until it returns. REQUIRES: all others have been joined then.
  void Run(std::function<void()> first);

  // Takes what virtual threads write to stderr by fwrite, with the name of their host. Empty: nothing.
  using Output = std::function<void(absl::string_view host, absl::string_view text)>;
  void SetOutput(Output output) { output_ = std::move(output); }

  // --- On a virtual thread.
  Id Start(VirtualHost& host, std::string name, std::function<void()> run);
  void Join(Id thread);
  static bool HasEnded(Id thread);
  int64_t now() const { return now_; }
  // A time that no other call has returned.
  int64_t Tick() { return ++now_; }
  uint64_t switches() const { return switches_; }

  // --- For libc_calls.cc.
  // Of this call; nullptr: it is not on a virtual thread.
  static VirtualThreads* Running() { return running_; }
  VirtualHost& host() const;
  int64_t ReadRawTime();
  int64_t ReadBootTime();
  uint64_t Random() { return random_.Next(); }
  // Another thread may go on.
  void MayPreempt();
  void Yield();
  void SleepUntil(int64_t time);
  // Until Wake of the same address, or `time`. True: it was woken. It may be without a reason.
  bool Await(const void* address, int64_t time = kNever);
  void Wake(const void* address, bool all);
  // Until the next write to a descriptor, or `time`.
  void AwaitWrite(int64_t time) { (void)Await(&written_, time); }
  void NoteWrite() { Wake(&written_, true); }
  bool Print(absl::string_view text) {
    if (output_) output_(host().name, text);
    return static_cast<bool>(output_);
  }
  static void SetName(Id thread, std::string name);

 private:
  static void Enter();
  void Switch();
  Thread* Choose();
  Thread* ChooseReady();
  int64_t NextTime() const;
  [[noreturn]] void ReportDeadlock() const;

  static VirtualThreads* running_;

  const VirtualThreadsOptions options_;
  Output output_;
  SplitMix64 random_;
  int64_t now_ = 0;
  uint64_t switches_ = 0;
  uint64_t calls_until_preempted_;
  VirtualHost first_host_{"world"};
  std::vector<std::unique_ptr<Thread>> threads_;
  Thread* current_ = nullptr;
  ucontext_t outside_ = {};
  std::vector<std::byte*> stacks_;  // not in use
  char written_ = 0;                // its address
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SUPPORT_VIRTUAL_TIME_VIRTUAL_THREADS_H_
