#ifndef OSPREY_RDMA_SELFTEST_DEADLINE_H_
#define OSPREY_RDMA_SELFTEST_DEADLINE_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace osprey::rdma::selftest {

// The timeout of a poll() or rdma_resolve_…() call: milliseconds, 0 after the deadline.
inline int MillisecondsUntil(absl::Time deadline) {
  const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

}  // namespace osprey::rdma::selftest

#endif  // OSPREY_RDMA_SELFTEST_DEADLINE_H_
