// What a log and a checkpoint should hold: every record that was appended, and the state that the
// first so many of them make.

#ifndef OSPREY_TESTS_SERVER_WAL_WAL_MODEL_H_
#define OSPREY_TESTS_SERVER_WAL_WAL_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/wal/checkpoint_reader.h"
#include "server/wal/data_directory.h"
#include "server/wal/replay.h"

namespace osprey::server::wal {

struct ModelEntry {
  bool is_delete = false;
  std::string key;
  std::string value;
  std::vector<uint64_t> pieces;  // records; empty: the value is in the entry
};

// One record; without entries it is a piece or a mark.
struct ModelRecord {
  std::vector<ModelEntry> entries;
  uint64_t time_mark = 0;
};

struct ModelItem {
  uint64_t version = 0;  // the record's number
  std::string value;
  friend bool operator==(const ModelItem& a, const ModelItem& b) {
    return a.version == b.version && a.value == b.value;
  }
};
using ModelState = std::map<std::string, ModelItem>;

// The first key that is not as expected. REQUIRES: they differ.
std::string Difference(const ModelState& state, const ModelState& expected);

class Model {
 public:
  // Of record `number`, which is the next.
  void Append(ModelRecord record) { records_.push_back(std::move(record)); }
  uint64_t last() const { return records_.size(); }
  const ModelRecord& record(uint64_t number) const { return records_[number - 1]; }
  // The log ended with that record.
  void CutTo(uint64_t number) { records_.resize(number); }
  ModelState StateAt(uint64_t number) const;

 private:
  std::vector<ModelRecord> records_;
};

// Reads a checkpoint and a log, and compares each record with the model's.
class Recovered final : public ReplayVisitor, public PartVisitor {
 public:
  Recovered(const DataDirectory& directory, const Model& model)
      : directory_(directory), model_(model) {}

  // The state after ReadCheckpoint and then Replay.
  const ModelState& state() const { return state_; }
  // What was not as the model has it; empty: nothing so far.
  const std::string& wrong() const { return wrong_; }
  uint64_t sessions() const { return sessions_; }
  uint64_t shards() const { return shards_; }

  absl::Status OnGroup(const LogRecord& record, const Group& group,
                       const std::vector<std::vector<PiecePlace>>& pieces) override;
  // It reads all values; some lives rely on that.
  bool WantsPiecesVerified() const override { return model_.last() % 2 == 0; }
  absl::Status OnItem(const CheckpointItem& item, Bytes value) override;
  absl::Status OnValue(Bytes bytes) override;
  absl::Status OnSession(Bytes session) override;
  absl::Status OnShard(const ShardState& shard) override;

 private:
  void Apply(uint64_t number, const ModelEntry& entry);

  const DataDirectory& directory_;
  const Model& model_;
  ModelState state_;
  std::string last_key_;  // of OnItem
  std::string wrong_;
  uint64_t last_group_ = 0;
  uint64_t sessions_ = 0;
  uint64_t shards_ = 0;
};

}  // namespace osprey::server::wal

#endif  // OSPREY_TESTS_SERVER_WAL_WAL_MODEL_H_
