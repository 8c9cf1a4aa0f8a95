#include "server/cluster/node/shard_node.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rdma/lease_time.h"
#include "rdma/reasons.h"
#include "server/cluster/replication/test_hooks.h"
#include "server/cluster/table/time_marks.h"

namespace osprey::server {
namespace {

// From the request to end: a successor has the data by then, or none gets it.
constexpr absl::Duration kHandOverMax() { return absl::Seconds(3); }

}  // namespace

ShardNode::ShardNode(NodeContext context, ShardParts parts)
    : context_(std::move(context)),
      parts_(std::move(parts)),
      tables_(parts_.tables, context_.random(), static_cast<ReplicaTables::Owner&>(*this),
              context_.asker) {}

void ShardNode::Begin(ClusterMember& member) {
  member_ = &member;
  beat_.emplace(parts_.region, parts_.region_incarnation, member.incarnation());
}

void ShardNode::Hold(uint32_t number) {
  assert(is_free() && service_ == Service::kNone);
  number_ = number;
  holds_shard_ = true;
  // The earlier shard's may be ahead by more than a mark. *Else* keys of this one end early.
  parts_.clock.Restart();
  stops_at_ = absl::InfiniteFuture();
  stop_term_ = 0;
}

void ShardNode::Free() {
  assert(!is_free() && !tables_.is_primary());
  if (gained_) LoseReaders();
  number_.reset();
  holds_shard_ = false;
}

void ShardNode::Log(absl::string_view line) const {
  context_.log(context_.cluster.shards == 1 ? std::string(line)
                                            : absl::StrCat("shard ", *number_, ": ", line));
}

// --- Readers -----------------------------------------------------------------

// The region serves no reader from now on, but for the leases that were given.
// The clock is read behind that. *Else* leases that were given meanwhile outlive what is awaited.
void ShardNode::LoseReaders() {
  beat_->Loses(uint64_t{1} << *number_);
  gained_ = false;
  const absl::Time lost = context_.clock.Now();
  leases_end_ = lost + AwaitedFor(kReaderLease());
  shard().ReadersEnd(lost);
}

void ShardNode::TakeIncarnation() {
  if (gained_) LoseReaders();
  beat_->TakeIncarnation(member_->incarnation());
}

absl::Time ShardNode::EndReaders() {
  if (gained_) LoseReaders();
  return leases_end_;
}

// The server's clock is read last: *else* the bound is late by what passes in between.
ServingBounds ShardNode::BeatBounds() {
  ServingBounds bounds{absl::FromUnixNanos(right_until_ns_.load())};
  const absl::Time mark = parts_.writes.marks().ReadsUntil();
  if (mark == absl::InfiniteFuture()) return bounds;
  const absl::Time now = context_.clock.Now();
  bounds.mark = now + (mark - parts_.clock.Now());
  return bounds;
}

// --- Service -----------------------------------------------------------------

absl::StatusOr<std::optional<OfferedService>> ShardNode::AwaitService() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock,
                [this] { return may_end_ || !failure_.ok() || service_ == Service::kOffered; });
  if (!failure_.ok()) return failure_;
  if (may_end_) return std::nullopt;
  service_ = Service::kTaken;
  return OfferedService{offered_shard_, std::exchange(sessions_, {})};
}

void ShardNode::BeginService(
    std::function<void()> end,
    std::function<std::optional<std::vector<SessionImage>>()> take_sessions) {
  const std::lock_guard<std::mutex> lock(mutex_);
  end_ = std::move(end);
  take_sessions_ = std::move(take_sessions);
  if (service_ == Service::kIsEnding || !failure_.ok()) return end_();
  service_ = Service::kRuns;
}

void ShardNode::EndService(std::vector<SessionImage> sessions) {
  {
    // Before what is pending is dropped. *Else* the cluster's thread takes that for made, and this replica lacks it.
    const std::lock_guard<std::mutex> lock(mutex_);
    made_ = MadeByEngines();
  }
  parts_.tables.DropPrepared();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !takes_sessions_; });
    sessions_ = std::move(sessions);
    end_ = nullptr;
    take_sessions_ = nullptr;
    service_ = Service::kNone;
  }
  changed_.notify_all();
}

// Groups whose changes are made, up to this number. Mostly some more are.
uint64_t ShardNode::Made() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return made_.has_value() ? *made_ : MadeByEngines();
}

uint64_t ShardNode::MadeByEngines() const {
  uint64_t made = parts_.writes.decided();
  for (const ReplicatedChanges* const changes : parts_.changes)
    made = std::min(made, changes->oldest_pending() - 1);
  return made;
}

