// Signals are for the first thread. A new thread inherits the mask of its creator, which therefore
// holds this object during the creation.

#ifndef OSPREY_SERVER_MONITORING_SIGNALS_BLOCKED_H_
#define OSPREY_SERVER_MONITORING_SIGNALS_BLOCKED_H_

#include <pthread.h>
#include <signal.h>

namespace osprey::server {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_MONITORING_SIGNALS_BLOCKED_H_
