// Calls of the C library that wait, start threads, or read clocks and random numbers. On a virtual thread
// VirtualThreads carries them out; else the system does.
//
// A mutex that a virtual thread holds has a word of its own set, as the system's would be: nothing else is kept of it.

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/time/time.h"
#include "tests/support/virtual_time/virtual_threads.h"

namespace osprey {
namespace {

template <typename Function>
Function* System(const char* name, const char* version = nullptr) {
  void* const found =
      version == nullptr ? dlsym(RTLD_NEXT, name) : dlvsym(RTLD_NEXT, name, version);
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function*>(found);
}
// (Without a version, dlsym finds the oldest condition variables of all.)
constexpr char kConditionVersion[] = "GLIBC_2.3.2";

constexpr int64_t kSecond = 1'000'000'000;

int64_t NsOf(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

// The virtual time at which a clock of this host shows `time`.
int64_t VirtualTimeOf(VirtualThreads& threads, clockid_t clock, const timespec& time) {
  const VirtualHost& host = threads.host();
  int64_t shows = host.RawTime(threads.now());
  if (clock == CLOCK_REALTIME) shows += host.time_of_day;
  return threads.now() + std::max<int64_t>(host.TrueDuration(NsOf(time) - shows), 0);
}

bool TryLock(pthread_mutex_t& mutex) {
  int& word = mutex.__data.__lock;
  if (word != 0) return false;
  word = 1;
  return true;
}

void Lock(VirtualThreads& threads, pthread_mutex_t& mutex) {
  while (!TryLock(mutex)) (void)threads.Await(&mutex);
}

void Unlock(VirtualThreads& threads, pthread_mutex_t& mutex) {
  mutex.__data.__lock = 0;
  threads.Wake(&mutex, true);
}

int AwaitCondition(VirtualThreads& threads, const void* condition, pthread_mutex_t& mutex,
                   int64_t until) {
  Unlock(threads, mutex);
  const bool is_woken = threads.Await(condition, until);
  Lock(threads, mutex);
  return is_woken ? 0 : ETIMEDOUT;
}

int SystemPoll(pollfd* fds, nfds_t count) {
  static auto* const system =
      System<int(pollfd*, nfds_t, const timespec*, const sigset_t*)>("ppoll");
  const timespec none = {};
  return system(fds, count, &none, nullptr);
}

// `timeout` of raw time; negative: none.
int Poll(VirtualThreads& threads, pollfd* fds, nfds_t count, int64_t timeout) {
  threads.MayPreempt();
  const int64_t until = timeout < 0 || timeout > kSecond * 1'000'000
                            ? VirtualThreads::kNever
                            : threads.now() + threads.host().TrueDuration(timeout);
  for (;;) {
    const int ready = SystemPoll(fds, count);
    if (ready != 0 || threads.now() >= until) return ready;
    threads.AwaitWrite(until);
  }
}

long Futex(VirtualThreads& threads, const long (&arguments)[6]) {
  const auto* const word = reinterpret_cast<const volatile int*>(arguments[0]);
  switch (arguments[1] & FUTEX_CMD_MASK) {
    case FUTEX_WAKE:
      threads.Wake(const_cast<const int*>(word), /*all=*/true);
      return 1;
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
      // (A timeout is not among what is covered.)
      if (arguments[3] != 0) std::abort();
      if (*word == static_cast<int>(arguments[2]))
        (void)threads.Await(const_cast<const int*>(word));
      return 0;
    default:
      std::abort();
  }
}

void Sleep(VirtualThreads& threads, const timespec& time) {
  threads.SleepUntil(threads.now() + threads.host().TrueDuration(NsOf(time)));
}

}  // namespace
}  // namespace osprey

using osprey::VirtualThreads;

extern "C" {

// --- Threads.

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  VirtualThreads* const threads = VirtualThreads::Running();
  if (threads == nullptr) {
    static auto* const system =
        osprey::System<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>(
            "pthread_create");
    return system(thread, attributes, run, argument);
  }
  *thread = reinterpret_cast<pthread_t>(
      threads->Start(threads->host(), "thread", [run, argument] { (void)run(argument); }));
  return 0;
}

int pthread_join(pthread_t thread, void** result) {
  VirtualThreads* const threads = VirtualThreads::Running();
  if (threads == nullptr) {
    static auto* const system = osprey::System<int(pthread_t, void**)>("pthread_join");
    return system(thread, result);
  }
  threads->Join(reinterpret_cast<VirtualThreads::Id>(thread));
  return 0;
}

int pthread_setname_np(pthread_t thread, const char* name) noexcept {
  if (VirtualThreads* const threads = VirtualThreads::Running(); threads != nullptr) {
    threads->SetName(reinterpret_cast<VirtualThreads::Id>(thread), name);
    return 0;
  }
  static auto* const system = osprey::System<int(pthread_t, const char*)>("pthread_setname_np");
  return system(thread, name);
}

int sched_yield() noexcept {
  if (VirtualThreads* const threads = VirtualThreads::Running(); threads != nullptr) {
    threads->Yield();
    return 0;
  }
  static auto* const system = osprey::System<int()>("sched_yield");
  return system();
}

int setpriority(__priority_which_t which, id_t who, int priority) noexcept {
  if (VirtualThreads::Running() != nullptr) return 0;
  static auto* const system = osprey::System<int(__priority_which_t, id_t, int)>("setpriority");
  return system(which, who, priority);
}

// --- Mutexes and condition variables.

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  VirtualThreads* const threads = VirtualThreads::Running();
  if (threads == nullptr) {
    static auto* const system = osprey::System<int(pthread_mutex_t*)>("pthread_mutex_lock");
    return system(mutex);
  }
  threads->MayPreempt();
  osprey::Lock(*threads, *mutex);
  return 0;
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  VirtualThreads* const threads = VirtualThreads::Running();
  if (threads == nullptr) {
    static auto* const system = osprey::System<int(pthread_mutex_t*)>("pthread_mutex_trylock");
    return system(mutex);
  }
  threads->MayPreempt();
  return osprey::TryLock(*mutex) ? 0 : EBUSY;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  VirtualThreads* const threads = VirtualThreads::Running();
  if (threads == nullptr) {
    static auto* const system = osprey::System<int(pthread_mutex_t*)>("pthread_mutex_unlock");
    return system(mutex);
  }
  osprey::Unlock(*threads, *mutex);
  return 0;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  VirtualThreads* const threads = VirtualThreads::Running();
  if (threads == nullptr) {
    static auto* const system = osprey::System<int(pthread_cond_t*, pthread_mutex_t*)>(
        "pthread_cond_wait", osprey::kConditionVersion);
    return system(condition, mutex);
  }
  osprey::AwaitCondition(*threads, condition, *mutex, VirtualThreads::kNever);
  return 0;
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  VirtualThreads* const threads = VirtualThreads::Running();
  if (threads == nullptr) {
    static auto* const system =
        osprey::System<int(pthread_cond_t*, pthread_mutex_t*, const timespec*)>(
            "pthread_cond_timedwait", osprey::kConditionVersion);
    return system(condition, mutex, until);
  }
  return osprey::AwaitCondition(*threads, condition, *mutex,
                                osprey::VirtualTimeOf(*threads, CLOCK_REALTIME, *until));
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  VirtualThreads* const threads = VirtualThreads::Running();
  if (threads == nullptr) {
    static auto* const system =
        osprey::System<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>(
            "pthread_cond_clockwait");
    return system(condition, mutex, clock, until);
  }
  return osprey::AwaitCondition(*threads, condition, *mutex,
                                osprey::VirtualTimeOf(*threads, clock, *until));
}

