#include "server/wal/backup.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/wal/checkpoint_reader.h"
#include "server/wal/disk/direct_reader.h"
#include "server/wal/format/checksum.h"
#include "server/wal/replay.h"
#include "server/wal/segment_reader.h"
#include "server/wal/snapshot.h"

namespace osprey::server::wal {
namespace {

constexpr uint64_t kCopyBlockBytes = 4 << 20;
// In the page cache and not on the disk: a longer sync would hold up that of the origin's log.
constexpr uint64_t kCopyUnsyncedBytesMax = 8 << 20;

class NullReplay final : public ReplayVisitor {
 public:
  absl::Status OnGroup(const LogRecord&, const Group&,
                       const std::vector<std::vector<PiecePlace>>&) override {
    return absl::OkStatus();
  }
};

// Whether the file is that part, by its header, length and footer.
absl::StatusOr<bool> IsPart(const DataDirectory& directory, uint64_t checkpoint, uint32_t part,
                            const PartSummary& summary) {
  const std::string name = PartName(checkpoint, part);
  const absl::StatusOr<uint64_t> bytes = directory.files().FileBytes(name);
  if (absl::IsNotFound(bytes.status())) return false;
  if (!bytes.ok()) return bytes.status();
  PartHeader header;
  BlockHeader block;
  PartFooter footer;
  if (*bytes != summary.length || *bytes < sizeof(header) + sizeof(block) + sizeof(footer))
    return false;
  absl::StatusOr<std::unique_ptr<File>> file = directory.files().Open(name);
  if (!file.ok()) return file.status();
  DirectReader reader(*std::move(file));
  absl::StatusOr<Bytes> read = reader.Read(0, sizeof(header));
  if (!read.ok()) return read.status();
  if (read->size() < sizeof(header)) return false;
  std::memcpy(&header, read->data(), sizeof(header));
  const uint64_t end = *bytes - sizeof(block) - sizeof(footer);
  read = reader.Read(end, sizeof(block) + sizeof(footer));
  if (!read.ok()) return read.status();
  if (read->size() < sizeof(block) + sizeof(footer)) return false;
  std::memcpy(&block, read->data(), sizeof(block));
  std::memcpy(&footer, read->data() + sizeof(block), sizeof(footer));
  const uint64_t seed = SeedOf(header.life, header.part, end);
  return header.Validate().empty() && Contains(directory.ids(), header.directory) &&
         header.checkpoint == checkpoint && header.part == part && header.life == summary.life &&
         block.Validate(seed).empty() && block.body_checksum == Checksum(BytesOf(footer), seed) &&
         footer.checksum == summary.checksum;
}

class BackupRun {
 public:
  BackupRun(FileSystem& from_files, const DataDirectory& from, DataDirectory& to,
            BackupReport& report, const std::function<void(uint64_t)>& copied)
      : from_files_(from_files),
        from_(from),
        to_(to),
        current_(from.current()),
        report_(report),
        copied_(copied) {}

  absl::Status Run() {
    for (uint32_t part = 0; part < current_.parts.size(); ++part) {
      const absl::Status status = PutPart(part);
      if (!status.ok()) return status;
    }
    absl::Status status = SyncOrigin();
    if (!status.ok()) return status;
    NullReplay visitor;
    const absl::StatusOr<LogEnd> end = Replay(from_, visitor);
    if (!end.ok()) return end.status();
    for (const SegmentExtent& segment : end->segments) {
      status = PutSegment(segment);
      if (!status.ok()) return status;
    }
    return Switch(*end);
  }

 private:
  absl::Status ConflictError(const std::string& name) const {
    return absl::FailedPreconditionError(
        absl::StrCat(to_.files().PathOf(name), " is not what ", from_.files().PathOf(name),
                     " is or was: the data directory was replaced, or the backup is damaged; name "
                     "an empty directory"));
  }

