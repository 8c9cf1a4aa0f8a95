// Wraps a real transport and breaks its connection at a step that the test chooses.
//
// A step is a Send, an Attach, a chain of READs posted, a frame received or a chain completed. One
// Breaker counts the steps of both sides of a connection. The connection breaks just before step
// `break_at`, and the step's effect is lost. Or it breaks just after it, and the other side may
// receive the effect.
//
// Thread rule: one thread for all transports of a Breaker.

#ifndef OSPREY_TESTS_SUPPORT_TRANSPORTS_BREAKING_TRANSPORT_H_
#define OSPREY_TESTS_SUPPORT_TRANSPORTS_BREAKING_TRANSPORT_H_

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
  // The number of steps from a break to the next one; empty: none.
  std::function<int()> again;
};

// `breaker` must outlive it.
std::unique_ptr<rdma::Transport> NewBreakingTransport(std::unique_ptr<rdma::Transport> inner,
                                                      Breaker& breaker);

}  // namespace osprey

#endif  // OSPREY_TESTS_SUPPORT_TRANSPORTS_BREAKING_TRANSPORT_H_