int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  if (VirtualThreads* const threads = VirtualThreads::Running(); threads != nullptr) {
    threads->Wake(condition, /*all=*/false);
    return 0;
  }
  static auto* const system =
      osprey::System<int(pthread_cond_t*)>("pthread_cond_signal", osprey::kConditionVersion);
  return system(condition);
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  if (VirtualThreads* const threads = VirtualThreads::Running(); threads != nullptr) {
    threads->Wake(condition, /*all=*/true);
    return 0;
  }
  static auto* const system =
      osprey::System<int(pthread_cond_t*)>("pthread_cond_broadcast", osprey::kConditionVersion);
  return system(condition);
}

// --- Descriptors. A write to any may make another one readable.

ssize_t write(int fd, const void* bytes, size_t count) {
  static auto* const system = osprey::System<ssize_t(int, const void*, size_t)>("write");
  const ssize_t written = system(fd, bytes, count);
  if (VirtualThreads* const threads = VirtualThreads::Running(); threads != nullptr)
    threads->NoteWrite();
  return written;
}

int poll(pollfd* fds, nfds_t count, int timeout_ms) {
  VirtualThreads* const threads = VirtualThreads::Running();
  if (threads == nullptr) {
    static auto* const system = osprey::System<int(pollfd*, nfds_t, int)>("poll");
    return system(fds, count, timeout_ms);
  }
  return osprey::Poll(*threads, fds, count, timeout_ms < 0 ? -1 : int64_t{1'000'000} * timeout_ms);
}

