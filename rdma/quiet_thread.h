// Threads that a library starts beside its user's.

#ifndef OSPREY_RDMA_QUIET_THREAD_H_
#define OSPREY_RDMA_QUIET_THREAD_H_

#include <pthread.h>
#include <signal.h>

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

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_QUIET_THREAD_H_
