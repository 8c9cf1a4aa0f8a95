#include "server/cluster/node/cluster_node.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cassert>
#include <map>

#include "absl/strings/str_cat.h"
#include "rdma/background_thread.h"
#include "rdma/lease_time.h"
#include "rdma/reasons.h"
#include "server/cluster/right/right_times.h"

namespace osprey::server {
namespace {

// A member's own times are not known, so the thread turns at least so often.
constexpr absl::Duration kTurnMax() { return absl::Milliseconds(10); }
constexpr absl::Duration kCallTimeout() { return absl::Milliseconds(900); }
// From the request to end: a successor has the data by then, or none gets it.
constexpr absl::Duration kHandOverMax() { return absl::Seconds(3); }
// A READ's lease covers partitions; this server serves all of them, or none.
constexpr uint64_t kAllPartitions = ~uint64_t{0};

bool IsAck(const LinkEvent& event) {
  return event.kind == LinkEvent::Kind::kMessage &&
         event.message_kind == static_cast<uint8_t>(PeerMessageKind::kAck);
}

}  // namespace

// --- Start and end -----------------------------------------------------------

ClusterNode::ClusterNode(NodeOptions options, NodeParts parts)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      clock_(MachineClocks()),
      steps_(*this, parts_.writes, parts_.wake, options_.spin),
      lingering_(options_.spin),
      links_({.server = options_.server,
              .cluster_id = options_.cluster.id,
              .key = options_.key,
              .random = options_.random,
              .log = options_.log},
             options_.listen, options_.new_ports) {}

absl::Status ClusterNode::Open() {
  if (!steps_.valid())
    return absl::ResourceExhaustedError(
        "no descriptor is left for the cluster's thread; allow more open files (ulimit -n)");
  if (!clock_.warning().empty()) options_.log(clock_.warning());
  const auto wake = [&wake = parts_.wake] { wake.Ring(); };
  for (const auto& [thread, name] :
       {std::pair(&renewal_thread_, "osprey-renewal"), std::pair(&call_thread_, "osprey-store"),
        std::pair(&session_thread_, "osprey-sessions")}) {
    absl::StatusOr<std::unique_ptr<CallThread>> started = CallThread::Start(name, wake);
    if (!started.ok()) return started.status();
    *thread = *std::move(started);
  }
  tables_.emplace(parts_.tables, options_.random(), static_cast<ReplicaTables::Owner&>(*this),
                  *session_thread_);
  member_.emplace(MemberOptions{.keys = options_.keys,
                                .cluster = options_.cluster,
                                .server = options_.server,
                                .addresses = options_.listen,
                                .ttl = kRightTtl(),
                                .backup_timeout = options_.backup_timeout,
                                .random = options_.random,
                                .log = options_.log},
                  std::vector<ReplicaTable*>{&*tables_}, links_);
  if (absl::Status status = links_.Begin(member_->incarnation(), clock_.Now()); !status.ok())
    return status;
  beat_.emplace(parts_.region, parts_.region_incarnation, member_->incarnation());
  absl::StatusOr<std::unique_ptr<BeatThread>> beats = BeatThread::Start(
      *beat_, [this] { return clock_.Now(); }, [this] { return BeatBounds(); });
  if (!beats.ok()) return beats.status();
  beat_thread_ = *std::move(beats);
  void* (*const run)(void*) = [](void* self) -> void* {
    static_cast<ClusterNode*>(self)->Run();
    return nullptr;
  };
  started_ = rdma::StartBackgroundThread("osprey-cluster", run, this, thread_);
  if (started_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      "cannot start the cluster's thread; allow more threads (TasksMax=, ulimit -u)");
}

absl::StatusOr<std::unique_ptr<ClusterNode>> ClusterNode::Start(NodeOptions options,
                                                                NodeParts parts) {
  assert(options.cluster.shards == 1);
  std::unique_ptr<ClusterNode> node(new ClusterNode(std::move(options), std::move(parts)));
  if (absl::Status status = node->Open(); !status.ok()) return status;
  return node;
}

ClusterNode::~ClusterNode() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);  // *else* one that begins to wait misses it
    ends_ = true;
  }
  changed_.notify_all();
  parts_.wake.Ring();
  if (started_) pthread_join(thread_, nullptr);
  // Calls that are under way write to members.
  session_thread_.reset();
  call_thread_.reset();
  renewal_thread_.reset();
  if (beat_.has_value()) ReleaseRight();
  beat_thread_.reset();
}

