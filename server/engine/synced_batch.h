// Executes batched requests where a change is made only when it is durable (WriteLog::AwaitsSync).
//
//   round:  for each partition, under its lock:  decide each request, and log it
//           Commit                               one sync for all of them, and for long values that
//                                                were decided before
//           for each partition, under its lock:  apply what was decided, and answer it
//
// A write of a key that another one is about to change waits for the next round: of this batch, or
// of another poller's. But a plain PUT replaces one of this batch that is pending (MayReplace): both
// are logged, the last one is made, and all are answered. Refused writes are answered in the first step. So are reads, as a READ would
// find the key. Two kinds of reads wait for a round:
//
//   - those behind a write of their key in this batch, whose client may have sent both
//   - those of a hidden key whose old expiry has passed, or whose value does not fit a reply
//     (Table::AnswersLater)
//
// Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_SYNCED_BATCH_H_
#define OSPREY_SERVER_ENGINE_SYNCED_BATCH_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/engine/connection/partition_batch.h"
#include "server/requests/requests.h"
#include "server/requests/tables.h"
#include "server/requests/two_step_writes.h"
#include "server/requests/write_log.h"

namespace osprey::server {

class SyncedBatch {
 public:
  // Makes what else was decided, and is durable now. False: there was nothing.
  using ApplyOthers = std::function<bool(absl::Time now)>;
  // All must outlive this.
  SyncedBatch(PartitionBatch& batch, TableAccess& access, WriteLog& log, ApplyOthers apply_others)
      : batch_(batch), access_(access), log_(log), apply_others_(std::move(apply_others)) {}

  // Executes all requests of the batch, which stay in it. REQUIRES: nothing is held. Errors: those
  // of Commit. Then some requests have no answer, and the server has to end.
  absl::Status Execute(absl::Time now);

 private:
  struct Decided {
    const PartitionBatch::Request* request = nullptr;
    Decision decision;
    bool replaced = false;  // by a later one
  };

  Decided* ReplaceableBy(const PartitionBatch::Request& request);
  bool HasToWait(const PartitionBatch::Request& request) const;
  void DecideAll(std::vector<const PartitionBatch::Request*>& some, absl::Time now);
  void ApplyAllPartitions(absl::Time now);
  void ApplyAll(absl::Time now);  // of the held one

  PartitionBatch& batch_;
  TableAccess& access_;
  WriteLog& log_;
  const ApplyOthers apply_others_;
  // By partition, in the order of the requests.
  std::vector<std::vector<const PartitionBatch::Request*>> left_;
  std::vector<std::vector<Decided>> decided_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_SYNCED_BATCH_H_
