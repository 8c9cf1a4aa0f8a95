// The scans of an engine: for each an index::Scan, its current READs, and its results so far.
//
//   kNew --> kReading --(READs have ended)--> kReading … --> kDone
//     ^         |
//     +---------+-- the end of a partition that is not the last
//     |         |
//     |         +-- writes there are too fast --> kPaused --> kReading, from its cursor
//     |
//     +---------+-- READs without a lease: after a pause, once more from the cursor
//     |
//     +------- the connection is lost: once more from the cursor; where the keys are others, from
//              the beginning, if the scan began there
//
// Scans take a share of the connection's READs, so that GETs proceed beside them. They take turns:
// a turn is one chain of at most kChainReadsMax READs, and the next turn belongs to the next scan.
// A chain that the limits cut short does not end the turn. So each scan waits for at most one chain
// of each other scan, whatever their lengths.
//
// READs land in a buffer of the engine. It stays until they have ended, even if the scan is
// answered earlier.
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_READ_SCANS_H_
#define OSPREY_CLIENT_READ_SCANS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/common/buffer_pool.h"
#include "client/read/partition_maps.h"
#include "client/read/read_lease.h"
#include "client/read/reads_in_flight.h"
#include "index/reader/scan.h"
#include "rdma/transport.h"

namespace osprey::client {

// The place where a scan continues: the contents of ScanPage's opaque string. A scan visits the
// shards in order, and in each the partitions in order, and a key's place among them depends on its hash alone. So the place is valid
// for each server with this dataset (ServerTerms). `dataset` 0: at the beginning.
struct ScanPlace {
  uint64_t dataset = 0;
  uint32_t partition = 0;
  index::ScanCursor cursor;
  uint32_t shard = 0;  // which the caller of Scans leaves and enters

  bool at_end() const { return cursor.at_end(); }  // of the last partition
  std::string Text() const;                        // "" at the end
  // Errors: INVALID_ARGUMENT (Reason::kBadCursor). "" is the beginning.
  static absl::StatusOr<ScanPlace> Parse(absl::string_view text);
};

class Scans {
 public:
  struct Found {
    std::vector<index::ScanEntry> entries;
    uint64_t count = 0;
    // Server time at which the last entry with an expiry was found, at the latest.
    uint64_t now_ns = 0;
    ScanPlace next;
  };
  struct Request {
    ScanPlace from;
    std::string prefix;
    uint64_t limit = 0;
    bool values = false;
    bool count_only = false;
    absl::Time deadline;
    absl::AnyInvocable<void(absl::StatusOr<Found>)> done;
  };

  Scans(ReadsInFlight& reads, BufferPool& buffers, Counters& counters, ReadLease& lease)
      : reads_(reads), buffers_(buffers), counters_(counters), lease_(lease) {}
  Scans(const Scans&) = delete;
  Scans& operator=(const Scans&) = delete;

  void Start(Request request);

  // Begins and continues scans, and posts READs. REQUIRES: the connection is ready.
  void Advance(const ReadSource& source, PartitionMaps& maps, absl::Time now);
  // A chain of scan `number` has ended; `believe`: successfully. `time_since(posted)` returns the
  // bounds of the server's clock from then until now.
  using TimeSince = absl::FunctionRef<index::ServerTimeBounds(absl::Time posted)>;
  void Done(uint32_t number, bool believe, absl::Time now, TimeSince time_since);
  // The connection is gone, with all its READs.
  void OnLost();

  // Ends late scans with their results so far; without results, with `error`.
  void Expire(absl::Time now, const absl::Status& error);
  void EndAll(const absl::Status& error);
  bool idle() const { return free_.size() == operations_.size(); }  // none is under way
  bool has_done() const { return !done_.empty(); }                  // an answer can be delivered
  // Delivers one answer. It is `late` if `is_late(deadline)` for a completed scan. REQUIRES:
  // has_done().
  void RunCallback(absl::FunctionRef<bool(absl::Time deadline)> is_late, const absl::Status& late);

  // When Expire has work to do, and when Advance has.
  absl::Time NextDeadline() const;
  absl::Time NextTimer() const;
  // Scans wait for a lease. NextTimer is not meaningful: the next is when a READ of the serving
  // record is due.
  bool waits_for_lease() const { return waits_for_lease_ && !idle(); }
  // A scan waits for closer bounds of the server's clock.
  bool wants_time() const;

 private:
  // The limits for READs of one chain, and for chains of one scan under way.
  static constexpr size_t kChainReadsMax = 32;
  static constexpr int kChainsMax = 2;

  enum class State { kNew, kReading, kPaused, kDone };
  struct Operation {
    Request request;
    State state = State::kDone;
    std::optional<index::Scan> scan;  // of the partition in found.next
    uint64_t partition_offset = 0;    // of that one, in the region
    uint32_t partitions = 1;
    absl::Time begun;  // ReadLease::Begun when `scan` began
    Found found;
    absl::StatusOr<Found> answer;
    bool expired = false;  // the answer has the results found by the deadline
    Buffer buffer;
    // The state of the step: the next READ and how much of it was posted; where it lands; whether
    // all ended READs succeeded.
    index::Scan::Step step;
    size_t next_read = 0;
    uint32_t next_byte = 0;
    uint64_t landing = 0;
    absl::Time posted_at;  // of its first READ, or a little earlier
    bool lacked_time = false;
    int chains = 0;  // under way
    int pauses = 0;
    absl::Time pause_end;
  };

  void Begin(Operation& operation, PartitionMaps& maps);
  void Follow(Operation& operation, index::Scan::Step step, absl::Time now);
  enum class Posted {
    kTurn,     // a chain as long as a turn allows, or the rest of the step
    kCut,      // as many READs as the limits allow, possibly none
    kNothing,  // the scan has nothing to post now
  };
  Posted Post(size_t index, const ReadSource& source, absl::Time now);
  bool TakeBuffer(Operation& operation);
  void Pause(Operation& operation, int attempt, absl::Time now);
  void TakeOut(Operation& operation);
  void End(Operation& operation, absl::StatusOr<Found> answer);

  ReadsInFlight& reads_;
  BufferPool& buffers_;
  Counters& counters_;
  ReadLease& lease_;
  bool waits_for_lease_ = false;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<size_t> free_;  // of operations_
  std::vector<size_t> done_;  // likewise: callbacks to be run
  size_t turn_ = 0;           // index into operations_: the first to post in Advance
  std::vector<rdma::ReadRequest> chain_;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_SCANS_H_
