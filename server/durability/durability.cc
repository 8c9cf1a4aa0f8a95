#include "server/durability/durability.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "index/layout/layout.h"
#include "index/layout/test_hooks.h"
#include "server/durability/checkpoint.h"
#include "server/wal/disk/posix_file_system.h"
#include "server/wal/format/entries.h"

namespace osprey::server {
namespace {

using std::chrono::steady_clock;

// The ceiling is raised by this, once half of it is left. A poller draws far fewer versions between
// two commits.
constexpr uint64_t kVersionsAhead = uint64_t{1} << 20;

// A writer that waits for a late sync looks again after this.
constexpr std::chrono::microseconds kLagStep{100};

// A sync takes a millisecond more when it writes these zeros as well: with short records one of thousands.
constexpr uint64_t kZerosBytes = 1 << 20;

}  // namespace

// --- Start -----------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Durability>> Durability::Open(const std::string& directory,
                                                             uint32_t partitions,
                                                             DurabilityOptions options) {
  absl::StatusOr<std::unique_ptr<wal::FileSystem>> files = wal::OpenPosixFileSystem(directory);
  if (!files.ok()) return files.status();
  return Open(std::shared_ptr<wal::FileSystem>(*std::move(files)), partitions, std::move(options));
}

absl::StatusOr<std::unique_ptr<Durability>> Durability::Open(std::shared_ptr<wal::FileSystem> files,
                                                             uint32_t partitions,
                                                             DurabilityOptions options) {
  absl::StatusOr<std::unique_ptr<wal::DataDirectory>> opened = wal::DataDirectory::Open(
      *files, {partitions, /*server=*/0, options.random()}, options.random);
  if (!opened.ok()) return opened.status();
  return absl::WrapUnique(new Durability(std::move(files), *std::move(opened), std::move(options)));
}

