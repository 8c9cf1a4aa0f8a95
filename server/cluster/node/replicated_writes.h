// The log of a primary's pollers: what they decide goes to the other servers, and no answer leaves before
// it is committed.
//
//   pollers:  Table ──> ReplicatedChanges ──> Decide: a number     Commit: waits for all numbers so far
//                                               │                    ^
//   owner, or a poller that drives:             TakeDecided         NoteCommitted, or End
//
// A Commit that has to wait drives the owner's work itself for a while (CommitDriver), and then sleeps.
//
// Numbers begin with 1 and never repeat, whatever the role of the server.
//
// Thread rule: Commit and Decide run on any threads, all else on the owner's, or under the lock by which a
// CommitDriver keeps it out.

#ifndef OSPREY_SERVER_CLUSTER_NODE_REPLICATED_WRITES_H_
#define OSPREY_SERVER_CLUSTER_NODE_REPLICATED_WRITES_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/cluster/table/replicated_changes.h"
#include "server/cluster/table/time_marks.h"
#include "server/requests/write_log.h"
#include "server/wal/format/entries.h"

namespace osprey::server {

// What a Commit waits for.
class CommitDriver {
 public:
  virtual ~CommitDriver() = default;
  // Works on it until `is_over`, or for a short time. If it is not over then, the owner is awake, and goes on
  // by itself. Any thread.
  virtual void Drive(absl::FunctionRef<bool()> is_over) = 0;
};

class ReplicatedWrites final : public WriteLog, public GroupSink {
 public:
  struct Group {
    uint64_t number = 0;
    std::string body;
    uint64_t entries = 0;
  };

  // `wake` is called when a Commit begins to wait that no CommitDriver works for. Until Begin all Commits fail.
  explicit ReplicatedWrites(std::function<void()> wake) : wake_(std::move(wake)) {}

  // --- WriteLog
  bool AwaitsSync() const override { return true; }
  // Each value comes with its put.
  absl::StatusOr<std::unique_ptr<ValueUpload>> BeginUpload(uint32_t, absl::string_view,
                                                           uint64_t) override {
    return nullptr;
  }
  // Errors: those of End.
  absl::Status Commit() override {
    return CommitWith([] {});
  }
  // Calls `meanwhile` again and again, at least every 20 ms, while it waits.
  absl::Status CommitWith(absl::FunctionRef<void()> meanwhile);

  // --- GroupSink
  void Decide(uint32_t partition, std::string body, uint64_t entries) override;
  void NoteExpiry() override { marks_.NoteExpiry(); }
  uint64_t decided() const override { return decided_.load(); }
  // Of EngineOptions.
  void SessionBegun(uint64_t session);
  void SessionEnded(uint64_t session);

  // How far this server may judge expiries.
  TimeMarks& marks() { return marks_; }

  // --- The owner
  // The server is the primary: Commits may succeed. `driver`, if any, lives until no Commit is under way.
  void Begin(CommitDriver* driver = nullptr);
  // It is not any more: all Commits fail with `why`, also those that wait. What was not taken is dropped, and
  // what engines that have not ended yet decide. `why` is not OK.
  void End(absl::Status why);
  // What was decided since the last call, in order.
  std::vector<Group> TakeDecided();
  // The bodies that were dropped since the last call. REQUIRES: the engines have ended.
  std::vector<std::string> TakeDropped();
  // All groups up to this number are on enough servers.
  void NoteCommitted(uint64_t number);
  // Writes that begin are refused with this error; OK: they are not. Meanwhile sessions that begin and end are
  // not decided, but afterwards. *Else* their Commits, and the pollers with them, wait for what is missing.
  void RefuseWith(const absl::Status& why);
  // Commits that wait.
  uint32_t awaiting() const { return awaiting_.load(); }

 private:
  absl::Status Refusal() const override;
  struct SessionChange {
    wal::EntryKind kind = wal::EntryKind::kSessionBegin;
    uint64_t session = 0;
  };
  void DecideSession(const SessionChange& change);
  void Add(std::string body, uint64_t entries);
  void Add(const SessionChange& change) { Add(SessionBody(change.kind, change.session), 1); }

  const std::function<void()> wake_;
  std::atomic<uint64_t> decided_{0};  // is raised under mutex_
  std::atomic<uint32_t> awaiting_{0};
  TimeMarks marks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Group> queue_;
  std::vector<std::string> dropped_;
  CommitDriver* driver_ = nullptr;
  uint64_t committed_ = 0;
  absl::Status error_ = absl::UnavailableError("this server is not the primary");
  absl::Status refusal_;
  std::vector<SessionChange> deferred_;  // while writes are refused
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_NODE_REPLICATED_WRITES_H_
