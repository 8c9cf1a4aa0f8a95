// Writes in two steps, between which the log makes them durable (WriteLog::AwaitsSync).
//
//   Decide ──> Report: pending ──> release of the lock, Commit, lock ──> Apply: no longer pending
//
// The engine does so for requests that are batched (synced_batch.h). PublishReserved, ExecuteAppend
// and ExecuteFlush do all steps, and know servers that need only one, too. A key may expire, be
// evicted or flushed in between, and memory may become full. A write that fails then is revoked in
// the log: the key as it is, and the refusal as the result.
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
  rdma::FrameBytes value;  // kPut, if `text` is empty: the request's
  std::string text;        // INCREMENT and APPEND: the new value
  int64_t number = 0;      // INCREMENT
  index::Condition condition;
  index::Lifetime lifetime;
  uint64_t version = 0;          // of the write; kExpire: as present_version
  uint64_t present_version = 0;  // of a present key
  uint64_t expiry_ns = 0;

  rdma::FrameBytes bytes() const { return text.empty() ? value : AsFrameBytes(text); }
};
// None: it is refused, or no write, or too long for this way; ExecuteKeyed answers it. REQUIRES: no
// write of the key is pending.
absl::optional<Decision> Decide(index::Table& table, const KeyedRequest& request,
                                uint64_t value_bytes_max, absl::Time now);
// Reports what was decided, as the table would. The key is pending from then on.
void Report(const Decision& decision, const index::HashedKey& hashed, PartitionChanges& changes);
// Makes the change, which is pending no more, or revokes it. If a DELETE, INCREMENT or APPEND finds
// that its key has ended, it took effect just before. `write` outlives the hold of the lock.
Answer Apply(index::Table& table, const KeyedRequest& request, const Decision& decision,
             const ClientWrite& write, PartitionChanges& changes, absl::Time now);

// Publishes a value that was reserved, in both ways. None: another write of the key is pending; again
// after kPendingStep. `tables` has the log, and the write (set_write). `upload` is the value's, and
// may be null. REQUIRES: nothing is held.
absl::optional<Answer> PublishReserved(TableAccess& tables, TableSpace& space,
                                       const ValueUpload* upload, absl::string_view key,
                                       const index::Condition& condition,
                                       const index::Lifetime& lifetime, absl::Time now);

// --- Whole writes, which do as the server's log asks: in one step, or in two. `tables` has the log,
// and the write (set_write).

// An APPEND that makes no long value. In two steps `table` is released and held again in between. No
// answer for later then. REQUIRES: no write of the key is pending, and request.hash is set.
Answer ExecuteAppend(TableAccess& tables, LockedTable& table, const KeyedRequest& request,
                     uint64_t value_bytes_max, absl::Time now);

// One part of a flush, of one table: the cursor says where in which. OK: value_length says how many
// keys were deleted. Locks by itself.
Answer ExecuteFlush(TableAccess& tables, const rdma::FlushBody& request, absl::Time now);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_REQUESTS_TWO_STEP_WRITES_H_