Durability::Durability(std::shared_ptr<wal::FileSystem> files,
                       std::unique_ptr<wal::DataDirectory> directory, DurabilityOptions options)
    : files_(std::move(files)),
      directory_(std::move(directory)),
      options_(std::move(options)),
      uploads_(options_.checkpoint_log_bytes,
               [this](absl::Status status) { Fail(std::move(status)); }) {
  for (uint32_t i = 0; i < partitions(); ++i) {
    changes_.push_back(
        std::make_unique<ChangeLog>(i, [this](absl::Status status) { Fail(std::move(status)); }));
  }
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

// A file whose length cannot be found counts as empty: Load has the error.
std::string Durability::DescribeLoad() const {
  const wal::Current current = directory_->current();
  uint64_t bytes = 0;
  for (const wal::PartSummary& part : current.parts) bytes += part.length;
  for (const std::string& name : files_->List().value_or(std::vector<std::string>())) {
    const uint64_t segment = wal::SegmentNumber(name);
    if (segment == 0 || segment < current.header.redo_segment) continue;
    const uint64_t length = files_->FileBytes(name).value_or(0);
    bytes += length - std::min(length, wal::kSegmentHeaderBytes);
  }
  if (bytes == 0) return "";
  const std::string checkpoint =
      current.header.checkpoint == 0
          ? ""
          : absl::StrCat("checkpoint ", current.header.checkpoint, " and ");
  return absl::StrCat(checkpoint, "the log from record ", current.header.redo_record, ", ",
                      absl::StrFormat("%.1f MB", static_cast<double>(bytes) / 1e6));
}

absl::StatusOr<Recovered> Durability::Load(Tables& tables, const RecoveryOptions& options) {
  tables_ = &tables;
  absl::StatusOr<Recovered> recovered = Recover(*directory_, tables, options);
  if (!recovered.ok()) return recovered.status();
  if (absl::Status status = CheckClock(recovered->end); !status.ok()) return status;
  const uint64_t ceiling =
      index::IsMutant(index::Mutant::kCeilingForgotten) ? 0 : recovered->end.version_ceiling;
  tables.RaiseVersions(std::max(ceiling, recovered->version_max));
  if (absl::Status status = StartLog(recovered->end); !status.ok()) return status;
  DurabilityStats stats;
  stats.mode = NameOf(options_.mode);
  stats.loaded_keys = recovered->items;
  stats.loaded_bytes = recovered->bytes;
  stats.load_took = recovered->took;
  // What was replayed counts as well, unless a checkpoint follows: else the log grows over many
  // short lives.
  duties_ = std::make_unique<DutyThread>(
      DutyThread::Data{*files_, *directory_, *log_, tables, options_, expires_soon_ns_,
                       [this] { return OldestIncomplete(); },
                       [this] { return uploads_.TakeRefused(); },
                       [this](bool refuse) { RefuseWrites(refuse); },
                       [this](absl::Status status) { Fail(std::move(status)); }},
      recovered->evictions == 0 ? recovered->end.bytes : 0, stats);
  if (recovered->evictions == 0) return recovered;
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

// What had expired in the last life stays so: the clock begins where that life's was, at least.
absl::Status Durability::CheckClock(const wal::LogEnd& end) {
  clock_start_ = absl::FromUnixNanos(static_cast<int64_t>(ClockAtEnd(end)));
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
  // Only there does a write wait for a sync.
  if (options_.mode == DurabilityMode::kSync) options.zeros_bytes = kZerosBytes;
  options.space_is_low = [this] { RefuseWrites(true); };
  absl::StatusOr<std::unique_ptr<wal::Log>> log =
      wal::StartLog(*directory_, end, std::move(options));
  if (!log.ok()) return log.status();
  log_ = *std::move(log);
  log_->SetCheckpointBytes(CheckpointBytesOf(tables_->stats()));
  if (!options_.checkpoint_step) {
    // Under sync it syncs only the pieces of long values. What awaits a sync syncs by itself.
    const absl::Duration delay =
        options_.mode == DurabilityMode::kAsync ? options_.lag / 2 : absl::ZeroDuration();
    absl::StatusOr<std::unique_ptr<wal::SyncThread>> thread =
        wal::SyncThread::Start(*log_, absl::ToChronoNanoseconds(delay));
    if (!thread.ok()) return thread.status();
    sync_thread_ = *std::move(thread);
  }
  if (absl::Status status = RaiseCeiling(); !status.ok()) return status;
  for (const std::unique_ptr<ChangeLog>& one : changes_) one->Start(*log_, expires_soon_ns_);
  uploads_.Start(*log_, sync_thread_.get());
  return absl::OkStatus();
}

absl::Status Durability::Start(std::function<absl::Time()> now, DutyThread::Images images) {
  return duties_->Start(std::move(now), std::move(images));
}

absl::Status Durability::End() {
  duties_->Stop();
  sync_thread_.reset();
  if (failed_) {
    const std::lock_guard<std::mutex> lock(error_mutex_);
    return error_;
  }
  return log_->End(duties_->NowNs());
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
    if (index::IsMutant(index::Mutant::kCommitWithoutSync)) return absl::OkStatus();
    if (absl::Status status = log_->Sync(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Durability::CommitWritten() {
  if (log_->written() >= log_->appended()) return absl::OkStatus();
  if (absl::Status status = log_->Write(); !status.ok()) return status;
  if (sync_thread_ == nullptr) return absl::OkStatus();
  const auto lag = absl::ToChronoNanoseconds(options_.lag);
  const auto is_late = [&](steady_clock::time_point oldest) {
    return oldest != steady_clock::time_point::max() && steady_clock::now() > oldest + lag;
  };
  if (!is_late(sync_thread_->Kick())) return absl::OkStatus();
  late_commits_.fetch_add(1, std::memory_order_relaxed);
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
  const std::lock_guard<std::mutex> lock(ceiling_mutex_);
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

uint64_t Durability::OldestIncomplete() const {
  uint64_t oldest = uploads_.oldest_incomplete();
  for (const std::unique_ptr<ChangeLog>& one : changes_)
    oldest = std::min(oldest, one->oldest_incomplete());
  return oldest;
}

void Durability::SessionBegun(uint64_t session) {
  AppendSession(wal::EntryKind::kSessionBegin, session);
}

void Durability::SessionEnded(uint64_t session) {
  AppendSession(wal::EntryKind::kSessionEnd, session);
}

// A full disk has no room for it. A session that the log does not have begins with its first write
// there. One that has ended is kept for a while after a restart.
void Durability::AppendSession(wal::EntryKind kind, uint64_t session) {
  if (refuses_writes()) return;
  wal::GroupBuilder group{wal::GroupHeader()};
  wal::Entry entry;
  entry.kind = kind;
  entry.client = session;
  group.Add(entry);
  const wal::BodyParts parts = group.Parts();
  const absl::StatusOr<uint64_t> number = AppendTo(*log_, {wal::RecordKind::kEntries, parts});
  if (!number.ok()) Fail(number.status());
}

// --- Statistics --------------------------------------------------------------

DurabilityStats Durability::stats() const {
  DurabilityStats stats = duties_->stats();
  const wal::LogStats log = log_->stats();
  if (log.oldest_unsynced != steady_clock::time_point::max())
    stats.log_lag = absl::FromChrono(steady_clock::now() - log.oldest_unsynced);
  stats.log_unsynced_bytes = log.written_bytes - log.synced_bytes;
  stats.log_written_bytes = log.written_bytes;
  stats.log_syncs = log.syncs;
  for (const std::unique_ptr<ChangeLog>& one : changes_) stats.log_entries += one->entries();
  stats.log_late_commits = late_commits_.load(std::memory_order_relaxed);
  stats.disk_full = refuses_writes();
  stats.versions_left = index::kCasVersionMax - std::min<uint64_t>(ceiling_, index::kCasVersionMax);
  return stats;
}

}  // namespace osprey::server
