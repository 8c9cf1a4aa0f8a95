#include "client/engine/shard_engines.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/engine/known_servers.h"
#include "rdma/address.h"

namespace osprey::client {
namespace {

// The addresses of a shard, in the form of `uri`, which names those of shard 0.
absl::StatusOr<std::string> UriOfShard(absl::string_view uri, uint32_t shard) {
  const absl::StatusOr<std::vector<std::string>> uris = rdma::ParseAddresses(uri);
  if (!uris.ok()) return uris.status();
  const absl::string_view scheme = uri.substr(0, uri.find("://") + 3);
  std::vector<std::string> places;
  for (const std::string& one : *uris) {
    absl::StatusOr<rdma::Address> address = rdma::ParseAddress(one);
    if (address.ok()) address = rdma::ShardAddress(*address, shard);
    if (!address.ok()) return address.status();
    places.emplace_back(absl::StripPrefix(address->ToString(), scheme));
  }
  return absl::StrCat(scheme, absl::StrJoin(places, ","));
}

void Add(const Counters& from, Counters& to) {
  to.gets += from.gets;
  to.hits += from.hits;
  to.misses += from.misses;
  to.writes += from.writes;
  to.reads += from.reads;
  to.read_bytes += from.read_bytes;
  to.scan_reads += from.scan_reads;
  to.torn += from.torn;
  to.retries += from.retries;
  to.hints += from.hints;
  to.stale_hints += from.stale_hints;
  to.rpc_gets += from.rpc_gets;
  to.messages += from.messages;
  to.frames += from.frames;
  to.told_hits += from.told_hits;
  to.connects += from.connects;
  to.leases += from.leases;
  to.lease_reads += from.lease_reads;
  to.uncovered_reads += from.uncovered_reads;
  to.unleased_gets += from.unleased_gets;
}
// A new counter needs its line above.
static_assert(sizeof(Counters) == 20 * sizeof(uint64_t));

// With what all engines learn of the cluster's servers.
EngineOptions WithServers(EngineOptions options) {
  options.connection.servers = std::make_shared<KnownServers>(options.connection.uri);
  return options;
}

}  // namespace

ShardEngines::ShardEngines(rdma::Domain& domain, NewTransport new_transport,
                           const EngineOptions& options)
    : domain_(domain),
      new_transport_(std::move(new_transport)),
      options_(WithServers(options)),
      exposer_link_(std::make_shared<ExposerLink>(ExposerLink{this})) {
  assert(options.connection.shard == 0 && options.connection.shards == 0);
}

// A callback of one engine may start operations of another, which refuses them, or drop a Buffer that
// another exposes. So all end before one is destroyed.
ShardEngines::~ShardEngines() {
  for (const std::unique_ptr<ClientEngine>& engine : engines_) engine->End();
  exposer_link_->exposer = nullptr;
}

absl::Status ShardEngines::Add(const EngineOptions& options) {
  absl::StatusOr<std::unique_ptr<rdma::Transport>> transport = new_transport_();
  if (!transport.ok()) return transport.status();
  absl::StatusOr<std::unique_ptr<ClientEngine>> engine =
      ClientEngine::Create(domain_, *std::move(transport), options);
  if (!engine.ok()) return engine.status();
  engines_.push_back(*std::move(engine));
  return absl::OkStatus();
}

absl::Status ShardEngines::Open() {
  if (absl::Status status = Add(options_); !status.ok()) return status;
  first_ = engines_.front().get();
  return absl::OkStatus();
}

absl::Status ShardEngines::AddShards() {
  assert(count_ == 1 && first_->connection().times_ready() > 0);
  const uint32_t shards = first_->connection().terms().shards;
  for (uint32_t shard = 1; shard < shards; ++shard) {
    EngineOptions options = options_;
    absl::StatusOr<std::string> uri = UriOfShard(options_.connection.uri, shard);
    if (!uri.ok()) return uri.status();
    options.connection.uri = *std::move(uri);
    options.connection.shard = shard;
    options.connection.shards = shards;
    options.connection.seed = options_.connection.seed + shard;
    options.slot_cache_bytes = options_.slot_cache_bytes / shards;
    if (absl::Status status = Add(options); !status.ok()) return status;
    // (If a later one fails, Poll ends those that there are.)
    count_ = shard + 1;
  }
  if (shards > 1) first_->ShrinkLocationCache(options_.slot_cache_bytes / shards);
  return absl::OkStatus();
}

void ShardEngines::Submit(absl::Time now) {
  if (count_ == 1) return first_->Submit(now);
  for (const std::unique_ptr<ClientEngine>& engine : engines_) {
    if (engine->in_flight() > 0) engine->Submit(now);
  }
}

int ShardEngines::PollAll(absl::Time now) {
  assert(!polling_ && "a callback may not call Poll, Wait or a blocking operation");
  assert(now >= polled_at_ && "time never decreases");
  polling_ = true;
  polled_at_ = now;
  const bool all = std::exchange(armed_, false);
  int ended = 0;
  for (const std::unique_ptr<ClientEngine>& engine : engines_) {
    if (all || engine->in_flight() > 0 || engine->IsPollDue(now)) ended += engine->Poll(now);
  }
  if (!room_waits_.empty()) ended += RetryForRoom(now);
  polling_ = false;
  return ended;
}

void ShardEngines::AwaitRoom(absl::Time end, absl::AnyInvocable<bool()> retry) {
  assert(count_ > 1);
  room_waits_.push_back({end, std::move(retry)});
}

int ShardEngines::RetryForRoom(absl::Time now) {
  const uint64_t ended = EndedOfEngines();
  const bool has_room = std::exchange(ended_at_retry_, ended) != ended;
  int done = 0;
  // (A callback of theirs may add others.)
  std::vector<RoomWait> waits = std::exchange(room_waits_, {});
  for (RoomWait& wait : waits) {
    if ((has_room || now >= wait.end) && wait.retry()) {
      ++done;
    } else {
      room_waits_.push_back(std::move(wait));
    }
  }
  room_waits_ended_ += static_cast<uint64_t>(done);
  return done;
}

absl::Time ShardEngines::NextTimer() const {
  absl::Time next = first_->NextTimer();
  for (const std::unique_ptr<ClientEngine>& engine : engines_)
    next = std::min(next, engine->NextTimer());
  for (const RoomWait& wait : room_waits_) next = std::min(next, wait.end);
  return next;
}

bool ShardEngines::Arm() {
  armed_ = true;
  bool idle = true;
  for (const std::unique_ptr<ClientEngine>& engine : engines_) idle &= engine->transport().Arm();
  return idle;
}

// (A callback of one engine may start operations of another that is still open: that one is closed
// after it, or refuses.)
void ShardEngines::Close() {
  for (const std::unique_ptr<ClientEngine>& engine : engines_) engine->Close();
  // (Nothing can be started any more, so they end, and no others come.)
  while (!room_waits_.empty()) RetryForRoom(absl::InfiniteFuture());
}

bool ShardEngines::closed() const {
  return std::all_of(engines_.begin(), engines_.end(),
                     [](const auto& engine) { return engine->closed(); });
}

int ShardEngines::in_flight() const {
  int sum = static_cast<int>(room_waits_.size());
  for (const std::unique_ptr<ClientEngine>& engine : engines_) sum += engine->in_flight();
  return sum;
}

uint64_t ShardEngines::ended() const { return EndedOfEngines() + room_waits_ended_; }

uint64_t ShardEngines::EndedOfEngines() const {
  uint64_t sum = 0;
  for (const std::unique_ptr<ClientEngine>& engine : engines_) sum += engine->ended();
  return sum;
}

void ShardEngines::set_operations_max(int operations) {
  for (const std::unique_ptr<ClientEngine>& engine : engines_)
    engine->start().set_operations_max(operations);
}

absl::Status ShardEngines::CheckRoom() const {
  for (const std::unique_ptr<ClientEngine>& engine : engines_) {
    if (absl::Status status = engine->start().CheckRoom(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

const Counters& ShardEngines::counters() const {
  if (count_ == 1) return first_->counters();
  sum_ = Counters();
  for (const std::unique_ptr<ClientEngine>& engine : engines_)
    client::Add(engine->counters(), sum_);
  return sum_;
}

bool ShardEngines::connected() const {
  return std::all_of(engines_.begin(), engines_.end(),
                     [](const auto& engine) { return engine->connection().ready(); });
}

// The shards of a cluster share the number of its data, so this is that number.
uint64_t ShardEngines::dataset() const {
  const uint64_t of_first = first_->connection().terms().dataset();
  uint64_t mixed = of_first;
  for (uint32_t shard = 1; shard < count_; ++shard) {
    const uint64_t own = engines_[shard]->connection().terms().dataset();
    if (own != of_first) mixed ^= std::rotl(own, static_cast<int>(shard));
  }
  return mixed;
}

std::string ShardEngines::Describe() const {
  if (count_ == 1) return first_->Describe();
  const auto connected = std::count_if(engines_.begin(), engines_.end(), [](const auto& engine) {
    return engine->connection().ready();
  });
  return absl::StrCat(first_->Describe(), " shards=", count_, " shards_connected=", connected);
}

void ShardEngines::Withdraw(const rdma::Memory& memory) {
  for (const std::unique_ptr<ClientEngine>& engine : engines_) {
    // (One that has ended exposes nothing.)
    if (Exposer* const exposer = engine->exposer_link()->exposer; exposer != nullptr)
      exposer->Withdraw(memory);
  }
}

}  // namespace osprey::client
