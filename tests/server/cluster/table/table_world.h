// Servers that hold the same tables: a primary under random writes, backups that get its groups with
// delays, and joiners that get a copy in between. tests/server/cluster/table/table_simulation_test.cc
// judges them.
//
//   requests ──Decide──> primary ──groups──> stream ──Reserve──> each backup
//                           │                  │
//                         Apply <──commit──────┴────Apply──> each backup
//
// A primary may be lost between its decisions and their commit. A member is promoted then, and its groups
// replace what others have pending of the old one. That may go on as a backup.
//
// Clocks of servers differ by seconds. A client looks at the primary whenever its marks of time allow that,
// or a lease: a key that was seen to have expired may not be there again.

#ifndef OSPREY_TESTS_SERVER_CLUSTER_TABLE_TABLE_WORLD_H_
#define OSPREY_TESTS_SERVER_CLUSTER_TABLE_TABLE_WORLD_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/cluster/replication/replica_log.h"
#include "server/cluster/table/replicated_changes.h"
#include "server/cluster/table/table_copy.h"
#include "server/cluster/table/table_replica.h"
#include "server/cluster/table/time_marks.h"
#include "server/cluster/table/value_parts.h"
#include "server/requests/keyed_request.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"
#include "server/requests/two_step_writes.h"
#include "tests/index/index_test_util.h"
#include "tests/support/split_mix64.h"

namespace osprey::server {

struct TableWorldOptions {
  uint64_t seed = 1;
  uint64_t memory_bytes = 8 << 20;
  uint64_t backup_memory_bytes = 16 << 20;
  bool evict = false;
  int rounds = 200;
  int keys = 300;
  uint64_t long_value_bytes = 1 << 20;
  uint64_t long_values = 2;    // percent of the puts
  uint64_t parted_values = 0;  // percent of the rounds in which one begins to go in parts
  uint64_t failovers = 4;      // percent of the rounds
  uint64_t demotions = 0;      // percent of the failovers, after which the primary is a backup
  uint64_t removals = 0;       // percent of the rounds, of some keys that the primary evicts
  uint64_t flushes = 1;        // likewise
  uint64_t drops = 0;          // likewise, of a backup that joins again
  uint64_t stalls = 2;         // likewise, of 2 to 4 s before what was decided is committed
};

// One server.
class TableNode final : public GroupSink {
 public:
  // `ahead`: of its clock, which is not that of the world.
  TableNode(const TableWorldOptions& options, uint64_t memory_bytes, const absl::Time& now,
            absl::Duration ahead, uint64_t id);

  // Of a primary: what it has decided goes to `groups`.
  void Decide(uint32_t partition, std::string body, uint64_t entries) override;
  void NoteExpiry() override { marks.NoteExpiry(); }
  uint64_t decided() const override { return groups.size(); }
  absl::Time Now() const { return now + ahead; }
  uint64_t NowNs() const { return static_cast<uint64_t>(absl::ToUnixNanos(Now())); }
  // The steps of a poller, which any server takes.
  void Maintain();

  index::RegionMemory memory;
  const absl::Time& now;
  absl::Duration ahead;
  TimeMarks marks;
  std::vector<std::unique_ptr<ReplicatedChanges>> changes;
  std::unique_ptr<Tables> tables;
  std::optional<TableReplica> replica;
  std::vector<std::pair<std::string, uint64_t>> groups;  // bodies and their entries
  // Of a backup: how many groups of the world's stream it has, those that its copy stands for included.
  size_t reserved = 0;
  std::deque<ReplicatedGroup> pending;  // the last ones of them
  size_t applied() const { return reserved - pending.size(); }
  // Of a joiner.
  std::optional<TableCopy> copy;
  std::deque<std::string> chunks;  // on their way
  size_t copied_to = 0;            // what was decided when the last one was made
  bool in_sync = false;
};

class TableWorld {
 public:
  static constexpr uint32_t kPartitions = 2;
  static constexpr uint64_t kPartBytes = 2000;

  explicit TableWorld(const TableWorldOptions& options);

  // Runs all rounds. Returns the first thing that is wrong; empty: nothing.
  std::string Run();

