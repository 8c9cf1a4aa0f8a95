// Background threads that a library starts beside its user's.

#ifndef OSPREY_RDMA_BACKGROUND_THREAD_H_
#define OSPREY_RDMA_BACKGROUND_THREAD_H_

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

namespace osprey::rdma {

// Starts `run(argument)` under a name of at most 15 characters, on a stack of `stack_bytes` (0: the
// system's default). The thread blocks all signals, which belong to the threads that expect them.
// False when the system has no thread to give.
inline bool StartBackgroundThreadOnStack(size_t stack_bytes, const char* name, void* (*run)(void*),
                                         void* argument, pthread_t& thread) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  if (stack_bytes > 0) (void)pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool started = pthread_create(&thread, &attributes, run, argument) == 0;
  (void)pthread_attr_destroy(&attributes);
  if (started) pthread_setname_np(thread, name);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

// The same on a stack of the default size.
inline bool StartBackgroundThread(const char* name, void* (*run)(void*), void* argument,
                                  pthread_t& thread) {
  return StartBackgroundThreadOnStack(0, name, run, argument, thread);
}

// The nice value of such a thread. When CPUs are scarce it gets a tenth of the CPU of its process's
// other threads (nice(1), of Linux; see sched(7)).
inline constexpr int kQuietNiceness = 10;

// Lowers the calling thread's priority, so that threads which answer clients run first. With a
// spare CPU the thread runs at once all the same. Only a filter of system calls can refuse this,
// and then the priority stays.
inline void LowerPriority() {
  const id_t thread = static_cast<id_t>(gettid());
  (void)setpriority(PRIO_PROCESS, thread, getpriority(PRIO_PROCESS, thread) + kQuietNiceness);
}

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_BACKGROUND_THREAD_H_
