// The table of one shard of the cluster, in whichever slot of this server holds it. A server has slots for some
// shards, or for all: the memory, the tables and the engines of one shard each (ShardNode).
//
//   free ──Take──> holds a shard ──Clear──> is emptied ──ClearSome──> free
//
// Thread rule: as ReplicaTables.

#ifndef OSPREY_SERVER_CLUSTER_NODE_SHARD_TABLE_H_
#define OSPREY_SERVER_CLUSTER_NODE_SHARD_TABLE_H_

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/cluster/member/replica_host.h"
#include "server/cluster/node/shard_node.h"

namespace osprey::server {

class ShardTable final : public MemberTable {
 public:
  // `slots` outlive this.
  ShardTable(uint32_t shard, const std::vector<std::unique_ptr<ShardNode>>& slots)
      : shard_(shard), slots_(slots) {}

  uint32_t shard() const { return shard_; }
  // nullptr: none holds the shard.
  ShardNode* slot() const { return slot_; }

  // --- MemberTable
  bool Take() override {
    for (size_t i = 0; slot_ == nullptr && i < slots_.size(); ++i) {
      if (!slots_[i]->is_free()) continue;
      slot_ = slots_[i].get();
      slot_->Hold(shard_);
    }
    return slot_ != nullptr;
  }
  bool CanTake() const override {
    return slot_ != nullptr || std::any_of(slots_.begin(), slots_.end(),
                                           [](const auto& slot) { return slot->is_free(); });
  }
  absl::Status Reserve(const ReplicatedGroup& group) override { return table().Reserve(group); }
  void Release(const ReplicatedGroup& group) override { table().Release(group); }
  void Apply(const ReplicatedGroup& group) override { table().Apply(group); }
  void Clear() override {
    if (slot_ != nullptr) table().Clear();
  }
  bool ClearSome() override {
    if (slot_ == nullptr) return true;
    if (!table().ClearSome()) return false;
    slot_->Free();
    slot_ = nullptr;
    return true;
  }
  void BeginJoin() override { table().BeginJoin(); }
  uint64_t EndPrimary() override { return table().EndPrimary(); }
  void BeginCopy() override { table().BeginCopy(); }
  bool HasChunk() override { return table().HasChunk(); }
  std::string NextChunk() override { return table().NextChunk(); }
  absl::Status TakeChunk(absl::string_view chunk) override { return table().TakeChunk(chunk); }
  void EndCopy() override { table().EndCopy(); }

 private:
  ReplicaTable& table() const {
    assert(slot_ != nullptr);
    return slot_->table();
  }

  const uint32_t shard_;
  const std::vector<std::unique_ptr<ShardNode>>& slots_;
  ShardNode* slot_ = nullptr;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_NODE_SHARD_TABLE_H_
