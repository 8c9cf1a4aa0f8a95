// Bounds of the server's clock, by which items expire. The client's own clock may be wrong by an
// hour.
//
//   ServerClock clock;
//   clock.Observe(sent, received, server_time);     // for each answer with the server's time
//   bounds = clock.During(posted, landed);        // for a READ; unknown: ask the server
//
// The server reads its clock between the client's send and receipt, both by the client's clock. So
// the offset of the two clocks lies in an interval as wide as the round trip. The interval grows
// with time, because neither clock is perfect. Each answer shrinks it to the intersection with its
// own. An empty intersection means that a clock was changed or stopped: then only the last answer
// counts.
//
// Assumes that neither clock is set and that one gains at most DriftMax on the other. Both are raw
// clocks (rdma/raw_clock.h). A quartz is 100 ppm off, and NTP cannot discipline one that is off by
// more than 500 ppm. Clocks that are slewed break the assumption.
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_COMMON_SERVER_CLOCK_H_
#define OSPREY_CLIENT_COMMON_SERVER_CLOCK_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "absl/time/time.h"
#include "index/reader/server_time.h"

namespace osprey::client {

class ServerClock {
 public:
  // An older estimate, with no answer since, is not used.
  static constexpr absl::Duration kAgeMax() { return absl::Seconds(10); }
  static constexpr absl::Duration kNewsEvery() { return absl::Milliseconds(1); }
  static constexpr absl::Duration kClose() { return absl::Microseconds(200); }
  // The limit of two clocks' drift in `time`: 1000 ppm of it.
  static absl::Duration DriftMax(absl::Duration time) {
    return absl::Nanoseconds(std::abs(absl::ToInt64Nanoseconds(time)) / 1000 + 1);
  }

  struct Bounds {
    absl::Time earliest;
    absl::Time latest;
  };

  // Discards all answers: they are, or may be, of another server.
  void Reset() { heard_at_ = wants_news_at_ = absl::InfinitePast(); }

  // Takes an answer that arrived at `received`, to a request sent at `sent` or later, by the
  // client's clock. In between the server's clock read `server_time`. REQUIRES: sent <= received.
  void Observe(absl::Time sent, absl::Time received, absl::Time server_time) {
    const absl::Duration within = DriftMax(received - sent);
    absl::Duration least = server_time - received - within;
    absl::Duration most = server_time - sent + within;
    if (known()) {
      const absl::Duration since = DriftMax(received - heard_at_);
      const absl::Duration both_least = std::max(least, least_ - since);
      const absl::Duration both_most = std::min(most, most_ + since);
      if (both_least <= both_most) {
        least = both_least;
        most = both_most;
      }
    }
    least_ = least;
    most_ = most;
    heard_at_ = received;
    wants_news_at_ = most - least <= kClose() ? received + kNewsEvery() : received;
  }

  // Bounds of the server's time at `at` by the client's clock, which may be a little before the
  // last answer.
  std::optional<Bounds> At(absl::Time at) const {
    if (!known() || at - heard_at_ > kAgeMax()) return std::nullopt;
    const absl::Duration since = DriftMax(at - heard_at_);
    return Bounds{at + least_ - since, at + most_ + since};
  }

  // The bounds of a READ that was posted at `posted` or later, and had landed at `landed`.
  index::ServerTimeBounds During(absl::Time posted, absl::Time landed) const {
    const std::optional<Bounds> last = At(landed);
    if (!last.has_value()) return {};
    const std::optional<Bounds> first = At(posted);
    return {first.has_value() ? NanosOf(first->earliest) : 0, NanosOf(last->latest)};
  }

  // The time since the last answer; InfiniteDuration: there was none.
  absl::Duration Age(absl::Time now) const { return now - heard_at_; }
  // Whether another answer may bring closer bounds. Not within 1 ms of the last one, in which the
  // clocks drift by 1 us, if the bounds are close already.
  bool WantsNews(absl::Time now) const { return now >= wants_news_at_; }

 private:
  bool known() const { return heard_at_ != absl::InfinitePast(); }
  // The form in messages; a received time may have any value.
  static uint64_t NanosOf(absl::Time time) {
    return static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixNanos(time), 0));
  }

  // Bounds of the offset, server - client, at heard_at_.
  absl::Duration least_;
  absl::Duration most_;
  absl::Time heard_at_ = absl::InfinitePast();
  absl::Time wants_news_at_ = absl::InfinitePast();
};

// The rest of the time until an expiry (0: none) at `now_ns`; both are server time.
inline absl::Duration TtlOf(uint64_t expiry_ns, uint64_t now_ns) {
  if (expiry_ns == 0) return absl::InfiniteDuration();
  if (expiry_ns <= now_ns) return absl::ZeroDuration();
  return absl::Nanoseconds(static_cast<int64_t>(std::min<uint64_t>(expiry_ns - now_ns, INT64_MAX)));
}

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_COMMON_SERVER_CLOCK_H_