EndedService ShardNode::EndService() {
  answers_until_ns_ = kNever;
  EndedService ended;
  uint64_t made = 0;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (service_ == Service::kPrepared || service_ == Service::kOffered) {
      service_ = Service::kNone;
      parts_.writes.End(absl::UnavailableError("this server is the primary no more"));
    } else {
      // (kNone: they have ended by themselves, and none is left to answer.)
      if (service_ != Service::kNone) service_ = Service::kIsEnding;
      // First this: *else* the failure of a Commit ends the process.
      if (end_) end_();
      parts_.writes.End(
          absl::UnavailableError("this server is the primary no more, and goes on as a backup"));
      changed_.wait(lock, [this] { return service_ == Service::kNone || context_.ends; });
      made = parts_.writes.TakeWhole(std::min(made_.value_or(0), committed_));
    }
    ended.sessions = std::exchange(sessions_, {});
  }
  for (const Numbered& group : groups_) {
    if (group.number <= made && group.lsn <= committed_lsn_) ended.made = group.lsn;
  }
  groups_.clear();
  ended.dropped = parts_.writes.TakeDropped();
  return ended;
}

std::optional<std::vector<SessionImage>> ShardNode::TakeSessions() {
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

bool ShardNode::has_engines() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return service_ == Service::kRuns;
}

void ShardNode::Fail(const absl::Status& why) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = why;
    if (end_) end_();
  }
  answers_until_ns_ = right_until_ns_ = kNever;
  parts_.writes.End(why);
  changed_.notify_all();
}

void ShardNode::NotifyEnd() {
  // *Else* one that begins to wait misses it.
  { const std::lock_guard<std::mutex> lock(mutex_); }
  changed_.notify_all();
}

// --- Steps -------------------------------------------------------------------

// The clock goes on first: expiries are judged from then on.
void ShardNode::TakeOver() {
  const uint64_t mark_ns = tables_.time_mark_ns();
  parts_.clock.AdvanceTo(absl::FromUnixNanos(static_cast<int64_t>(mark_ns)));
  parts_.writes.marks().Begin(mark_ns, parts_.tables.stats().expiring_keys > 0);
  parts_.writes.Begin(&context_.driver);
  committed_ = parts_.writes.decided();
  committed_lsn_ = 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  offered_shard_ = *number_;
  sessions_ = tables_.TakeOver();
  made_.reset();
  service_ = Service::kPrepared;
}

// The primary's tables are the engines' once its tail is applied, and it may judge expiries.
bool ShardNode::OfferService() {
  if (context_.ends || is_free() || !shard().serves()) return false;
  if (!tables_.is_primary()) TakeOver();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (service_ != Service::kPrepared || !parts_.writes.marks().MayJudge(parts_.clock.Now()))
      return false;
    service_ = Service::kOffered;
  }
  ++promotions_;
  Log(absl::StrCat("this server is the primary now, in term ", shard().replica().term()));
  changed_.notify_all();
  return true;
}

bool ShardNode::DecideGroups(absl::Time now) {
  if (context_.ends || !tables_.is_primary()) return false;
  // Also with fewer members than writes need: they are committed later. *Else* the copy that is missing waits
  // for evictions, and they for it.
  if (!member_->Serves(*number_, now)) return false;
  std::vector<ReplicatedWrites::Group> decided = parts_.writes.TakeDecided();
  // Before these groups, which may have the first key that expires.
  const bool worked = DecideMark() || !decided.empty();
  for (ReplicatedWrites::Group& group : decided)
    groups_.push_back({group.number, shard().Decide(std::move(group.body), group.entries)});
  return worked;
}

bool ShardNode::DecideMark() {
  TimeMarks& marks = parts_.writes.marks();
  const std::optional<uint64_t> mark_ns = marks.Due(parts_.clock.Now());
  if (!mark_ns.has_value()) return false;
  groups_.push_back({placed(), shard().Decide(TimeMarkBody(*mark_ns), 1), *mark_ns});
  return true;
}

bool ShardNode::CommitGroups() {
  if (context_.ends || !tables_.is_primary()) return false;
  const uint64_t held_point = shard().held_point();
  for (Numbered& group : groups_) {
    if (group.mark_ns == 0 || group.lsn > held_point) continue;
    tables_.NoteTimeMark(group.mark_ns);
    parts_.writes.marks().NoteHeld(std::exchange(group.mark_ns, 0));
  }
  const uint64_t commit_point = committed_lsn_ = shard().commit_point();
  uint64_t committed = committed_;
  for (const Numbered& group : groups_) {
    if (group.lsn > commit_point) break;
    committed = std::max(committed, group.number);
  }
  if (IsMistake(ReplicationMistake::kAnswersUncommitted)) committed = placed();
  const bool worked = committed > committed_;
  if (worked) {
    committed_ = committed;
    parts_.writes.NoteCommitted(committed);
  }
  const uint64_t made = parts_.writes.TakeWhole(std::min(Made(), committed_));
  uint64_t lsn = 0;
  for (; !groups_.empty() && groups_.front().number <= made && groups_.front().lsn <= commit_point;
       groups_.pop_front())
    lsn = groups_.front().lsn;
  if (lsn != 0) shard().MarkApplied(lsn);
  return worked;
}

