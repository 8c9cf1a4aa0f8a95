#include "tests/server/wal/wal_simulation.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/wal/checkpoint_writer.h"
#include "server/wal/format/checksum.h"
#include "server/wal/log.h"
#include "tests/server/wal/sim_disk.h"
#include "tests/server/wal/wal_model.h"

namespace osprey::server::wal {
namespace {

constexpr uint32_t kKeys = 12;
constexpr uint32_t kParts = 2;

// A long value on its way: its pieces are appended between the records of others.
struct Upload {
  std::string key;
  std::string value;
  std::vector<PieceRef> pieces;
  uint64_t sent = 0;
};

struct Walk {
  std::unique_ptr<CheckpointWriter> writer;
  std::deque<std::string> keys;  // still to be visited
  uint32_t visited = 0;
};

// The records of one Write carry the number that was synced then.
struct Stamp {
  uint64_t last = 0;
  uint64_t synced_to = 0;
  uint64_t time_mark = 0;
};

// Of a seed.
struct Plan {
  uint64_t segment_bytes = 0;
  bool disk_fails = false;
  bool damages = false;
  bool wrong_writes = false;
  bool gets_full = false;      // the disk
  bool is_uniform = false;     // records of one length: those of two lives begin at the same places
  uint64_t zeros_bytes = 0;    // ahead of the records
  uint64_t syncs_percent = 0;  // of a life
};

// What the next recovery has to find.
struct Promised {
  uint64_t all = 0;      // records
  uint64_t synced = 0;   // the same, after a loss of power
  uint64_t evident = 0;  // records that are synced and that the disk says so of
  uint64_t time_mark = 0;
};

class Simulation {
 public:
  Simulation(const SimulationOptions& options, SimulationCounts& counts)
      : options_(options), counts_(counts), random_(options.seed), disk_(random_.Next()) {
    draws_ = random_.Next();
    plan_.segment_bytes = 4096 * (2 + random_.Below(12));
    plan_.disk_fails = random_.Chance(30);
    plan_.damages = random_.Chance(50);
    plan_.wrong_writes = random_.Chance(30);
    plan_.gets_full = random_.Chance(20);
    plan_.is_uniform = random_.Chance(20);
    if (plan_.is_uniform) plan_.segment_bytes = kSegmentHeaderBytes + 512 * (1 + random_.Below(3));
    if (random_.Chance(50)) plan_.zeros_bytes = 4096 * (1 + random_.Below(3));
    disk_.set_during_sync([this](const std::string& name) { DuringSync(name); });
  }

  std::string Run() {
    for (uint32_t life = 0; life < options_.lives && wrong_.empty(); ++life) {
      ++counts_.lives;
      life_ = life;
      if (life > 0 && plan_.damages && random_.Chance(30)) RecoverFromDamage();
      if (wrong_.empty()) Live();
    }
    counts_.records += model_.last();
    return wrong_.empty() ? "" : absl::StrCat("life ", life_, ": ", wrong_);
  }

 private:
  void Fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  Random Draws() {
    return [this] { return ++draws_ * 0x9e3779b97f4a7c15 | 1; };
  }

  // --- Recovery.

  struct Recovery {
    std::unique_ptr<DataDirectory> directory;
    std::unique_ptr<Log> log;
    LogEnd end;
    absl::Status status;
    std::string wrong;
    ModelState state;
  };

  Recovery Recover(bool starts) {
    Recovery recovery;
    absl::StatusOr<std::unique_ptr<DataDirectory>> directory =
        DataDirectory::Open(disk_, NewDirectory(), Draws());
    recovery.status = directory.status();
    if (!directory.ok()) return recovery;
    recovery.directory = *std::move(directory);
    Recovered recovered(*recovery.directory, model_);
    recovery.status =
        ReadCheckpoint(*recovery.directory, 1, [&](uint32_t) -> PartVisitor& { return recovered; });
    if (!recovery.status.ok()) return recovery;
    absl::StatusOr<LogEnd> end = Replay(*recovery.directory, recovered);
    recovery.status = end.status();
    if (!end.ok()) return recovery;
    recovery.end = *std::move(end);
    recovery.wrong = recovered.wrong();
    recovery.state = recovered.state();
    if (!starts) return recovery;
    LogOptions options;
    options.segment_bytes = plan_.segment_bytes;
    options.queue_bytes_max = 256 << 10;
    options.spare_bytes = plan_.gets_full || plan_.zeros_bytes > 0 ? 16 << 10 : 0;
    options.zeros_bytes = plan_.zeros_bytes;
    absl::StatusOr<std::unique_ptr<Log>> log =
        StartLog(*recovery.directory, recovery.end, std::move(options));
    recovery.status = log.status();
    if (log.ok()) recovery.log = *std::move(log);
    return recovery;
  }

