// The data directory of a simulated server, over its incarnations: the server's log, checkpoints and
// recovery on a disk that loses, tears and reorders what was not synced (sim_disk.h).
//
//   SimulatedData data(plan, random);
//   data.Open();                            of an incarnation
//   … tables with data.changes() …
//   data.Load(tables);                      compares them with the log
//   … engines with data.durability() …
//   data.Close(is_power_lost);              the incarnation has ended
//
// Each change that a table reports is kept with the number of its record. What Load finds must be
// those up to some record, in the order of the log: a prefix. It has all that was synced, and after
// a kill all that was written.
//
// Thread rule: one thread.

#ifndef OSPREY_TESTS_SIMULATION_SIMULATED_DATA_H_
#define OSPREY_TESTS_SIMULATION_SIMULATED_DATA_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/durability/durability.h"
#include "server/requests/tables.h"
#include "tests/server/wal/sim_disk.h"
#include "tests/simulation/plan.h"
#include "tests/support/split_mix64.h"

namespace osprey {

// A change that a table reported.
struct ReportedChange {
  enum class Kind { kPut, kExpire, kDelete };
  Kind kind = Kind::kPut;
  std::string key;
  std::string value;
  uint64_t version = 0;
  uint64_t expiry_ns = 0;
  uint64_t record = 0;  // of the log; 0: not appended yet
  bool is_eviction = false;
  int64_t at = 0;  // World::now
};

// A key whose last changes an incarnation did not find.
struct LostKey {
  std::vector<ReportedChange> changes;  // that a reader may have seen, though no write was answered
  // What it is now.
  bool is_present = false;
  std::string value;
  uint64_t expiry_ns = 0;
};

class SimulatedData {
 public:
  // Other parties have turns in `checkpoint_step`, the server included, and in `during_sync`, without
  // it. `now` is World::now. `random` outlives this.
  SimulatedData(const Plan& plan, SplitMix64& random, std::function<void()> checkpoint_step,
                std::function<void()> during_sync, std::function<int64_t()> now);
  ~SimulatedData();

  // False: the disk failed, and the incarnation has ended, or wrong() says what is wrong.
  // REQUIRES: the tables were made with changes() and the directory's hash seed, and their clock
  // stands still.
  bool Open();
  bool Load(server::Tables& tables, absl::Time now);
  bool Start(std::function<absl::Time()> now,
             std::function<std::vector<server::SessionImage>()> images);

  std::vector<server::PartitionChanges*> changes() const;
  server::Durability& durability() { return *durability_; }
  bool is_loaded() const { return is_loaded_; }
  const std::vector<server::SessionImage>& sessions() const { return sessions_; }
  // Changes that Load did not find, though some reader may have seen them: evictions, and with an
  // asynchronous log all.
  const std::map<std::string, LostKey>& lost() const { return lost_; }
  // Changes that Load did not find, and that no client may have an answer to.
  const std::vector<ReportedChange>& unanswered() const { return unanswered_; }

  // What threads do otherwise.
  void RunDuties() { durability_->RunDuties(); }
  void Sync();

  // REQUIRES: no engine is left.
  void Close(bool is_power_lost);
  // No disk fault from now on.
  void CalmDown();

  const std::string& wrong() const { return wrong_; }
  uint64_t checkpoints() const { return checkpoints_; }
  uint64_t tails_lost() const { return tails_lost_; }
  uint64_t values_in_pieces() const { return values_in_pieces_; }

 private:
  class Recorder;
  using Change = ReportedChange;
  struct Content {
    std::string value;
    uint64_t version = 0;
    uint64_t expiry_ns = 0;
    friend bool operator==(const Content&, const Content&) = default;
  };

  void CutTo(uint64_t last);
  void Apply(const Change& change);
  bool Failed(const absl::Status& status);
  std::string Difference(server::Tables& tables) const;
  void Wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  const Plan& plan_;
  SplitMix64& random_;
  const std::function<int64_t()> now_;
  const std::function<void()> checkpoint_step_;
  const std::shared_ptr<server::wal::SimDisk> disk_;
  bool is_calm_ = false;
  bool may_fail_ = false;  // of the disk, in this incarnation
  bool is_loaded_ = false;
  uint64_t synced_ = 0;        // by the last incarnation
  uint64_t must_have_ = 0;     // the last record that the next incarnation has to find
  uint64_t acknowledged_ = 0;  // … and the last one that may have been acknowledged
  uint64_t checkpoints_ = 0;
  uint64_t tails_lost_ = 0;
  uint64_t values_in_pieces_ = 0;
  std::string wrong_;

  // What the last Load found, and the changes since then: of this incarnation by partition, and of
  // those before it by record. Loading evicts keys without a record.
  std::map<std::string, Content> base_;
  std::vector<std::vector<Change>> reported_;
  std::vector<Change> later_;
  std::vector<Change> evicted_;
  std::map<std::string, LostKey> lost_;
  std::vector<Change> unanswered_;
  bool keeps_synced_only_ = false;  // since the last Load
  std::vector<server::SessionImage> sessions_;
  std::unique_ptr<server::Durability> durability_;
  std::vector<std::unique_ptr<Recorder>> recorders_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_SIMULATED_DATA_H_
