#include "server/wal/log.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "server/wal/format/checksum.h"
#include "server/wal/format/test_hooks.h"

namespace osprey::server::wal {
namespace {

using std::chrono::steady_clock;

void RaiseTo(std::atomic<uint64_t>& number, uint64_t least) {
  uint64_t before = number.load(std::memory_order_relaxed);
  while (before < least && !number.compare_exchange_weak(before, least)) {
  }
}

// Most bodies, and most chunks, are one piece.
using Pieces = absl::InlinedVector<Bytes, 4>;

// Walks over the records of a chunk, whose bodies may be partly pinned.
class ChunkWalk {
 public:
  explicit ChunkWalk(LogChunk& chunk) : chunk_(chunk) {}

  bool AtEnd() const { return at_ >= chunk_.bytes.size(); }
  // Of the next record: where its header stands in chunk.bytes, and the parts of its body.
  char* Next(RecordHeader& header, Pieces& body) {
    char* const place = chunk_.bytes.data() + at_;
    std::memcpy(&header, place, sizeof(header));
    body.clear();
    at_ += sizeof(header);
    for (uint64_t left = header.length; left > 0;) {
      const bool is_pinned = pinned_ < chunk_.pinned.size() && chunk_.pinned[pinned_].first == at_;
      if (is_pinned) {
        body.push_back(chunk_.pinned[pinned_++].second);
        left -= body.back().size();
        continue;
      }
      uint64_t run = left;
      if (pinned_ < chunk_.pinned.size())
        run = std::min<uint64_t>(run, chunk_.pinned[pinned_].first - at_);
      body.push_back(BytesOfText(chunk_.bytes).subspan(at_, run));
      at_ += run;
      left -= run;
    }
    if (body.empty()) body.emplace_back();
    at_ += header.bytes() - sizeof(header) - header.length;
    return place;
  }

 private:
  LogChunk& chunk_;
  size_t at_ = 0;
  size_t pinned_ = 0;
};

Pieces PiecesOf(const LogChunk& chunk) {
  const Bytes bytes = BytesOfText(chunk.bytes);
  Pieces pieces;
  size_t begin = 0;
  for (const auto& [end, pinned] : chunk.pinned) {
    pieces.push_back(bytes.subspan(begin, end - begin));
    pieces.push_back(pinned);
    begin = end;
  }
  pieces.push_back(bytes.subspan(begin));
  return pieces;
}

}  // namespace

Log::Log(DataDirectory& directory, LogOptions options, std::vector<SegmentInfo> chain,
         Segment current, uint64_t last_record)
    : directory_(directory),
      options_(std::move(options)),
      queue_(options_.segment_bytes, options_.queue_bytes_max, last_record + 1, current.end),
      spare_(options_.spare_bytes),
      zeros_(directory.files().OverwritesInPlace() ? options_.zeros_bytes : 0),
      appended_(last_record),
      time_mark_(directory.current().header.time_mark),
      version_ceiling_(directory.current().header.version_ceiling),
      current_(std::move(current)),
      chain_(std::move(chain)),
      written_(last_record),
      synced_(last_record) {}

absl::Status Log::CheckSpace(uint64_t bytes) const {
  return CheckFree(bytes + checkpoint_bytes_.load() + reserved_bytes_.load());
}

absl::Status Log::CheckFree(uint64_t needed) const {
  const absl::StatusOr<uint64_t> free = directory_.files().FreeBytes();
  if (!free.ok()) return free.status();
  if (*free >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the disk is too full for the log: ", *free, " bytes are free, and ", needed,
                   " are needed with the next checkpoint; free disk space"));
}

absl::StatusOr<uint64_t> Log::Append(absl::Span<const NewRecord> records) {
  if (failed_.load(std::memory_order_acquire)) return status();
  absl::StatusOr<uint64_t> number = queue_.Append(
      records, [this](uint64_t bytes) { return CheckSpace(bytes); }, spare_.end());
  if (number.ok()) RaiseTo(appended_, *number);
  return number;
}

bool Log::HasRoom() const { return queue_.HasRoom(); }

uint64_t Log::SpaceNeeded() const {
  return 2 * options_.segment_bytes + options_.queue_bytes_max + options_.spare_bytes +
         checkpoint_bytes_.load() + reserved_bytes_.load();
}

bool Log::HasSpare() const {
  constexpr uint64_t kMarkAndCloseBytes = 3 * sizeof(RecordHeader);
  // Nothing is reserved: other programs may take the rest, but most likely not at once.
  constexpr uint64_t kSomeBytes = 4 << 20;
  if (!spare_.is_supported()) return directory_.files().FreeBytes().value_or(0) >= kSomeBytes;
  const std::lock_guard<std::mutex> lock(state_mutex_);
  return current_.end + kMarkAndCloseBytes <= spare_.end();
}