// The region serves no reader from now on, but for the leases that were given.
void ClusterNode::LoseReaders(absl::Time now) {
  beat_->Loses(kAllPartitions);
  gained_ = false;
  leases_end_ = now + AwaitedFor(kReaderLease());
}

// If that fails, the key ends by itself, and others wait for that.
void ClusterNode::ReleaseRight() {
  if (gained_) LoseReaders(clock_.Now());
  while (clock_.Now() < leases_end_) absl::SleepFor(leases_end_ - clock_.Now());
  const std::optional<Transaction> release = member_->Release();
  if (!release.has_value() || !member_->store_status().ok()) return;
  const TransactionResult result = parts_.calls.Execute(*release, kCallTimeout());
  if (result.outcome != TransactionOutcome::kApplied && !result.status.ok()) {
    options_.log(absl::StrCat("this server's key stays in the store, and others wait for its end: ",
                              result.status.message()));
  }
}

// --- Service -----------------------------------------------------------------

absl::StatusOr<std::optional<std::vector<SessionImage>>> ClusterNode::AwaitService(
    const std::atomic<bool>& stop) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop && failure_.ok() && service_ != Service::kOffered)
    changed_.wait_for(lock, std::chrono::milliseconds(50));
  if (!failure_.ok()) return failure_;
  if (stop) return std::nullopt;
  service_ = Service::kTaken;
  return std::exchange(sessions_, {});
}

void ClusterNode::BeginService(
    std::function<void()> end,
    std::function<std::optional<std::vector<SessionImage>>()> take_sessions) {
  const std::lock_guard<std::mutex> lock(mutex_);
  end_ = std::move(end);
  take_sessions_ = std::move(take_sessions);
  if (service_ == Service::kIsEnding) return end_();
  service_ = Service::kRuns;
}

void ClusterNode::EndService(std::vector<SessionImage> sessions) {
  const uint64_t made = Made();
  parts_.tables.DropPrepared();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !takes_sessions_; });
    sessions_ = std::move(sessions);
    made_ = made;
    end_ = nullptr;
    take_sessions_ = nullptr;
    service_ = Service::kNone;
  }
  changed_.notify_all();
}

// Groups whose changes are made, up to this number. Mostly some more are.
uint64_t ClusterNode::Made() const {
  uint64_t made = parts_.writes.decided();
  for (const ReplicatedChanges* const changes : parts_.changes)
    made = std::min(made, changes->oldest_pending() - 1);
  return made;
}

uint64_t ClusterNode::EndService(std::vector<SessionImage>& sessions) {
  answers_until_ns_ = kNever;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (service_ == Service::kPrepared || service_ == Service::kOffered) {
      service_ = Service::kNone;
      made_ = 0;
      parts_.writes.End(absl::UnavailableError("this server is the primary no more"));
    } else {
      service_ = Service::kIsEnding;
      // First this: *else* the failure of a Commit ends the process.
      if (end_) end_();
      parts_.writes.End(
          absl::UnavailableError("this server is the primary no more, and goes on as a backup"));
      steps_.WakeSleeper();
      changed_.wait(lock, [this] { return service_ == Service::kNone || ends_; });
    }
    sessions = std::exchange(sessions_, {});
  }
  uint64_t lsn = 0;
  for (const Numbered& group : groups_) {
    if (group.number <= made_ && group.lsn <= committed_lsn_) lsn = group.lsn;
  }
  groups_.clear();
  return lsn;
}

std::optional<std::vector<SessionImage>> ClusterNode::TakeSessions() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (service_ != Service::kRuns) return std::nullopt;
    takes_sessions_ = true;  // until then EndService waits
  }
  std::optional<std::vector<SessionImage>> sessions = take_sessions_();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    takes_sessions_ = false;
  }
  changed_.notify_all();
  return sessions;
}

bool ClusterNode::has_engines() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return service_ == Service::kRuns;
}

absl::Status ClusterNode::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

// --- The cluster's thread ----------------------------------------------------

void ClusterNode::Run() {
  while (!ends_) {
    if (Step()) continue;
    if (lingering_.spins() && lingering_.Goes(clock_.Now())) {
      sched_yield();
    } else {
      Sleep();
    }
  }
}

