#include "tests/simulation/simulated_data.h"

#include <algorithm>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "server/durability/change_log.h"
#include "tests/index/index_test_util.h"

namespace osprey {

using server::wal::SimDisk;

namespace {

constexpr uint64_t kRecordNone = UINT64_MAX;

}  // namespace

// Notes each change of a partition, and passes it on to its log.
class SimulatedData::Recorder final : public server::PartitionChanges {
 public:
  Recorder(SimulatedData& data, server::PartitionChanges& changes, std::vector<Change>& reported)
      : data_(data), changes_(dynamic_cast<server::ChangeLog&>(changes)), reported_(reported) {}

  void SetWrite(const server::ClientWrite* write) override { changes_.SetWrite(write); }
  void SetUpload(const server::ValueUpload* upload) override {
    data_.values_in_pieces_ += upload != nullptr;
    changes_.SetUpload(upload);
  }
  void OnPut(absl::string_view key, index::ByteSpan value, uint64_t version,
             uint64_t expiry_ns) override {
    if (value.size() > server::ChangeLog::kValueInEntryMax) OnRelease();  // as ChangeLog does
    Note({Change::Kind::kPut, std::string(key), index::TextOf(value), version, expiry_ns});
    Forward([&] { changes_.OnPut(key, value, version, expiry_ns); });
  }
  void OnExpire(absl::string_view key, uint64_t version, uint64_t expiry_ns) override {
    Note({Change::Kind::kExpire, std::string(key), "", version, expiry_ns});
    Forward([&] { changes_.OnExpire(key, version, expiry_ns); });
  }
  void OnDelete(absl::string_view key, uint64_t version, uint64_t deletion) override {
    Note({Change::Kind::kDelete, std::string(key), "", version, 0});
    Forward([&] { changes_.OnDelete(key, version, deletion); });
  }
  void OnEvict(absl::string_view key, uint64_t version) override {
    const Change change{Change::Kind::kDelete, std::string(key), "", version, 0, 0, true};
    // A checkpoint follows, and no record.
    if (!data_.is_loaded_) data_.evicted_.push_back(change);
    if (data_.is_loaded_) Note(change);
    Forward([&] { changes_.OnEvict(key, version); });
  }
  void OnResult(const server::Result& result) override {
    Note({Change::Kind::kDelete, "", "", 0, 0});  // an entry without a key
    Forward([&] { changes_.OnResult(result); });
  }
  void OnRelease() override {
    Forward([&] { changes_.OnRelease(); });
  }
  void BeginPending(uint64_t hash) override { changes_.BeginPending(hash); }
  void ContinuePending(uint64_t hash) override { changes_.ContinuePending(hash); }
  bool IsPending(uint64_t hash) const override { return changes_.IsPending(hash); }
  void EndPending(uint64_t hash) override { changes_.EndPending(hash); }
  void DropPending() override { changes_.DropPending(); }

 private:
  void Note(Change change) {
    change.at = data_.now_();
    reported_.push_back(std::move(change));
  }
  // A group is appended whole: those that it has are in the last record. A log that fails has none.
  void Forward(absl::FunctionRef<void()> call) {
    if (!data_.is_loaded_) return call();
    const server::wal::Log& log = *data_.durability_->log();
    const uint64_t before = log.appended();
    call();
    const uint64_t record = log.appended() > before ? log.appended() : kRecordNone;
    for (; numbered_ < changes_.entries(); ++numbered_) reported_[numbered_].record = record;
  }

