// What the requests of a durable server are given: receivers of the tables' changes, and the log
// that no answer may precede.
//
//   TableAccess::set_write ─┐
//   Table ──changes──> PartitionChanges ──a group for each hold of the lock──> log
//                                                                               │
//   a reply is about to leave ──> WriteLog::Commit ──returns when they are durable
//
// A server in memory has neither.

#ifndef OSPREY_SERVER_REQUESTS_WRITE_LOG_H_
#define OSPREY_SERVER_REQUESTS_WRITE_LOG_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "index/layout/layout.h"
#include "index/writer/keys/changes.h"
#include "rdma/wire/wire.h"
#include "server/requests/sessions.h"

namespace osprey::server {

// A client's write that is being executed.
struct ClientWrite {
  uint64_t session = 0;
  uint64_t sequence = 0;
  rdma::Opcode opcode = rdma::Opcode::kPut;
};

// A write that waits for the disk goes on after this.
inline constexpr absl::Duration kUploadStep() { return absl::Milliseconds(1); }

// A long value that is on its way into a table. Its bytes go into the log as they arrive, without
// the partition's lock. The put that follows names them (PartitionChanges::SetUpload).
//
//   BeginUpload ──> Log, Log, … ──> IsLogged ──> SetUpload, put, release of the lock ──> destroyed
//
// If it is destroyed earlier, what was logged counts for nothing. Thread rule: one thread, which
// holds no lock of a partition.
class ValueUpload {
 public:
  // What is left of its disk space is free for others. REQUIRES: a put that names it was made, and the
  // lock was released; or no put names it.
  virtual ~ValueUpload() = default;
  // The first `arrived` bytes of `value` are there. Logs a bounded part of them, on return. `value`
  // is the same in all calls, and stays where it is until the last one. Errors: RESOURCE_EXHAUSTED
  // (the disk is full), or the log has failed. No later call succeeds.
  virtual absl::Status Log(index::ByteSpan value, uint64_t arrived) = 0;
  // All of the value is logged.
  virtual bool IsLogged() const = 0;
  // The disk is behind what uploads have logged. Further bytes should come later: again after
  // kUploadStep.
  virtual bool IsBehind() const = 0;
  // No put will name it, though it may live on for some time.
  virtual void GiveUp() {}
};

// The changes of one partition. Thread rule: the thread that holds the partition's lock.
class PartitionChanges : public index::Changes {
 public:
  // The write of the changes that follow, until the lock is released; `write` must outlive that.
  // Its members may change in between. Evictions belong to no write.
  virtual void SetWrite(const ClientWrite* write) = 0;
  // The puts that follow are of this upload's value, which is logged; null: of no upload's.
  virtual void SetUpload(const ValueUpload* upload) = 0;
  // The write has this result, whatever was reported of it before. For a part of a flush, whose
  // deletes were reported under the same hold.
  virtual void OnResult(const Result& result) = 0;
  // The lock is about to be released: the changes since the last call get their place in the log.
  virtual void OnRelease() = 0;

  // --- Where a change is logged before it is made (WriteLog::AwaitsSync).
  // A change of the key with this hash is about to be reported, and will be made under a later hold.
  // Until then the key has no other writes than those of ContinuePending. REQUIRES: !IsPending(hash).
  virtual void BeginPending(uint64_t hash) = 0;
  // Another change of that key is about to be reported by the same thread, which makes all of them
  // under one hold. REQUIRES: IsPending(hash).
  virtual void ContinuePending(uint64_t hash) = 0;
  virtual bool IsPending(uint64_t hash) const = 0;
  // The key's pending changes were made.
  virtual void EndPending(uint64_t hash) = 0;
  // No pending change will be made here (Tables::DropPrepared). REQUIRES: what was reported of them is
  // with another owner, which makes it or drops it.
  virtual void DropPending() = 0;
};

// Thread rule: all methods may run on any threads.
class WriteLog {
 public:
  virtual ~WriteLog() = default;
  // Whether a change is made only when it is durable: decide, log, Commit, apply. Else it is made at
  // once, and logged. Constant.
  virtual bool AwaitsSync() const = 0;
  // Before a write: whether it may begin. Errors: RESOURCE_EXHAUSTED (no disk space; nothing was
  // changed).
  absl::Status MayWrite() const {
    return refuses_.load(std::memory_order_relaxed) ? Refusal() : absl::OkStatus();
  }
  // Before the first byte of a value that comes in parts, of a key of this partition. Takes disk space
  // for all of it. Null: it is so short that it is logged with its put. Errors: RESOURCE_EXHAUSTED (the
  // disk has no room for it; nothing was changed), the log has failed, or it takes no such value now.
  virtual absl::StatusOr<std::unique_ptr<ValueUpload>> BeginUpload(uint32_t partition,
                                                                   absl::string_view key,
                                                                   uint64_t value_bytes) = 0;
  // Returns when all changes reported before are as durable as the server promises. Errors: a write
  // or sync failed, and so do all later calls. No answer may leave from then on, nothing that was
  // decided is made, and the engines have to end.
  virtual absl::Status Commit() = 0;

 protected:
  // From now on MayWrite returns Refusal(), or OK again.
  void RefuseWrites(bool refuse) { refuses_ = refuse; }
  bool refuses_writes() const { return refuses_; }

 private:
  virtual absl::Status Refusal() const = 0;

  std::atomic<bool> refuses_{false};
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_REQUESTS_WRITE_LOG_H_
