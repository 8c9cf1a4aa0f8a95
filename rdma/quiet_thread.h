// Threads that a library starts beside its user's.

#ifndef OSPREY_RDMA_QUIET_THREAD_H_
#define OSPREY_RDMA_QUIET_THREAD_H_

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

namespace osprey::rdma {

// Starts `run(argument)` under a name of at most 15 characters. It takes no signals: these are for
// the threads that expect them. False when the system has no thread to give.
inline bool StartQuietThread(const char* name, void* (*run)(void*), void* argument,
                             pthread_t& thread) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool started = pthread_create(&thread, nullptr, run, argument) == 0;
  if (started) pthread_setname_np(thread, name);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

// How much less CPU such a thread takes than its process's others where there is too little for
// all: a tenth (nice(1), of Linux; see sched(7)).
inline constexpr int kQuietNiceness = 10;

// The calling thread gives way, from here on, to those that answer somebody. Whatever it does it
// still does at once where there is CPU to spare. To ask for less is never refused but by a filter
// of system calls, and then things are as they were.
inline void GiveWay() {
  const id_t thread = static_cast<id_t>(gettid());
  (void)setpriority(PRIO_PROCESS, thread, getpriority(PRIO_PROCESS, thread) + kQuietNiceness);
}

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_QUIET_THREAD_H_