  SimulatedData& data_;
  server::ChangeLog& changes_;
  std::vector<Change>& reported_;
  uint64_t numbered_ = 0;
};

SimulatedData::SimulatedData(const Plan& plan, SplitMix64& random,
                             std::function<void()> checkpoint_step,
                             std::function<void()> during_sync, std::function<int64_t()> now)
    : plan_(plan),
      random_(random),
      now_(std::move(now)),
      checkpoint_step_(std::move(checkpoint_step)),
      disk_(std::make_shared<SimDisk>(random.Next())) {
  disk_->set_during_sync([call = std::move(during_sync)](const std::string&) { call(); });
}

SimulatedData::~SimulatedData() = default;

bool SimulatedData::Failed(const absl::Status& status) {
  if (!may_fail_ || (!disk_->crashed() && !disk_->faulted())) Wrong(status.ToString());
  return false;
}

bool SimulatedData::Open() {
  may_fail_ = !is_calm_ && random_.Chance(60);
  if (may_fail_ && random_.Chance(70)) {
    disk_->CrashAfter(random_.Below(random_.Chance(30) ? 60 : 1500));
  } else if (may_fail_) {
    disk_->SetFaults(random_.Below(2), random_.Below(3));
  }
  server::DurabilityOptions options;
  options.mode = plan_.durability == Plan::Durability::kSync ? server::DurabilityMode::kSync
                                                             : server::DurabilityMode::kAsync;
  options.log_memory = 1 << 20;
  options.segment_bytes = 32 << 10;
  options.checkpoint_log_bytes = plan_.checkpoint_log_bytes;
  options.random = [this] { return random_.Next() | 1; };
  options.log = [](absl::string_view) {};
  options.checkpoint_step = checkpoint_step_;
  absl::StatusOr<std::unique_ptr<server::Durability>> durability =
      server::Durability::Open(disk_, plan_.partitions, std::move(options));
  if (!durability.ok()) return Failed(durability.status());
  durability_ = *std::move(durability);
  reported_.assign(plan_.partitions, {});
  evicted_.clear();
  const std::vector<server::PartitionChanges*> changes = durability_->changes();
  for (size_t i = 0; i < changes.size(); ++i)
    recorders_.push_back(std::make_unique<Recorder>(*this, *changes[i], reported_[i]));
  return true;
}

std::vector<server::PartitionChanges*> SimulatedData::changes() const {
  std::vector<server::PartitionChanges*> changes;
  for (const auto& recorder : recorders_) changes.push_back(recorder.get());
  return changes;
}

// The records up to `last` are there, and are durable now.
void SimulatedData::CutTo(uint64_t last) {
  if (last < must_have_)
    Wrong(absl::StrCat("record ", must_have_, " is lost, and the last one is ", last));
  const bool is_async = plan_.durability == Plan::Durability::kAsync;
  tails_lost_ += is_async && last < acknowledged_;
  must_have_ = acknowledged_ = synced_ = last;
  for (const Change& change : later_) {
    const bool is_lost = change.record > last;
    if (is_lost && (!is_async || !keeps_synced_only_)) unanswered_.push_back(change);
    if (!is_lost) {
      Apply(change);
    } else if (!change.key.empty() && (change.is_eviction || is_async)) {
      // An eviction is visible before it is durable.
      LostKey& key = lost_[change.key];
      if (is_async) key.changes.push_back(change);
    }
  }
  later_.clear();
}

bool SimulatedData::Load(server::Tables& tables, absl::Time now) {
  const absl::StatusOr<server::Recovered> recovered = durability_->Load(tables, {});
  if (!recovered.ok()) {
    // Its first record, which may be there the next time, is a mark.
    if (const server::wal::Log* log = durability_->log()) CutTo(log->appended() - 1);
    return Failed(recovered.status());
  }
  const uint64_t last = recovered->end.last_record;
  CutTo(last);
  for (const Change& change : evicted_) Apply(change);
  sessions_ = recovered->sessions;
  for (auto& [key, of_key] : lost_) {
    const auto found = base_.find(key);
    of_key.is_present = found != base_.end();
    if (!of_key.is_present) continue;
    of_key.value = found->second.value;
    of_key.expiry_ns = found->second.expiry_ns;
  }
  // A checkpoint leaves out what has expired, and so does loading.
  const uint64_t now_ns =
      std::max(static_cast<uint64_t>(absl::ToUnixNanos(now)), server::ClockAtEnd(recovered->end));
  std::erase_if(base_, [&](const auto& one) {
    const server::LockedTable table = tables.Lock(tables.PartitionOf(one.first));
    return one.second.expiry_ns != 0 && one.second.expiry_ns <= now_ns &&
           !table->Find(one.first).ok();
  });
  if (const std::string difference = Difference(tables); !difference.empty())
    Wrong(absl::StrCat("after record ", last, ": ", difference));
  is_loaded_ = true;
  return wrong_.empty();
}

bool SimulatedData::Start(std::function<absl::Time()> now,
                          std::function<std::vector<server::SessionImage>()> images) {
  const absl::Status status = durability_->Start(std::move(now), std::move(images));
  return status.ok() || Failed(status);
}

void SimulatedData::Sync() {
  // An error is the log's, and the next Commit has it too.
  (void)durability_->log()->Sync();
}

void SimulatedData::Close(bool is_power_lost) {
  // After a failed sync, written records may be in the cache alone, which recovery does not read.
  const bool keeps_synced_only = is_power_lost || disk_->faulted();
  if (durability_ != nullptr && is_loaded_) {
    const server::wal::Log& log = *durability_->log();
    lost_.clear();
    unanswered_.clear();
    keeps_synced_only_ = false;
    checkpoints_ += durability_->stats().checkpoints;
    synced_ = log.synced();
    must_have_ = keeps_synced_only ? synced_ : log.written();
    acknowledged_ = log.written();
    for (std::vector<Change>& some : reported_) {
      for (Change& change : some) {
        if (change.record == 0) change.record = kRecordNone;
        later_.push_back(std::move(change));
      }
    }
    // The order of the log; a partition's changes in one record keep theirs.
    std::stable_sort(later_.begin(), later_.end(),
                     [](const Change& a, const Change& b) { return a.record < b.record; });
  }
  keeps_synced_only_ |= keeps_synced_only;
  if (!is_loaded_ && keeps_synced_only) must_have_ = std::min(must_have_, synced_);
  is_loaded_ = false;
  recorders_.clear();
  reported_.clear();
  durability_.reset();
  if (is_power_lost) disk_->LosePower();
  disk_->Kill();
  disk_->SetFaults(0, 0);
}

void SimulatedData::CalmDown() {
  is_calm_ = true;
  disk_->CrashAfter(UINT64_MAX);
  disk_->SetFaults(0, 0);
}

// --- The tables ------------------------------------------------------------------------------------

void SimulatedData::Apply(const Change& change) {
  const auto found = base_.find(change.key);
  switch (change.kind) {
    case Change::Kind::kPut:
      base_[change.key] = {change.value, change.version, change.expiry_ns};
      return;
    case Change::Kind::kExpire:
      if (found != base_.end() && found->second.version == change.version)
        found->second.expiry_ns = change.expiry_ns;
      return;
    case Change::Kind::kDelete:
      if (found != base_.end() && found->second.version <= change.version) base_.erase(found);
  }
}

std::string SimulatedData::Difference(server::Tables& tables) const {
  std::map<std::string, Content> present;
  for (uint32_t i = 0; i < tables.partitions(); ++i) {
    const server::LockedTable table = tables.Lock(i);
    uint64_t cursor = 0;
    do {
      cursor = table->Walk(cursor, 1 << 20, [&](const index::WalkedKey& key) {
        present[std::string(key.key)] = {index::TextOf(key.value), key.version, key.expiry_ns};
      });
    } while (cursor != 0);
  }
  for (const auto& [key, expected] : base_) {
    const auto found = present.find(key);
    if (found == present.end()) return absl::StrCat("'", key, "' is missing");
    const Content& content = found->second;
    if (content == expected) continue;
    return absl::StrCat("'", key, "' has version ", content.version, ", expiry ", content.expiry_ns,
                        " and ", content.value.size(), " bytes, not ", expected.version, ", ",
                        expected.expiry_ns, " and ", expected.value.size());
  }
  for (const auto& [key, content] : present) {
    if (!base_.contains(key)) return absl::StrCat("'", key, "' is there");
  }
  return "";
}

}  // namespace osprey
