#include "server/cluster/node/cluster_node.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "rdma/background_thread.h"
#include "server/cluster/right/right_times.h"

namespace osprey::server {
namespace {

// A member's own times are not known, so the thread turns at least so often.
constexpr absl::Duration kTurnMax() { return absl::Milliseconds(10); }
constexpr absl::Duration kCallTimeout() { return absl::Milliseconds(900); }
// A step for each shard and server, so it is not in each turn.
constexpr absl::Duration kStatsInterval() { return absl::Milliseconds(100); }

bool Is(const LinkEvent& event, PeerMessageKind kind) {
  return event.kind == LinkEvent::Kind::kMessage &&
         event.message_kind == static_cast<uint8_t>(kind);
}

}  // namespace

// --- Start and end -----------------------------------------------------------

ClusterNode::ClusterNode(NodeOptions options, NodeParts parts)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      clock_(options_.clock_sources()),
      steps_(*this, parts_.wake, options_.spin),
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
  for (const ShardParts& parts : parts_.slots) {
    slots_.push_back(std::make_unique<ShardNode>(NodeContext{.cluster = options_.cluster,
                                                             .server = options_.server,
                                                             .random = options_.random,
                                                             .log = options_.log,
                                                             .clock = clock_,
                                                             .asker = *session_thread_,
                                                             .driver = steps_,
                                                             .ends = ends_},
                                                 parts));
  }
  std::vector<MemberTable*> tables;
  for (uint32_t shard = 0; shard < options_.cluster.shards; ++shard) {
    tables_.push_back(std::make_unique<ShardTable>(shard, slots_));
    tables.push_back(tables_.back().get());
  }
  member_.emplace(MemberOptions{.keys = options_.keys,
                                .cluster = options_.cluster,
                                .server = options_.server,
                                .addresses = options_.listen,
                                .clients = options_.clients,
                                .slots = static_cast<uint32_t>(slots_.size()),
                                .zone = options_.zone,
                                .ttl = kRightTtl(),
                                .backup_timeout = options_.backup_timeout,
                                .rejoin_after = options_.rejoin_after,
                                .copy_rate = options_.copy_rate,
                                .random = options_.random,
                                .log = options_.log},
                  tables, links_);
  if (absl::Status status = links_.Begin(member_->incarnation(), clock_.Now()); !status.ok())
    return status;
  std::vector<BeatThread::Beating> beatings;
  for (const auto& slot : slots_) {
    slot->Begin(*member_);
    beatings.push_back({&slot->beat(), [&slot = *slot] { return slot.BeatBounds(); }});
  }
  absl::StatusOr<std::unique_ptr<BeatThread>> beats =
      BeatThread::Start(std::move(beatings), [this] { return clock_.Now(); });
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
  assert(!parts.slots.empty());
  std::unique_ptr<ClusterNode> node(new ClusterNode(std::move(options), std::move(parts)));
  if (absl::Status status = node->Open(); !status.ok()) return status;
  return node;
}

ClusterNode::~ClusterNode() {
  ends_ = true;
  for (const auto& slot : slots_) slot->NotifyEnd();
  parts_.wake.Ring();
  if (started_) pthread_join(thread_, nullptr);
  // Calls that are under way write to members.
  session_thread_.reset();
  call_thread_.reset();
  renewal_thread_.reset();
  if (beat_thread_ != nullptr) ReleaseRight();
  beat_thread_.reset();
}

// If that fails, the key ends by itself, and others wait for that.
void ClusterNode::ReleaseRight() {
  absl::Time leases_end = absl::InfinitePast();
  for (const auto& slot : slots_) leases_end = std::max(leases_end, slot->EndReaders());
  while (clock_.Now() < leases_end) absl::SleepFor(leases_end - clock_.Now());
  const std::optional<Transaction> release = member_->Release();
  if (!release.has_value() || !member_->store_status().ok()) return;
  const TransactionResult result = parts_.calls.Execute(*release, kCallTimeout());
  if (result.outcome != TransactionOutcome::kApplied && !result.status.ok()) {
    options_.log(absl::StrCat("this server's key stays in the store, and others wait for its end: ",
                              result.status.message()));
  }
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
  if (!ends_) worked |= StepSlots(now);
  member_->Pump(now);
  links_.Flush(now);
  if (!ends_) Publish(now);
  if (now - links_at_ >= kTurnMax()) SetLinks(now);
  if (now - stats_at_ >= kStatsInterval()) {
    stats_at_ = now;
    TakeStats(now);
  }
  steps_.WakeSleeper();
  return worked;
}

bool ClusterNode::StepSlots(absl::Time now) {
  bool worked = false;
  stops_since_ = options_.stop ? std::min(stops_since_, now) : absl::InfiniteFuture();
  for (const auto& slot : slots_) {
    worked |= slot->OfferService();
    slot->SetEnds(options_.stop);
    if (options_.stop) slot->Stop(now, {linked_, member_->HasOthers(), stops_since_});
    slot->ReviewMarks(now);
    worked |= slot->DecideGroups(now);
    worked |= slot->CommitGroups();
  }
  // All slots end together. *Else* a server that becomes the primary of a shard meanwhile ends with its data.
  const bool may_end =
      options_.stop && std::all_of(slots_.begin(), slots_.end(),
                                   [now](const auto& slot) { return slot->IsDone(now); });
  if (std::exchange(may_end_, may_end) != may_end) {
    for (const auto& slot : slots_) slot->SetMayEnd(may_end);
  }
  return worked;
}

