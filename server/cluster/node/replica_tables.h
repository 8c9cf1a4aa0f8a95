// The tables of a server of a cluster, in whatever role: those of a backup, or those that its engines
// serve.
//
//             TakeOver: the sessions go to engines
//   backup ───────────────────────────────────────> primary
//     ^                                                │ the record names another one:
//     └──── ReplicaTables::Owner::EndService <─────────┘ the engines end first
//
// Thread rule: one thread at a time: the cluster's, or a poller that drives (cluster_node.h). At a primary the
// pollers use the tables, too.

#ifndef OSPREY_SERVER_CLUSTER_NODE_REPLICA_TABLES_H_
#define OSPREY_SERVER_CLUSTER_NODE_REPLICA_TABLES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/cluster/member/replica_host.h"
#include "server/cluster/node/call_thread.h"
#include "server/cluster/table/table_copy.h"
#include "server/cluster/table/table_replica.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"

namespace osprey::server {

// What engines leave behind.
struct EndedService {
  std::vector<SessionImage> sessions;
  uint64_t made = 0;                 // up to this lsn their groups are made
  std::vector<std::string> dropped;  // bodies of groups that never took their place
};

class ReplicaTables final : public ReplicaTable {
 public:
  // What the tables need of the server around them.
  class Owner {
   public:
    virtual ~Owner() = default;
    // No engine uses the tables when it returns, and none of their writes is prepared.
    virtual EndedService EndService() = 0;
    // The sessions of the engines; waits for them. Nothing: the engines are about to end. Thread rule: any
    // thread.
    virtual std::optional<std::vector<SessionImage>> TakeSessions() = 0;
    virtual bool has_engines() const = 0;
    // How many groups engines have decided so far, and how many of them have taken their place.
    virtual uint64_t decided() const = 0;
    virtual uint64_t placed() const = 0;
  };

  // All outlive this. `seed`: random. `asker`: makes the calls of TakeSessions.
  ReplicaTables(Tables& tables, uint64_t seed, Owner& owner, CallThread& asker);

  bool is_primary() const { return is_primary_; }
  // The tables are the engines' from now on, and groups are decided. REQUIRES: as TableReplica::TakeOver; !is_primary().
  std::vector<SessionImage> TakeOver();
  // The last mark of time that counts (TableReplica::time_mark_ns).
  uint64_t time_mark_ns() const { return replica_.time_mark_ns(); }
  void NoteTimeMark(uint64_t mark_ns) { replica_.NoteTimeMark(mark_ns); }

  // --- ReplicaTable
  absl::Status Reserve(const ReplicatedGroup& group) override { return replica_.Reserve(group); }
  void Release(const ReplicatedGroup& group) override { replica_.Release(group); }
  void Apply(const ReplicatedGroup& group) override { replica_.Apply(group); }
  void Clear() override;
  bool ClearSome() override { return replica_.ClearSome(); }
  void BeginJoin() override { replica_.BeginCopy(); }
  uint64_t EndPrimary() override;
  void BeginCopy() override;
  bool HasChunk() override;
  std::string NextChunk() override;
  absl::Status TakeChunk(absl::string_view chunk) override;
  void EndCopy() override {}

 private:
  // The sessions that the asker brings, for which others may ask it meanwhile.
  struct Asked {
    std::atomic<bool> is_done{false};
    std::optional<std::vector<SessionImage>> sessions;  // once it is
  };

  Tables& tables_;
  Owner& owner_;
  CallThread& asker_;
  TableReplica replica_;
  bool is_primary_ = false;
  // --- At a primary, whose tables are copied.
  bool wants_sessions_ = false;   // a copy has begun, and they are not asked for yet
  std::shared_ptr<Asked> asked_;  // null: they are not
  std::optional<TableCopy> copy_;
  uint64_t decided_ = 0;  // groups, when its last chunk was made
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_NODE_REPLICA_TABLES_H_
