// Writes in two steps, between which the log makes them durable (WriteLog::AwaitsSync).
//
//   Decide ──> Report: pending ──> release of the lock, Commit, lock ──> Apply: no longer pending
//
// The engine does so for requests that are batched (synced_batch.h), and for values that were READ
// (Engine::PublishDecided). PublishReserved, ExecuteAppend and ExecuteFlush do all steps. They also serve
// servers that need only one step.
//
// A write is refused when it is decided, or not at all: the table reserves what the second step needs
// (Table::Prepare). A write that extends a key's life hides the key's item when it is decided. Else a
// client finds the key expired, and after a crash it is there.
//
// Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_REQUESTS_TWO_STEP_WRITES_H_
#define OSPREY_SERVER_REQUESTS_TWO_STEP_WRITES_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "index/writer/table.h"
#include "rdma/wire/protocol.h"
#include "server/requests/keyed_request.h"
#include "server/requests/requests.h"
#include "server/requests/tables.h"
#include "server/requests/write_log.h"

namespace osprey::server {

// A write of a key that another poller is about to change tries again after this.
inline constexpr absl::Duration kPendingStep() { return absl::Microseconds(50); }

// What a write will do.
struct Decision {
  enum class Kind { kPut, kExpire, kDelete };
  Kind kind = Kind::kPut;
  bool is_reserved = false;  // kPut: the value has its item
  rdma::FrameBytes value;    // kPut, if `text` is empty: the request's
  std::string text;          // INCREMENT and APPEND: the new value
  int64_t number = 0;        // INCREMENT
  index::Condition condition;
  index::Lifetime lifetime;
  uint64_t version = 0;          // of the write; kExpire: as present_version
  uint64_t present_version = 0;  // of a present key
  uint64_t expiry_ns = 0;

  rdma::FrameBytes bytes() const { return text.empty() ? value : AsFrameBytes(text); }
};
// A decision, which the table is prepared for; or why there is none.
struct Verdict {
  absl::optional<Decision> decision;
  absl::optional<Answer> refusal;
};
// Neither: it is no write, or too long for this way, or its value refuses it; ExecuteKeyed answers it.
// Refusals: a condition failed, or memory is full. Evictions that make room are reported to the
// table's changes. REQUIRES: no write of the key is pending.
Verdict Decide(index::Table& table, const KeyedRequest& request, uint64_t value_bytes_max,
               absl::Time now);
// Reports what was decided, as the table would. The key is pending from then on.
void Report(const Decision& decision, const index::HashedKey& hashed, PartitionChanges& changes);
// Whether `request` may replace the value of the pending PUT `earlier` before that one is made: both
// PUTs have neither a condition nor a time to live, and their values are equally long. So the later
// one needs what the table is prepared for, and nothing that it answers depends on the other.
bool MayReplace(const KeyedRequest& earlier, const KeyedRequest& request);
// Decides such a PUT. It is made instead of `earlier`, and both are answered. REQUIRES: MayReplace,
// and no later write of the key is decided.
Decision Replace(index::Table& table, const Decision& earlier, const KeyedRequest& request);
// Reports it behind the earlier ones.
void ReportReplacing(const Decision& decision, const index::HashedKey& hashed,
                     PartitionChanges& changes);
// Makes the change, which is pending no more. If its key, or its value, has ended since the decision,
// it took effect just before that.
Answer Apply(index::Table& table, const KeyedRequest& request, const Decision& decision,
             PartitionChanges& changes, absl::Time now);

// Whether the server's log needs two steps.
bool InTwoSteps(const TableAccess& tables);

// --- A value that was reserved, in two steps. `tables` has the log, and the write (set_write). REQUIRES:
// nothing is held.

// Decides to publish it, and reports that. A refusal frees the span. None: another write of the key is
// pending; again after kPendingStep. `upload` is the value's, and may be null.
absl::optional<Verdict> DecideReserved(TableAccess& tables, TableSpace& space,
                                       const ValueUpload* upload, absl::string_view key,
                                       const index::Condition& condition,
                                       const index::Lifetime& lifetime, absl::Time now);
// Publishes it. REQUIRES: the decision is durable.
Answer ApplyReserved(TableAccess& tables, TableSpace& space, absl::string_view key,
                     const Decision& decision, absl::Time now);

// --- Whole writes, which do as the server's log asks: in one step, or in two. `tables` has the log,
// and the write (set_write).

// Publishes a value that was reserved. None, `upload`: as DecideReserved. REQUIRES: nothing is held.
absl::optional<Answer> PublishReserved(TableAccess& tables, TableSpace& space,
                                       const ValueUpload* upload, absl::string_view key,
                                       const index::Condition& condition,
                                       const index::Lifetime& lifetime, absl::Time now);

// An APPEND that makes no long value. In two steps `table` is released and held again in between. No
// answer for later then. REQUIRES: no write of the key is pending, and request.hash is set.
Answer ExecuteAppend(TableAccess& tables, LockedTable& table, const KeyedRequest& request,
                     uint64_t value_bytes_max, absl::Time now);

// One part of a flush, of one table: the cursor says where in which. OK: value_length says how many
// keys were deleted. Locks by itself.
Answer ExecuteFlush(TableAccess& tables, const rdma::FlushBody& request, absl::Time now);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_REQUESTS_TWO_STEP_WRITES_H_