// True if something was done: there may be more.
bool ClusterNode::Step() {
  const std::unique_lock<std::mutex> lock = steps_.Lock();
  const absl::Time now = clock_.Now();
  bool worked = RunStore(now);
  if (links_.incarnation() != member_->incarnation()) TakeIncarnation(now);
  worked |= RunLinks(now);
  worked |= OfferService();
  if (options_.stop) Stop(now);
  ReviewMarks(now);
  worked |= DecideGroups(now);
  worked |= CommitGroups();
  member_->Pump(now);
  links_.Flush(now);
  Publish(now);
  if (now - stats_at_ >= kTurnMax()) TakeStats(now);
  steps_.WakeSleeper();
  return worked;
}

void ClusterNode::Sleep() {
  std::vector<pollfd> waits = {{parts_.wake.fd(), POLLIN, 0}};
  absl::Duration time;
  {
    const std::unique_lock<std::mutex> lock = steps_.Lock();
    // *Else* each acknowledgement wakes this thread, too.
    const bool is_driven = steps_.TakeDriven();
    if (!is_driven && !ArmLinks(waits)) return;
    const absl::Time now = clock_.Now();
    time = std::min(kTurnMax(), links_.links().next_timer() - now);
    // *Else* it spins while a renewal is under way.
    if (renewal_thread_->idle()) time = std::min(time, member_->next_renewal() - now);
  }
  if (Await(waits, time)) parts_.wake.Clear();
}

bool ClusterNode::ArmLinks(std::vector<pollfd>& waits) {
  if (!links_.links().Arm()) return false;
  for (const int fd : links_.links().fds()) waits.push_back({fd, POLLIN, 0});
  return true;
}

// It changes no role, and waits for nothing: all that is no acknowledgement is left to the cluster's thread, and
// everything behind it. *Else* a poller waits for the end of its own engine.
bool ClusterNode::DriveStep() {
  if (ends_ || !events_.empty() || !tables_->is_primary()) return false;
  const absl::Time now = clock_.Now();
  bool worked = DecideGroups(now);
  shard().PumpAppends(now);
  worked |= links_.Poll(now, events_);
  size_t acks = 0;
  for (; acks < events_.size() && IsAck(events_[acks]); ++acks) TakeMessage(events_[acks], now);
  events_.erase(events_.begin(), events_.begin() + static_cast<ptrdiff_t>(acks));
  if (!events_.empty()) parts_.wake.Ring();
  return CommitGroups() || worked;
}

void ClusterNode::TakeIncarnation(absl::Time now) {
  for (const uint64_t other : std::exchange(linked_, {})) member_->LinkDown(other);
  if (gained_) LoseReaders(now);
  beat_->TakeIncarnation(member_->incarnation());
  if (absl::Status status = links_.Begin(member_->incarnation(), now); !status.ok())
    return Fail(status);
  links_.SetServers(member_->servers());
}

void ClusterNode::Fail(const absl::Status& why) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = why;
    if (end_) end_();
  }
  ends_ = true;
  answers_until_ns_ = right_until_ns_ = kNever;
  parts_.writes.End(why);
  changed_.notify_all();
}

bool ClusterNode::RunStore(absl::Time now) {
  bool worked = false;
  if (renewal_thread_->TakeDone()) {
    worked = true;
    member_->TakeRenewal(renewal_result_, renewal_sent_, clock_.Now());
  }
  if (renewal_thread_->idle() && now >= member_->next_renewal()) {
    const Transaction renewal = member_->NextRenewal();
    renewal_sent_ = clock_.Now();
    renewal_thread_->Begin(
        [this, renewal] { renewal_result_ = parts_.renewals.Execute(renewal, kRenewalTimeout()); });
  }
  if (call_thread_->TakeDone()) {
    worked = true;
    if (call_.range.has_value()) {
      member_->TakeRead(call_read_, clock_.Now());
      links_.SetServers(member_->servers());
    } else {
      member_->TakeResult(call_result_, clock_.Now());
    }
  }
  if (!call_thread_->idle()) return worked;
  std::optional<StoreCall> call = member_->NextCall(clock_.Now());
  if (!call.has_value()) return worked;
  call_ = *std::move(call);
  // Before a swap that makes another server the primary.
  Publish(now);
  call_thread_->Begin([this] {
    if (call_.range.has_value()) {
      call_read_ = parts_.calls.Range(*call_.range, kCallTimeout());
    } else {
      call_result_ = parts_.calls.Execute(call_.transaction, kCallTimeout());
    }
  });
  return true;
}

