// The pauses between attempts to connect.
//
// Each pause is twice the one before, up to a last one. It is shortened by up to a half at random,
// so that the peers of one server do not retry in step. The time of a failed attempt counts as pause.

#ifndef OSPREY_RDMA_BACKOFF_H_
#define OSPREY_RDMA_BACKOFF_H_

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace osprey::rdma {

// Not thread-safe. No clock: time is an argument.
class Backoff {
 public:
  // REQUIRES: 0 < first <= last.
  Backoff(absl::Duration first, absl::Duration last, uint64_t seed)
      : first_(first), last_(last), random_(static_cast<std::minstd_rand::result_type>(seed)) {}

  // An attempt begins.
  void Attempt(absl::Time now) { attempted_at_ = now; }
  // The attempt has succeeded.
  void Succeed(absl::Time now) {
    ready_at_ = now;
    attempted_at_ = absl::InfiniteFuture();
  }
  // The attempt or the connection has ended. Returns the end of the pause. An attempt without an
  // answer lasts longer than any pause. Another one then follows nearly at once, so that one is
  // under way soon after the network is back.
  absl::Time Pause(absl::Time now) {
    if (now - ready_at_ >= last_) pauses_ = 0;  // it was stable: begin with short pauses again
    // A further doubling would exceed every sensible last pause.
    constexpr int kDoublingsMax = 20;
    const absl::Duration pause =
        std::min(first_ * (int64_t{1} << std::min(pauses_++, kDoublingsMax)), last_);
    const double part = std::uniform_real_distribution<double>(0.5, 1.0)(random_);
    const absl::Duration waited = std::max(now - attempted_at_, absl::ZeroDuration());
    ready_at_ = attempted_at_ = absl::InfiniteFuture();
    return now + std::max(pause - waited, first_) * part;
  }

 private:
  const absl::Duration first_;
  const absl::Duration last_;
  std::minstd_rand random_;
  int pauses_ = 0;  // since the last stable connection
  // Infinite future: no connection, or no attempt. Infinite past: pauses begin as after a stable
  // connection.
  absl::Time ready_at_ = absl::InfinitePast();
  absl::Time attempted_at_ = absl::InfiniteFuture();
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_BACKOFF_H_
