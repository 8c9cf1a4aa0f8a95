// Blocking calls: an operation of a lane, whose wait releases the GIL and ends by Ctrl-C.
//
// Thread rule: the caller holds the GIL.

#ifndef OSPREY_CLIENT_PYTHON_AWAIT_H_
#define OSPREY_CLIENT_PYTHON_AWAIT_H_

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/python/errors.h"
#include "client/python/lanes.h"

namespace osprey::python {

// PyEval_SaveThread without more: pybind11's form takes longer.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() { PyEval_RestoreThread(state_); }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* const state_;
};

// `start(client, callback)` starts the operation, with the lane that `take()` returns. If a signal
// handler raises, the lane is closed, which answers what is in flight: the answer must outlive the
// lane.
template <typename T, typename Take, typename Start>
T AwaitAnswer(bool is_write, Take take, Start start) {
  std::optional<T> answer;
  absl::Status status;
  {
    Lanes::Taken lane = take();
    const GilReleased released;
    status = start(*lane, [&answer](T result) { answer.emplace(std::move(result)); });
    while (status.ok() && !answer.has_value()) {
      lane->Wait(kSlice);
      if (!answer.has_value()) CheckSignals();
    }
  }
  if (!status.ok()) Raise(status, is_write);
  return *std::move(answer);
}

// The operations of `indices`, all with the lane of `take()`, as many at once as the limits of each
// shard allow. `key_of(i)` is the key of index i. `start(client, i, left, callback)` starts its
// operation, with the time `left`. The answers go to `answers`, which must outlive the call.
template <typename T, typename Take, typename KeyOf, typename Start>
void AwaitAnswers(Take take, absl::Duration deadline, const std::vector<size_t>& indices,
                  std::vector<absl::StatusOr<T>>& answers, KeyOf key_of, Start start) {
  // The indices of one shard.
  struct Part {
    std::vector<size_t> indices;
    size_t next = 0;
    size_t in_flight = 0;
  };
  const absl::Time end = absl::Now() + deadline;
  // What callbacks write: they outlive the lane.
  size_t unanswered = indices.size();
  std::vector<Part> parts;
  Lanes::Taken lane = take();
  const GilReleased released;
  parts.resize(lane->shards());
  for (const size_t i : indices) parts[lane->ShardOf(key_of(i))].indices.push_back(i);
  while (unanswered > 0) {
    for (Part& part : parts) {
      for (; part.next < part.indices.size(); ++part.next) {
        const size_t i = part.indices[part.next];
        const absl::Duration left = std::max(end - absl::Now(), absl::Nanoseconds(1));
        absl::Status status = start(*lane, i, left, [&, i](absl::StatusOr<T> answer) {
          --part.in_flight;
          --unanswered;
          answers[i] = std::move(answer);
        });
        if (absl::IsResourceExhausted(status) && part.in_flight > 0) break;
        if (status.ok()) {
          ++part.in_flight;
        } else {
          --unanswered;
          answers[i] = std::move(status);
        }
      }
    }
    if (unanswered == 0) break;
    const size_t before = unanswered;
    lane->Wait(kSlice);
    if (unanswered == before) CheckSignals();
  }
}

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_AWAIT_H_
