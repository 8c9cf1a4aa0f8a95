#include "client/engine/engine.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/common/errors.h"
#include "rdma/errors.h"
#include "rdma/wire/protocol.h"

namespace osprey::client {

namespace {

// The first pause before a torn record is READ again. A write of a small item takes well below a
// microsecond, one of a large item tens. The last pause leaves a preempted writer some time before
// the attempts are used up.
constexpr absl::Duration kTornPauseFirst = absl::Microseconds(1);
constexpr int kTornPauseDoublingsMax = 6;
// The first pause before another GET by message for a key whose item cannot be READ.
constexpr absl::Duration kAskPauseFirst = absl::Milliseconds(1);
constexpr int kAskPauseDoublingsMax = 6;
// The interval of checks while requests wait for credits: long compared to a round trip, short
// compared to a deadline.
constexpr absl::Duration kBlockedStep = absl::Milliseconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(rdma::Domain& domain,
                                                       std::unique_ptr<rdma::Transport> transport,
                                                       const EngineOptions& options) {
  absl::StatusOr<std::unique_ptr<rdma::Memory>> liveness =
      domain.Allocate(Connection::kLivenessBytes, rdma::Access::kRemoteRead);
  if (!liveness.ok()) return liveness.status();
  return std::unique_ptr<Engine>(
      new Engine(std::move(transport), domain, *std::move(liveness), options));
}

Engine::Engine(std::unique_ptr<rdma::Transport> transport, rdma::Domain& domain,
               std::unique_ptr<rdma::Memory> liveness, const EngineOptions& options)
    : options_(options),
      exposer_link_(std::make_shared<ExposerLink>(ExposerLink{this})),
      operations_max_(options.operations_max),
      random_(static_cast<std::minstd_rand::result_type>(options.connection.seed)),
      liveness_(std::move(liveness)),
      read_buffers_(domain, rdma::Access::kLocal, options.buffer_bytes_max),
      value_buffers_(domain, rdma::Access::kRemoteRead, options.buffer_bytes_max),
      transport_(std::move(transport)),
      exposures_(*transport_, [this](const rdma::Memory& memory) { return MayBeRead(memory); }),
      location_cache_(options.slot_cache_bytes),
      sampler_(options.connection.seed),
      report_(counters_, options.connection.seed),
      connection_(std::make_unique<Connection>(*transport_, *liveness_, read_buffers_, session_,
                                               options.connection)),
      batches_(*transport_, read_buffers_, counters_),
      mapped_(*transport_, read_buffers_, context_),
      groups_(*transport_, read_buffers_, context_),
      value_reads_(*transport_, read_buffers_, counters_),
      scans_(*transport_, read_buffers_, counters_) {}

Engine::~Engine() {
  exposer_link_->exposer = nullptr;
  // If the connection did not end (closed() is false), the transport's destruction ends it, before
  // any buffer is freed.
  transport_.reset();
  EndDrained();
  RunCallbacks();
  assert(closed_ && in_flight_ == 0);
}

// --- Polling -------------------------------------------------------------------------------------

int Engine::Poll(absl::Time now) {
  assert(!polling_ && "a callback may not call Poll, Wait or a blocking operation");
  polling_ = true;
  polled_at_ = now;
  const uint64_t before = ended_;
  ExpireOperations(now);
  ReceiveEvents(now);
  Watch(now);
  if (connection_->ready()) {
    EndPauses(now);
    SendAll(now);
  }
  RunCallbacks();
  polling_ = false;
  return static_cast<int>(ended_ - before);
}

void Engine::Submit(absl::Time now) {
  assert(!polling_ && "a callback may not call a blocking operation");
  if (connection_->ready()) SendAll(now);
}

void Engine::SendAll(absl::Time now) {
  if (!new_.empty()) BeginLookups(now);
  if (!to_read_.empty() || !fetching_.empty() || !scans_.idle()) PostReads(now);
  AskTime(now);
  if (HasRequests() || report_.IsDue(now)) SendRequests(now);
}

void Engine::ReceiveEvents(absl::Time now) {
  // Several rounds, because waiting events may answer timers; the number is bounded nevertheless.
  constexpr int kRoundsMax = 8;
  for (int round = 0; round < kRoundsMax; ++round) {
    const size_t count = transport_->Poll(absl::MakeSpan(events_));
    received_by_.reset();
    for (size_t i = 0; i < count; ++i) OnEvent(events_[i], now);
    if (count < events_.size()) return;
  }
}

// A time at which all events under way had arrived.
absl::Time Engine::ReceivedBy() {
  if (!received_by_.has_value()) {
    received_by_ = options_.clock ? std::max(options_.clock(), polled_at_) : polled_at_;
  }
  return *received_by_;
}

// The bounds of the server's clock from the post of a READ until the events under way.
index::ServerTimeBounds Engine::TimeSince(absl::Time posted) {
  return server_clock_.During(posted, ReceivedBy());
}

void Engine::OnEvent(const rdma::Event& event, absl::Time now) {
  if (event.kind == rdma::Event::Kind::kDeviceLost) {
    connection_->Fail(absl::UnavailableError("the RDMA device is going away"));
    return;
  }
  if (event.connection != connection_->id()) return;
  if (event.kind == rdma::Event::Kind::kReadsDone) read_ended_at_ = now;
  if (event.kind == rdma::Event::Kind::kReadsDone && event.cookie != Connection::kCookie) {
    return OnReadsDone(event, now);
  }
  if (event.kind == rdma::Event::Kind::kReceived && connection_->answers_count() &&
      OnFrame(event.frame, now)) {
    return;
  }
  const bool greeting = connection_->state() == Connection::State::kGreeting;
  const Connection::Change change = connection_->Advance(&event, now);
  next_watch_ = absl::InfinitePast();  // another state, or the end of a probe: other timers
  if (greeting && connection_->state() == Connection::State::kMapping) {
    server_clock_.Reset();
    const ServerTerms& terms = connection_->terms();
    server_clock_.NoteActivity(terms.asked_at, ReceivedBy(), terms.server_time);
  }
  switch (change) {
    case Connection::Change::kNone:
      break;
    case Connection::Change::kReady:
      OnReady();
      break;
    case Connection::Change::kLost:
      OnLost();
      break;
  }
}

void Engine::OnReadsDone(const rdma::Event& event, absl::Time now) {
  if (event.status.ok()) connection_->NoteActivity(now);
  const bool believe = event.status.ok() && connection_->answers_count();
  if (GetBatches::Owns(event.cookie)) return OnGroupDone(event, believe, now);
  if (ValueReads::Owns(event.cookie)) return OnPieceDone(event, believe, now);
  if (Scans::Owns(event.cookie)) {
    // An expired scan accepts no more READs.
    if (options_.coarse_clock) scans_.Expire(options_.coarse_clock(), DeadlineError());
    scans_.Done(event.cookie, believe, now,
                [this](absl::Time posted) { return TimeSince(posted); });
    if (!event.status.ok()) connection_->Fail(event.status);
    return;
  }
  batches_.Done(event.cookie, now, [&](GetOperation& get) {
    if (!believe) {
      get.Restart();
    } else if (get.landed() < get.read().length) {
      get.set_state(GetOperation::State::kToRead);
    } else {
      get.Landed([this](absl::Time posted) { return TimeSince(posted); });
      if (get.used_clock()) clock_used_until_ = now + ServerClock::kAgeMax();
    }
    Place(get, now);
  });
  if (!event.status.ok()) connection_->Fail(event.status);
}

void Engine::OnGroupDone(const rdma::Event& event, bool believe, absl::Time now) {
  groups_.Done(ReadSource(), event.cookie, believe, now, *this);
  if (!event.status.ok()) connection_->Fail(event.status);
}

void Engine::OnPieceDone(const rdma::Event& event, bool believe, absl::Time now) {
  if (GetOperation* get = value_reads_.Done(event.cookie, believe, now); get != nullptr) {
    if (believe) {
      get->Fetched();
    } else {
      value_reads_.Abandon(*get);
      get->Restart();
    }
    Place(*get, now);
  }
  if (!event.status.ok()) connection_->Fail(event.status);
}

void Engine::OnReady() {
  ++counters_.connects;
  const ServerTerms& terms = connection_->terms();
  batch_.emplace(connection_->limits().frame_bytes_max);
  sampler_.set_on(terms.wants_hints);
  report_.set_on(terms.wants_reports);
  if (terms.resumed) return;
  while (!to_resend_.empty()) {
    End(static_cast<MessageOperation&>(*to_resend_.first()), ServerGoneError());
  }
  if (terms.incarnation != session_.incarnation()) OnAnotherServer();
  session_.Begin(terms.session, terms.incarnation, terms.requests_max);
}

// Discards all that was learned about the old server.
void Engine::OnAnotherServer() {
  location_cache_.Clear();
  sampler_.Forget();
  report_.Forget();
  for (Operation* next = to_send_.first(); next != nullptr;) {
    Operation& operation = *next;
    next = OperationQueue::Next(operation);
    if (operation.type() != Operation::Type::kMessage) continue;
    auto& message = static_cast<MessageOperation&>(operation);
    if (message.is_in_mid_flush()) End(message, ServerGoneError());
  }
}

void Engine::OnLost() {
  assert(outstanding_reads() == 0 && "READs end before their connection does");
  exposures_.Clear();
  time_asked_ = 0;
  RequeueRequests();
  scans_.OnLost();
  EndDrained();
  for (const std::unique_ptr<GetOperation>& get : gets_) {
    if (!get->active() || get->state() == GetOperation::State::kNew) continue;
    ++counters_.retries;
    if (get->state() == GetOperation::State::kFetching) value_reads_.Abandon(*get);
    get->Restart();
    OperationQueue::Remove(*get);
    new_.PushBack(*get);
  }
}

// --- Moving operations ---------------------------------------------------------------------------

// Puts the operation into the queue of its state.
void Engine::Place(GetOperation& get, absl::Time now) {
  OperationQueue::Remove(get);
  switch (get.state()) {
    case GetOperation::State::kNew:
      return new_.PushBack(get);
    case GetOperation::State::kToRead:
      return to_read_.PushBack(get);
    case GetOperation::State::kFetching:
      return fetching_.PushBack(get);
    case GetOperation::State::kPaused: {
      const bool asks = get.asks_after_pause();
      const int doublings =
          std::min(get.pause_attempt() - 1, asks ? kAskPauseDoublingsMax : kTornPauseDoublingsMax);
      const absl::Duration pause = (asks ? kAskPauseFirst : kTornPauseFirst) * (1 << doublings);
      get.set_pause_end(now + pause * std::uniform_real_distribution<double>(0.5, 1.0)(random_));
      next_pause_end_ = std::min(next_pause_end_, get.pause_end());
      return paused_.PushBack(get);
    }
    case GetOperation::State::kToAsk:
      return to_send_.PushBack(get);
    case GetOperation::State::kDone:
      return done_.PushBack(get);
    case GetOperation::State::kReading:
    case GetOperation::State::kAsking:
      return;
  }
}

void Engine::Place(MessageOperation& message) {
  OperationQueue::Remove(message);
  switch (message.state()) {
    case MessageOperation::State::kToSend:
      return to_send_.PushBack(message);
    case MessageOperation::State::kSent:
      return;
    case MessageOperation::State::kDone:
      return done_.PushBack(message);
  }
}

void Engine::EndPauses(absl::Time now) {
  if (now < next_pause_end_) return;
  next_pause_end_ = absl::InfiniteFuture();
  for (Operation* next = paused_.first(); next != nullptr;) {
    auto& get = static_cast<GetOperation&>(*next);
    next = OperationQueue::Next(*next);
    if (now < get.pause_end()) {
      next_pause_end_ = std::min(next_pause_end_, get.pause_end());
      continue;
    }
    get.EndPause();
    Place(get, now);
  }
}

// The longest item of this server: a longer READ cannot be right.
uint64_t Engine::ItemReadBytesMax() const {
  const uint64_t item_bytes_max =
      index::ItemBytes(index::kKeyBytesMax, connection_->terms().value_bytes_max);
  return index::ReadLengthOf(index::LengthClassOf(item_bytes_max));
}

void Engine::BeginLookups(absl::Time now) {
  const uint64_t read_bytes_max = ItemReadBytesMax();
  while (!new_.empty()) {
    // Lookups are prepared in small batches: their cache lines are prefetched together and stay
    // until they are used.
    constexpr int kPreparedMax = 32;
    int prepared = 0;
    for (Operation* next = new_.first(); next != nullptr && prepared < kPreparedMax; ++prepared) {
      auto& get = static_cast<GetOperation&>(*next);
      get.Prepare(connection_->maps());
      next = OperationQueue::Next(*next);
      // (Prefetching does not help a single lookup.)
      if (prepared > 0 || next != nullptr) get.Prefetch();
    }
    for (; prepared > 0; --prepared) {
      auto& get = static_cast<GetOperation&>(*new_.first());
      get.Begin(read_bytes_max);
      Place(get, now);
    }
  }
}

void Engine::PostReads(absl::Time now) {
  PostReadsOfAll(now);
  // Operations that found no buffer try again with buffers that were not in use.
  if (read_buffers_.TakeRanOut() && ReclaimBuffers()) PostReadsOfAll(now);
}

ReadBatches::Source Engine::ReadSource() const {
  const rdma::ConnectionLimits& limits = connection_->limits();
  return {connection_->id(), connection_->terms().region, limits.read_bytes_max,
          limits.reads_in_flight_max / size_t{4}};
}

void Engine::PostReadsOfAll(absl::Time now) {
  const ReadBatches::Source source = ReadSource();
  PostValueReads(source, now);
  scans_.Advance(source, connection_->maps(), now);
  while (!to_read_.empty()) {
    if (batches_.Post(source, to_read_, now) > 0) continue;
    auto& first = static_cast<GetOperation&>(*to_read_.first());
    const uint32_t length = first.read().length;
    if (first.buffer().size() >= length || read_buffers_.CanEverHold(length))
      return;  // its turn will come
    End(first, read_buffers_.error());
  }
}

// GETs keep their buffers from READ to READ, and short ones from operation to operation. Together
// they may hold the whole pool. Then a GET that needs a longer buffer would never get one.
bool Engine::ReclaimBuffers() {
  const uint64_t before = read_buffers_.taken_bytes();
  mapped_.ReleaseBuffer();
  groups_.ReleaseBuffers();
  for (const std::unique_ptr<GetOperation>& get : gets_) {
    if (get->NeedsNothingOfBuffer()) get->buffer().Reset();
  }
  return read_buffers_.taken_bytes() < before;
}

void Engine::PostValueReads(const ReadBatches::Source& source, absl::Time now) {
  while (value_reads_.Post(source, fetching_, now) == ValueReads::Posted::kNoBuffer) {
    End(static_cast<GetOperation&>(*fetching_.first()), read_buffers_.error());
  }
}

// READs end in the order in which they were posted. So the end of any READ is progress for all, the
// connection's own included.
absl::Time Engine::ReadsStuckSince() const {
  if (outstanding_reads() == 0) return absl::InfiniteFuture();
  return std::max({read_ended_at_, batches_.progress_at(), groups_.progress_at(),
                   value_reads_.progress_at(), scans_.progress_at()});
}

// Handles the timers of the connection, and READs that do not end.
void Engine::Watch(absl::Time now) {
  if (connection_->ready() && now < next_watch_) return;
  if (connection_->answers_count() && now - ReadsStuckSince() >= kReadsStuckMax()) {
    connection_->Fail(rdma::PeerGoneError("READs did not end"));
  }
  if (connection_->state() == Connection::State::kLeaving && outstanding_reads() == 0 &&
      session_.unanswered() == 0) {
    connection_->Fail(rdma::ShuttingDownError(connection_->uri()));
  }
  connection_->Advance(nullptr, now);
  // Later posts and messages of the engine only move these timers back. The connection's own events
  // may not.
  next_watch_ =
      std::min(connection_->NextTimer(), std::min(ReadsStuckSince(), now) + kReadsStuckMax());
}

// R4: an answer must be delivered by its deadline. The process may have been stopped since the time
// of Poll: between the completion and here, or in a callback. So the clock is read before each
// answer, as the last step.
void Engine::RunCallbacks() {
  if (done_.empty() && deferred_.empty() && !scans_.has_done()) return;
  const auto is_late = [this](absl::Time deadline) { return IsLate(deadline); };
  // (A callback that another one adds is run in the same round, also if the vector is reallocated.)
  for (size_t i = 0; i < deferred_.size(); ++i) {
    absl::AnyInvocable<void()> done = std::move(deferred_[i]);
    --in_flight_;
    ++ended_;
    done();
  }
  deferred_.clear();
  while (scans_.has_done()) {
    --in_flight_;
    ++ended_;
    scans_.RunCallback(is_late, DeadlineError());
  }
  while (!done_.empty()) {
    Operation& operation = done_.PopFront();
    --in_flight_;
    ++ended_;
    const bool late = operation.is_answered() && is_late(operation.deadline());
    if (operation.type() == Operation::Type::kGet) {
      auto& get = static_cast<GetOperation&>(operation);
      if (late) get.Disbelieve(DeadlineError());
      free_gets_.push_back(&get);
      if (get.begun_at() != absl::InfinitePast()) report_.Lasted(ReadClock() - get.begun_at());
      get.RunCallback();
    } else {
      auto& message = static_cast<MessageOperation&>(operation);
      if (late) message.Disbelieve(DeadlineError());
      free_messages_.push_back(&message);
      message.RunCallback();
    }
  }
}

absl::Time Engine::NextTimer() const {
  absl::Time timer = std::min(next_deadline_, connection_->NextTimer());
  if (connection_->ready()) {
    timer = std::min({timer, next_pause_end_, scans_.NextTimer()});
    // Credits may come back without an event.
    const bool blocked = !to_resend_.empty() || (!to_send_.empty() && session_.HasRoom());
    if (blocked) timer = std::min(timer, polled_at_ + kBlockedStep);
  }
  return std::min(timer, ReadsStuckSince() + kReadsStuckMax());
}

// --- Ending --------------------------------------------------------------------------------------

void Engine::ExpireOperations(absl::Time now) {
  if (now < next_deadline_) return;
  next_deadline_ = absl::InfiniteFuture();
  const auto expired = [&](const Operation& operation) {
    if (!operation.active() || !operation.last_error().ok()) return false;
    if (now >= operation.deadline()) return true;
    next_deadline_ = std::min(next_deadline_, operation.deadline());
    return false;
  };
  for (const std::unique_ptr<GetOperation>& get : gets_) {
    if (expired(*get)) FailAfterDrain(*get, LateError(true));
  }
  for (const std::unique_ptr<MessageOperation>& message : messages_) {
    if (expired(*message))
      FailAfterDrain(*message, LateError(!message->ever_sent() || !message->is_write()));
  }
  groups_.Expire(now, LateError(true), *this);
  scans_.Expire(now, LateError(true));
  next_deadline_ = std::min({next_deadline_, groups_.NextDeadline(), scans_.NextDeadline()});
}

// `never_sent`: no message of the operation was sent; its READs do not count.
absl::Status Engine::LateError(bool never_sent) const {
  if (!connection_->answers_count() && never_sent) {
    const absl::Status& last = connection_->last_error();
    return Error(absl::StatusCode::kUnavailable, Reason::kNoConnection,
                 absl::StrCat("no connection to ", connection_->uri(), " by the deadline",
                              last.ok() ? "" : ": ", last.message()));
  }
  return DeadlineError();
}

void Engine::End(GetOperation& get, absl::Status error) {
  if (get.state() == GetOperation::State::kReading) batches_.Abandon(get);
  if (get.state() == GetOperation::State::kFetching) value_reads_.Abandon(get);
  if (get.sequence() != 0) session_.Abandon(get, Buffer());
  get.Finish(std::move(error));
  OperationQueue::Remove(get);
  done_.PushBack(get);
}

void Engine::End(MessageOperation& message, const absl::Status& error) {
  if (message.state() == MessageOperation::State::kSent) {
    session_.Abandon(message, message.by_rendezvous() ? std::move(message.value()) : Buffer());
  } else if (message.sequence() != 0) {
    // Its connection is gone: no answer will come, and no READ of its value.
    session_.Remove(message.sequence());
  }
  message.Finish(error);
  Place(message);
}

void Engine::End(Operation& operation, const absl::Status& error) {
  if (operation.type() == Operation::Type::kGet)
    return End(static_cast<GetOperation&>(operation), error);
  End(static_cast<MessageOperation&>(operation), error);
}

void Engine::Close() {
  assert(!polling_);
  closed_ = true;
  for (const std::unique_ptr<GetOperation>& get : gets_) {
    if (get->active()) FailAfterDrain(*get, ClosedError());
  }
  for (const std::unique_ptr<MessageOperation>& message : messages_) {
    if (message->active()) FailAfterDrain(*message, ClosedError());
  }
  groups_.Expire(absl::InfiniteFuture(), ClosedError(), *this);
  scans_.EndAll(ClosedError());
  polling_ = true;
  RunCallbacks();
  polling_ = false;
  SendLastReport();
  connection_->Close();
}

std::string Engine::Describe() const {
  if (!connection_->answers_count())
    return absl::StrCat("not connected server=", connection_->uri());
  return absl::StrCat(transport_->Describe(connection_->id()), " server=", connection_->uri());
}

}  // namespace osprey::client
