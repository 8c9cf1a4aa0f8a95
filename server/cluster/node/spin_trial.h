// Whether a thread spins before it sleeps. After a spin that brought nothing there is none for some rounds: with
// too few processors it delays what it waits for.

#ifndef OSPREY_SERVER_CLUSTER_NODE_SPIN_TRIAL_H_
#define OSPREY_SERVER_CLUSTER_NODE_SPIN_TRIAL_H_

#include <atomic>

#include "absl/time/time.h"

namespace osprey::server {

//   if (trial.Begins()) { spin …; trial.End(it brought something); }
//
// Thread-safe.
class SpinTrial {
 public:
  static constexpr int kRoundsWithout = 15;

  bool Begins() {
    const int left = left_.load();
    if (left > 0) left_.store(left - 1);
    return left == 0;
  }
  void End(bool brought) {
    if (!brought) left_.store(kRoundsWithout);
  }

 private:
  std::atomic<int> left_{0};
};

// The spin that follows each event, in case the next one comes soon.
//
// Thread rule: one thread.
class Lingering {
 public:
  // Zero: it never spins.
  explicit Lingering(absl::Duration spin) : spin_(spin) {}

  void Came(absl::Time now) {
    if (spin_ == absl::ZeroDuration() || !(spins_ || trial_.Begins())) return;
    spins_ = true;
    until_ = now + spin_;
  }
  bool spins() const { return spins_; }
  // Whether to spin on, instead of a sleep.
  bool Goes(absl::Time now) {
    if (!spins_ || now < until_) return spins_;
    spins_ = false;
    trial_.End(false);
    return false;
  }

 private:
  const absl::Duration spin_;
  SpinTrial trial_;
  bool spins_ = false;
  absl::Time until_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_NODE_SPIN_TRIAL_H_
