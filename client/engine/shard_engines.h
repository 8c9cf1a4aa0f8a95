// The engines of a client: one for each shard of the cluster, since each shard has a server, a
// session and a region of its own. Outside of such clusters there is one.
//
//   ShardEngines engines(domain, new_transport, options);
//   engines.Open()              the engine of shard 0, at the addresses of options.connection.uri
//   engines.first() is ready:
//   engines.AddShards()         the others, at the addresses that follow from those
//   engines.Of(key).start().Get(…)
//   engines.Poll(now)           advances all
//
// The engines share nothing but the domain. So a shard whose server does not answer delays the
// operations on its keys alone. Limits of EngineOptions are those of each engine; the location cache
// is divided among them.
//
// Thread rule: as ClientEngine.

#ifndef OSPREY_CLIENT_ENGINE_SHARD_ENGINES_H_
#define OSPREY_CLIENT_ENGINE_SHARD_ENGINES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/common/registered_memory.h"
#include "client/engine/engine.h"
#include "rdma/transport.h"
#include "rdma/wire/shard.h"

namespace osprey::client {

class ShardEngines final : public Exposer {
 public:
  using NewTransport = std::function<absl::StatusOr<std::unique_ptr<rdma::Transport>>()>;

  // `domain` must outlive this; the transports are of that domain. REQUIRES: the options name no
  // shard.
  ShardEngines(rdma::Domain& domain, NewTransport new_transport, const EngineOptions& options);
  // REQUIRES: Close was called, if Open succeeded.
  ~ShardEngines() override;
  ShardEngines(const ShardEngines&) = delete;
  ShardEngines& operator=(const ShardEngines&) = delete;

  // Errors: as ClientEngine::Create, and of the transport.
  absl::Status Open();
  bool is_open() const { return first_ != nullptr; }
  // REQUIRES: first() is connected; called once. Errors: likewise, and INVALID_ARGUMENT where a
  // shard has no address (rdma::ShardAddress).
  absl::Status AddShards();

  uint32_t count() const { return count_; }
  ClientEngine& first() { return *first_; }
  const ClientEngine& first() const { return *first_; }
  ClientEngine& at(uint32_t shard) { return *engines_[shard]; }
  const ClientEngine& at(uint32_t shard) const { return *engines_[shard]; }
  uint32_t ShardOf(absl::string_view key) const { return rdma::ShardOf(key, count_); }
  // The engine of the key's shard.
  ClientEngine& Of(absl::string_view key) {
    return count_ == 1 ? *first_ : *engines_[rdma::ShardOf(key, count_)];
  }

  // --- As the methods of ClientEngine, of all.
  void Submit(absl::Time now);
  // Engines with nothing in flight are polled only when they are due, and after an Arm.
  int Poll(absl::Time now) { return count_ == 1 ? first_->Poll(now) : PollAll(now); }
  // A callback runs. (Of one engine: it checks that itself.)
  bool polling() const { return polling_; }
  absl::Time NextTimer() const;
  // Whether nothing happens until a transport's descriptor is readable (rdma::Transport::Arm).
  bool Arm();
  void Close();
  bool closed() const;
  int in_flight() const;
  uint64_t ended() const;
  void set_operations_max(int operations);
  // OK if each of them may start an operation now.
  absl::Status CheckRoom() const;

  // Calls `retry` in Polls after an operation has ended, and from `end` on, until it returns true. In
  // Close it must. It counts as one operation. REQUIRES: there are several engines.
  void AwaitRoom(absl::Time end, absl::AnyInvocable<bool()> retry);

  // Sums. Valid until the next call.
  const Counters& counters() const;
  bool connected() const;
  // A number that changes if a shard's keys are others (ServerTerms::dataset).
  uint64_t dataset() const;
  // That of shard 0's connection; with several shards, also how many there are and are connected.
  std::string Describe() const;
  // Of memory that each of them may use.
  const std::shared_ptr<ExposerLink>& exposer_link() const { return exposer_link_; }

 private:
  struct RoomWait {
    absl::Time end;
    absl::AnyInvocable<bool()> retry;
  };

  void Withdraw(const rdma::Memory& memory) override;
  absl::Status Add(const EngineOptions& options);
  int PollAll(absl::Time now);
  int RetryForRoom(absl::Time now);
  uint64_t EndedOfEngines() const;

  rdma::Domain& domain_;
  const NewTransport new_transport_;
  const EngineOptions options_;
  uint32_t count_ = 1;
  ClientEngine* first_ = nullptr;
  std::vector<std::unique_ptr<ClientEngine>> engines_;  // by shard
  const std::shared_ptr<ExposerLink> exposer_link_;
  bool armed_ = false;                           // since the last Poll
  bool polling_ = false;                         // several engines
  absl::Time polled_at_ = absl::InfinitePast();  // likewise
  std::vector<RoomWait> room_waits_;
  uint64_t room_waits_ended_ = 0;
  uint64_t ended_at_retry_ = 0;  // EndedOfEngines
  mutable Counters sum_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_SHARD_ENGINES_H_
