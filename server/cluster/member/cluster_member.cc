#include "server/cluster/member/cluster_member.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/cluster/replication/test_hooks.h"

namespace osprey {
namespace {

// After a swap that did not happen.
constexpr absl::Duration kSwapPause() { return absl::Milliseconds(20); }
// Between hand-overs for the sake of balance. By then the records have been read again.
constexpr absl::Duration kBalanceInterval() { return absl::Seconds(1); }
// For so long there is a link to a server to which nothing is to be sent. A primary that was deposed learns it, say.
constexpr absl::Duration kLinkKept() { return absl::Seconds(10); }
// Between looks at the cluster's own record, which nothing changes.
constexpr absl::Duration kClusterInterval() { return absl::Seconds(10); }

bool IsAnswer(const TransactionResult& result) {
  return result.outcome == TransactionOutcome::kApplied ||
         result.outcome == TransactionOutcome::kRefused;
}

}  // namespace

ClusterMember::ClusterMember(MemberOptions options, const std::vector<MemberTable*>& tables,
                             PeerSender& sender)
    : options_(std::move(options)),
      identity_(options_.cluster.id),
      watch_(options_.keys, options_.cluster.shards),
      copy_rate_(options_.copy_rate) {
  assert(tables.size() == options_.cluster.shards);
  ShardMemberOptions shard{.keys = options_.keys,
                           .cluster = options_.cluster,
                           .server = options_.server,
                           .backup_timeout = options_.backup_timeout,
                           .copy_rate = &copy_rate_,
                           .random = options_.random,
                           .log = options_.log};
  for (uint32_t i = 0; i < tables.size(); ++i)
    shards_.push_back(std::make_unique<ShardMember>(i, shard, *tables[i], sender));
  BeginIncarnation();
}

// --- The right ---------------------------------------------------------------

void ClusterMember::BeginIncarnation() {
  incarnation_ = 0;
  while (incarnation_ == 0) incarnation_ = options_.random();
  right_.emplace(RightOptions{options_.keys.Server(options_.server),
                              {incarnation_, options_.addresses, 0, options_.slots, options_.zone,
                               options_.clients, options_.copy_rate, /*takes_parts=*/true},
                              options_.ttl});
  for (const auto& shard : shards_) shard->SetServer(0, incarnation_);
}

Transaction ClusterMember::NextRenewal() {
  renewal_revision_ = identity_.revision();
  return right_->NextRequest();
}

void ClusterMember::TakeRenewal(const TransactionResult& result, absl::Time sent, absl::Time now) {
  next_renewal_ = std::max(now, sent + options_.ttl / 3);
  if (IsAnswer(result) && !CheckHeader(result.header, renewal_revision_)) return;
  const absl::Status status = right_->TakeAnswer(result, sent);
  LogChange(IsAnswer(result) ? status : result.status, renewal_error_);
  if (right_->lost()) {
    Log("this server takes a new incarnation");
    BeginIncarnation();
    next_renewal_ = now;
    return;
  }
  if (right_->create_revision() == 0) return;
  for (const auto& shard : shards_) shard->SetServer(right_->create_revision(), incarnation_);
}

absl::Time ClusterMember::right_until() const {
  if (IsMistake(ReplicationMistake::kAnswersWithoutRight)) return absl::InfiniteFuture();
  return identity_.status().ok() ? right_->until() : absl::InfinitePast();
}

// An error that lasts is one line, and so is its end.
void ClusterMember::LogChange(const absl::Status& status, std::string& last) const {
  if (status.message() == last) return;
  Log(status.ok() ? absl::StrCat("it has passed: ", last) : status.message());
  last = std::string(status.message());
}

bool ClusterMember::CheckHeader(const StoreHeader& header, int64_t before) {
  const bool was_ok = identity_.status().ok();
  const bool is_ok = identity_.Check(header, before).ok();
  if (was_ok && !is_ok) Log(identity_.status().message());
  return is_ok;
}

// An operator may have deleted the cluster, and created another one of its name.
void ClusterMember::CheckCluster(const RangeAnswer& answer) {
  if (answer.keys.empty()) return;
  const absl::StatusOr<ClusterRecord> record = DecodeClusterRecord(answer.keys[0].value);
  const absl::Status status = record.ok() ? identity_.CheckCluster(record->id) : record.status();
  LogChange(status, cluster_error_);
}

// --- Calls to the store --------------------------------------------------------

// Whether something waits for the end of this server's right: another member's promotion, or its primary's
// drop; or a copy that only a server which runs can have.
bool ClusterMember::IsAwaited(absl::string_view server) const {
  // The key of this server's earlier incarnation.
  if (server == options_.server) return right_->create_revision() == 0;
  if (lacks_copies_) return true;
  return std::any_of(shards_.begin(), shards_.end(), [&](const auto& shard) {
    const ShardRecord& record = shard->record().record;
    return record.Find(server) != nullptr && record.Find(options_.server) != nullptr;
  });
}

std::optional<Transaction> ClusterMember::NextRemoval(absl::Time now) {
  for (auto& [id, peer] : peers_) {
    if (peer.HasEnded(now) && IsAwaited(id)) {
      Log(absl::StrCat("the right of server ", id, " to serve has ended"));
      return peer.Removal();
    }
  }
  return std::nullopt;
}

std::optional<Transaction> ClusterMember::NextSwaps(absl::Time now) {
  std::vector<ShardSwap> wanted;
  for (const auto& shard : shards_) {
    auto swap = shard->WantedSwap(watch_, now);
    if (!swap.has_value()) continue;
    swap->alone = shard->sends_alone();
    wanted.push_back(*std::move(swap));
  }
  if (wanted.empty()) return std::nullopt;
  // They take turns. *Else* one that is refused for ever is the only one that is sent.
  const auto turn = std::find_if(wanted.begin(), wanted.end(), [this](const ShardSwap& swap) {
    return swap.shard >= swaps_from_;
  });
  std::rotate(wanted.begin(), turn, wanted.end());
  const uint32_t first = wanted[0].shard;
  const std::vector<std::vector<ShardSwap>> groups = GroupSwaps(std::move(wanted));
  const std::vector<ShardSwap>& swaps = *std::find_if(
      groups.begin(), groups.end(), [first](const auto& group) { return group[0].shard == first; });
  for (const ShardSwap& swap : swaps) {
    shards_[swap.shard]->BeginSwap(swap);
    swapped_.push_back(swap.shard);
  }
  swaps_from_ = swaps.back().shard + 1;
  return SwapTransaction(options_.keys, swaps);
}

std::optional<StoreCall> ClusterMember::NextCall(absl::Time now) {
  assert(!call_.has_value());
  if (!identity_.status().ok()) return std::nullopt;
  StoreCall call;
  call.revision_before = identity_.revision();
  swapped_.clear();
  for (const auto& shard : shards_) {
    if (shard->TakeWantsRead()) shards_due_ = now;
  }
  // Reads come first. *Else* a swap that is refused, because what was read is old, is tried for ever.
  std::optional<Transaction> transaction;
  if (IsMistake(ReplicationMistake::kSwapsBeforeReads) && now < right_until() &&
      (transaction = NextSwaps(now)).has_value()) {
    call.transaction = *std::move(transaction);
  } else if (now >= servers_due_) {
    call.range = watch_.ServersRange();
    servers_due_ = now + options_.read_interval;
  } else if (now >= shards_due_) {
    call.range = watch_.ShardsRange();
    shards_due_ = now + options_.read_interval;
  } else if (now >= cluster_due_) {
    call.range = {options_.keys.Cluster()};
    cluster_due_ = now + kClusterInterval();
  } else if ((transaction = NextRemoval(now)).has_value() ||
             (now < right_until() && now >= swaps_due_ &&
              (transaction = NextSwaps(now)).has_value())) {
    call.transaction = *std::move(transaction);
  } else {
    return std::nullopt;
  }
  if (cluster_due_ == absl::InfiniteFuture()) cluster_due_ = now + kClusterInterval();
  call_ = call;
  return call;
}

void ClusterMember::TakeRead(const absl::StatusOr<RangeAnswer>& answer, absl::Time now) {
  const StoreCall call = *std::exchange(call_, std::nullopt);
  LogChange(answer.status(), read_error_);
  if (!answer.ok() || !CheckHeader(answer->header, call.revision_before)) return;
  if (call.range->key == options_.keys.Cluster()) return CheckCluster(*answer);
  const bool is_of_servers = call.range->key == options_.keys.Servers();
  const WatchNews news =
      is_of_servers ? watch_.TakeServers(*answer) : watch_.TakeShards(*call.range, *answer);
  for (const absl::Status& error : news.errors) Log(error.message());
  if (!news.is_news) return;
  if (is_of_servers) {
    for (const auto& [id, server] : watch_.servers())
      peers_.try_emplace(id, options_.keys.Server(id), options_.ttl);
    // After an outage of the store no right could be renewed: the others get the time for that. *Else* all
    // rights would end at once.
    const bool has_gap = now - std::exchange(servers_read_, now) > options_.ttl / 2;
    for (auto& [id, peer] : peers_) {
      if (has_gap) peer.Restart();
      peer.Saw(answer->keys, now);
    }
    NoteAway(now);
    return Assign();
  }
  for (const uint32_t shard : news.changed) {
    if (const StoredShard* seen = watch_.Shard(shard); seen != nullptr)
      shards_[shard]->Saw(*seen, now);
  }
  if (!news.changed.empty()) Assign();
}

void ClusterMember::TakeResult(const TransactionResult& result, absl::Time now) {
  const StoreCall call = *std::exchange(call_, std::nullopt);
  TransactionResult checked = result;
  // From a store that is not ours it says nothing.
  if (IsAnswer(result) && !CheckHeader(result.header, call.revision_before)) checked = {};
  if (swapped_.empty() || checked.outcome != TransactionOutcome::kApplied) {
    servers_due_ = now;
    swaps_due_ = now + kSwapPause();
  }
  for (size_t i = 0; i < swapped_.size(); ++i) {
    if (absl::Status status = shards_[swapped_[i]]->TakeAnswer(checked, i, now); !status.ok())
      Log(status.message());
  }
  if (!swapped_.empty()) Assign();
}

// --- Links ---------------------------------------------------------------------

std::set<std::string> ClusterMember::NeededServers(absl::Time now) {
  std::set<std::string> needed, linked;
  for (const auto& shard : shards_) shard->AddNeededServers(needed);
  std::map<uint64_t, absl::Time> kept;
  for (const auto& [id, server] : watch_.servers()) {
    if (!server.record.has_value() || id == options_.server) continue;
    const uint64_t incarnation = server.record->incarnation;
    const auto last = needed_at_.find(incarnation);
    if (needed.contains(id)) {
      kept[incarnation] = now;
    } else if (last != needed_at_.end() && now - last->second < kLinkKept()) {
      kept.insert(*last);
    } else {
      continue;
    }
    linked.insert(id);
  }
  needed_at_ = std::move(kept);
  return linked;
}

bool ClusterMember::HasOthers() const {
  const auto is_other = [this](const auto& one) { return one.first != options_.server; };
  return std::any_of(seen_.begin(), seen_.end(), is_other) ||
         std::any_of(away_.begin(), away_.end(), is_other);
}

void ClusterMember::LinkUp(uint64_t incarnation) {
  for (const auto& shard : shards_) shard->LinkUp(incarnation);
}

// A server that ends deletes its key before its links end. So the others see that at once.
void ClusterMember::LinkDown(uint64_t incarnation) {
  servers_due_ = absl::InfinitePast();
  for (const auto& shard : shards_) shard->LinkDown(incarnation);
}

absl::Status ClusterMember::TakeMessage(uint64_t from, PeerMessageKind kind, absl::string_view body,
                                        absl::Time now) {
  // It may have to be answered. *Else* a joiner asks a primary in vain.
  if (!IsMistake(ReplicationMistake::kLinksMembersOnly)) needed_at_[from] = now;
  const auto check = [&](uint32_t shard, uint64_t sender) {
    if (shard >= shards_.size())
      return absl::DataLossError(absl::StrCat("a message of shard ", shard, ", where there are ",
                                              shards_.size(), " shards"));
    if (sender != from)
      return absl::DataLossError(absl::StrCat("a message of kind ", static_cast<int>(kind),
                                              " in the name of ", absl::Hex(sender), ", from ",
                                              absl::Hex(from)));
    return absl::OkStatus();
  };
  switch (kind) {
    case PeerMessageKind::kAppend: {
      const absl::StatusOr<Append> append = DecodeAppend(body);
      if (!append.ok()) return append.status();
      if (absl::Status status = check(append->shard, append->from.incarnation); !status.ok())
        return status;
      shards_[append->shard]->TakeAppend(*append, now);
      return absl::OkStatus();
    }
    case PeerMessageKind::kAck: {
      const absl::StatusOr<Ack> ack = DecodeAck(body);
      if (!ack.ok()) return ack.status();
      if (absl::Status status = check(ack->shard, from); !status.ok()) return status;
      shards_[ack->shard]->TakeAck(*ack, now);
      return absl::OkStatus();
    }
    case PeerMessageKind::kCopy: {
      const absl::StatusOr<CopyMessage> copy = DecodeCopyMessage(body);
      if (!copy.ok()) return copy.status();
      const bool is_of_joiner = copy->kind == CopyKind::kJoin || copy->kind == CopyKind::kWhole;
      if (absl::Status status = check(copy->shard, is_of_joiner ? copy->joiner.incarnation : from);
          !status.ok())
        return status;
      shards_[copy->shard]->TakeCopy(*copy, watch_, now);
      return absl::OkStatus();
    }
  }
  return absl::DataLossError(absl::StrCat("a message of kind ", static_cast<int>(kind)));
}

// The log of a server that is cut off says that it has stopped. Of another etcd it has its own line.
void ClusterMember::NoteRight(absl::Time now) {
  if (!identity_.status().ok()) return;
  const bool has_right = now < right_until();
  had_right_ |= has_right;
  if (!had_right_) return;
  LogChange(has_right ? absl::OkStatus()
                      : absl::UnavailableError("the right of this server to serve has ended: it "
                                               "answers no client until etcd renews it"),
            right_error_);
}

void ClusterMember::Pump(absl::Time now) {
  NoteRight(now);
  for (const auto& shard : shards_) shard->Pump(now);
  if (shards_.size() > 1 && now >= balance_due_ && now < right_until()) Balance(now);
}

void ClusterMember::NoteAway(absl::Time now) {
  std::map<std::string, PlacementServer> seen;
  for (const auto& [id, server] : watch_.servers()) {
    if (server.record.has_value())
      seen[id] = {.slots = server.record->slots, .zone = server.record->zone};
  }
  for (const auto& [id, server] : seen_) {
    if (!watch_.servers().contains(id)) away_[id] = {server, now + options_.rejoin_after};
  }
  std::erase_if(away_, [&](const auto& one) {
    return watch_.servers().contains(one.first) || now >= one.second.until;
  });
  seen_ = std::move(seen);
}

// This server has its key, or will have it.
PlacementView ClusterMember::Placement() const {
  PlacementView view;
  view.replicas = options_.cluster.replicas;
  view.min_in_sync = options_.cluster.min_in_sync;
  view.servers = seen_;
  for (const auto& [id, away] : away_) {
    view.servers[id] = away.server;
    view.servers[id].is_away = true;
  }
  view.servers[options_.server] = {.slots = options_.slots, .zone = options_.zone};
  for (const auto& shard : shards_) {
    const ShardRecord& record = shard->record().record;
    PlacementShard& place = view.shards.emplace_back();
    place.primary = record.primary;
    for (const Replica& member : record.in_sync) place.members.push_back(member.server);
    place.move = record.move;
  }
  return view;
}

void ClusterMember::Assign() {
  const PlacementView view = Placement();
  const std::vector<std::vector<std::string>> missing = MissingCopies(view);
  const std::optional<PlacedMove> relief = NextRelief(view);
  lacks_copies_ = false;
  for (size_t i = 0; i < missing.size(); ++i) {
    lacks_copies_ |= !missing[i].empty();
    // An initial shard is for the first of them. The others join it.
    const bool is_initial = shards_[i]->record().record.is_initial();
    const auto end = is_initial && !missing[i].empty() ? missing[i].begin() + 1 : missing[i].end();
    shards_[i]->SetMoveStuck(IsMoveStuck(view, static_cast<uint32_t>(i)));
    shards_[i]->SetAssigned(std::find(missing[i].begin(), end, options_.server) != end);
    shards_[i]->SetRelief(relief.has_value() && relief->shard == i ? std::optional(relief->move)
                                                                   : std::nullopt);
  }
}

void ClusterMember::Balance(absl::Time now) {
  balance_due_ = now + kBalanceInterval();
  if (std::any_of(shards_.begin(), shards_.end(),
                  [](const auto& shard) { return shard->hands_over(); }))
    return;
  const std::optional<PlacedHandOver> next = hand_overs_.Look(Placement());
  if (!next.has_value() || next->from != options_.server) return;
  ShardMember& shard = *shards_[next->shard];
  const Replica* const to = shard.record().record.Find(next->to);
  if (!shard.may_decide() || to == nullptr || !shard.HasLinkTo(*to)) return;
  Log(absl::StrCat("server ", next->to, " gets shard ", next->shard,
                   ", since it is the primary of ", next->primaries_to, ", and this one of ",
                   next->primaries_from));
  shard.HandOverTo(next->to, now);
}

}  // namespace osprey
