// One call for many keys: one operation for each, as many in flight as the limits allow. The limits
// are those of each shard, and each shard has its keys in flight whatever happens to the others.
//
//   Multi<Value, Start> multi(keys.size(), parts, start);
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

#include "absl/algorithm/container.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/engine/shard_engines.h"

namespace osprey::client {

// The keys of one shard, by their numbers in the call. `key_of(i)` is key i.
using MultiPart = std::vector<size_t>;
template <typename KeyOf>
std::vector<MultiPart> PartsOf(const ShardEngines& engines, size_t count, KeyOf key_of) {
  std::vector<MultiPart> parts(engines.count());
  if (engines.count() == 1) parts[0].reserve(count);
  for (size_t i = 0; i < count; ++i)
    parts[engines.count() == 1 ? 0 : engines.ShardOf(key_of(i))].push_back(i);
  return parts;
}

// `Start` is called as start(i, callback) and starts the operation for key i.
template <typename T, typename Start>
class Multi {
 public:
  // `parts` has each of `count` keys once.
  Multi(size_t count, std::vector<MultiPart> parts, Start start)
      : start_(std::move(start)), results_(count) {
    for (MultiPart& keys : parts) parts_.push_back({std::move(keys), 0, absl::OkStatus()});
  }
  Multi(const Multi&) = delete;
  Multi& operator=(const Multi&) = delete;

  // Starts as many as the limits allow. With none of its own in flight it depends on `others`, the
  // operations of other calls: with them it waits for the next Advance. Without them it answers
  // those that cannot start with the error.
  void Advance(bool others) {
    for (;;) {
      for (Part& part : parts_) StartPart(part);
      if (in_flight_ > 0 || others || all_started()) break;
      // No end will make room.
      for (Part& part : parts_) {
        if (part.waits()) Answer(part, std::move(part.error));
      }
    }
    if (!done() || !on_done_) return;
    absl::AnyInvocable<void()> on_done = std::move(on_done_);
    on_done();
  }

  // Called once, by the callback of the last operation to end; it may destroy this.
  void set_on_done(absl::AnyInvocable<void()> on_done) { on_done_ = std::move(on_done); }

  bool done() const { return in_flight_ == 0 && all_started(); }
  // In the order of the keys. REQUIRES: done().
  std::vector<absl::StatusOr<T>> TakeResults() {
    assert(done());
    return std::move(results_);
  }

 private:
  struct Part {
    MultiPart keys;
    size_t next = 0;     // of keys
    absl::Status error;  // why that one could not start
    bool waits() const { return next < keys.size(); }
  };

  bool all_started() const {
    return absl::c_none_of(parts_, [](const Part& part) { return part.waits(); });
  }
  void Answer(Part& part, absl::Status error) {
    results_[part.keys[part.next++]] = std::move(error);
  }
  void StartPart(Part& part) {
    while (part.waits()) {
      const size_t i = part.keys[part.next];
      absl::Status status =
          start_(i, [this, i](absl::StatusOr<T> result) { Ended(i, std::move(result)); });
      if (absl::IsResourceExhausted(status)) {
        part.error = std::move(status);
        return;
      }
      if (status.ok()) {
        ++in_flight_;
        ++part.next;
      } else {
        Answer(part, std::move(status));
      }
    }
  }
  void Ended(size_t i, absl::StatusOr<T> result) {
    results_[i] = std::move(result);
    --in_flight_;
    Advance(/*others=*/false);
  }

  Start start_;
  absl::AnyInvocable<void()> on_done_;
  std::vector<absl::StatusOr<T>> results_;
  std::vector<Part> parts_;
  size_t in_flight_ = 0;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_MULTI_H_
