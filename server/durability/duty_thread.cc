#include "server/durability/duty_thread.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "rdma/background_thread.h"
#include "server/durability/change_log.h"
#include "server/durability/checkpoint.h"
#include "server/wal/format/entries.h"

namespace osprey::server {
namespace {

using std::chrono::steady_clock;

// The mark is this far ahead of the clock, once half of it is left. It is kept while some key has an
// expiry, or the clock is ahead of the time of day.
constexpr absl::Duration kTimeAhead() { return absl::Seconds(2); }
uint64_t TimeAheadNs() { return static_cast<uint64_t>(absl::ToInt64Nanoseconds(kTimeAhead())); }

// A server's start takes longer. A clock that is ahead of the time of day by less is not behind in
// the next life.
constexpr absl::Duration kClockAheadMin() { return absl::Milliseconds(1); }

constexpr std::chrono::milliseconds kDutyPeriod{100};
constexpr std::chrono::seconds kMeasurePeriod{1};

// A log of at least so many segments is worth a checkpoint when the disk is full, or a value did not
// fit.
constexpr uint64_t kSegmentsWorthFreeing = 2;

}  // namespace

DutyThread::DutyThread(Data data, uint64_t replayed_bytes, const DurabilityStats& stats)
    : data_(std::move(data)),
      log_bytes_at_checkpoint_(data_.log.bytes_written() - replayed_bytes),
      stats_(stats) {}

absl::Status DutyThread::Start(std::function<absl::Time()> now, Images images) {
  now_ = std::move(now);
  images_ = std::move(images);
  RunDuties();  // the time mark, before the first key expires in this life
  if (data_.options.checkpoint_step) return absl::OkStatus();
  void* (*const run)(void*) = [](void* self) -> void* {
    static_cast<DutyThread*>(self)->Run();
    return nullptr;
  };
  started_ = rdma::StartBackgroundThread("osprey-durable", run, this, thread_);
  if (started_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      "cannot start the thread that writes checkpoints; allow more threads (TasksMax=, ulimit -u)");
}

void DutyThread::Stop() {
  if (!started_) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = checkpoint_ends_ = true;
  }
  wake_.notify_one();
  pthread_join(thread_, nullptr);
  started_ = false;
}

uint64_t DutyThread::NowNs() const {
  return static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixNanos(now_()), 0));
}

DurabilityStats DutyThread::stats() const {
  const std::lock_guard<std::mutex> lock(stats_mutex_);
  return stats_;
}

void DutyThread::Run() {
  while (!stopping_) {
    RunOnce();
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait_for(lock, kDutyPeriod, [this] { return stopping_.load(); });
  }
}

void DutyThread::RunOnce() {
  RunDuties();
  if (IsCheckpointDue()) WriteCheckpoint();
}

void DutyThread::RunDuties() {
  duties_at_ = steady_clock::now() + kDutyPeriod;
  data_.expires_soon_ns = NowNs() + TimeAheadNs();
  const index::Table::Stats stats = data_.tables.stats();
  data_bytes_ = CheckpointBytesOf(stats);
  data_.log.SetCheckpointBytes(data_bytes_);
  WatchSpace();
  MeasureLog();
  if (stats.expiring_keys > 0 || IsClockAhead()) KeepTimeMark();
}

// Refuses writes before the log would be refused a segment: the log's own bound ends the server.
void DutyThread::WatchSpace() {
  const absl::StatusOr<uint64_t> free = data_.files.FreeBytes();
  if (!free.ok()) return;
  const uint64_t needed = data_.log.SpaceNeeded();
  {
    const std::lock_guard<std::mutex> lock(stats_mutex_);
    stats_.disk_free_bytes = *free;
    stats_.disk_needed_bytes = needed;
  }
  const bool has_spare = data_.log.FindSpare();
  const bool full = *free < needed || !has_spare;
  data_.refuse_writes(full);  // the log may have refused them meanwhile
  if (full == disk_full_) return;
  disk_full_ = full;
  if (full && *free >= needed) {
    return data_.options.log(absl::StrCat("the disk of ", data_.files.PathOf(""),
                                          " gives no more space, though ", *free,
                                          " bytes are free; writes are refused until it does; "
                                          "raise the disk quota, or delete files"));
  }
  data_.options.log(
      full ? absl::StrCat("the disk of ", data_.files.PathOf(""), " is full: ", *free,
                          " bytes are free, and ", needed,
                          " are needed for the log and the next checkpoint; writes are "
                          "refused until there is space")
           : absl::StrCat("the disk of ", data_.files.PathOf(""), " has space again (", *free,
                          " bytes); writes go on"));
}