bool ClusterNode::RunLinks(absl::Time now) {
  if (ends_) return false;
  const bool worked = links_.Poll(now, events_) || !events_.empty();  // which a poller has left
  for (const LinkEvent& event : events_) {
    switch (event.kind) {
      case LinkEvent::Kind::kConnected:
        linked_.insert(event.incarnation);
        member_->LinkUp(event.incarnation);
        break;
      case LinkEvent::Kind::kDisconnected:
        linked_.erase(event.incarnation);
        member_->LinkDown(event.incarnation);
        break;
      case LinkEvent::Kind::kMessage:
        TakeMessage(event, now);
        // A backup's next append comes soon, if the client writes again.
        if (!tables_->is_primary()) lingering_.Came(now);
        break;
    }
  }
  events_.clear();
  if (!links_.links().failure().ok()) Fail(links_.links().failure());
  return worked;
}

void ClusterNode::TakeMessage(const LinkEvent& event, absl::Time now) {
  if (absl::Status status = member_->TakeMessage(
          event.incarnation, static_cast<PeerMessageKind>(event.message_kind), event.body, now);
      !status.ok())
    options_.log(absl::StrCat("another server sends what it may not: ", status.message()));
}

// The clock goes on first: expiries are judged from then on.
void ClusterNode::TakeOver() {
  const uint64_t mark_ns = tables_->time_mark_ns();
  parts_.clock.AdvanceTo(absl::FromUnixNanos(static_cast<int64_t>(mark_ns)));
  parts_.writes.marks().Begin(mark_ns, parts_.tables.stats().expiring_keys > 0);
  parts_.writes.Begin(&steps_);
  committed_ = parts_.writes.decided();
  committed_lsn_ = 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  sessions_ = tables_->TakeOver();
  service_ = Service::kPrepared;
}

// The primary's tables are the engines' once its tail is applied, and it may judge expiries.
bool ClusterNode::OfferService() {
  if (ends_ || !shard().serves()) return false;
  if (!tables_->is_primary()) TakeOver();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (service_ != Service::kPrepared || !parts_.writes.marks().MayJudge(parts_.clock.Now()))
      return false;
    service_ = Service::kOffered;
  }
  ++promotions_;
  options_.log(absl::StrCat("this server is the primary now, in term ", shard().replica().term()));
  changed_.notify_all();
  return true;
}

bool ClusterNode::DecideGroups(absl::Time now) {
  if (ends_ || !tables_->is_primary()) return false;
  std::vector<ReplicatedWrites::Group> decided;
  if (member_->MayDecide(0, now)) decided = parts_.writes.TakeDecided();
  bool worked = !decided.empty();
  // Before these groups, which may have the first key that expires.
  if (member_->Serves(0, now)) worked |= DecideMark();
  for (ReplicatedWrites::Group& group : decided)
    groups_.push_back({group.number, shard().Decide(std::move(group.body), group.entries)});
  return worked;
}

bool ClusterNode::CommitGroups() {
  if (ends_ || !tables_->is_primary()) return false;
  const uint64_t held_point = shard().held_point();
  for (Numbered& group : groups_) {
    if (group.mark_ns == 0 || group.lsn > held_point) continue;
    tables_->NoteTimeMark(group.mark_ns);
    parts_.writes.marks().NoteHeld(std::exchange(group.mark_ns, 0));
  }
  const uint64_t commit_point = committed_lsn_ = shard().commit_point();
  uint64_t committed = committed_;
  for (const Numbered& group : groups_) {
    if (group.lsn > commit_point) break;
    committed = std::max(committed, group.number);
  }
  const bool worked = committed > committed_;
  if (worked) {
    committed_ = committed;
    parts_.writes.NoteCommitted(committed);
  }
  const uint64_t made = std::min(Made(), committed_);
  uint64_t lsn = 0;
  for (; !groups_.empty() && groups_.front().number <= made && groups_.front().lsn <= commit_point;
       groups_.pop_front())
    lsn = groups_.front().lsn;
  if (lsn != 0) shard().MarkApplied(lsn);
  return worked;
}

// Those that etcd names, and those of the record, which may be gone.
std::vector<ClusterStats::Member> ClusterNode::Members(const ShardRecord& record) const {
  std::map<std::string, ClusterStats::Member> members;
  for (const auto& [id, server] : member_->servers()) {
    ClusterStats::Member& member = members[id];
    member.is_known = true;
    member.is_linked = server.record.has_value() && linked_.contains(server.record->incarnation);
  }
  for (const Replica& replica : record.in_sync) members[replica.server].is_in_sync = true;
  std::vector<ClusterStats::Member> list;
  for (auto& [id, member] : members) {
    member.server = id;
    member.is_primary = id == record.primary;
    member.is_self = id == options_.server;
    list.push_back(std::move(member));
  }
  return list;
}

