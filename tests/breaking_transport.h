// A transport that breaks its connection at a step of the test's choice, around a real one.
//
// A step is a Send, an Attach, a chain of READs that is posted, a frame that comes or a chain that
// ends. One Breaker counts the steps of both sides of a connection; the connection that takes step
// `break_at` is broken just before it (what it would have brought is lost) or just after it (the
// other side may get it, or not).
//
// Thread rule: one thread for all transports of a Breaker.

#ifndef OSPREY_TESTS_BREAKING_TRANSPORT_H_
#define OSPREY_TESTS_BREAKING_TRANSPORT_H_

#include <functional>
#include <memory>
#include <string>

#include "rdma/transport.h"

namespace osprey {

struct Breaker {
  enum class When { kBefore, kAfter };
  When when = When::kBefore;
  int break_at = 0;  // 0: never
  int steps = 0;     // so far
  bool broke = false;
  // How many steps after a break the next one comes; empty: never.
  std::function<int()> again;
};

// `breaker` must outlive it.
std::unique_ptr<rdma::Transport> NewBreakingTransport(std::unique_ptr<rdma::Transport> inner,
                                                      Breaker& breaker);

}  // namespace osprey

#endif  // OSPREY_TESTS_BREAKING_TRANSPORT_H_
