#include "server/durability/durability.h"

#include <algorithm>
#include <cassert>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "index/layout/layout.h"
#include "rdma/background_thread.h"
#include "server/durability/checkpoint.h"
#include "server/wal/disk/posix_file_system.h"
#include "server/wal/format/entries.h"

namespace osprey::server {
namespace {

using std::chrono::steady_clock;

// The ceiling is raised by this, once half of it is left. A poller draws far fewer versions between
// two commits.
constexpr uint64_t kVersionsAhead = uint64_t{1} << 20;

// The mark is this far ahead of the clock, once half of it is left. It is kept while some key has an
// expiry, or the clock is ahead of the time of day.
constexpr absl::Duration kTimeAhead() { return absl::Seconds(2); }

// A server's start takes longer. A clock that is ahead of the time of day by less is not behind in
// the next life.
constexpr absl::Duration kClockAheadMin() { return absl::Milliseconds(1); }

constexpr std::chrono::milliseconds kDutyPeriod{100};
constexpr std::chrono::seconds kMeasurePeriod{1};
// A writer that waits for a late sync looks again after this.
constexpr std::chrono::microseconds kLagStep{100};

// A log of at least so many segments is worth a checkpoint when the disk is full.
constexpr uint64_t kSegmentsWorthFreeing = 2;

// A checkpoint's bytes beside those of keys and values, for each key.
constexpr uint64_t kBytesPerItem = 64;

uint64_t NsOf(absl::Time time) {
  return static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixNanos(time), 0));
}

}  // namespace

// --- Start -----------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Durability>> Durability::Open(const std::string& directory,
                                                             uint32_t partitions,
                                                             DurabilityOptions options) {
  absl::StatusOr<std::unique_ptr<wal::FileSystem>> files = wal::OpenPosixFileSystem(directory);
  if (!files.ok()) return files.status();
  absl::StatusOr<std::unique_ptr<wal::DataDirectory>> opened = wal::DataDirectory::Open(
      **files, {partitions, /*server=*/0, options.random()}, options.random);
  if (!opened.ok()) return opened.status();
  return absl::WrapUnique(
      new Durability(*std::move(files), *std::move(opened), std::move(options)));
}

Durability::Durability(std::unique_ptr<wal::FileSystem> files,
                       std::unique_ptr<wal::DataDirectory> directory, DurabilityOptions options)
    : files_(std::move(files)), directory_(std::move(directory)), options_(std::move(options)) {
  for (uint32_t i = 0; i < partitions(); ++i) {
    changes_.push_back(
        std::make_unique<ChangeLog>(i, [this](absl::Status status) { Fail(std::move(status)); }));
  }
}

Durability::~Durability() { StopThread(); }

void Durability::StopThread() {
  if (!started_) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = checkpoint_ends_ = true;
  }
  wake_.notify_one();
  pthread_join(thread_, nullptr);
  started_ = false;
}

uint64_t Durability::data_id() const {
  const wal::DirectoryId& id = directory_->format().directory;
  return id.words[0] != 0 ? id.words[0] : 1;
}

std::vector<PartitionChanges*> Durability::changes() const {
  std::vector<PartitionChanges*> changes;
  for (const std::unique_ptr<ChangeLog>& one : changes_) changes.push_back(one.get());
  return changes;
}

absl::StatusOr<Recovered> Durability::Load(Tables& tables, const RecoveryOptions& options) {
  tables_ = &tables;
  absl::StatusOr<Recovered> recovered = Recover(*directory_, tables, options);
  if (!recovered.ok()) return recovered.status();
  if (absl::Status status = CheckClock(recovered->end); !status.ok()) return status;
  tables.RaiseVersions(std::max(recovered->end.version_ceiling, recovered->version_max));
  data_bytes_ = recovered->bytes + recovered->items * kBytesPerItem;
  stats_.loaded_keys = recovered->items;
  stats_.loaded_bytes = recovered->bytes;
  stats_.load_took = recovered->took;
  if (absl::Status status = StartLog(recovered->end); !status.ok()) return status;
  if (recovered->evictions == 0) {
    // What was replayed counts as well: else the log grows over many short lives. (It wraps around.)
    log_bytes_at_checkpoint_ = log_->bytes_written() - recovered->end.bytes;
    return recovered;
  }
  // The log does not know of the evictions.
  CheckpointInput input;
  input.redo_record = log_->appended() + 1;
  input.sessions = [&recovered] { return recovered->sessions; };
  input.stop = options.stop;
  const absl::StatusOr<CheckpointSize> size =
      server::WriteCheckpoint(*directory_, *log_, tables, input);
  if (!size.ok()) return size.status();
  return recovered;
}

