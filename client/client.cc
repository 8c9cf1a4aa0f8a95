#include "client/client.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/client_impl.h"
#include "client/common/errors.h"
#include "client/engine/engine.h"
#include "client/shard_calls.h"
#include "rdma/address.h"
#include "rdma/authentication.h"
#include "rdma/errors.h"
#include "rdma/open_domain.h"
#include "rdma/transport.h"

namespace osprey {

using client::Now;

namespace {

constexpr int kOperationsMax = 65536;
constexpr uint64_t kBufferBytesMin = uint64_t{4} << 20;
constexpr uint64_t kSlotCacheBytesMax = uint64_t{1} << 40;
// A wait that has spun for so long lets another thread run that waits for this processor: perhaps the
// server's.
constexpr absl::Duration kGiveWayAfter = absl::Microseconds(10);
// To fall asleep and wake up takes about as long: sleeping until a nearer timer does not pay.
constexpr absl::Duration kSleepMin = absl::Microseconds(50);
// No wait is longer: it serves as infinity, also for clocks that do not support that.
constexpr absl::Duration kSleepMax = absl::Hours(1);
// How long the destructor waits for the connection to end. After it, the transport's destruction
// ends READs by force.
constexpr absl::Duration kCloseMax = absl::Seconds(2);

absl::Status CheckOperationsMax(int operations) {
  if (operations >= 1 && operations <= kOperationsMax) return absl::OkStatus();
  return client::BadOptionError("operations_max", absl::StrCat(operations),
                                absl::StrCat("1 to ", kOperationsMax));
}

absl::Status CheckOptions(const Options& options) {
  const auto check = [](absl::string_view name, absl::Duration value, absl::Duration least,
                        absl::Duration most) {
    if (value >= least && value <= most) return absl::OkStatus();
    return client::BadOptionError(
        name, absl::FormatDuration(value),
        absl::StrCat(absl::FormatDuration(least), " to ", absl::FormatDuration(most)));
  };
  const absl::Duration tick = absl::Microseconds(1);
  absl::Status status = check("connect_timeout", options.connect_timeout, tick, kDeadlineMax());
  if (status.ok()) status = check("deadline", options.deadline, tick, kDeadlineMax());
  if (status.ok()) status = check("spin", options.spin, absl::ZeroDuration(), kDeadlineMax());
  if (status.ok()) status = check("backoff_last", options.backoff_last, tick, kDeadlineMax());
  if (status.ok())
    status = check("backoff_first", options.backoff_first, tick, options.backoff_last);
  if (!status.ok()) return status;
  status = CheckOperationsMax(options.operations_max);
  if (!status.ok()) return status;
  if (options.buffer_bytes_max < kBufferBytesMin) {
    return client::BadOptionError("buffer_bytes_max", absl::StrCat(options.buffer_bytes_max),
                                  absl::StrCat("at least ", kBufferBytesMin));
  }
  if (options.slot_cache_bytes > kSlotCacheBytesMax) {
    return client::BadOptionError("slot_cache_bytes", absl::StrCat(options.slot_cache_bytes),
                                  absl::StrCat("at most ", kSlotCacheBytesMax));
  }
  if (!options.auth_key.empty() && !options.auth_key_file.empty())
    return client::BadOptionError("auth_key", "given beside auth_key_file", "one of the two");
  return absl::OkStatus();
}

// Null: no key.
absl::StatusOr<rdma::AuthKey::Pointer> KeyOf(const Options& options) {
  if (options.auth_key.empty() && options.auth_key_file.empty()) return rdma::AuthKey::Pointer();
  absl::StatusOr<rdma::AuthKey::Pointer> key = options.auth_key_file.empty()
                                                   ? rdma::AuthKey::FromBytes(options.auth_key)
                                                   : rdma::AuthKey::FromFile(options.auth_key_file);
  if (!key.ok()) return client::BadAuthKeyError(key.status());
  return key;
}

// Errors that every later attempt would return, too.
bool IsHopeless(const absl::Status& error) {
  return ReasonOf(error) == Reason::kMemlockTooLow || absl::IsInvalidArgument(error) ||
         absl::IsFailedPrecondition(error) || absl::IsPermissionDenied(error) ||
         absl::IsDataLoss(error) || absl::IsUnauthenticated(error);
}

}  // namespace

Client::Impl::~Impl() {
  if (!engines_.is_open()) return;
  engines_.Close();
  PollUntil([this] { return engines_.closed(); }, Now() + kCloseMax);
}

absl::Status Client::Impl::Connect(absl::string_view uri) {
  const absl::Time end = Now() + options_.connect_timeout;
  if (absl::Status status = engines_.Open(); !status.ok()) return status;
  if (absl::Status status = AwaitFirst(uri, end); !status.ok()) return status;
  if (engines_.first().connection().terms().shards == 1) return absl::OkStatus();
  if (absl::Status status = engines_.AddShards(); !status.ok()) return status;
  if (absl::Status status = WatchAll(); !status.ok()) return status;
  return AwaitOthers(end);
}

absl::Status Client::Impl::AwaitFirst(absl::string_view uri, absl::Time end) {
  const client::ServerConnection& connection = engines_.first().connection();
  const auto settled = [&] {
    const absl::Status& error = connection.last_error();
    return connection.ready() || IsHopeless(error) ||
           (!options_.await_listener && ReasonOf(error) == Reason::kNoListener);
  };
  PollUntil(settled, end);
  if (connection.ready()) return absl::OkStatus();
  const absl::Status& error = connection.last_error();
  return error.ok() ? rdma::TimeoutError("connecting", uri) : error;
}

// A shard without a server delays only operations on its keys, so the caller gets its Client.
absl::Status Client::Impl::AwaitOthers(absl::Time end) {
  const auto connection = [this](uint32_t shard) -> const client::ServerConnection& {
    return engines_.at(shard).connection();
  };
  uint32_t tried = 1;
  std::vector<bool> was_tried(engines_.count());
  const auto all_tried = [&] {
    for (uint32_t shard = 1; shard < engines_.count(); ++shard) {
      // (A pause follows when every address of the shard has failed.)
      const bool is_over = connection(shard).ready() ||
                           connection(shard).state() == client::ServerConnection::State::kBackoff;
      if (!is_over || was_tried[shard]) continue;
      was_tried[shard] = true;
      ++tried;
    }
    return tried == engines_.count();
  };
  PollUntil(all_tried, end);
  for (uint32_t shard = 1; shard < engines_.count(); ++shard) {
    const absl::Status& error = connection(shard).last_error();
    if (!connection(shard).ready() && IsHopeless(error))
      return client::OfShard(error, shard, engines_.count());
  }
  return absl::OkStatus();
}

absl::Status Client::Impl::WatchAll() {
  rdma::UniqueFd watcher(epoll_create1(EPOLL_CLOEXEC));
  for (uint32_t shard = 0; shard < engines_.count(); ++shard) {
    epoll_event event = {};
    event.events = EPOLLIN;
    if (watcher.get() < 0 ||
        epoll_ctl(watcher.get(), EPOLL_CTL_ADD, engines_.at(shard).transport().fd(), &event) != 0) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "cannot watch the connections to ", engines_.count(), " shards: ", std::strerror(errno),
          "; raise the limit of open files (ulimit -n)"));
    }
  }
  watcher_ = std::move(watcher);
  return absl::OkStatus();
}

