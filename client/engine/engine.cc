#include "client/engine/engine.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/common/errors.h"
#include "rdma/address.h"
#include "rdma/errors.h"
#include "rdma/wire/protocol.h"

namespace osprey::client {
namespace {

// The interval of checks while requests wait for credits: long compared to a round trip, short
// compared to a deadline.
constexpr absl::Duration kBlockedStep = absl::Milliseconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<ClientEngine>> ClientEngine::Create(
    rdma::Domain& domain, std::unique_ptr<rdma::Transport> transport,
    const EngineOptions& options) {
  absl::StatusOr<std::vector<std::string>> uris = rdma::ParseAddresses(options.connection.uri);
  if (!uris.ok()) return uris.status();
  absl::StatusOr<std::unique_ptr<rdma::Memory>> liveness =
      domain.Allocate(ServerConnection::kLivenessBytes, rdma::Access::kRemoteRead);
  if (!liveness.ok()) return liveness.status();
  return std::unique_ptr<ClientEngine>(new ClientEngine(
      std::move(transport), domain, *std::move(liveness), options, *std::move(uris)));
}

ClientEngine::ClientEngine(std::unique_ptr<rdma::Transport> transport, rdma::Domain& domain,
                           std::unique_ptr<rdma::Memory> liveness, const EngineOptions& options,
                           std::vector<std::string> uris)
    : link_(std::move(transport), domain, std::move(liveness), options, std::move(uris)),
      batches_(link_.reads, link_.read_buffers, link_.counters),
      value_reads_(link_.reads, link_.read_buffers, link_.counters),
      operations_(link_, batches_, value_reads_),
      reads_(link_, operations_, batches_, value_reads_),
      start_(link_, operations_, reads_.scans()),
      requests_(link_, operations_),
      exposer_link_(std::make_shared<ExposerLink>(ExposerLink{&requests_})) {}

ClientEngine::~ClientEngine() {
  End();
  assert(start_.closed() && operations_.in_flight == 0);
}

void ClientEngine::End() {
  // If the connection did not end (closed() is false), the transport's destruction ends it, before
  // any buffer is freed.
  link_.transport.reset();
  exposer_link_->exposer = nullptr;
  operations_.EndDrained();
  RunCallbacks();
}

// --- Polling -------------------------------------------------------------------------------------

int ClientEngine::Poll(absl::Time now) {
  assert(!polling_ && "a callback may not call Poll, Wait or a blocking operation");
  polling_ = true;
  link_.polled_at = now;
  poll_due_ = now + kPollEvery();
  const uint64_t before = operations_.ended;
  ExpireOperations(now);
  ReceiveEvents(now);
  Watch(now);
  if (link_.connection->ready()) {
    operations_.EndPauses(now);
    SendAll(now);
  }
  RunCallbacks();
  polling_ = false;
  return static_cast<int>(operations_.ended - before);
}

size_t ClientEngine::StartGets(absl::Span<const absl::string_view> keys,
                               absl::StatusOr<Value>* answers, absl::Time deadline, absl::Time now,
                               size_t& unanswered) {
  assert(!polling_ && "a callback may not call a blocking operation");
  const size_t room = start_.Room();
  if (room == 0) return 0;
  return reads_.StartGets(keys.first(std::min(keys.size(), room)), answers, deadline, now,
                          unanswered);
}

void ClientEngine::AwaitReads(const size_t& unanswered, absl::Time now) {
  assert(!polling_ && "a callback may not call a blocking operation");
  polling_ = true;
  rdma::Transport::ReadsDone done;
  // While READs are all that is awaited.
  for (int polls = 0; static_cast<size_t>(operations_.in_flight) == unanswered &&
                      link_.reads.count() > 0 && polls < kReadPollsMax;
       ++polls) {
    if (!link_.transport->PollReads(done)) continue;
    link_.Arrived();
    OnReadsDone(done, now);
  }
  polling_ = false;
}

void ClientEngine::OnReadsDone(const rdma::Transport::ReadsDone& done, absl::Time now) {
  const auto chain = ReadChainId::Unpack(done.cookie);
  if (chain.user == ReadChainId::User::kConnection) {
    rdma::Event event;
    event.kind = rdma::Event::Kind::kReadsDone;
    event.connection = done.connection;
    event.status = done.status;
    return OnEvent(event, now);
  }
  if (done.connection != link_.connection->id()) return;
  link_.reads.Ended(chain, now);
  reads_.OnReadsDone(chain, done.status, now);
}

void ClientEngine::Submit(absl::Time now) {
  assert(!polling_ && "a callback may not call a blocking operation");
  if (link_.connection->ready()) SendAll(now);
}

void ClientEngine::SendAll(absl::Time now) {
  reads_.PostAll(now);
  requests_.AskTime(now, reads_.scans().wants_time());
  requests_.SendAll(now);
}

void ClientEngine::ReceiveEvents(absl::Time now) {
  // Several rounds, because waiting events may answer timers; the number is bounded nevertheless.
  constexpr int kRoundsMax = 8;
  for (int round = 0; round < kRoundsMax; ++round) {
    const size_t count = link_.transport->Poll(absl::MakeSpan(events_));
    link_.Arrived();
    for (size_t i = 0; i < count; ++i) OnEvent(events_[i], now);
    if (count < events_.size()) return;
  }
}

void ClientEngine::OnEvent(const rdma::Event& event, absl::Time now) {
  if (event.kind == rdma::Event::Kind::kDeviceLost) {
    link_.connection->Fail(absl::UnavailableError("the RDMA device is going away"));
    return;
  }
  if (event.connection != link_.connection->id()) return;
  if (event.kind == rdma::Event::Kind::kReadsDone) {
    const auto chain = ReadChainId::Unpack(event.cookie);
    link_.reads.Ended(chain, now);
    if (chain.user != ReadChainId::User::kConnection)
      return reads_.OnReadsDone(chain, event.status, now);
  }
  if (event.kind == rdma::Event::Kind::kReceived && link_.connection->answers_count() &&
      requests_.OnFrame(event.frame, now)) {
    return;
  }
  const bool greeting = link_.connection->state() == ServerConnection::State::kGreeting;
  const ServerConnection::Change change = link_.connection->Advance(&event, now);
  next_watch_ = absl::InfinitePast();  // another state, or the end of a probe: other timers
  if (greeting && link_.connection->state() == ServerConnection::State::kMapping) {
    link_.server_clock.Reset();
    const ServerTerms& terms = link_.connection->terms();
    link_.server_clock.Observe(terms.asked_at, link_.ReceivedBy(), terms.server_time);
  }
  switch (change) {
    case ServerConnection::Change::kNone:
      break;
    case ServerConnection::Change::kReady:
      OnReady();
      break;
    case ServerConnection::Change::kLost:
      OnLost();
      break;
  }
}

void ClientEngine::OnReady() {
  ++link_.counters.connects;
  link_.OnReady();
  const ServerTerms& terms = link_.connection->terms();
  requests_.OnReady();
  if (terms.in_cluster && link_.options.connection.servers != nullptr)
    link_.options.connection.servers->Connected();
  link_.sampler.set_on(terms.wants_hints);
  link_.report.set_on(terms.wants_reports);
  while (!terms.resumed && !operations_.to_resend.empty()) {
    operations_.End(static_cast<MessageOperation&>(*operations_.to_resend.first()),
                    ServerGoneError());
  }
  if (terms.incarnation != link_.session.incarnation()) OnAnotherIncarnation();
  if (terms.resumed) {
    link_.session.Continue(terms.incarnation);
  } else {
    link_.session.Begin(terms.session, terms.incarnation, terms.data_id, terms.requests_max);
  }
}

// Discards all that was learned about the old region. The cursor of a flush, as that of a scan, is
// valid wherever the keys are the same.
void ClientEngine::OnAnotherIncarnation() {
  link_.location_cache.Clear();
  link_.sampler.Forget();
  link_.report.Forget();
  const uint64_t data_id = link_.connection->terms().data_id;
  if (data_id != 0 && data_id == link_.session.data_id()) return;
  for (Operation* next = operations_.to_send.first(); next != nullptr;) {
    Operation& operation = *next;
    next = OperationQueue::Next(operation);
    if (operation.type() != Operation::Type::kMessage) continue;
    auto& message = static_cast<MessageOperation&>(operation);
    if (message.is_in_mid_flush()) operations_.End(message, ServerGoneError());
  }
}

void ClientEngine::OnLost() {
  assert(link_.reads.count() == 0 && "READs end before their connection does");
  link_.lease.OnLost();
  requests_.OnLost();
  reads_.scans().OnLost();
  operations_.EndDrained();
  for (const std::unique_ptr<GetOperation>& get : operations_.gets) {
    if (!get->active() || get->state() == GetOperation::State::kNew) continue;
    ++link_.counters.retries;
    if (get->state() == GetOperation::State::kFetching) value_reads_.Abandon(*get);
    get->Restart();
    OperationQueue::Remove(*get);
    operations_.new_gets.PushBack(*get);
  }
}

// Handles the timers of the connection, and READs that do not end.
void ClientEngine::Watch(absl::Time now) {
  if (link_.connection->ready() && now < next_watch_) return;
  if (link_.connection->answers_count() && now - link_.reads.StuckSince() >= kReadsStuckMax()) {
    link_.connection->Fail(rdma::PeerGoneError("READs did not end"));
  }
  if (link_.connection->state() == ServerConnection::State::kLeaving && link_.reads.count() == 0 &&
      link_.session.unanswered() == 0) {
    link_.connection->Fail(rdma::ShuttingDownError(link_.connection->uri()));
  }
  link_.connection->Advance(nullptr, now);
  requests_.AskServers(now);
  // Later posts and messages of the engine only move these timers back. The connection's own events
  // may not.
  next_watch_ = std::min(link_.connection->NextTimer(),
                         std::min(link_.reads.StuckSince(), now) + kReadsStuckMax());
}

// R4: an answer must be delivered by its deadline. The process may have been stopped since the time
// of Poll: between the completion and here, or in a callback. So the clock is read before each
// answer, as the last step.
void ClientEngine::RunCallbacks() {
  if (operations_.done.empty() && operations_.deferred.empty() && !reads_.scans().has_done())
    return;
  const auto is_late = [this](absl::Time deadline) { return link_.IsLate(deadline); };
  // (A callback that another one adds is run in the same round, also if the vector is reallocated.)
  for (size_t i = 0; i < operations_.deferred.size(); ++i) {
    absl::AnyInvocable<void()> done = std::move(operations_.deferred[i]);
    --operations_.in_flight;
    ++operations_.ended;
    done();
  }
  operations_.deferred.clear();
  while (reads_.scans().has_done()) {
    --operations_.in_flight;
    ++operations_.ended;
    reads_.scans().RunCallback(is_late, DeadlineError());
  }
  while (!operations_.done.empty()) {
    Operation& operation = operations_.done.PopFront();
    --operations_.in_flight;
    ++operations_.ended;
    const bool late = operation.is_answered() && is_late(operation.deadline());
    if (operation.type() == Operation::Type::kGet) {
      auto& get = static_cast<GetOperation&>(operation);
      if (late) get.Disbelieve(DeadlineError());
      operations_.free_gets.push_back(&get);
      if (get.begun_at() != absl::InfinitePast())
        link_.report.Lasted(link_.ReadClock() - get.begun_at());
      get.RunCallback();
    } else {
      auto& message = static_cast<MessageOperation&>(operation);
      if (late) message.Disbelieve(DeadlineError());
      operations_.free_messages.push_back(&message);
      message.RunCallback();
    }
  }
}

absl::Time ClientEngine::NextTimer() const {
  absl::Time timer = std::min(operations_.next_deadline, link_.connection->NextTimer());
  if (link_.connection->ready()) {
    const absl::Time scans_timer = reads_.scans().waits_for_lease()
                                       ? link_.polled_at + link_.lease.UntilDue()
                                       : reads_.scans().NextTimer();
    timer = std::min({timer, operations_.next_pause_end, scans_timer});
    // Credits may come back without an event.
    const bool blocked =
        !operations_.to_resend.empty() || (!operations_.to_send.empty() && link_.session.HasRoom());
    if (blocked) timer = std::min(timer, link_.polled_at + kBlockedStep);
  }
  return std::min(timer, link_.reads.StuckSince() + kReadsStuckMax());
}

// --- Ending --------------------------------------------------------------------------------------

void ClientEngine::ExpireOperations(absl::Time now) {
  if (now < operations_.next_deadline) return;
  operations_.next_deadline = absl::InfiniteFuture();
  const auto expired = [&](const Operation& operation) {
    if (!operation.active() || !operation.last_error().ok()) return false;
    if (now >= operation.deadline()) return true;
    operations_.next_deadline = std::min(operations_.next_deadline, operation.deadline());
    return false;
  };
  for (const std::unique_ptr<GetOperation>& get : operations_.gets) {
    if (expired(*get)) operations_.FailAfterDrain(*get, LateError(true));
  }
  for (const std::unique_ptr<MessageOperation>& message : operations_.messages) {
    if (expired(*message))
      operations_.FailAfterDrain(*message,
                                 LateError(!message->ever_sent() || !message->is_write()));
  }
  reads_.Expire(now, LateError(true));
  operations_.next_deadline = std::min(operations_.next_deadline, reads_.NextDeadline());
}

// `never_sent`: no message of the operation was sent; its READs do not count.
absl::Status ClientEngine::LateError(bool never_sent) const {
  if (!link_.connection->answers_count() && never_sent) {
    const absl::Status& last = link_.connection->last_error();
    return MakeError(Reason::kNoConnection,
                     absl::StrCat("no connection to ", link_.connection->uris(), " by the deadline",
                                  last.ok() ? "" : ": ", last.message()));
  }
  return DeadlineError();
}

void ClientEngine::Close() {
  assert(!polling_);
  start_.Close();
  for (const std::unique_ptr<GetOperation>& get : operations_.gets) {
    if (get->active()) operations_.FailAfterDrain(*get, ClosedError());
  }
  for (const std::unique_ptr<MessageOperation>& message : operations_.messages) {
    if (message->active()) operations_.FailAfterDrain(*message, ClosedError());
  }
  reads_.EndAll(ClosedError());
  polling_ = true;
  RunCallbacks();
  polling_ = false;
  requests_.SendLastReport();
  link_.connection->Close();
}

std::string ClientEngine::Describe() const {
  if (!link_.connection->answers_count())
    return absl::StrCat("not connected server=", link_.connection->uris());
  return absl::StrCat(link_.transport->Describe(link_.connection->id()),
                      " server=", link_.connection->uri());
}

}  // namespace osprey::client
