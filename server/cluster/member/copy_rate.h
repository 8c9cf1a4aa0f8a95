// How fast a server sends copies of its shards to servers that join: all of them together, in bytes a second. Appends
// do not count, and never wait for copies.
//
// Thread rule: one thread. Time is an argument, and never decreases.

#ifndef OSPREY_SERVER_CLUSTER_MEMBER_COPY_RATE_H_
#define OSPREY_SERVER_CLUSTER_MEMBER_COPY_RATE_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace osprey {

class CopyRate {
 public:
  // 0: there is no limit.
  explicit CopyRate(uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // A chunk of any length may be sent now. The next one waits for its time.
  bool MaySend(absl::Time now) const { return now >= next_; }
  void Sent(uint64_t bytes, absl::Time now) {
    if (bytes_per_second_ == 0) return;
    next_ = std::max(next_, now - kCatchUp()) +
            absl::Seconds(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_));
  }

 private:
  // An owner that turns late makes up for so much. *Else* each turn sends one chunk.
  static constexpr absl::Duration kCatchUp() { return absl::Milliseconds(50); }

  const uint64_t bytes_per_second_;
  absl::Time next_ = absl::InfinitePast();
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_MEMBER_COPY_RATE_H_