void ClusterNode::TakeStats(absl::Time now) {
  stats_at_ = now;
  const ShardRecord& record = shard().record().record;
  ClusterStats stats;
  stats.is_primary = tables_->is_primary() && member_->Serves(0, now);
  stats.term = record.term;
  stats.in_sync = record.in_sync.size();
  stats.replicas = options_.cluster.replicas;
  stats.right_left = std::max(member_->right_until() - now, absl::ZeroDuration());
  stats.links = linked_.size();
  stats.promotions = promotions_;
  stats.groups = parts_.writes.decided();
  stats.groups_waiting = tables_->is_primary() ? stats.groups - committed_ : 0;
  stats.members = Members(record);
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_ = std::move(stats);
}

ClusterStats ClusterNode::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

// Takes the locks of partitions, for which a poller that drives does not wait.
void ClusterNode::ReviewMarks(absl::Time now) {
  if (ends_ || !tables_->is_primary() || !member_->Serves(0, now)) return;
  parts_.writes.marks().Review(
      parts_.clock.Now(), [this] { return parts_.tables.stats().expiring_keys; },
      [this] { return Made() == parts_.writes.decided(); });
}

// Also with fewer members than writes need: else reads of keys that expire end, too.
bool ClusterNode::DecideMark() {
  TimeMarks& marks = parts_.writes.marks();
  const std::optional<uint64_t> mark_ns = marks.Due(parts_.clock.Now());
  if (!mark_ns.has_value()) return false;
  const uint64_t number = groups_.empty() ? committed_ : groups_.back().number;
  groups_.push_back({number, shard().Decide(TimeMarkBody(*mark_ns), 1), *mark_ns});
  return true;
}

// The server's clock is read last: *else* the bound is late by what passes in between.
ServingBounds ClusterNode::BeatBounds() {
  ServingBounds bounds{absl::FromUnixNanos(right_until_ns_.load())};
  const absl::Time mark = parts_.writes.marks().ReadsUntil();
  if (mark == absl::InfiniteFuture()) return bounds;
  const absl::Time now = clock_.Now();
  bounds.mark = now + (mark - parts_.clock.Now());
  return bounds;
}

// Another member, to which there is a link; nullptr: none.
const Replica* ClusterNode::Successor() const {
  for (const Replica& member : member_->shard(0).record().record.in_sync) {
    if (member.server != options_.server && linked_.contains(member.incarnation)) return &member;
  }
  return nullptr;
}

void ClusterNode::Stop(absl::Time now) {
  if (stops_at_ == absl::InfiniteFuture()) {
    const Replica* const successor = shard().serves() ? Successor() : nullptr;
    stops_at_ = successor == nullptr ? now : now + kHandOverMax();
    if (successor != nullptr) {
      options_.log(absl::StrCat("the data is handed over to server ", successor->server));
      shard().HandOverTo(successor->server, now);
    }
  }
  if (now < stops_at_) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (end_) end_();
  }
  // Writes that wait for other servers wait no longer.
  if (now >= stops_at_ + kHandOverMax())
    parts_.writes.End(absl::UnavailableError("the server is about to end"));
}

// What other threads may do from now on.
void ClusterNode::Publish(absl::Time now) {
  if (ends_) return;
  const bool is_primary = tables_->is_primary();
  const absl::Time right = member_->right_until();
  right_until_ns_ = absl::ToUnixNanos(right);
  answers_until_ns_ = is_primary && shard().serves() ? absl::ToUnixNanos(right) : kNever;
  const bool publishes = is_primary && shard().publishes();
  if (gained_ && !publishes) LoseReaders(now);
  if (publishes && !gained_) {
    beat_->Gains(kAllPartitions);
    gained_ = true;
  }
  absl::Status refusal;
  if (is_primary && !member_->MayDecide(0, now)) {
    refusal = now < right
                  ? MakeError(Reason::kTooFewReplicas,
                              "too few servers of the cluster have a copy of the data")
                  : absl::UnavailableError("this server cannot reach the cluster's store now");
  }
  parts_.writes.RefuseWith(refusal);
}

}  // namespace osprey::server
