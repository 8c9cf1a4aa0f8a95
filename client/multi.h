// One call for many keys: one operation for each, as many in flight as the limits allow. The limits
// are those of each shard, and each shard has its keys in flight whatever happens to the others.
//
//   Multi<Value, Start> multi(keys.size(), parts, start);
//   multi.Advance();                 // starts as many as possible; each end starts another
//   … until done(), or on_done …
//
// Thread rule: the client's thread. It must not move, nor be destroyed, before done().

#ifndef OSPREY_CLIENT_MULTI_H_
#define OSPREY_CLIENT_MULTI_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/client_impl.h"
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
      : start_(std::move(start)), results_(count), unanswered_(count) {
    assert(count <= UINT32_MAX);
    for (MultiPart& keys : parts) parts_.push_back({std::move(keys), 0, 0, absl::OkStatus()});
  }
  Multi(const Multi&) = delete;
  Multi& operator=(const Multi&) = delete;

  // A shard with none of the call's own in flight, which has no room for one, waits for operations of
  // other calls until `end`. (Else its keys are answered with the error.) `polled`: Advance is called
  // again and again; else the engines call when there may be room.
  void WaitForRoom(ShardEngines& engines, absl::Time end, bool polled) {
    engines_ = &engines;
    end_ = end;
    polled_ = polled;
  }

  // Starts as many as the limits allow, and answers those that cannot start.
  void Advance() {
    for (uint32_t shard = 0; shard < parts_.size(); ++shard) AdvancePart(shard);
    RunIfDone();
  }

  // Called once, by the callback of the last operation to end; it may destroy this.
  void set_on_done(absl::AnyInvocable<void()> on_done) { on_done_ = std::move(on_done); }

  bool done() const { return unanswered_ == 0; }
  // In the order of the keys. REQUIRES: done().
  std::vector<absl::StatusOr<T>> TakeResults() {
    assert(done());
    return std::move(results_);
  }

 private:
  struct Part {
    MultiPart keys;
    size_t next = 0;  // of keys
    size_t in_flight = 0;
    absl::Status error;  // why that one could not start
    bool waits() const { return next < keys.size(); }
    // Its own operations will not make room.
    bool is_stuck() const { return waits() && in_flight == 0; }
  };

  void RunIfDone() {
    if (!done() || !on_done_) return;
    absl::AnyInvocable<void()> on_done = std::move(on_done_);
    on_done();
  }
  void AdvancePart(uint32_t shard) {
    Part& part = parts_[shard];
    for (;;) {
      StartPart(shard);
      if (!part.is_stuck()) return;
      if (RoomComes(shard)) return AwaitRoom();
      Answer(part, std::move(part.error));
    }
  }
  bool RoomComes(uint32_t shard) const {
    return engines_ != nullptr && engines_->at(shard).in_flight() > 0 && Now() < end_;
  }
  void AwaitRoom() {
    if (polled_ || awaits_room_) return;
    awaits_room_ = true;
    engines_->AwaitRoom(end_, [this] { return Retry(); });
  }
  // True: no part is stuck any more, and this may be destroyed.
  bool Retry() {
    bool stuck = false;
    for (uint32_t shard = 0; shard < parts_.size(); ++shard) {
      if (parts_[shard].is_stuck()) AdvancePart(shard);
      stuck |= parts_[shard].is_stuck();
    }
    if (stuck) return false;
    awaits_room_ = false;
    RunIfDone();
    return true;
  }
  void Answer(Part& part, absl::Status error) {
    results_[part.keys[part.next++]] = std::move(error);
    --unanswered_;
  }
  void StartPart(uint32_t shard) {
    Part& part = parts_[shard];
    while (part.waits()) {
      const size_t i = part.keys[part.next];
      // (What it captures fits the callback's own storage, so nothing is allocated.)
      absl::Status status =
          start_(i, [this, shard, key = static_cast<uint32_t>(i)](absl::StatusOr<T> result) {
            Ended(shard, key, std::move(result));
          });
      if (absl::IsResourceExhausted(status)) {
        part.error = std::move(status);
        return;
      }
      if (status.ok()) {
        ++part.in_flight;
        ++part.next;
      } else {
        Answer(part, std::move(status));
      }
    }
  }
  void Ended(uint32_t shard, size_t i, absl::StatusOr<T> result) {
    results_[i] = std::move(result);
    --unanswered_;
    --parts_[shard].in_flight;
    AdvancePart(shard);
    RunIfDone();
  }

  Start start_;
  absl::AnyInvocable<void()> on_done_;
  std::vector<absl::StatusOr<T>> results_;
  std::vector<Part> parts_;  // by shard
  size_t unanswered_;
  ShardEngines* engines_ = nullptr;  // null: no part waits for other calls
  absl::Time end_;
  bool polled_ = false;
  bool awaits_room_ = false;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_MULTI_H_