void ClusterNode::Publish(absl::Time now) {
  for (const auto& slot : slots_) slot->Publish(now);
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
  if (ends_ || !events_.empty()) return false;
  const absl::Time now = clock_.Now();
  bool worked = false;
  for (const auto& slot : slots_) {
    if (!slot->is_primary()) continue;
    worked |= slot->DecideGroups(now);
    slot->PumpAppends(now);
  }
  worked |= links_.Poll(now, events_);
  size_t acks = 0;
  for (; acks < events_.size() && Is(events_[acks], PeerMessageKind::kAck); ++acks)
    TakeMessage(events_[acks], now);
  events_.erase(events_.begin(), events_.begin() + static_cast<ptrdiff_t>(acks));
  if (!events_.empty()) parts_.wake.Ring();
  for (const auto& slot : slots_) worked |= slot->CommitGroups();
  return worked;
}

void ClusterNode::TakeIncarnation(absl::Time now) {
  for (const uint64_t other : std::exchange(linked_, {})) member_->LinkDown(other);
  for (const auto& slot : slots_) slot->TakeIncarnation();
  if (absl::Status status = links_.Begin(member_->incarnation(), now); !status.ok())
    return Fail(status);
  TakeServers();
}

// Without news from the store, too: another server has sent its first message, or none for long.
void ClusterNode::SetLinks(absl::Time now) {
  links_at_ = now;
  needed_ = member_->NeededServers(now);
  links_.SetServers(member_->servers(), needed_);
}

void ClusterNode::TakeServers() {
  SetLinks(clock_.Now());
  // A client that begins goes to shard 0.
  const std::string& primary = member_->shard(0).record().record.primary;
  std::string first, others;
  // Any of them may have a copy later.
  bool all_take_parts = true;
  for (const auto& [id, server] : member_->servers()) {
    if (!server.record.has_value()) continue;
    all_take_parts &= server.record->takes_parts;
    for (const std::string& address : server.record->clients)
      absl::StrAppend(id == primary ? &first : &others, address, "\n");
  }
  for (const auto& slot : slots_) slot->SetTakesParts(all_take_parts);
  const std::lock_guard<std::mutex> lock(stats_mutex_);
  client_addresses_ = first + others;
}

void ClusterNode::Fail(const absl::Status& why) {
  ends_ = true;
  for (const auto& slot : slots_) slot->Fail(why);
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
      TakeServers();
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
        if (Is(event, PeerMessageKind::kAppend)) lingering_.Came(now);
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

// --- Figures -------------------------------------------------------------------

// What is read of the shard, whether or not this server holds it. Of its servers: those that etcd names, and those
// of the record, which may be gone.
ClusterStats ClusterNode::StatsOf(uint32_t shard, absl::Time now) const {
  const ShardRecord& record = member_->shard(shard).record().record;
  ClusterStats stats;
  stats.term = record.term;
  stats.in_sync = record.in_sync.size();
  stats.replicas = options_.cluster.replicas;
  stats.right_left = std::max(member_->right_until() - now, absl::ZeroDuration());
  stats.links = linked_.size();
  if (record.move.has_value()) stats.moves.push_back({shard, record.move->from, record.move->to});
  std::map<std::string, ClusterStats::Member> members;
  for (const auto& [id, server] : member_->servers()) {
    ClusterStats::Member& member = members[id];
    member.is_known = true;
    member.is_needed = needed_.contains(id);
    member.is_linked = server.record.has_value() && linked_.contains(server.record->incarnation);
  }
  for (const Replica& replica : record.in_sync) members[replica.server].in_sync = 1;
  for (auto& [id, member] : members) {
    member.server = id;
    member.primaries = id == record.primary ? 1 : 0;
    member.is_self = id == options_.server;
    stats.members.push_back(std::move(member));
  }
  return stats;
}

void ClusterNode::TakeStats(absl::Time now) {
  ClusterStats all;
  for (const auto& table : tables_) {
    const uint32_t shard = table->shard();
    ClusterStats stats = StatsOf(shard, now);
    if (table->slot() != nullptr) table->slot()->TakeStats(now, stats);
    if (shard == 0) {
      all = std::move(stats);
    } else {
      all.Add(stats);
    }
  }
  // Also of shards that slots have held before.
  all.promotions = all.groups = 0;
  all.slots = slots_.size();
  for (const auto& slot : slots_) {
    all.promotions += slot->promotions();
    all.groups += slot->groups();
  }
  const std::lock_guard<std::mutex> lock(stats_mutex_);
  stats_ = std::move(all);
}

ClusterStats ClusterNode::stats() const {
  const std::lock_guard<std::mutex> lock(stats_mutex_);
  return stats_;
}

std::string ClusterNode::client_addresses() const {
  const std::lock_guard<std::mutex> lock(stats_mutex_);
  return client_addresses_;
}

bool ClusterNode::IsAwaitedByOthers() const {
  uint32_t awaiting = 0;
  for (const auto& slot : slots_) awaiting += slot->awaiting();
  return awaiting > 1;
}

}  // namespace osprey::server
