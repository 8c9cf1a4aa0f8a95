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
#include "client/python/gil.h"
#include "client/python/lanes.h"

namespace osprey::python {

// `start(client, left, callback)` starts the operation in the time `left`, with the lane that
// `take(left)` returns. If a signal handler raises, the lane is closed, which answers what is in
// flight: the answer must outlive the lane.
template <typename T, typename Take, typename Start>
T AwaitAnswer(bool is_write, absl::Duration left, Take take, Start start) {
  std::optional<T> answer;
  absl::Status status;
  {
    Lanes::Taken lane = take(left);
    GilReleased released;
    status = start(*lane, left, [&answer](T result) { answer.emplace(std::move(result)); });
    while (status.ok() && !answer.has_value()) {
      lane->Wait(kSlice);
      if (!answer.has_value()) released.CheckSignals();
    }
  }
  if (!status.ok()) Raise(status, is_write);
  return *std::move(answer);
}

// The operations of `indices` by the time `end`, all with the lane `taken`, as many at once as the
// limits of each shard allow. `key_of(i)` is the key of index i. `start(client, i, left, callback)`
// starts its operation, with the time `left`. The answers go to `answers`, which must outlive the
// call.
template <typename T, typename KeyOf, typename Start>
void AwaitAnswers(Lanes::Taken taken, absl::Time end, const std::vector<size_t>& indices,
                  std::vector<absl::StatusOr<T>>& answers, KeyOf key_of, Start start) {
  // The indices of one shard.
  struct Part {
    std::vector<size_t> indices;
    size_t next = 0;
    size_t in_flight = 0;
  };
  // What callbacks write: they outlive the lane.
  size_t unanswered = indices.size();
  std::vector<Part> parts;
  const Lanes::Taken lane = std::move(taken);
  GilReleased released;
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
    if (unanswered == before) released.CheckSignals();
  }
}

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_AWAIT_H_