int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* signals) {
  VirtualThreads* const threads = VirtualThreads::Running();
  if (threads == nullptr) {
    static auto* const system =
        osprey::System<int(pollfd*, nfds_t, const timespec*, const sigset_t*)>("ppoll");
    return system(fds, count, timeout, signals);
  }
  return osprey::Poll(*threads, fds, count, timeout == nullptr ? -1 : osprey::NsOf(*timeout));
}

// What poll and ppoll are with _FORTIFY_SOURCE.
int __poll_chk(pollfd* fds, nfds_t count, int timeout_ms, size_t) {
  return poll(fds, count, timeout_ms);
}
int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* signals,
                size_t) {
  return ppoll(fds, count, timeout, signals);
}

size_t fwrite(const void* bytes, size_t size, size_t count, FILE* file) {
  VirtualThreads* const threads = VirtualThreads::Running();
  if (threads != nullptr && file == stderr &&
      threads->Print({static_cast<const char*>(bytes), size * count}))
    return count;
  static auto* const system = osprey::System<size_t(const void*, size_t, size_t, FILE*)>("fwrite");
  return system(bytes, size, count, file);
}

// --- Clocks and random numbers.

int nanosleep(const timespec* time, timespec* left) {
  if (VirtualThreads* const threads = VirtualThreads::Running(); threads != nullptr) {
    osprey::Sleep(*threads, *time);
    return 0;
  }
  static auto* const system = osprey::System<int(const timespec*, timespec*)>("nanosleep");
  return system(time, left);
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  VirtualThreads* const threads = VirtualThreads::Running();
  if (threads == nullptr) {
    static auto* const system = osprey::System<int(clockid_t, timespec*)>("clock_gettime");
    return system(clock, time);
  }
  int64_t ns = clock == CLOCK_BOOTTIME ? threads->ReadBootTime() : threads->ReadRawTime();
  if (clock == CLOCK_REALTIME) ns += threads->host().time_of_day;
  *time = {ns / osprey::kSecond, ns % osprey::kSecond};
  return 0;
}

ssize_t getrandom(void* bytes, size_t count, unsigned flags) {
  VirtualThreads* const threads = VirtualThreads::Running();
  if (threads == nullptr) {
    static auto* const system = osprey::System<ssize_t(void*, size_t, unsigned)>("getrandom");
    return system(bytes, count, flags);
  }
  for (size_t done = 0; done < count;) {
    const uint64_t word = threads->Random();
    const size_t length = std::min(count - done, sizeof(word));
    std::memcpy(static_cast<char*>(bytes) + done, &word, length);
    done += length;
  }
  return static_cast<ssize_t>(count);
}

// std::atomic::wait, and locks of absl.
long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  VirtualThreads* const threads = VirtualThreads::Running();
  if (threads != nullptr && number == SYS_futex) return osprey::Futex(*threads, arguments);
  static auto* const system =
      osprey::System<long(long, long, long, long, long, long, long)>("syscall");
  return system(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                arguments[5]);
}

// absl::Now interpolates between readings of the clock by the TSC, which is real. BUILD has the linker's --wrap, by the
// names of Debian's abseil.
int64_t __real__ZN4absl7debian319GetCurrentTimeNanosEv();
int64_t __wrap__ZN4absl7debian319GetCurrentTimeNanosEv() {
  if (VirtualThreads::Running() == nullptr) return __real__ZN4absl7debian319GetCurrentTimeNanosEv();
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return osprey::NsOf(time);
}

}  // extern "C"

namespace osprey {
absl::Time SystemNow() asm("__real__ZN4absl7debian33NowEv");
absl::Time VirtualNow() asm("__wrap__ZN4absl7debian33NowEv");
absl::Time VirtualNow() {
  if (VirtualThreads::Running() == nullptr) return SystemNow();
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return absl::TimeFromTimespec(time);
}
}  // namespace osprey