  absl::Status PutPart(uint32_t part) {
    const PartSummary& summary = current_.parts[part];
    const uint64_t checkpoint = current_.header.checkpoint;
    const std::string name = PartName(checkpoint, part);
    const absl::StatusOr<bool> is_there = IsPart(to_, checkpoint, part, summary);
    if (!is_there.ok()) return is_there.status();
    if (*is_there) {
      ++report_.parts_kept;
      return absl::OkStatus();
    }
    // What CURRENT names stays. Others are of an interrupted backup.
    if (to_.current().header.checkpoint == checkpoint) return ConflictError(name);
    absl::Status status = to_.files().Remove(name);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    status = to_.files().LinkFrom(from_files_, name);
    if (!absl::IsUnimplemented(status)) {
      report_.parts_linked += status.ok() ? 1 : 0;
    } else {
      status = CopyFile(name, summary.length);
      report_.parts_copied += status.ok() ? 1 : 0;
    }
    if (!status.ok()) return status;
    const absl::StatusOr<bool> is_part = IsPart(to_, checkpoint, part, summary);
    if (!is_part.ok()) return is_part.status();
    if (*is_part) return absl::OkStatus();
    return DamageError(from_.files(), name, 0, "it is another part than CURRENT names");
  }

  // What is written and not synced may be lost by the origin, which then writes other records with
  // the same numbers. The next backup would meet two contents of one segment.
  absl::Status SyncOrigin() {
    const absl::StatusOr<std::vector<std::string>> names = from_.files().List();
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      if (SegmentNumber(name) < current_.header.redo_segment) continue;
      const absl::StatusOr<std::unique_ptr<File>> file = from_files_.Open(name);
      if (!file.ok()) return file.status();
      const absl::Status status = (*file)->Sync();
      if (!status.ok()) return status;
    }
    return from_files_.SyncDirectory();
  }

  absl::StatusOr<SegmentHeader> HeaderOf(const DataDirectory& directory, uint64_t number,
                                         std::string& wrong) const {
    absl::StatusOr<std::unique_ptr<SegmentReader>> reader =
        SegmentReader::Open(directory.files(), number);
    if (!reader.ok()) return reader.status();
    absl::StatusOr<std::string> found = (*reader)->ReadHeader(to_.ids());
    if (!found.ok()) return found.status();
    wrong = *std::move(found);
    return (*reader)->header();
  }

  // Whether the copy has the segment, as far as that. Errors: FAILED_PRECONDITION: it has another
  // one, on which its CURRENT relies.
  absl::StatusOr<bool> HasSegment(const SegmentExtent& segment) const {
    const std::string name = SegmentName(segment.number);
    const absl::StatusOr<uint64_t> bytes = to_.files().FileBytes(name);
    if (absl::IsNotFound(bytes.status())) return false;
    if (!bytes.ok()) return bytes.status();
    std::string wrong;
    const absl::StatusOr<SegmentHeader> there = HeaderOf(to_, segment.number, wrong);
    if (!there.ok()) return there.status();
    const bool is_damaged = !wrong.empty();
    const absl::StatusOr<SegmentHeader> here = HeaderOf(from_, segment.number, wrong);
    if (!here.ok()) return here.status();
    const bool is_same = std::memcmp(&*there, &*here, sizeof(SegmentHeader)) == 0;
    const bool counts = segment.number <= to_.current().header.newest_segment;
    if (counts && !is_damaged && !is_same) return ConflictError(name);
    return is_same && *bytes >= segment.end;
  }

  absl::Status PutSegment(const SegmentExtent& segment) {
    const absl::StatusOr<bool> is_there = HasSegment(segment);
    if (!is_there.ok()) return is_there.status();
    if (*is_there) {
      ++report_.segments_kept;
      return absl::OkStatus();
    }
    ++report_.segments_copied;
    return CopyFile(SegmentName(segment.number), segment.end);
  }

  // The first bytes of the origin's file, which replace the copy's in one step.
  absl::Status CopyFile(const std::string& name, uint64_t bytes) {
    absl::Status status = to_.files().Remove(kCopyNewName);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    status = CopyBytes(name, bytes);
    if (status.ok()) status = to_.files().Rename(kCopyNewName, name);
    // A full disk has its space back.
    if (!status.ok()) (void)to_.files().Remove(kCopyNewName);
    return status;
  }