// If so, the time of day does not ensure that the next life's clock is not behind.
bool DutyThread::IsClockAhead() const { return now_() > absl::Now() + kClockAheadMin(); }

// A segment that a checkpoint removes meanwhile counts as empty.
void DutyThread::MeasureLog() {
  const steady_clock::time_point now = steady_clock::now();
  if (now < measured_at_ + kMeasurePeriod) return;
  measured_at_ = now;
  const absl::StatusOr<std::vector<std::string>> names = data_.files.List();
  if (!names.ok()) return;
  uint64_t bytes = 0;
  for (const std::string& name : *names) {
    if (wal::SegmentNumber(name) != 0) bytes += data_.files.FileBytes(name).value_or(0);
  }
  const std::lock_guard<std::mutex> lock(stats_mutex_);
  stats_.log_bytes = bytes;
}

void DutyThread::KeepTimeMark() {
  const uint64_t now_ns = NowNs();
  const uint64_t ahead = TimeAheadNs();
  if (time_mark_ns_ > now_ns + ahead / 2) return;
  // The write would fail, and end the log.
  if (disk_full_ && !data_.log.HasSpare()) return NoteSpareIsUsed();
  spare_is_used_ = false;
  time_mark_ns_ = now_ns + ahead;
  data_.log.RaiseMarks(time_mark_ns_, 0);
  if (!AppendTo(data_.log, {wal::RecordKind::kMark, {}}).ok()) return;
  // An error is the log's, and the next Commit reports it.
  if (data_.log.Write().ok()) (void)data_.log.Sync();
}

void DutyThread::NoteSpareIsUsed() {
  if (spare_is_used_) return;
  spare_is_used_ = true;
  data_.options.log(
      absl::StrCat("the disk of ", data_.files.PathOf(""),
                   " has no space for the time mark: if this server is killed, and the machine's "
                   "clock set back, expired keys come back; free disk space"));
}

bool DutyThread::IsCheckpointDue() const {
  const uint64_t log_bytes = data_.log.bytes_written() - log_bytes_at_checkpoint_;
  if ((data_.space_wanted() || disk_full_) &&
      log_bytes > kSegmentsWorthFreeing * data_.options.segment_bytes)
    return true;
  if (disk_full_) return false;
  return log_bytes >= std::max(data_bytes_, data_.options.checkpoint_log_bytes);
}

void DutyThread::WriteCheckpoint() {
  const uint64_t log_bytes = data_.log.bytes_written();
  CheckpointInput input;
  input.redo_record = data_.log.appended() + 1;  // first (ChangeLog::oldest_incomplete)
  input.redo_record = std::min(input.redo_record, data_.oldest_incomplete());
  input.sessions = [this] {
    absl::optional<std::vector<SessionImage>> images = images_();
    if (!images.has_value()) checkpoint_ends_ = true;
    return std::move(images).value_or(std::vector<SessionImage>());
  };
  input.stop = &checkpoint_ends_;
  input.pause = [this](uint64_t) {
    if (data_.options.checkpoint_step) data_.options.checkpoint_step();
    if (data_.options.checkpoint_step || steady_clock::now() >= duties_at_) RunDuties();
  };
  const steady_clock::time_point begun = steady_clock::now();
  const absl::StatusOr<CheckpointSize> size =
      server::WriteCheckpoint(data_.directory, data_.log, data_.tables, input);
  // Not again at once, if it failed.
  log_bytes_at_checkpoint_ = log_bytes;
  const absl::Duration took = absl::FromChrono(steady_clock::now() - begun);
  if (!size.ok()) {
    if (absl::IsCancelled(size.status())) return;
    {
      const std::lock_guard<std::mutex> lock(stats_mutex_);
      ++stats_.checkpoint_failures;
    }
    data_.options.log(absl::StrCat("the checkpoint failed, and the one before it counts: ",
                                   size.status().message()));
    if (data_.directory.uncertain()) data_.fail(size.status());
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
  data_.options.log(absl::StrCat("checkpoint of ", size->items, " items, ", size->bytes,
                                 " bytes, in ",
                                 absl::FormatDuration(absl::Trunc(took, absl::Milliseconds(1)))));
  if (!size->removal.ok())
    data_.options.log(absl::StrCat("old files could not be removed: ", size->removal.message()));
}

}  // namespace osprey::server