absl::StatusOr<absl::Time> Client::Impl::DeadlineOf(absl::Duration deadline, absl::Time now) const {
  if (deadline == absl::ZeroDuration()) deadline = options_.deadline;
  if (deadline < absl::ZeroDuration() || deadline > kDeadlineMax())
    return client::BadDeadlineError(deadline, kDeadlineMax());
  return now + deadline;
}

absl::StatusOr<absl::Time> Client::Impl::WriteDeadlineOf(absl::Duration deadline) const {
  absl::StatusOr<absl::Time> end = DeadlineOf(deadline);
  if (end.ok()) return end;
  return client::WithOutcome(end.status(), client::Outcome::kNotApplied);
}

void Client::Impl::Rest(absl::Time now, absl::Time idle_since, absl::Time end) {
  if (options_.wait != WaitMode::kEvent && now - idle_since >= kGiveWayAfter) sched_yield();
  switch (options_.wait) {
    case WaitMode::kSpin:
      return;
    case WaitMode::kAdaptive:
      if (now - idle_since >= options_.spin) Sleep(now, end);
      return;
    case WaitMode::kEvent:
      return Sleep(now, end);
  }
}

void Client::Impl::Sleep(absl::Time now, absl::Time end) {
  const absl::Duration left = std::min(end, engines_.NextTimer()) - now;
  // (A Connect that failed may have no descriptor.)
  if (left < kSleepMin || fd() < 0 || !engines_.Arm()) return;
  const timespec timeout = absl::ToTimespec(std::min(left, kSleepMax));
  pollfd fd = {this->fd(), POLLIN, 0};
  // After any return (a signal, or at once for lack of kernel memory) the caller checks for events.
  (void)ppoll(&fd, 1, &timeout, nullptr);
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(absl::string_view uri,
                                                        const Options& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  absl::StatusOr<rdma::AuthKey::Pointer> key = KeyOf(options);
  if (!key.ok()) return key.status();
  const absl::StatusOr<std::vector<std::string>> uris = rdma::ParseAddresses(uri);
  if (!uris.ok()) return uris.status();
  rdma::DomainOptions domain_options;
  // With a key, the server proves that it has the key.
  domain_options.shm_any_server_user = *key != nullptr;
  absl::StatusOr<std::unique_ptr<rdma::Domain>> domain =
      rdma::OpenDomain(uris->front(), domain_options);
  if (!domain.ok()) return domain.status();
  rdma::TransportOptions transport_options =
      rdma::TransportOptionsOf(rdma::ParseAddress(uris->front())->scheme);
  transport_options.accepts = false;
  client::EngineOptions engine_options;
  engine_options.connection.uri = std::string(uri);
  engine_options.connection.backoff_first = options.backoff_first;
  engine_options.connection.backoff_last = options.backoff_last;
  engine_options.connection.seed =
      std::random_device()();  // clients of one server must not retry in step
  engine_options.connection.key = *std::move(key);
  engine_options.operations_max = options.operations_max;
  engine_options.buffer_bytes_max = options.buffer_bytes_max;
  engine_options.slot_cache_bytes = options.slot_cache_bytes;
  engine_options.clock = client::Now;
  engine_options.coarse_clock = client::CoarseClock();
  engine_options.lease_clock = client::LazyLeaseClock();
  Options kept = options;
  kept.auth_key.clear();  // the engines own it now, and wipe it
  rdma::Domain& opened = **domain;
  auto impl = std::make_unique<Impl>(
      *std::move(domain),
      [&opened, transport_options] { return opened.NewTransport(transport_options); },
      engine_options, kept);
  if (absl::Status status = impl->Connect(uri); !status.ok()) return status;
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Client::~Client() = default;

absl::StatusOr<Value> Client::Get(absl::string_view key, absl::Duration deadline) {
  absl::StatusOr<Value> answer = Value();
  impl_->Get(key, answer, deadline);
  return answer;
}

absl::StatusOr<bool> Client::Exists(absl::string_view key, absl::Duration deadline) {
  return impl_->Block<bool>([&](auto done) { return StartExists(key, std::move(done), deadline); });
}

absl::StatusOr<uint64_t> Client::Put(absl::string_view key, absl::string_view value,
                                     const WriteOptions& options) {
  return impl_->Block<uint64_t>(
      [&](auto done) { return StartPut(key, value, options, std::move(done)); });
}

absl::StatusOr<uint64_t> Client::Delete(absl::string_view key, const WriteOptions& options) {
  return impl_->Block<uint64_t>(
      [&](auto done) { return StartDelete(key, options, std::move(done)); });
}

absl::StatusOr<Number> Client::Increment(absl::string_view key, int64_t by,
                                         const WriteOptions& options) {
  return impl_->Block<Number>(
      [&](auto done) { return StartIncrement(key, by, options, std::move(done)); });
}

absl::StatusOr<uint64_t> Client::Append(absl::string_view key, absl::string_view value,
                                        const WriteOptions& options) {
  return impl_->Block<uint64_t>(
      [&](auto done) { return StartAppend(key, value, options, std::move(done)); });
}

absl::StatusOr<uint64_t> Client::Expire(absl::string_view key, absl::Duration ttl,
                                        const WriteOptions& options) {
  return impl_->Block<uint64_t>(
      [&](auto done) { return StartExpire(key, ttl, options, std::move(done)); });
}

absl::StatusOr<uint64_t> Client::Persist(absl::string_view key, const WriteOptions& options) {
  return Expire(key, absl::InfiniteDuration(), options);
}

absl::StatusOr<absl::Duration> Client::Ttl(absl::string_view key, absl::Duration deadline) {
  return impl_->Block<absl::Duration>(
      [&](auto done) { return StartTtl(key, std::move(done), deadline); });
}

absl::StatusOr<uint64_t> Client::Touch(absl::string_view key, absl::Duration deadline) {
  return impl_->Block<uint64_t>(
      [&](auto done) { return StartTouch(key, std::move(done), deadline); });
}

absl::StatusOr<uint64_t> Client::Flush(absl::Duration deadline) {
  return impl_->Block<uint64_t>([&](auto done) { return StartFlush(std::move(done), deadline); });
}

absl::StatusOr<absl::Duration> Client::Ping(absl::Duration deadline) {
  absl::StatusOr<absl::Time> end = impl_->DeadlineOf(deadline);
  if (!end.ok()) return end.status();
  const absl::Time start = Now();
  absl::StatusOr<uint64_t> answer = impl_->Block<uint64_t>([&](auto done) {
    return client::SumOfShards(
        impl_->engines(),
        [&](client::ClientEngine& engine, WriteCallback one) {
          return engine.start().Ping(*end, std::move(one));
        },
        std::move(done));
  });
  if (!answer.ok()) return answer.status();
  return Now() - start;
}

absl::StatusOr<absl::Duration> Client::MeasureRead(uint32_t bytes, absl::Duration deadline) {
  absl::StatusOr<absl::Time> end = impl_->DeadlineOf(deadline);
  if (!end.ok()) return end.status();
  const absl::Time start = Now();
  absl::StatusOr<Value> answer = impl_->Block<Value>([&](auto done) {
    return impl_->engines().first().start().Measure(bytes, *end, std::move(done));
  });
  if (!answer.ok()) return answer.status();
  return Now() - start;
}

absl::StatusOr<Value> Client::TraceGet(absl::string_view key, std::vector<TraceStep>& steps,
                                       absl::Duration deadline) {
  absl::StatusOr<absl::Time> end = impl_->DeadlineOf(deadline);
  if (!end.ok()) return end.status();
  client::GetTrace trace(client::Now, steps);
  if (const client::ShardEngines& engines = impl_->engines(); engines.count() > 1) {
    const uint32_t shard = engines.ShardOf(key);
    steps.push_back(
        {absl::ZeroDuration(), "shard",
         absl::StrCat(shard, " of ", engines.count(), ": ", engines.at(shard).connection().uri())});
  }
  return impl_->Block<Value>(
      [&](auto done) { return impl_->StartOf(key).TraceGet(key, trace, *end, std::move(done)); });
}

absl::StatusOr<std::string> Client::ServerStats(absl::Duration deadline) {
  return impl_->Block<std::string>(
      [&](auto done) { return StartServerStats(std::move(done), deadline); });
}

absl::Status Client::StartServerStats(StatsCallback done, absl::Duration deadline) {
  absl::StatusOr<absl::Time> end = impl_->DeadlineOf(deadline);
  if (!end.ok()) return end.status();
  client::ShardEngines& engines = impl_->engines();
  if (engines.count() == 1) return engines.first().start().Stats(*end, std::move(done));
  return client::StartOnShards<std::string>(
      engines,
      [&](client::ClientEngine& engine, StatsCallback one) {
        return engine.start().Stats(*end, std::move(one));
      },
      [done = std::move(done)](std::vector<absl::StatusOr<std::string>> texts) mutable {
        if (absl::Status status = client::ErrorOfShards(texts); !status.ok()) return done(status);
        done(client::StatsOfShards(texts));
      });
}

absl::Status Client::StartGet(absl::string_view key, GetCallback done, absl::Duration deadline) {
  absl::StatusOr<absl::Time> end = impl_->DeadlineOf(deadline);
  if (!end.ok()) return end.status();
  return impl_->StartOf(key).Get(key, /*want_value=*/true, *end, std::move(done));
}

absl::Status Client::StartPut(absl::string_view key, absl::string_view value,
                              const WriteOptions& options, WriteCallback done) {
  absl::StatusOr<absl::Time> end = impl_->WriteDeadlineOf(options.deadline);
  if (!end.ok()) return end.status();
  return impl_->StartOf(key).Put(key, value, options, *end, std::move(done));
}

absl::Status Client::StartDelete(absl::string_view key, const WriteOptions& options,
                                 WriteCallback done) {
  absl::StatusOr<absl::Time> end = impl_->WriteDeadlineOf(options.deadline);
  if (!end.ok()) return end.status();
  return impl_->StartOf(key).Delete(key, options, *end, std::move(done));
}

absl::Status Client::StartExists(absl::string_view key, ExistsCallback done,
                                 absl::Duration deadline) {
  absl::StatusOr<absl::Time> end = impl_->DeadlineOf(deadline);
  if (!end.ok()) return end.status();
  return impl_->StartOf(key).Exists(key, *end, std::move(done));
}

absl::Status Client::StartIncrement(absl::string_view key, int64_t by, const WriteOptions& options,
                                    IncrementCallback done) {
  absl::StatusOr<absl::Time> end = impl_->WriteDeadlineOf(options.deadline);
  if (!end.ok()) return end.status();
  return impl_->StartOf(key).Increment(key, by, options, *end, std::move(done));
}

absl::Status Client::StartAppend(absl::string_view key, absl::string_view value,
                                 const WriteOptions& options, WriteCallback done) {
  absl::StatusOr<absl::Time> end = impl_->WriteDeadlineOf(options.deadline);
  if (!end.ok()) return end.status();
  return impl_->StartOf(key).Append(key, value, options, *end, std::move(done));
}

absl::Status Client::StartExpire(absl::string_view key, absl::Duration ttl,
                                 const WriteOptions& options, WriteCallback done) {
  absl::StatusOr<absl::Time> end = impl_->WriteDeadlineOf(options.deadline);
  if (!end.ok()) return end.status();
  return impl_->StartOf(key).Expire(key, ttl, options, *end, std::move(done));
}

absl::Status Client::StartPersist(absl::string_view key, const WriteOptions& options,
                                  WriteCallback done) {
  return StartExpire(key, absl::InfiniteDuration(), options, std::move(done));
}

absl::Status Client::StartTtl(absl::string_view key, TtlCallback done, absl::Duration deadline) {
  absl::StatusOr<absl::Time> end = impl_->DeadlineOf(deadline);
  if (!end.ok()) return end.status();
  return impl_->StartOf(key).Ttl(key, *end, std::move(done));
}

absl::Status Client::StartTouch(absl::string_view key, WriteCallback done,
                                absl::Duration deadline) {
  absl::StatusOr<absl::Time> end = impl_->DeadlineOf(deadline);
  if (!end.ok()) return end.status();
  return impl_->StartOf(key).Touch(key, *end, std::move(done));
}

absl::Status Client::StartFlush(WriteCallback done, absl::Duration deadline) {
  absl::StatusOr<absl::Time> end = impl_->WriteDeadlineOf(deadline);
  if (!end.ok()) return end.status();
  client::ShardEngines& engines = impl_->engines();
  if (engines.count() == 1) return engines.first().start().Flush(*end, std::move(done));
  const absl::Status status = client::StartOnShards<uint64_t>(
      engines,
      [&](client::ClientEngine& engine, WriteCallback one) {
        return engine.start().Flush(*end, std::move(one));
      },
      [done = std::move(done)](std::vector<absl::StatusOr<uint64_t>> counts) mutable {
        done(client::SumOfWrites(counts));
      });
  return status.ok() ? status : client::WithOutcome(status, client::Outcome::kNotApplied);
}

absl::Status Client::set_operations_max(int operations) {
  if (absl::Status status = CheckOperationsMax(operations); !status.ok()) return status;
  impl_->engines().set_operations_max(operations);
  return absl::OkStatus();
}

int Client::Poll() { return impl_->engines().Poll(Now()); }

int Client::Wait(absl::Duration timeout) {
  const client::ShardEngines& engines = impl_->engines();
  if (engines.in_flight() == 0) return Poll();
  // Operations are counted by their ends: a callback that starts another leaves in_flight()
  // unchanged.
  const uint64_t before = engines.ended();
  return impl_->PollUntil([&] { return engines.ended() != before; }, Now() + timeout);
}

int Client::fd() const { return impl_->fd(); }

absl::Duration Client::Arm() {
  client::ShardEngines& engines = impl_->engines();
  const absl::Duration left = std::min(engines.NextTimer() - Now(), kSleepMax);
  if (left <= absl::ZeroDuration() || !engines.Arm()) return absl::ZeroDuration();
  return left;
}

int Client::in_flight() const { return impl_->engines().in_flight(); }
bool Client::connected() const { return impl_->engines().connected(); }
uint32_t Client::shards() const { return impl_->engines().count(); }
uint32_t Client::ShardOf(absl::string_view key) const { return impl_->engines().ShardOf(key); }
uint64_t Client::dataset() const { return impl_->engines().dataset(); }
const Counters& Client::counters() const { return impl_->engines().counters(); }
std::string Client::Describe() const { return impl_->engines().Describe(); }

}  // namespace osprey