bool Log::FindSpare() {
  const std::lock_guard<std::mutex> lock(write_mutex_);
  if (!spare_.is_missing()) return true;
  if (spare_.KeepBehind(*current_.file, current_.end, current_.end)) return true;
  spare_.GiveBackPart(*current_.file, current_.end);
  return false;
}

absl::Status Log::ReserveSpace(uint64_t bytes) {
  // What is refused is never part of SpaceNeeded, which decides whether all writes are refused.
  const std::lock_guard<std::mutex> lock(reserve_mutex_);
  const absl::Status status = CheckFree(SpaceNeeded() + bytes);
  if (status.ok()) reserved_bytes_.fetch_add(bytes);
  return status;
}

void Log::RaiseMarks(uint64_t time_mark, uint64_t version_ceiling) {
  RaiseTo(time_mark_, time_mark);
  RaiseTo(version_ceiling_, version_ceiling);
}

void Log::RaiseCurrentMarks(CurrentHeader& current) const {
  current.time_mark = std::max(current.time_mark, time_mark_.load());
  current.version_ceiling = std::max(current.version_ceiling, version_ceiling_.load());
}

LogStats Log::stats() const {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  LogStats stats = stats_;
  stats.oldest_unsynced = std::min(stats.oldest_unsynced, syncing_);
  return stats;
}

absl::Status Log::status() const {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  return error_;
}

absl::Status Log::Fail(absl::Status error) {
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    if (error_.ok()) error_ = std::move(error);
    error = error_;
    failed_.store(true, std::memory_order_release);
  }
  if (options_.progressed) options_.progressed();
  return error;
}

absl::Status Log::Write() {
  const std::lock_guard<std::mutex> lock(write_mutex_);
  if (failed_.load(std::memory_order_acquire)) return status();
  writing_.clear();
  queue_.Take(writing_);
  for (LogChunk& chunk : writing_) {
    absl::Status status = chunk.begins_segment ? BeginSegment() : absl::OkStatus();
    if (status.ok()) status = WriteChunk(chunk);
    queue_.Release(chunk);
    if (!status.ok()) return Fail(std::move(status));
  }
  return absl::OkStatus();
}

absl::Status Log::WriteChunk(LogChunk& chunk) {
  // Only this thread changes current_, so it reads it without state_mutex_.
  const uint64_t begin = current_.end;
  uint64_t offset = begin;
  uint64_t checksum = current_.checksum;
  const uint64_t synced_to = synced();
  const uint64_t time_mark = time_mark_.load();
  const uint64_t version_ceiling = version_ceiling_.load();
  RecordHeader header;
  Pieces body;
  for (ChunkWalk walk(chunk); !walk.AtEnd();) {
    char* const place = walk.Next(header, body);
    header.chain = checksum;
    header.synced_to = synced_to;
    header.time_mark = time_mark;
    header.version_ceiling = version_ceiling;
    header.Seal(body, SeedOf(current_.info.life, current_.info.number, offset));
    checksum = header.header_checksum;
    std::memcpy(place, &header, sizeof(header));
    offset += header.bytes();
  }
  if (!spare_.KeepBehind(*current_.file, current_.end, offset) && options_.space_is_low)
    options_.space_is_low();
  const absl::Status status = current_.file->Write(current_.end, PiecesOf(chunk));
  if (!status.ok() && !IsMutant(Mutant::kWriteErrorForgotten)) return status;
  spare_.GiveBackPart(*current_.file, offset);
  LogStats stats;
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    stats_.written_bytes += offset - current_.end;
    if (stats_.oldest_unsynced == steady_clock::time_point::max())
      stats_.oldest_unsynced = steady_clock::now();
    current_.end = offset;
    current_.checksum = checksum;
    written_.store(header.number, std::memory_order_release);
    stats = stats_;
  }
  // The next sync writes both. Without the reservation, zeros could fill the disk.
  const uint64_t records = IsMutant(Mutant::kZerosOverRecords) ? begin : offset;
  return zeros_.KeepBehind(*current_.file, records, std::min(spare_.end(), options_.segment_bytes),
                           stats.written_bytes, stats.syncs);
}

// A segment whose header is not synced is the newest: at most one change of segments is pending.
absl::Status Log::BeginSegment() {
  const bool is_pending = [this] {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    return old_.has_value();
  }();
  if (is_pending) {
    const absl::Status status = Sync();
    if (!status.ok()) return status;
  }
  SegmentHeader header;
  header.directory = directory_.format().directory;
  header.number = current_.info.number + 1;
  header.life = directory_.Draw();
  header.previous_number = current_.info.number;
  header.previous_life = current_.info.life;
  header.previous_end = current_.end;
  header.previous_checksum = current_.checksum;
  header.first_record = written() + 1;
  header.synced_to = synced();
  header.Seal();
  absl::StatusOr<std::unique_ptr<File>> file =
      directory_.files().Create(SegmentName(header.number));
  if (!file.ok()) return file.status();
  const absl::Status status = (*file)->Write(0, {BytesOf(header)});
  if (!status.ok()) return status;
  Segment next;
  next.file = *std::move(file);
  next.info = {header.number, header.life, header.first_record};
  next.checksum = current_.checksum;
  spare_.Restart();
  zeros_.Restart();
  const std::lock_guard<std::mutex> lock(state_mutex_);
  old_ = std::exchange(current_, std::move(next));
  return absl::OkStatus();
}