  // What must be there is the first `must` records.
  void Check(const Recovery& recovery, uint64_t must) {
    if (!recovery.wrong.empty()) Fail(recovery.wrong);
    const uint64_t last = recovery.end.last_record;
    if (last > model_.last()) {
      Fail(absl::StrCat("the log has record ", last, ", and only ", model_.last(),
                        " were appended"));
      return;
    }
    if (last < must) Fail(absl::StrCat("the log ends with record ", last, " before ", must));
    const ModelState expected = model_.StateAt(last);
    if (recovery.state != expected)
      Fail(absl::StrCat(Difference(recovery.state, expected), ", at record ", last));
  }

  // A bit of a file is flipped, or the file is missing, until the recovery was judged.
  void RecoverFromDamage() {
    if (disk_.SizeOf(kFormatName) == 0) return;  // it would be created
    std::vector<std::string> names;
    for (const std::string& name : disk_.Names()) {
      if (name != kLockName && name != kFormatName && disk_.SizeOf(name) > 0) names.push_back(name);
    }
    if (names.empty()) return;
    const std::string name = names[random_.Below(names.size())];
    ++counts_.damages;
    if (random_.Chance(15)) {
      disk_.Hide(name);
      JudgeDamage(absl::StrCat("the loss of ", name));
      disk_.Unhide();
      return;
    }
    // Mostly where there is something, and often near the beginning.
    const std::string bytes = disk_.ContentOf(name);
    const uint64_t end = random_.Chance(15) ? std::min<uint64_t>(bytes.size(), 100) : bytes.size();
    uint64_t offset = random_.Below(end);
    for (int i = 0; i < 20 && bytes[offset] == '\0'; ++i) offset = random_.Below(end);
    const auto bit = static_cast<uint8_t>(random_.Below(8));
    disk_.FlipBit(name, offset, bit);
    JudgeDamage(absl::StrCat("damage to ", name, " at ", offset));
    disk_.FlipBit(name, offset, bit);
  }

  void JudgeDamage(const std::string& damage) {
    const Recovery recovery = Recover(/*starts=*/false);
    if (recovery.status.ok()) {
      Check(recovery, std::min(promised_.all, promised_.evident));
    } else {
      ++counts_.found;
      if (!absl::StrContains(recovery.status.message(), "/data/"))
        Fail(absl::StrCat("no file is named: ", recovery.status.ToString()));
    }
    if (!wrong_.empty()) wrong_ = absl::StrCat("after ", damage, ": ", wrong_);
  }

  // --- A life.

  void Live() {
    if (random_.Chance(15)) disk_.CrashAfter(random_.Below(20));
    {
      Recovery recovery = Recover(/*starts=*/true);
      if (recovery.log != nullptr || recovery.status.ok()) Check(recovery, promised_.all);
      if (!wrong_.empty()) return;
      if (recovery.log == nullptr) {
        if (!disk_.crashed() && !disk_.faulted())
          Fail(absl::StrCat("no recovery: ", recovery.status.ToString()));
      } else {
        Continue(recovery);
        Work(recovery);
      }
      EndLife(recovery);
    }
  }