// What had expired in the last life stays so: the clock begins where that life's was, at least. The
// mark is ahead of that clock, so it counts only if the exact time is unknown.
absl::Status Durability::CheckClock(const wal::LogEnd& end) {
  const uint64_t mark = end.clean ? end.clean_time : end.time_mark;
  clock_start_ = absl::FromUnixNanos(static_cast<int64_t>(mark));
  const absl::Duration ahead = clock_start_ - absl::Now();
  if (ahead <= options_.clock_jump_max) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the clock of this machine is ", absl::FormatDuration(absl::Trunc(ahead, absl::Seconds(1))),
      " behind the last write to ", files_->PathOf(""),
      ", so keys would live that much longer; set the clock, or allow it by --clock-jump-max"));
}

absl::Status Durability::StartLog(const wal::LogEnd& end) {
  wal::LogOptions options;
  options.segment_bytes = options_.segment_bytes;
  options.queue_bytes_max = options_.log_memory;
  absl::StatusOr<std::unique_ptr<wal::Log>> log =
      wal::StartLog(*directory_, end, std::move(options));
  if (!log.ok()) return log.status();
  log_ = *std::move(log);
  log_->SetCheckpointBytes(data_bytes_);
  if (options_.mode == DurabilityMode::kAsync) {
    absl::StatusOr<std::unique_ptr<wal::SyncThread>> thread =
        wal::SyncThread::Start(*log_, absl::ToChronoNanoseconds(options_.lag / 2));
    if (!thread.ok()) return thread.status();
    sync_thread_ = *std::move(thread);
  }
  if (absl::Status status = RaiseCeiling(); !status.ok()) return status;
  for (const std::unique_ptr<ChangeLog>& one : changes_) one->Start(*log_);
  return absl::OkStatus();
}

absl::Status Durability::Start(std::function<absl::Time()> now, Images images) {
  now_ = std::move(now);
  images_ = std::move(images);
  RunDuties();  // the time mark, before the first key expires in this life
  void* (*const run)(void*) = [](void* self) -> void* {
    static_cast<Durability*>(self)->Run();
    return nullptr;
  };
  started_ = rdma::StartBackgroundThread("osprey-durable", run, this, thread_);
  if (started_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      "cannot start the thread that writes checkpoints; allow more threads (TasksMax=, ulimit -u)");
}

absl::Status Durability::End() {
  StopThread();
  sync_thread_.reset();
  if (failed_) {
    const std::lock_guard<std::mutex> lock(error_mutex_);
    return error_;
  }
  return log_->End(NsOf(now_()));
}

// --- Commit ----------------------------------------------------------------

void Durability::Fail(absl::Status status) {
  const std::lock_guard<std::mutex> lock(error_mutex_);
  if (error_.ok()) {
    error_ = absl::Status(status.code(),
                          absl::StrCat("the log failed, and nothing is acknowledged from now on: ",
                                       status.message()));
  }
  failed_ = true;
}

absl::Status Durability::Refusal() const {
  return absl::ResourceExhaustedError(absl::StrCat("the disk of ", files_->PathOf(""),
                                                   " is full; nothing was changed; free space "
                                                   "there, or delete files"));
}

absl::Status Durability::Commit() {
  absl::Status status = options_.mode == DurabilityMode::kSync ? CommitSynced() : CommitWritten();
  if (status.ok() && IsCeilingNear()) status = RaiseCeiling();
  if (!status.ok()) Fail(std::move(status));
  if (!failed_.load(std::memory_order_acquire)) return absl::OkStatus();
  const std::lock_guard<std::mutex> lock(error_mutex_);
  return error_;
}

