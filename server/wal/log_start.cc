#include <cstring>
#include <utility>

#include "server/wal/format/checksum.h"
#include "server/wal/format/test_hooks.h"
#include "server/wal/log.h"
#include "server/wal/segment_reader.h"

namespace osprey::server::wal {
namespace {

// Reads the tail, and writes it again into a new segment.
class TailCopier {
 public:
  TailCopier(const DataDirectory& directory, const LogEnd& end, const SegmentHeader& header,
             File& to)
      : end_(end),
        header_(header),
        to_(to),
        reader_(directory.files(), directory.ids()),
        checksum_(end.cut_checksum) {}

  absl::Status Copy() {
    for (const Place& place : end_.tail) {
      absl::Status status = CopyRecord(place);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  uint64_t offset() const { return offset_; }
  uint64_t checksum() const { return checksum_; }

 private:
  absl::Status CopyRecord(const Place& place) {
    LogRecord record;
    absl::Status status = reader_.Read(place, record);
    if (!status.ok()) return status;
    RecordHeader header = record.header;
    header.chain = checksum_;
    header.synced_to = end_.synced_to;
    header.Seal({record.body}, SeedOf(header_.life, header_.number, offset_));
    checksum_ = header.header_checksum;
    status = to_.Write(offset_, {BytesOf(header), record.body, header.Padding()});
    offset_ += header.bytes();
    return status;
  }

  const LogEnd& end_;
  const SegmentHeader& header_;
  File& to_;
  RecordReader reader_;
  uint64_t offset_ = kSegmentHeaderBytes;
  uint64_t checksum_;
};

// A life that was killed has left it.
void ReleaseSpares(FileSystem& files, const std::vector<SegmentInfo>& chain) {
  for (const SegmentInfo& segment : chain) {
    absl::StatusOr<std::unique_ptr<File>> file = files.OpenToWrite(SegmentName(segment.number));
    if (file.ok()) (void)(*file)->ReleaseReserve();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Log>> StartLog(DataDirectory& directory, const LogEnd& end,
                                              LogOptions options) {
  FileSystem& files = directory.files();
  SegmentHeader header;
  header.directory = directory.format().directory;
  header.number = end.newest_number + 1;
  header.life = directory.Draw();
  header.previous_number = end.cut.segment;
  header.previous_life = end.cut_life;
  header.previous_end = end.cut.offset;
  header.previous_checksum = end.cut_checksum;
  header.first_record = end.synced_to + 1;
  header.synced_to = end.synced_to;
  header.Seal();

  // It gets its name when it is whole: until then the tail is where it was.
  absl::Status status = files.Remove(kSegmentNewName);
  if (!status.ok() && !absl::IsNotFound(status)) return status;
  absl::StatusOr<std::unique_ptr<File>> file = files.Create(kSegmentNewName);
  if (!file.ok()) return file.status();
  status = (*file)->Write(0, {BytesOf(header)});
  TailCopier copier(directory, end, header, **file);
  if (status.ok()) status = copier.Copy();
  if (status.ok() && !IsMutant(Mutant::kNewSegmentNotSynced)) status = (*file)->Sync();
  if (status.ok()) status = files.Rename(kSegmentNewName, SegmentName(header.number));
  if (status.ok() && !IsMutant(Mutant::kDirectoryNotSynced)) status = files.SyncDirectory();
  if (!status.ok()) return status;
  // Its errors name the file that there is.
  file = files.OpenToWrite(SegmentName(header.number));
  if (!file.ok()) return file.status();

  Current current = directory.current();
  current.header.newest_segment = header.number;
  current.header.newest_life = header.life;
  current.header.synced_to = end.last_record;
  current.header.time_mark = end.time_mark;
  current.header.version_ceiling = end.version_ceiling;
  status = directory.ReplaceCurrent(std::move(current));
  if (!status.ok()) return status;
  std::vector<SegmentInfo> chain = end.chain;
  chain.push_back({header.number, header.life, header.first_record});
  std::vector<uint64_t> numbers;
  for (const SegmentInfo& segment : chain) numbers.push_back(segment.number);
  status = directory.RemoveLeftovers(numbers);
  if (!status.ok()) return status;
  ReleaseSpares(files, end.chain);

  Log::Segment segment;
  segment.file = *std::move(file);
  segment.info = chain.back();
  segment.end = copier.offset();
  segment.checksum = copier.checksum();
  std::unique_ptr<Log> log(new Log(directory, std::move(options), std::move(chain),
                                   std::move(segment), end.last_record));
  (void)log->spare_.KeepBehind(*log->current_.file, log->current_.end, log->current_.end);
  return log;
}

}  // namespace osprey::server::wal
