// The implementation of a Client: its engine, the clock, and sleeping.

#ifndef OSPREY_CLIENT_CLIENT_IMPL_H_
#define OSPREY_CLIENT_CLIENT_IMPL_H_

#include <time.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "client/client.h"
#include "client/engine/engine.h"
#include "rdma/lease_clock.h"
#include "rdma/raw_clock.h"
#include "rdma/transport.h"

namespace osprey {

namespace client {

// The engine's time, with an arbitrary origin.
inline absl::Time Now() { return absl::FromUnixNanos(RawClockNs()); }

// The same, read only once in each tick of the kernel: it takes some ns instead of some tens, and
// is up to 10 ms behind. (The kernel's coarse clock is slewed, so only its progress is used.)
// Thread rule: one thread.
class CoarseClock {
 public:
  absl::Time operator()() {
    timespec tick = {};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &tick);
    if (tick.tv_nsec != tick_.tv_nsec || tick.tv_sec != tick_.tv_sec) {
      tick_ = tick;
      now_ = Now();
    }
    return now_;
  }

 private:
  timespec tick_ = {};  // the kernel's, when now_ was read
  absl::Time now_ = absl::InfinitePast();
};

// The clock of the leases on what is READ from a server in a cluster. It is made when such a server
// is connected: to measure the TSC takes 60 ms or more, once in a process. Copies share a clock.
class LazyLeaseClock {
 public:
  absl::Time operator()() {
    if (clock_ == nullptr) {
      static const LeaseClock& measured = *new LeaseClock(MachineClocks());
      clock_ = std::make_shared<LeaseClock>(MachineClocks(), measured);
    }
    return clock_->Now();
  }

 private:
  std::shared_ptr<LeaseClock> clock_;
};

// Where a blocking call receives its answer. One pointer to it fits the callback's own storage, so
// nothing is allocated.
template <typename T>
struct Answer {
  bool done = false;
  absl::StatusOr<T> value;  // (an error without a text takes no memory)
  auto Callback() {
    return [this](absl::StatusOr<T> answer) {
      value = std::move(answer);
      done = true;
    };
  }
};

}  // namespace client

class Client::Impl {
 public:
  Impl(std::shared_ptr<rdma::Domain> domain, std::unique_ptr<client::ClientEngine> engine,
       const Options& options)
      : options_(options), domain_(std::move(domain)), engine_(std::move(engine)) {}
  ~Impl();

  absl::Status AwaitReady(absl::string_view uri);
  client::ClientEngine& engine() { return *engine_; }
  const client::ClientEngine& engine() const { return *engine_; }
  const std::shared_ptr<rdma::Domain>& domain() { return domain_; }

  // Zero means the default. Errors: INVALID_ARGUMENT out of range.
  absl::StatusOr<absl::Time> DeadlineOf(absl::Duration deadline,
                                        absl::Time now = client::Now()) const;
  // The same for a write: its error says that nothing was applied.
  absl::StatusOr<absl::Time> WriteDeadlineOf(absl::Duration deadline) const;

  // Polls until `is_done()` or `end`, and sleeps meanwhile as the options say. Returns the number
  // of operations that ended. `now` is the time of the call.
  template <typename Predicate>
  int PollUntil(Predicate is_done, absl::Time end, absl::Time now = client::Now());

  void Get(absl::string_view key, absl::StatusOr<Value>& answer, absl::Duration deadline);
  // Answers all of `keys`. If other operations use up the limits, it waits for them, or does not.
  void GetAll(absl::Span<const absl::string_view> keys, absl::StatusOr<Value>* answers,
              absl::Duration deadline, bool waits_for_room);

  // Starts with start(callback) and polls until the answer arrives, at the latest by the
  // operation's deadline.
  template <typename T, typename Start>
  absl::StatusOr<T> Block(Start start) {
    client::Answer<T> answer;
    if (absl::Status status = start(answer.Callback()); !status.ok()) return status;
    const absl::Time now = client::Now();
    engine_->Submit(now);
    PollUntil([&] { return answer.done; }, absl::InfiniteFuture(), now);
    return std::move(answer.value);
  }

 private:
  void PollIfDue(absl::Time now) {
    if (engine_->IsPollDue(now)) engine_->Poll(now);
  }
  void AwaitAll(absl::Span<const absl::string_view> keys, absl::StatusOr<Value>* answers,
                absl::Time end, absl::Time now, size_t begun, size_t& unanswered,
                bool waits_for_room);
  void Rest(absl::Time now, absl::Time idle_since, absl::Time end);
  void Sleep(absl::Time now, absl::Time end);

  const Options options_;
  const int64_t default_deadline_ns_ = absl::ToInt64Nanoseconds(options_.deadline);
  // A wait begins by polling.
  const bool spins_ = options_.wait == WaitMode::kSpin || (options_.wait == WaitMode::kAdaptive &&
                                                           options_.spin > absl::ZeroDuration());
  std::shared_ptr<rdma::Domain> domain_;  // Buffers hold it too
  std::unique_ptr<client::ClientEngine> engine_;
};

template <typename Predicate>
int Client::Impl::PollUntil(Predicate is_done, absl::Time end, absl::Time now) {
  int total = 0;
  absl::Time idle_since = absl::InfiniteFuture();
  for (;; now = client::Now()) {
    const int count = engine_->Poll(now);
    total += count;
    if (is_done() || now >= end) return total;
    if (count > 0) {
      // Its callbacks may have started operations: poll before sleeping.
      idle_since = absl::InfiniteFuture();
      continue;
    }
    idle_since = std::min(idle_since, now);
    Rest(now, idle_since, end);
  }
}

}  // namespace osprey

#endif  // OSPREY_CLIENT_CLIENT_IMPL_H_