absl::Status Durability::CommitSynced() {
  const uint64_t target = log_->appended();
  while (log_->synced() < target) {
    if (absl::Status status = log_->Write(); !status.ok()) return status;
    if (absl::Status status = log_->Sync(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Durability::CommitWritten() {
  if (log_->written() >= log_->appended()) return absl::OkStatus();
  if (absl::Status status = log_->Write(); !status.ok()) return status;
  const auto lag = absl::ToChronoNanoseconds(options_.lag);
  const auto is_late = [&](steady_clock::time_point oldest) {
    return oldest != steady_clock::time_point::max() && steady_clock::now() > oldest + lag;
  };
  if (!is_late(sync_thread_->Kick())) return absl::OkStatus();
  {
    const std::lock_guard<std::mutex> lock(stats_mutex_);
    ++stats_.log_late_commits;
  }
  while (is_late(sync_thread_->oldest_unsynced())) {
    if (absl::Status status = log_->status(); !status.ok()) return status;
    std::this_thread::sleep_for(kLagStep);
  }
  return absl::OkStatus();
}

bool Durability::IsCeilingNear() const {
  const uint64_t ceiling = ceiling_.load();
  return tables_->LastVersion() + kVersionsAhead / 2 > ceiling && ceiling < index::kCasVersionMax;
}

// Versions up to the ceiling may be given out once it is synced.
absl::Status Durability::RaiseCeiling() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!IsCeilingNear()) return absl::OkStatus();
  const uint64_t ceiling = std::min(tables_->LastVersion() + kVersionsAhead, index::kCasVersionMax);
  log_->RaiseMarks(0, ceiling);
  const absl::StatusOr<uint64_t> mark = AppendTo(*log_, {wal::RecordKind::kMark, {}});
  if (!mark.ok()) return mark.status();
  if (absl::Status status = log_->Write(); !status.ok()) return status;
  if (absl::Status status = log_->Sync(); !status.ok()) return status;
  ceiling_ = ceiling;
  return absl::OkStatus();
}

void Durability::SessionBegun(uint64_t session) {
  AppendSession(wal::EntryKind::kSessionBegin, session);
}

void Durability::SessionEnded(uint64_t session) {
  AppendSession(wal::EntryKind::kSessionEnd, session);
}

void Durability::AppendSession(wal::EntryKind kind, uint64_t session) {
  wal::GroupBuilder group{wal::GroupHeader()};
  wal::Entry entry;
  entry.kind = kind;
  entry.client = session;
  group.Add(entry);
  const wal::BodyParts parts = group.Parts();
  const absl::StatusOr<uint64_t> number = AppendTo(*log_, {wal::RecordKind::kEntries, parts});
  if (!number.ok()) Fail(number.status());
}

// --- The thread ------------------------------------------------------------

void Durability::Run() {
  while (!stopping_) {
    RunDuties();
    if (IsCheckpointDue()) WriteCheckpoint();
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait_for(lock, kDutyPeriod, [this] { return stopping_.load(); });
  }
}

void Durability::RunDuties() {
  duties_at_ = steady_clock::now() + kDutyPeriod;
  const index::Table::Stats stats = tables_->stats();
  data_bytes_ = stats.key_bytes + stats.value_bytes + stats.keys * kBytesPerItem;
  log_->SetCheckpointBytes(data_bytes_);
  WatchSpace();
  MeasureLog();
  if (stats.expiring_keys > 0 || IsClockAhead()) KeepTimeMark();
}

// Refuses writes before the log would be refused a segment: the log's own bound ends the server.
void Durability::WatchSpace() {
  const absl::StatusOr<uint64_t> free = files_->FreeBytes();
  if (!free.ok()) return;
  const uint64_t needed = 2 * options_.segment_bytes + options_.log_memory + data_bytes_;
  {
    const std::lock_guard<std::mutex> lock(stats_mutex_);
    stats_.disk_free_bytes = *free;
    stats_.disk_needed_bytes = needed;
  }
  const bool full = *free < needed;
  if (full == RefuseWrites(full)) return;
  options_.log(full ? absl::StrCat("the disk of ", files_->PathOf(""), " is full: ", *free,
                                   " bytes are free, and ", needed,
                                   " are needed for the log and the next checkpoint; writes are "
                                   "refused until there is space")
                    : absl::StrCat("the disk of ", files_->PathOf(""), " has space again (", *free,
                                   " bytes); writes go on"));
}

// Then the time of day does not ensure that the next life's clock is not behind.
bool Durability::IsClockAhead() const { return now_() > absl::Now() + kClockAheadMin(); }

// A segment that a checkpoint removes meanwhile counts as empty.
void Durability::MeasureLog() {
  const steady_clock::time_point now = steady_clock::now();
  if (now < measured_at_ + kMeasurePeriod) return;
  measured_at_ = now;
  const absl::StatusOr<std::vector<std::string>> names = files_->List();
  if (!names.ok()) return;
  uint64_t bytes = 0;
  for (const std::string& name : *names) {
    if (wal::SegmentNumber(name) != 0) bytes += files_->FileBytes(name).value_or(0);
  }
  const std::lock_guard<std::mutex> lock(stats_mutex_);
  stats_.log_bytes = bytes;
}

void Durability::KeepTimeMark() {
  const uint64_t now_ns = NsOf(now_());
  const auto ahead = static_cast<uint64_t>(absl::ToInt64Nanoseconds(kTimeAhead()));
  if (time_mark_ns_ > now_ns + ahead / 2) return;
  time_mark_ns_ = now_ns + ahead;
  log_->RaiseMarks(time_mark_ns_, 0);
  if (!AppendTo(*log_, {wal::RecordKind::kMark, {}}).ok()) return;
  // An error is the log's, and the next Commit reports it.
  if (log_->Write().ok()) (void)log_->Sync();
}

bool Durability::IsCheckpointDue() const {
  const uint64_t log_bytes = log_->bytes_written() - log_bytes_at_checkpoint_;
  if (refuses_writes()) return log_bytes > kSegmentsWorthFreeing * options_.segment_bytes;
  return log_bytes >= std::max(data_bytes_, options_.checkpoint_log_bytes);
}

void Durability::WriteCheckpoint() {
  const uint64_t log_bytes = log_->bytes_written();
  CheckpointInput input;
  input.redo_record = log_->appended() + 1;
  for (const std::unique_ptr<ChangeLog>& one : changes_) {
    input.redo_record = std::min(input.redo_record, one->oldest_incomplete());
  }
  input.sessions = [this] {
    absl::optional<std::vector<SessionImage>> images = images_();
    if (!images.has_value()) checkpoint_ends_ = true;
    return std::move(images).value_or(std::vector<SessionImage>());
  };
  input.stop = &checkpoint_ends_;
  input.pause = [this](uint64_t) {
    if (steady_clock::now() >= duties_at_) RunDuties();
  };
  const steady_clock::time_point begun = steady_clock::now();
  const absl::StatusOr<CheckpointSize> size =
      server::WriteCheckpoint(*directory_, *log_, *tables_, input);
  // Not again at once, if it failed.
  log_bytes_at_checkpoint_ = log_bytes;
  const absl::Duration took = absl::FromChrono(steady_clock::now() - begun);
  if (!size.ok()) {
    if (absl::IsCancelled(size.status())) return;
    {
      const std::lock_guard<std::mutex> lock(stats_mutex_);
      ++stats_.checkpoint_failures;
    }
    options_.log(absl::StrCat("the checkpoint failed, and the one before it counts: ",
                              size.status().message()));
    if (directory_->uncertain()) Fail(size.status());
    return;
  }
  measured_at_ = {};  // the log is shorter
  {
    const std::lock_guard<std::mutex> lock(stats_mutex_);
    ++stats_.checkpoints;
    stats_.checkpoint_bytes = size->bytes;
    stats_.checkpoint_took = took;
    stats_.checkpoint_at = absl::Now();
  }
  options_.log(absl::StrCat("checkpoint of ", size->items, " keys, ", size->bytes, " bytes, in ",
                            absl::FormatDuration(absl::Trunc(took, absl::Milliseconds(1)))));
  if (!size->removal.ok())
    options_.log(absl::StrCat("old files could not be removed: ", size->removal.message()));
}

DurabilityStats Durability::stats() const {
  DurabilityStats stats = [this] {
    const std::lock_guard<std::mutex> lock(stats_mutex_);
    return stats_;
  }();
  stats.mode = NameOf(options_.mode);
  const wal::LogStats log = log_->stats();
  if (log.oldest_unsynced != steady_clock::time_point::max())
    stats.log_lag = absl::FromChrono(steady_clock::now() - log.oldest_unsynced);
  stats.log_unsynced_bytes = log.written_bytes - log.synced_bytes;
  stats.log_written_bytes = log.written_bytes;
  stats.log_syncs = log.syncs;
  for (const std::unique_ptr<ChangeLog>& one : changes_) stats.log_entries += one->entries();
  stats.disk_full = refuses_writes();
  stats.versions_left = index::kCasVersionMax - std::min<uint64_t>(ceiling_, index::kCasVersionMax);
  return stats;
}

}  // namespace osprey::server