  void Continue(const Recovery& recovery) {
    const uint64_t last = recovery.end.last_record;
    counts_.cuts += last < model_.last();
    counts_.segments = std::max(counts_.segments, recovery.end.newest_number + 1);
    if (recovery.end.time_mark < promised_.time_mark)
      Fail(absl::StrCat("the time mark is ", recovery.end.time_mark, " before ",
                        promised_.time_mark));
    model_.CutTo(last);
    promised_.all = promised_.evident = promised_.synced = last;
    promised_.time_mark = recovery.end.time_mark;
    stamps_.clear();
    uploads_.clear();
    log_ = recovery.log.get();
    time_ = promised_.time_mark;
  }

  void Work(Recovery& recovery) {
    disk_.CrashAfter(random_.Chance(70) ? random_.Below(150) : UINT64_MAX);
    if (plan_.disk_fails && random_.Chance(40))
      disk_.SetFaults(random_.Below(4), random_.Below(12));
    if (plan_.gets_full && random_.Chance(50)) {
      uint64_t used = 0;
      for (const std::string& name : disk_.Names()) used += disk_.SpaceOf(name);
      disk_.set_capacity(used + random_.Below(200 << 10));
      log_->SetCheckpointBytes(random_.Below(40 << 10));
    }
    if (plan_.wrong_writes && random_.Chance(50)) disk_.SetWrongWrites(6);
    plan_.syncs_percent = random_.Chance(50) && !plan_.is_uniform ? 60 : 10;
    const uint64_t steps = random_.Below(options_.steps_max / (plan_.is_uniform ? 3 : 1));
    Walk walk;
    for (uint64_t step = 0; step < steps && !disk_.crashed() && wrong_.empty(); ++step) {
      Step(*recovery.directory, walk);
      Observe();
      if (recovery.directory->uncertain()) break;
      if (!log_->status().ok() && random_.Chance(50)) break;
    }
    if (random_.Chance(10) && wrong_.empty() && !disk_.crashed() && log_->status().ok()) {
      stamp_synced_ = log_->synced();
      const absl::Status ignored = log_->End(++time_);
      (void)ignored;  // the log's status() has it
      if (log_->appended() > model_.last()) model_.Append({});
      AfterWrite();
      Observe();
    }
  }

  void EndLife(Recovery& recovery) {
    disk_.SetFaults(0, 0);
    disk_.SetWrongWrites(0);
    disk_.set_capacity(UINT64_MAX);
    counts_.faults += disk_.faulted();
    const bool kill = random_.Chance(plan_.is_uniform ? 20 : 50);
    if (log_ != nullptr && kill && !disk_.faulted())
      promised_.all = std::max(promised_.all, log_->written());
    if (!kill || disk_.faulted()) promised_.all = promised_.synced;
    log_ = nullptr;
    recovery.log.reset();
    recovery.directory.reset();
    kill ? ++counts_.kills : ++counts_.crashes;
    kill ? disk_.Kill() : disk_.LosePower();
  }

  // Notes what counts as synced now.
  void Observe() {
    if (log_ == nullptr) return;
    const uint64_t synced = log_->synced();
    promised_.synced = std::max(promised_.synced, synced);
    for (; !stamps_.empty() && stamps_.front().last <= synced; stamps_.pop_front()) {
      promised_.evident = std::max(promised_.evident, stamps_.front().synced_to);
      promised_.time_mark = std::max(promised_.time_mark, stamps_.front().time_mark);
    }
  }

  void Step(DataDirectory& directory, Walk& walk) {
    const uint64_t dice = random_.Below(100);
    if (dice < (plan_.is_uniform ? 50 : 40)) {
      AppendGroup();
    } else if (dice < 50) {
      AppendUpload();
    } else if (dice < 75) {
      Write();
    } else if (dice < 75 + plan_.syncs_percent / 4) {
      SyncNow();
    } else if (dice < 92) {
      log_->RaiseMarks(time_ += random_.Below(5), 0);
      if (!plan_.is_uniform && random_.Chance(50)) Append(RecordKind::kMark, {}, {});
    } else {
      StepCheckpoint(directory, walk);
    }
  }