void ShardNode::ReviewMarks(absl::Time now) {
  if (context_.ends || !tables_.is_primary() || !member_->Serves(*number_, now)) return;
  parts_.writes.marks().Review(
      parts_.clock.Now(), [this] { return parts_.tables.stats().expiring_keys; },
      [this] { return Made() == parts_.writes.decided(); });
}

// A backup's clock is not behind its primary's by more than a mark takes to come: a mark was decided kAhead
// before its time. *Else* time that passes without a primary does not count, and keys end later.
void ShardNode::FollowClock() {
  if (tables_.is_primary()) return;
  const absl::Time mark = absl::FromUnixNanos(static_cast<int64_t>(tables_.time_mark_ns()));
  parts_.clock.AdvanceTo(mark - TimeMarks::kAhead());
}

void ShardNode::Publish(absl::Time now) {
  if (context_.ends) return;
  FollowClock();
  const bool is_primary = tables_.is_primary();
  const absl::Time right = member_->right_until();
  right_until_ns_ = absl::ToUnixNanos(right);
  answers_until_ns_ = is_primary && shard().serves() ? absl::ToUnixNanos(right) : kNever;
  const bool publishes = is_primary && shard().publishes();
  if (gained_ && !publishes) LoseReaders();
  if (publishes && !gained_) {
    beat_->Gains(uint64_t{1} << *number_);
    gained_ = true;
  }
  absl::Status refusal;
  if (is_primary && !member_->MayDecide(*number_, now)) {
    refusal = now < right
                  ? MakeError(Reason::kTooFewReplicas,
                              "too few servers of the cluster have a copy of the data")
                  : absl::UnavailableError("this server cannot reach the cluster's store now");
  }
  parts_.writes.RefuseWith(refusal);
}

// --- The end, and figures ------------------------------------------------------

// Another member, to which there is a link, and which moves away only if there is no other; nullptr: none.
const Replica* ShardNode::Successor(const std::set<uint64_t>& linked) const {
  const ShardRecord& record = shard().record().record;
  std::vector<const Replica*> members;
  const Replica* leaving = nullptr;
  for (const Replica& member : record.in_sync) {
    if (member.server == context_.server || !linked.contains(member.incarnation)) continue;
    if (record.move.has_value() && record.move->from == member.server) {
      leaving = &member;
    } else {
      members.push_back(&member);
    }
  }
  // The shards of this server go to different ones.
  return members.empty() ? leaving : members[*number_ % members.size()];
}

void ShardNode::Stop(absl::Time now, const ServerEnd& end) {
  if (is_free()) return;
  const bool serves = shard().serves();
  // Also what this server has become the primary of since.
  const bool is_new = serves && shard().replica().term() != stop_term_;
  if (stops_at_ == absl::InfiniteFuture() || is_new) {
    stop_term_ = shard().replica().term();
    // Another one without a link, a copy or a key yet may have it in time. *Else* what this server took over from one
    // that comes back at once is lost.
    const bool waits = serves && context_.cluster.replicas > 1 && end.has_others;
    // Servers that end together hand over to each other.
    stops_at_ = waits ? std::min(now, end.since + kHandOverMax()) + kHandOverMax() : now;
  }
  // Once more if it came to nothing. *Else* a successor that was silent for a moment, dropped and added again is
  // left aside, and the data ends with this server.
  if (serves && !shard().hands_over()) {
    if (const Replica* const successor = Successor(end.linked); successor != nullptr) {
      Log(absl::StrCat("the data is handed over to server ", successor->server));
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

bool ShardNode::IsDone(absl::Time now) const {
  return is_free() || now >= stops_at_ || (!shard().serves() && !tables_.is_primary());
}

void ShardNode::SetMayEnd(bool may_end) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    may_end_ = may_end;
  }
  changed_.notify_all();
}

void ShardNode::TakeStats(absl::Time now, ClusterStats& stats) {
  stats.primaries = tables_.is_primary() && member_->Serves(*number_, now) ? 1 : 0;
  stats.slots = stats.slots_used = 1;
  stats.promotions = promotions_;
  stats.groups = parts_.writes.decided();
  stats.groups_waiting = tables_.is_primary() ? stats.groups - committed_ : 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_ = stats;
}

ClusterStats ShardNode::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

}  // namespace osprey::server