absl::Status Log::Sync() {
  {
    const std::lock_guard<std::mutex> sync_lock(sync_mutex_);
    std::optional<Segment> old;
    Segment current;
    uint64_t target = 0;
    uint64_t target_bytes = 0;
    {
      const std::lock_guard<std::mutex> lock(state_mutex_);
      if (!error_.ok()) return error_;
      old = old_;
      current = current_;
      target = written();
      if (target == synced() && !old.has_value()) return absl::OkStatus();
      target_bytes = stats_.written_bytes;
      syncing_ = std::exchange(stats_.oldest_unsynced, steady_clock::time_point::max());
    }
    if (IsMutant(Mutant::kAckBeforeSync)) synced_.store(target);
    const absl::Status status = SyncSegments(old, current);
    if (!status.ok()) return IsMutant(Mutant::kSyncErrorForgotten) ? status : Fail(status);
    const std::lock_guard<std::mutex> lock(state_mutex_);
    if (old.has_value()) {
      chain_.push_back(current.info);
      old_.reset();
    }
    if (IsMutant(Mutant::kSyncCoversLaterWrites)) target = written();
    synced_.store(target, std::memory_order_release);
    ++stats_.syncs;
    stats_.synced_bytes = target_bytes;
    syncing_ = steady_clock::time_point::max();
  }
  if (options_.progressed) options_.progressed();
  return absl::OkStatus();
}

// The order is: the old segment's records, the new one's header and name, the close record that
// names it. Until the last one nothing of the new segment counts as synced.
absl::Status Log::SyncSegments(const std::optional<Segment>& old, const Segment& current) {
  if (!old.has_value()) return current.file->Sync();
  absl::Status status;
  if (IsMutant(Mutant::kCloseBeforeHeader)) status = WriteClose(*old, current.info);
  if (status.ok() && !IsMutant(Mutant::kOldSegmentNotSynced)) status = old->file->Sync();
  if (status.ok()) status = current.file->Sync();
  if (status.ok() && !IsMutant(Mutant::kDirectoryNotSynced))
    status = directory_.files().SyncDirectory();
  if (status.ok() && !IsMutant(Mutant::kNoClose)) status = WriteClose(*old, current.info);
  if (status.ok() && !IsMutant(Mutant::kOldSegmentNotSynced)) status = old->file->Sync();
  if (status.ok()) (void)old->file->ReleaseReserve();  // else the next start does
  return status;
}

absl::Status Log::WriteClose(const Segment& old, const SegmentInfo& next) {
  const CloseBody body{next.number, next.life};
  RecordHeader header;
  header.kind = static_cast<uint8_t>(RecordKind::kClose);
  header.flags = kMustUnderstand;
  header.length = sizeof(body);
  header.number = next.first_record;
  header.chain = old.checksum;
  header.synced_to = next.first_record - 1;
  header.time_mark = time_mark_.load();
  header.version_ceiling = version_ceiling_.load();
  header.Seal({BytesOf(body)}, SeedOf(old.info.life, old.info.number, old.end));
  return old.file->Write(old.end, {BytesOf(header), BytesOf(body), header.Padding()});
}

absl::Status Log::End(uint64_t time) {
  RaiseMarks(time, 0);
  const CleanEndBody body{time, version_ceiling_.load()};
  const BodyPart part{BytesOf(body), false};
  const absl::StatusOr<uint64_t> number = Append({{RecordKind::kCleanEnd, {&part, 1}}});
  if (!number.ok()) return number.status();
  absl::Status status = Write();
  if (status.ok()) status = Sync();
  if (!status.ok()) return status;
  (void)current_.file->ReleaseReserve();
  // The next start reads less with it (D17), and does without after an error.
  Current current = directory_.current();
  current.header.synced_to = synced();
  RaiseCurrentMarks(current.header);
  (void)directory_.ReplaceCurrent(std::move(current));
  return absl::OkStatus();
}

LogPosition Log::PositionOf(uint64_t redo_record) const {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  assert(redo_record <= synced() + 1 && !chain_.empty());
  LogPosition position;
  position.newest_segment = chain_.back().number;
  position.newest_life = chain_.back().life;
  position.synced_to = synced();
  for (const SegmentInfo& segment : chain_) {
    if (segment.first_record <= redo_record) position.redo_segment = segment.number;
  }
  return position;
}

}  // namespace osprey::server::wal
