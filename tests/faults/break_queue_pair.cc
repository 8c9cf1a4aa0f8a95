// Preloaded (LD_PRELOAD) into a program that uses verbs. On SIGUSR1 one of its queue pairs, chosen
// at random, goes into the error state, as after a device error.

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace {

struct QueuePairs {
  std::mutex mutex;
  std::vector<ibv_qp*> alive;  // under the mutex
};

// Never destroyed: the program may use verbs until its very end.
QueuePairs& All() {
  static QueuePairs* const all = new QueuePairs;
  return *all;
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void BreakOne() {
  const std::lock_guard<std::mutex> lock(All().mutex);
  if (All().alive.empty()) return;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  ibv_qp* const chosen = All().alive[static_cast<size_t>(random()) % All().alive.size()];
  (void)ibv_modify_qp(chosen, &attributes, IBV_QP_STATE);
}

void* Serve(void* signals) {
  for (int number = 0; sigwait(static_cast<sigset_t*>(signals), &number) == 0;) BreakOne();
  return nullptr;
}

// Runs before the program has threads, which all inherit the blocked signal.
__attribute__((constructor)) void Start() {
  static sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  srandom(static_cast<unsigned>(now.tv_nsec));
  pthread_t thread;
  if (pthread_create(&thread, nullptr, &Serve, &signals) == 0) pthread_detach(thread);
}

}  // namespace

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  static auto* const next = Next<ibv_qp*(ibv_pd*, ibv_qp_init_attr*)>("ibv_create_qp");
  ibv_qp* const made = next(domain, attributes);
  if (made != nullptr) {
    const std::lock_guard<std::mutex> lock(All().mutex);
    All().alive.push_back(made);
  }
  return made;
}

int ibv_destroy_qp(ibv_qp* gone) {
  static auto* const next = Next<int(ibv_qp*)>("ibv_destroy_qp");
  {
    const std::lock_guard<std::mutex> lock(All().mutex);
    All().alive.erase(std::remove(All().alive.begin(), All().alive.end(), gone), All().alive.end());
  }
  return next(gone);
}

}  // extern "C"
