// The log of one poller of a primary: while the poller waits for other servers, it gives its sessions.
//
// A primary without enough members commits nothing until another server has joined. The copy for that one
// has the sessions of pollers. *Else* both wait for each other.
//
// Thread rule: as WriteLog; Commit is the poller's.

#ifndef OSPREY_SERVER_POLLER_LOG_H_
#define OSPREY_SERVER_POLLER_LOG_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/cluster/node/replicated_writes.h"
#include "server/engine/engine.h"
#include "server/engine/session_snapshots.h"
#include "server/requests/write_log.h"

namespace osprey::server {

class PollerLog final : public WriteLog {
 public:
  // Both outlive this.
  PollerLog(ReplicatedWrites& writes, SessionSnapshots& snapshots, uint32_t poller)
      : writes_(writes), snapshots_(snapshots), poller_(poller) {
    RefuseWrites(true);  // ask Refusal each time
  }
  // Before the first Commit; it outlives all of them.
  void SetEngine(const Engine& engine) { engine_ = &engine; }

  bool AwaitsSync() const override { return writes_.AwaitsSync(); }
  absl::StatusOr<std::unique_ptr<ValueUpload>> BeginUpload(uint32_t partition,
                                                           absl::string_view key,
                                                           uint64_t value_bytes) override {
    return writes_.BeginUpload(partition, key, value_bytes);
  }
  // The results of all writes that are made are in the sessions then: each is remembered by its poller
  // before that commits anything else.
  absl::Status Commit() override {
    return writes_.CommitWith([this] {
      if (snapshots_.IsWanted(poller_)) snapshots_.Give(poller_, engine_->SessionImages());
    });
  }

 private:
  absl::Status Refusal() const override { return writes_.MayWrite(); }

  ReplicatedWrites& writes_;
  SessionSnapshots& snapshots_;
  const uint32_t poller_;
  const Engine* engine_ = nullptr;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_POLLER_LOG_H_
