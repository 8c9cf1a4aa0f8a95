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
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/cluster/table/replicated_changes.h"
#include "server/cluster/table/time_marks.h"
#include "server/cluster/table/value_parts.h"
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
  // A long value goes in parts (value_parts.h), one value after the other. Errors: kValueTooLong: another server
  // takes none.
  absl::StatusOr<std::unique_ptr<ValueUpload>> BeginUpload(uint32_t partition,
                                                           absl::string_view key,
                                                           uint64_t value_bytes) override;
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

  // Before the first upload.
  void SetPartLengths(const PartLengths& lengths) { part_lengths_ = lengths; }
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
  // Whether all other servers take parts of values. Those of earlier releases do not.
  void SetTakesParts(bool takes) { takes_parts_ = takes; }
  // The groups up to `number`, but for those of a value in parts whose put is not among them. `number` never
  // falls.
  uint64_t TakeWhole(uint64_t number);
  // Commits that wait.
  uint32_t awaiting() const { return awaiting_.load(); }

 private:
  class Upload;
  absl::Status Refusal() const override;
  bool IsNext(const Upload& upload) const;
  bool MayAddPart(const Upload& upload) const;
  void AddPart(Upload& upload, index::ByteSpan value);
  void EndUpload(Upload& upload);
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
  // --- Values that go in parts.
  PartLengths part_lengths_;
  std::atomic<bool> takes_parts_{true};
  // The groups of a value: from its first part to its put, or to what ends its parts.
  struct Unit {
    uint64_t first = 0;
    uint64_t last = UINT64_MAX;  // not yet
  };
  std::deque<Upload*> uploads_;  // of whole values: the first one's parts go
  std::deque<Unit> units_;       // in their order
  std::deque<uint64_t> parts_;   // numbers of those that are not committed
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_NODE_REPLICATED_WRITES_H_
