// The implementation of a Client: its engines, the clock, and sleeping.

#ifndef OSPREY_CLIENT_CLIENT_IMPL_H_
#define OSPREY_CLIENT_CLIENT_IMPL_H_

#include <time.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "client/client.h"
#include "client/engine/engine.h"
#include "client/engine/shard_engines.h"
#include "rdma/lease_clock.h"
#include "rdma/raw_clock.h"
#include "rdma/transport.h"
#include "rdma/unique_fd.h"

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
  Impl(std::shared_ptr<rdma::Domain> domain, client::ShardEngines::NewTransport new_transport,
       const client::EngineOptions& engine_options, const Options& options)
      : options_(options),
        domain_(std::move(domain)),
        engines_(*domain_, std::move(new_transport), engine_options) {}
  ~Impl();

  // Connects to shard 0, then to the others. Awaits an attempt at each of those, however it ends.
  absl::Status Connect(absl::string_view uri);
  client::ShardEngines& engines() { return engines_; }
  const client::ShardEngines& engines() const { return engines_; }
  // Starts operations on `key`.
  client::OperationStarter& StartOf(absl::string_view key) { return engines_.Of(key).start(); }
  const std::shared_ptr<rdma::Domain>& domain() { return domain_; }
  int fd() const {
    return engines_.count() == 1 ? engines_.first().transport().fd() : watcher_.get();
  }

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
    engines_.Submit(now);
    PollUntil([&] { return answer.done; }, absl::InfiniteFuture(), now);
    return std::move(answer.value);
  }

 private:
  // All was answered without Poll.
  void PollIfDue(absl::Time now) {
    if (engines_.first().IsPollDue(now)) engines_.Poll(now);
  }
  absl::Status AwaitFirst(absl::string_view uri, absl::Time end);
  absl::Status AwaitOthers(absl::Time end);
  absl::Status WatchAll();
  void AwaitAll(absl::Span<const absl::string_view> keys, absl::StatusOr<Value>* answers,
                absl::Time end, absl::Time now, size_t begun, size_t& unanswered,
                bool waits_for_room);
  void GetFromShard(absl::string_view key, absl::StatusOr<Value>& answer, absl::Time end,
                    absl::Time now);
  void GetFromShards(absl::Span<const absl::string_view> keys, absl::StatusOr<Value>* answers,
                     absl::Time end, absl::Time now, bool waits_for_room);
  template <typename Predicate>
  // (By reference: `all_answered` may Poll, and sets `now`.)
  void AwaitAnswers(const Predicate& all_answered, absl::Time end, const absl::Time& now);
  void Rest(absl::Time now, absl::Time idle_since, absl::Time end);
  void Sleep(absl::Time now, absl::Time end);

  const Options options_;
  const int64_t default_deadline_ns_ = absl::ToInt64Nanoseconds(options_.deadline);
  // A wait begins by polling.
  const bool spins_ = options_.wait == WaitMode::kSpin || (options_.wait == WaitMode::kAdaptive &&
                                                           options_.spin > absl::ZeroDuration());
  std::shared_ptr<rdma::Domain> domain_;  // Buffers hold it too
  client::ShardEngines engines_;
  rdma::UniqueFd watcher_;  // with several engines: an epoll of their transports' descriptors
};

template <typename Predicate>
int Client::Impl::PollUntil(Predicate is_done, absl::Time end, absl::Time now) {
  int total = 0;
  absl::Time idle_since = absl::InfiniteFuture();
  for (;; now = client::Now()) {
    const int count = engines_.Poll(now);
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