  std::string NewValue() {
    static constexpr uint64_t kLengths[] = {0, 8, 8, 8, 40, 40, 300, 3000, 5000};
    std::string value = absl::StrCat(life_, ":", ++values_, ":");
    const uint64_t length = plan_.is_uniform ? 24 : kLengths[random_.Below(9)];
    value.resize(std::max<uint64_t>(value.size(), length), 'v');
    return value;
  }

  void AppendGroup() {
    GroupHeader header;
    header.flags = random_.Chance(50) ? kAtomic : 0;
    GroupBuilder builder(header);
    ModelRecord record;
    const uint64_t count = plan_.is_uniform ? 1 : 1 + random_.Below(3);
    for (uint64_t i = 0; i < count; ++i) {
      ModelEntry& model = record.entries.emplace_back();
      model.is_delete = !plan_.is_uniform && random_.Chance(15);
      model.key = absl::StrCat("key", random_.Below(kKeys));
      if (!model.is_delete) model.value = NewValue();
      Entry entry;
      entry.kind = model.is_delete ? EntryKind::kDelete : EntryKind::kPut;
      entry.key = model.key;
      // Until it is written.
      kept_.push_back(model.value);
      entry.value = BytesOfText(kept_.back());
      entry.value_length = model.value.size();
      if (entry.value_length > kShortValueBytesMax) entry.value_checksum = Checksum(entry.value, 0);
      builder.Add(entry);
    }
    Append(RecordKind::kEntries, builder.Parts(), std::move(record));
  }

  bool Append(RecordKind kind, absl::Span<const BodyPart> parts, ModelRecord record) {
    const absl::StatusOr<uint64_t> number = log_->Append({{kind, parts}});
    if (!number.ok()) return false;
    model_.Append(std::move(record));
    if (*number != model_.last()) Fail(absl::StrCat("record ", *number, " is out of order"));
    return true;
  }

  void AppendUpload() {
    if (uploads_.empty() || random_.Chance(30)) {
      Upload& upload = uploads_.emplace_back();
      upload.key = absl::StrCat("key", random_.Below(kKeys));
      upload.value = NewValue();
      upload.value.resize(4097 + random_.Below(9000), 'u');
      return;
    }
    const size_t at = random_.Below(uploads_.size());
    Upload& upload = uploads_[at];
    if (upload.sent < upload.value.size()) {
      const uint64_t bytes =
          std::min<uint64_t>(1 + random_.Below(4000), upload.value.size() - upload.sent);
      kept_.push_back(upload.value.substr(upload.sent, bytes));
      if (!Append(RecordKind::kPiece, {{BytesOfText(kept_.back()), true}}, {})) return;
      upload.pieces.push_back({model_.last(), static_cast<uint32_t>(bytes), 0});
      upload.sent += bytes;
      return;
    }
    GroupBuilder builder((GroupHeader()));
    Entry entry;
    entry.key = upload.key;
    entry.value_length = upload.value.size();
    entry.value_checksum = Checksum(BytesOfText(upload.value), 0);
    entry.pieces = upload.pieces;
    builder.Add(entry);
    ModelRecord record;
    record.entries.push_back({false, upload.key, upload.value, {}});
    if (Append(RecordKind::kEntries, builder.Parts(), std::move(record)))
      uploads_.erase(uploads_.begin() + static_cast<ptrdiff_t>(at));
  }

  void AfterWrite() {
    if (log_->written() > (stamps_.empty() ? promised_.synced : stamps_.back().last))
      stamps_.push_back({log_->written(), stamp_synced_, time_});
  }
  void Write() {
    stamp_synced_ = log_->synced();
    if (log_->Write().ok()) kept_.clear();
    AfterWrite();
  }
  void SyncNow() {
    const absl::Status ignored = log_->Sync();
    (void)ignored;  // the log's status() has it
  }