  absl::Status CopyBytes(const std::string& name, uint64_t bytes) {
    const absl::StatusOr<std::unique_ptr<File>> from = from_.files().Open(name);
    if (!from.ok()) return from.status();
    const absl::StatusOr<std::unique_ptr<File>> to = to_.files().Create(kCopyNewName);
    if (!to.ok()) return to.status();
    std::vector<uint64_t> checksums;
    absl::Status status;
    uint64_t unsynced = 0;
    for (uint64_t offset = 0; offset < bytes; offset += kCopyBlockBytes) {
      const absl::StatusOr<Bytes> block = ReadBlock(**from, name, offset, bytes);
      if (!block.ok()) return block.status();
      checksums.push_back(Checksum(*block, 0));
      status = (*to)->Write(offset, {*block});
      unsynced += block->size();
      if (status.ok() && unsynced >= kCopyUnsyncedBytesMax) {
        status = (*to)->Sync();
        unsynced = 0;
      }
      if (!status.ok()) return status;
      report_.bytes_copied += block->size();
      copied_(report_.bytes_copied);
    }
    status = (*to)->Sync();
    if (!status.ok()) return status;
    const absl::StatusOr<std::unique_ptr<File>> again = to_.files().Open(kCopyNewName);
    if (!again.ok()) return again.status();
    for (uint64_t offset = 0; offset < bytes; offset += kCopyBlockBytes) {
      const absl::StatusOr<Bytes> block = ReadBlock(**again, kCopyNewName, offset, bytes);
      if (!block.ok()) return block.status();
      if (Checksum(*block, 0) == checksums[offset / kCopyBlockBytes]) continue;
      return absl::UnavailableError(
          absl::StrCat(to_.files().PathOf(kCopyNewName), ", offset ", offset,
                       ": the disk returns other bytes than were written; replace the disk"));
    }
    return absl::OkStatus();
  }

  // Valid until the next call.
  absl::StatusOr<Bytes> ReadBlock(File& file, const std::string& name, uint64_t offset,
                                  uint64_t bytes) {
    const uint64_t length = std::min(kCopyBlockBytes, bytes - offset);
    if (buffer_.size() < length) buffer_ = AlignedBuffer(length);
    const absl::StatusOr<uint64_t> got = file.ReadPastCache(offset, buffer_.span());
    if (!got.ok()) return got.status();
    if (*got >= length) return Bytes(buffer_.span().first(length));
    return absl::UnavailableError(absl::StrCat("the file ", name, " became shorter during a read"));
  }

  absl::Status Switch(const LogEnd& end) {
    Current next = current_;
    next.header.newest_segment = end.segments.back().number;
    next.header.newest_life = end.segments.back().life;
    next.header.synced_to = end.last_record;
    next.header.time_mark = end.time_mark;
    next.header.version_ceiling = end.version_ceiling;
    const absl::Status status = to_.ReplaceCurrent(std::move(next));
    if (!status.ok()) return status;
    std::vector<uint64_t> numbers;
    for (const SegmentExtent& segment : end.segments) numbers.push_back(segment.number);
    report_.removal = to_.RemoveLeftovers(numbers);
    return absl::OkStatus();
  }

  FileSystem& from_files_;  // all that there is now
  const DataDirectory& from_;
  DataDirectory& to_;
  const Current current_;  // of the origin
  BackupReport& report_;
  const std::function<void(uint64_t)>& copied_;
  AlignedBuffer buffer_;  // for a block; short files need less
};

}  // namespace

absl::StatusOr<BackupReport> Backup(FileSystem& from, FileSystem& to, const Random& random,
                                    const std::function<void(uint64_t)>& copied) {
  BackupReport report;
  std::unique_ptr<DataDirectory> copy;
  const absl::Status status = ReadSnapshot(from, [&](const DataDirectory& origin) {
    if (copy == nullptr) {
      absl::StatusOr<std::unique_ptr<DataDirectory>> opened =
          DataDirectory::OpenCopy(to, origin, random);
      if (!opened.ok()) return opened.status();
      copy = *std::move(opened);
    }
    BackupReport again;
    again.bytes_copied = report.bytes_copied;
    report = again;
    return BackupRun(from, origin, *copy, report, copied).Run();
  });
  if (!status.ok()) return status;
  report.format = copy->format();
  report.current = copy->current().header;
  return report;
}

}  // namespace osprey::server::wal
