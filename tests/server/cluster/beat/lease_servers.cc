#include "tests/server/cluster/beat/lease_servers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rdma/lease_time.h"

namespace osprey {
namespace {

constexpr absl::Duration kTtl() { return absl::Milliseconds(3000); }
constexpr uint64_t kShardBit = 1;

}  // namespace

LeaseServers::Server::Server(size_t number_of_it)
    : key(absl::StrCat("/osprey/test/servers/", number_of_it)),
      beat(memory.span(), index::kTestIncarnation, 1) {}

LeaseServers::LeaseServers(SplitMix64& random, LeaseMistake mistake, bool calm)
    : random_(random), mistake_(mistake), calm_(calm) {
  for (size_t i = 0; i < kServers; ++i) {
    servers_[i] = std::make_unique<Server>(i);
    BeginLife(*servers_[i]);
  }
}

void LeaseServers::BeginLife(Server& server) {
  ++lives_;
  server.right.emplace(RightOptions{server.key, {lives_, {}, 0}, kTtl()});
  server.beat.TakeIncarnation(lives_);
  server.checked = false;
  server.role = Role::kBackup;
  server.write = Write::kNone;
}

void LeaseServers::Step(absl::Duration time) {
  for (size_t i = 0; i < kServers; ++i) {
    Server& server = *servers_[i];
    server.clock.Pass(time, random_);
    if (random_.Below(1000) < (server.stopped ? 30 : calm_ ? 2 : 10))
      server.stopped = !server.stopped;
    if (server.stopped) continue;
    Renew(server);
    for (int part = 0; part < 2; ++part) {
      if (random_.Chance(70)) Beat(server);
    }
    if (server.role == Role::kBackup) {
      BeBackup(i);
    } else {
      BePrimary(i);
    }
  }
}

absl::optional<index::ServingState> LeaseServers::ReadRecord(size_t server) const {
  const std::vector<std::byte> copy = index::ReadRegion(
      servers_[server]->memory.data(), index::kServingRecordOffset, sizeof(index::ServingRecord));
  return index::ReadServingRecord(copy, index::kTestIncarnation);
}

absl::optional<index::ServingState> LeaseServers::Grant(size_t server) const {
  return servers_[server]->beat.Grant(servers_[server]->clock.now(), BoundsOf(*servers_[server]));
}

ServingBounds LeaseServers::BoundsOf(const Server& server) const {
  if (mistake_ == LeaseMistake::kBeatUnchecked) return {absl::InfiniteFuture()};
  return {server.right->until()};
}

bool LeaseServers::KeyIsThere(const Server& server, int64_t create_revision) const {
  const std::vector<StoredKey> keys = store_.Range({server.key}).keys;
  return !keys.empty() && keys[0].create_revision == create_revision;
}

// A renewal takes effect at once; its answer comes later, or never.
void LeaseServers::Renew(Server& server) {
  if (!server.renewal.has_value()) {
    if (!random_.Chance(20)) return;
    const absl::Time sent = server.clock.now();
    const Transaction request = server.right->NextRequest();
    server.renewal =
        Renewal{sent, random_.Chance(90) ? store_.Execute(request) : TransactionResult()};
    return;
  }
  if (!random_.Chance(30)) return;
  if (random_.Chance(5)) server.renewal->result = {};
  (void)server.right->TakeAnswer(server.renewal->result, server.renewal->sent);
  server.renewal.reset();
  if (server.right->lost()) BeginLife(server);
}

void LeaseServers::Beat(Server& server) {
  if (std::exchange(server.checked, false)) return server.beat.Store();
  const absl::Time before = std::exchange(server.checked_at, server.clock.now());
  const absl::Time now = mistake_ == LeaseMistake::kCheckBeforeStore ? before : server.checked_at;
  server.checked = server.beat.Check(now, BoundsOf(server));
}

// Of the primary's key.
void LeaseServers::Watch(Server& server) {
  const std::string& key = servers_[shard_.primary]->key;
  if (!server.watch.has_value() || server.watched != key) {
    server.watch.emplace(key, kTtl());
    server.watched = key;
  }
  server.watch->Saw(store_.Range({key}).keys, server.clock.now());
  if (server.watch->HasEnded(server.clock.now())) (void)store_.Execute(server.watch->Removal());
}

void LeaseServers::BeBackup(size_t index) {
  Server& server = *servers_[index];
  if (random_.Chance(10)) server.number = std::max(server.number, server.committed);
  const bool holds_all = (shard_.in_sync >> index & 1) != 0;
  // The record's primary, by a hand-over.
  const bool is_named = shard_.primary == index && server.right->create_revision() != 0 &&
                        shard_.create_revision == server.right->create_revision();
  if (shard_.primary != index && random_.Chance(50)) Watch(server);
  if (!HasRight(server) || !holds_all || !random_.Chance(50)) return;
  const Server& primary = *servers_[shard_.primary];
  if (!is_named) {
    if (KeyIsThere(primary, shard_.create_revision)) return;
    if (shard_.primary != index) shard_.in_sync &= ~(1u << shard_.primary);
    ++takeovers_;
  }
  shard_.primary = index;
  shard_.create_revision = server.right->create_revision();
  server.term = ++shard_.term;
  server.role = Role::kPromoted;
}

// To all that are in sync. False: not to all, or others have another primary.
bool LeaseServers::AppendToAll(size_t index, uint64_t tail) {
  Server& server = *servers_[index];
  for (size_t i = 0; i < kServers; ++i) {
    Server& member = *servers_[i];
    if (i == index || (shard_.in_sync >> i & 1) == 0) continue;
    if (member.term > server.term) return false;
    if (member.stopped) {
      // Drops it, if the record is its own.
      if (shard_.term == server.term && random_.Chance(5)) shard_.in_sync &= ~(1u << i);
      return false;
    }
    member.term = server.term;
    member.tail = tail;
  }
  // Another may have taken over meanwhile, with other members.
  return shard_.term == server.term;
}

void LeaseServers::AddMembers(size_t index) {
  const Server& server = *servers_[index];
  for (size_t i = 0; i < kServers; ++i) {
    Server& joiner = *servers_[i];
    if (i == index || joiner.stopped || joiner.role != Role::kBackup || !random_.Chance(10))
      continue;
    if ((shard_.in_sync >> i & 1) != 0 || shard_.term != server.term) continue;
    joiner.term = server.term;
    joiner.tail = server.tail;
    joiner.committed = server.number;
    shard_.in_sync |= 1u << i;
  }
}

void LeaseServers::Resign(Server& server) {
  server.beat.Loses(kShardBit);
  server.role = Role::kBackup;
  server.write = Write::kNone;
}

void LeaseServers::BePrimary(size_t index) {
  Server& server = *servers_[index];
  // It finds another in the record.
  if (shard_.term != server.term && random_.Chance(10)) return Resign(server);
  if (!random_.Chance(60)) return;
  if (server.role == Role::kPromoted) {
    if (!AppendToAll(index, server.tail)) return;
    server.number = server.tail;
    server.beat.Gains(kShardBit);
    server.role = Role::kServes;
    return;
  }
  switch (server.write) {
    case Write::kNone:
      if (server.role == Role::kServes) AddMembers(index);
      if (!HasRight(server) || !AppendToAll(index, server.tail + 1)) break;
      ++server.tail;
      server.write = Write::kAppended;
      break;
    case Write::kAppended:
      server.number = server.tail;
      server.write = Write::kReadable;
      break;
    case Write::kReadable:
      if (!HasRight(server)) break;
      server.acknowledged = server.number;
      for (const std::unique_ptr<Server>& other : servers_) {
        if (other->term == server.term) other->committed = server.number;
      }
      server.write = Write::kNone;
      break;
  }
  const absl::Time now = server.clock.now();
  if (server.role == Role::kServes && random_.Chance(calm_ ? 15 : 2) &&
      server.write == Write::kNone) {
    server.beat.Loses(kShardBit);
    server.lost_at = now;
    server.role = Role::kHandsOver;
  }
  absl::Duration wait = AwaitedFor(kReaderLease());
  if (mistake_ == LeaseMistake::kShortHandOver) wait = kReaderLease() / 2;
  if (mistake_ == LeaseMistake::kClocksTrusted) wait = kReaderLease();
  if (server.role != Role::kHandsOver || now - server.lost_at < wait) return;
  if (shard_.term != server.term) return;
  size_t next = random_.Below(kServers);
  if (next == index) next = (next + 1) % kServers;
  if ((shard_.in_sync >> next & 1) == 0) return;
  const std::vector<StoredKey> keys = store_.Range({servers_[next]->key}).keys;
  if (keys.empty()) return;
  // The record names it, with what its key is now.
  shard_.primary = next;
  shard_.create_revision = keys[0].create_revision;
  shard_.in_sync &= ~(1u << index);
  server.role = Role::kBackup;
  server.write = Write::kNone;  // its successor has it
  ++hand_overs_;
}

}  // namespace osprey
