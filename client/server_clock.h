// What time it is at the server, as bounds: items expire by its clock, and a client's own may be
// wrong by an hour.
//
//   ServerClock clock;
//   clock.Heard(sent, received, server_time);     // of each answer that carries the server's time
//   bounds = clock.During(posted, landed);        // of a READ; unknown: ask the server
//
// The server reads its clock between the moments at which we send and receive, both by our clock.
// So the offset of the two clocks lies in an interval as wide as the round trip. It grows as time
// passes, since neither clock is perfect, and shrinks again to what all answers agree on. If they
// do not agree, some clock was changed or stopped: only the last answer counts then.
//
// Assumes that neither clock is set and that one gains at most DriftMax on the other. Both are raw
// clocks (rdma/raw_clock.h): a quartz is 100 ppm off, and one that is off by more than 500 ppm
// cannot be disciplined by NTP. Clocks that are slewed break the assumption.
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_SERVER_CLOCK_H_
#define OSPREY_CLIENT_SERVER_CLOCK_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "absl/time/time.h"
#include "index/server_time.h"

namespace osprey::client {

class ServerClock {
 public:
  // An estimate that no answer has supported for longer is not used.
  static constexpr absl::Duration kAgeMax() { return absl::Seconds(10); }
  // What two clocks may differ in after `time`: 1000 ppm of it.
  static absl::Duration DriftMax(absl::Duration time) {
    return absl::Nanoseconds(std::abs(absl::ToInt64Nanoseconds(time)) / 1000 + 1);
  }

  struct Bounds {
    absl::Time earliest;
    absl::Time latest;
  };

  // What was heard was of another server, or may have been.
  void Reset() { heard_at_ = absl::InfinitePast(); }

  // An answer to what was sent at `sent` or later was there at `received`, by our clock; in
  // between the server's clock said `server_time`. REQUIRES: sent <= received.
  void Heard(absl::Time sent, absl::Time received, absl::Time server_time) {
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
  }

  // The server's time at `at` by our clock, which may be a little before the last answer, too.
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

  // Since an answer was heard; InfiniteDuration: none was.
  absl::Duration Age(absl::Time now) const { return now - heard_at_; }

 private:
  bool known() const { return heard_at_ != absl::InfinitePast(); }
  // As it travels: what a server names may be anything.
  static uint64_t NanosOf(absl::Time time) {
    return static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixNanos(time), 0));
  }

  // Of the offset, server - ours, at heard_at_.
  absl::Duration least_;
  absl::Duration most_;
  absl::Time heard_at_ = absl::InfinitePast();
};

// What is left of an expiry (0: there is none) at `now_ns`; both are server time.
inline absl::Duration TtlOf(uint64_t expiry_ns, uint64_t now_ns) {
  if (expiry_ns == 0) return absl::InfiniteDuration();
  if (expiry_ns <= now_ns) return absl::ZeroDuration();
  return absl::Nanoseconds(static_cast<int64_t>(std::min<uint64_t>(expiry_ns - now_ns, INT64_MAX)));
}

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_SERVER_CLOCK_H_