  // Backups that were dropped, since they had no room.
  int refusals() const { return refusals_; }
  int joined() const { return joined_; }
  int failovers() const { return failovers_; }
  int replaced() const { return replaced_; }  // pending groups
  int parted() const { return parted_; }      // values that went in parts, and were committed
  int survived() const { return survived_; }  // … by a new primary
  int parts_dropped() const { return parts_dropped_; }
  int joined_amid() const { return joined_amid_; }    // while a value went in parts
  int demoted_amid() const { return demoted_amid_; }  // likewise
  uint64_t evictions() const { return evictions_; }
  uint64_t expiries() const { return expiries_; }
  uint64_t during_copies() const {
    return during_copies_;
  }  // groups that joiners got beside chunks
  uint64_t lost_removals() const { return lost_removals_; }  // keys that new primaries lacked alone
  uint64_t expired_seen() const { return expired_seen_; }
  uint64_t looks_refused() const { return looks_refused_; }  // since no mark allowed them
  uint64_t clock_jumps() const { return clock_jumps_; }      // of new primaries

 private:
  // A long value: its parts, and then its put.
  struct PartedPut final : PartedValue {
    PartedPut() : PartedValue(kPartBytes) {}
    absl::Status Log(index::ByteSpan, uint64_t) override { return absl::OkStatus(); }
    bool IsLogged() const override { return sent == space.value().size(); }
    bool IsBehind() const override { return false; }

    std::unique_ptr<TableAccess> access;
    TableSpace space;
    uint64_t sent = 0;
  };
  struct Decided {
    std::string frame;  // the key and the value, which the request points into
    std::string key;
    KeyedRequest request;
    Decision decision;
    ClientWrite write;
    uint32_t partition = 0;
    std::unique_ptr<PartedPut> parted;
  };
  using Results = std::map<std::pair<uint64_t, uint64_t>, Result>;  // by session and sequence

  TableNode& primary() { return *nodes_[primary_]; }
  std::unique_ptr<TableNode> NewNode(bool is_primary);
  std::string Value();
  KeyedRequest RandomRequest(Decided& decided);
  void DecideSome();
  void DecideMark();
  void BeginParted();
  void StepParted();
  void DropParted();
  size_t Applied() const { return std::min(unit_.value_or(committed_), committed_); }
  void TakeGroups();
  void Append(std::string body, uint64_t entries);
  std::string Look();
  void Flush();
  void Evict();
  bool ReserveNext(TableNode& node);
  void ApplyNext(TableNode& node);
  void DeliverSome(size_t node);
  void BeginJoin(size_t node);
  bool StepJoin(TableNode& node);
  void Drop(TableNode& node);
  void ReserveAllInSync();
  std::string Commit();
  std::string FailOver();
  bool Demote(TableNode& node);
  void Expect(const Decided& decided);
  void Settle(const std::set<std::pair<uint64_t, uint64_t>>& committed);
  std::vector<SessionImage> SessionsOfClients() const;
  std::string Round();
  std::string CompareAll();
  std::string Compare(TableNode& node);
  std::string CompareSessions(TableNode& node) const;
  std::string CompareEmpty(TableNode& node);

  const TableWorldOptions options_;
  SplitMix64 random_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  std::vector<std::unique_ptr<TableNode>> nodes_;
  size_t primary_ = 0;
  uint64_t term_ = 1;
  uint64_t ids_ = 0;
  std::vector<ReplicatedGroup> stream_;
  // Marks of the stream that do not count yet.
  std::vector<uint64_t> marks_;
  size_t committed_ = 0;
  std::optional<Decided> parted_put_;       // it has no put yet
  std::optional<size_t> unit_;              // the first group of a value in parts that is not made
  std::deque<Decided> decided_;             // by the present primary, and not committed
  std::map<uint64_t, uint64_t> sequences_;  // by session
  Results expected_;                        // of what was decided
  Results results_;                         // of what was committed
  uint64_t answered_ = 0;                   // the highest version that a client has seen
  // What the client has seen: keys that were there, by key, and versions that have expired.
  struct Seen {
    uint64_t version = 0;
    uint64_t expiry_ns = 0;
  };
  std::map<std::string, Seen> seen_;
  std::set<std::pair<std::string, uint64_t>> expired_;
  absl::Time lease_end_ = absl::InfinitePast();
  uint64_t expired_seen_ = 0, looks_refused_ = 0, clock_jumps_ = 0;
  int parted_ = 0, survived_ = 0, parts_dropped_ = 0, joined_amid_ = 0, demoted_amid_ = 0;
  int refusals_ = 0, joined_ = 0, failovers_ = 0, replaced_ = 0;
  uint64_t evictions_ = 0, expiries_ = 0, during_copies_ = 0, lost_removals_ = 0;
};

}  // namespace osprey::server

#endif  // OSPREY_TESTS_SERVER_CLUSTER_TABLE_TABLE_WORLD_H_
