// One call for many keys: one operation for each, as many in flight as the limits allow.
//
//   Multi<Value, Start> multi(keys.size(), start);
//   multi.Advance(false);            // starts as many as possible; each end starts another
//   … until done(), or on_done …
//
// Thread rule: the client's thread. It must not move, nor be destroyed, before done().

#ifndef OSPREY_CLIENT_MULTI_H_
#define OSPREY_CLIENT_MULTI_H_

#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace osprey::client {

// `Start` is called as start(i, callback) and starts the operation for key i.
template <typename T, typename Start>
class Multi {
 public:
  Multi(size_t count, Start start) : start_(std::move(start)), results_(count) {}
  Multi(const Multi&) = delete;
  Multi& operator=(const Multi&) = delete;

  // Starts as many as the limits allow. With none of its own in flight it depends on `others`, the
  // operations of other calls: with them it waits for the next Advance. Without them it answers
  // those that cannot start with the error.
  void Advance(bool others) {
    while (next_ < results_.size()) {
      absl::Status status = start_(
          next_, [this, i = next_](absl::StatusOr<T> result) { Ended(i, std::move(result)); });
      if (absl::IsResourceExhausted(status) && (in_flight_ > 0 || others)) return;
      if (status.ok()) {
        ++in_flight_;
      } else {
        results_[next_] = std::move(status);
      }
      ++next_;
    }
    if (!done() || !on_done_) return;
    absl::AnyInvocable<void()> on_done = std::move(on_done_);
    on_done();
  }

  // Called once, by the callback of the last operation to end; it may destroy this.
  void set_on_done(absl::AnyInvocable<void()> on_done) { on_done_ = std::move(on_done); }

  bool done() const { return next_ == results_.size() && in_flight_ == 0; }
  // In the order of the keys. REQUIRES: done().
  std::vector<absl::StatusOr<T>> TakeResults() {
    assert(done());
    return std::move(results_);
  }

 private:
  void Ended(size_t i, absl::StatusOr<T> result) {
    results_[i] = std::move(result);
    --in_flight_;
    Advance(/*others=*/false);
  }

  Start start_;
  absl::AnyInvocable<void()> on_done_;
  std::vector<absl::StatusOr<T>> results_;
  size_t next_ = 0;
  size_t in_flight_ = 0;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_MULTI_H_