  // Another thread's append and write while a sync runs; not where it would begin a segment, which
  // would wait for that sync.
  void DuringSync(const std::string& name) {
    if (log_ == nullptr || !wrong_.empty() || !random_.Chance(40)) return;
    if (SegmentNumber(name) == 0 || !disk_.NameIsDurable(name)) return;
    if (log_->appended() != log_->written() || log_->appended() != model_.last()) return;
    if (disk_.SizeOf(name) + 1024 > plan_.segment_bytes) return;
    if (disk_.SizeOf(SegmentName(SegmentNumber(name) + 1)) > 0) return;
    ModelRecord record;
    ModelEntry& model = record.entries.emplace_back();
    model.key = "key0";
    model.value = absl::StrCat(life_, ":", ++values_, ":");
    GroupBuilder builder((GroupHeader()));
    Entry entry;
    entry.key = model.key;
    entry.value = BytesOfText(model.value);
    entry.value_length = model.value.size();
    builder.Add(entry);
    stamp_synced_ = log_->synced();
    if (Append(RecordKind::kEntries, builder.Parts(), std::move(record)) && log_->Write().ok())
      AfterWrite();
  }

  // --- Checkpoints: items are visited a few at a time, while records are appended.

  void StepCheckpoint(DataDirectory& directory, Walk& walk) {
    if (walk.writer == nullptr) {
      BeginWalk(directory, walk);
      return;
    }
    for (uint64_t i = 0; i < 5 && !walk.keys.empty(); ++i) {
      const std::string key = walk.keys.front();
      walk.keys.pop_front();
      const ModelState state = model_.StateAt(model_.last());
      const auto found = state.find(key);
      if (found == state.end()) continue;
      CheckpointItem item;
      item.key = key;
      item.version = found->second.version;
      item.value_length = found->second.value.size();
      const Bytes value = BytesOfText(found->second.value);
      PartWriter& part = walk.writer->part(walk.visited++ % kParts);
      const uint64_t first = random_.Chance(70) ? value.size() : random_.Below(value.size() + 1);
      absl::Status status = part.AddItem(item, value.first(first));
      if (status.ok() && first < value.size()) status = part.AddValue(value.subspan(first));
      if (!status.ok()) return GiveUp(walk);
    }
    if (!walk.keys.empty()) return;
    absl::Status status = walk.writer->part(0).AddSession(BytesOfText("session"));
    if (status.ok()) status = walk.writer->part(1).AddShard({0, 0, 7, 0, 0, 0});
    for (uint32_t i = 0; i < kParts && status.ok(); ++i) status = walk.writer->part(i).Finish();
    stamp_synced_ = log_->synced();
    if (status.ok()) status = walk.writer->Commit(log_->appended());
    AfterWrite();
    if (status.ok()) {
      ++counts_.checkpoints;
      // A mutant's Commit does not write.
      if (log_->written() == log_->appended()) kept_.clear();
      promised_.evident = std::max(promised_.evident, log_->synced());
    }
    GiveUp(walk);
  }

  void BeginWalk(DataDirectory& directory, Walk& walk) {
    uint64_t redo = log_->appended() + 1;
    for (const Upload& upload : uploads_) {
      if (!upload.pieces.empty()) redo = std::min(redo, upload.pieces.front().record);
    }
    absl::StatusOr<std::unique_ptr<CheckpointWriter>> writer =
        CheckpointWriter::Begin(directory, *log_, kParts, redo);
    if (!writer.ok()) return;
    walk.writer = *std::move(writer);
    for (uint32_t i = 0; i < kKeys; ++i) walk.keys.push_back(absl::StrCat("key", i));
  }
  void GiveUp(Walk& walk) { walk = Walk(); }

  const SimulationOptions options_;
  SimulationCounts& counts_;
  SplitMix64 random_;
  SimDisk disk_;
  uint64_t draws_ = 0;
  Plan plan_;

  Model model_;
  Log* log_ = nullptr;  // of the present life
  uint32_t life_ = 0;
  uint64_t values_ = 0;
  uint64_t time_ = 0;
  std::deque<Upload> uploads_;
  std::deque<std::string> kept_;  // pinned by the queue
  std::deque<Stamp> stamps_;
  uint64_t stamp_synced_ = 0;
  Promised promised_;
  std::string wrong_;
};

}  // namespace

std::string SimulateWal(const SimulationOptions& options, SimulationCounts& counts) {
  return Simulation(options, counts).Run();
}

}  // namespace osprey::server::wal
