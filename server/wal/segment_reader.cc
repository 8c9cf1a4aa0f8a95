#include "server/wal/segment_reader.h"

#include <algorithm>
#include <cstring>

#include "server/wal/format/checksum.h"

namespace osprey::server::wal {

absl::StatusOr<std::unique_ptr<SegmentReader>> SegmentReader::Open(FileSystem& files,
                                                                   uint64_t number) {
  absl::StatusOr<std::unique_ptr<File>> file = files.Open(SegmentName(number));
  if (!file.ok()) return file.status();
  return std::unique_ptr<SegmentReader>(new SegmentReader(*std::move(file), number));
}

absl::StatusOr<std::string> SegmentReader::ReadHeader(absl::Span<const DirectoryId> writers) {
  const absl::StatusOr<Bytes> bytes = reader_.Read(0, sizeof(header_));
  if (!bytes.ok()) return bytes.status();
  if (bytes->size() < sizeof(header_)) return std::string("the segment header is cut off");
  std::memcpy(&header_, bytes->data(), sizeof(header_));
  return header_.Validate(writers, number_);
}

uint64_t SegmentReader::SeedAt(uint64_t offset) const {
  return SeedOf(header_.life, number_, offset);
}

absl::StatusOr<std::string> SegmentReader::ReadRecord(uint64_t offset, LogRecord& record,
                                                      uint64_t skipped_to) {
  record.place = {number_, offset};
  absl::StatusOr<Bytes> bytes = reader_.Read(offset, sizeof(RecordHeader));
  if (!bytes.ok()) return bytes.status();
  if (bytes->empty()) return std::string("the file ends");
  if (bytes->size() < sizeof(RecordHeader)) return std::string("the record header is cut off");
  std::memcpy(&record.header, bytes->data(), sizeof(RecordHeader));
  const uint64_t seed = SeedAt(offset);
  std::string wrong = record.header.Validate(seed);
  if (!wrong.empty()) return wrong;
  record.body = {};
  if (record.header.kind == static_cast<uint8_t>(RecordKind::kPiece) &&
      record.header.number <= skipped_to) {
    return std::string();
  }
  bytes = reader_.Read(offset, record.header.bytes());
  if (!bytes.ok()) return bytes.status();
  if (bytes->size() < record.header.bytes()) return std::string("the record is cut off");
  record.body = bytes->subspan(sizeof(RecordHeader), record.header.length);
  if (Checksum(record.body, seed) != record.header.body_checksum)
    return std::string("the record's checksum is wrong");
  if (HasBits(bytes->subspan(sizeof(RecordHeader) + record.header.length)))
    return std::string("the record's padding is not zero");
  return std::string();
}

absl::Status SegmentReader::ForEachHeader(
    uint64_t offset, absl::FunctionRef<void(const RecordHeader&, uint64_t)> take) {
  for (;; offset += kRecordAlignment) {
    const absl::StatusOr<Bytes> bytes = reader_.Read(offset, sizeof(RecordHeader));
    if (!bytes.ok()) return bytes.status();
    if (bytes->size() < sizeof(RecordHeader)) return absl::OkStatus();
    RecordHeader header;
    std::memcpy(&header, bytes->data(), sizeof(header));
    if (header.Validate(SeedAt(offset)).empty()) take(header, offset);
  }
}

absl::StatusOr<uint64_t> SegmentReader::HighestSyncedTo(uint64_t offset) {
  uint64_t highest = 0;
  const absl::Status status =
      ForEachHeader(offset, [&highest](const RecordHeader& header, uint64_t) {
        highest = std::max(highest, header.synced_to);
      });
  if (!status.ok()) return status;
  return highest;
}

absl::StatusOr<uint64_t> SegmentReader::EndOfRecords() {
  uint64_t end = kSegmentHeaderBytes;
  const absl::Status status = ForEachHeader(
      end, [&end](const RecordHeader& header, uint64_t at) { end = at + header.bytes(); });
  if (!status.ok()) return status;
  return end;
}

absl::Status RecordReader::Read(const Place& place, LogRecord& record) {
  const std::string name = SegmentName(place.segment);
  if (segment_ == nullptr || segment_->header().number != place.segment) {
    absl::StatusOr<std::unique_ptr<SegmentReader>> opened =
        SegmentReader::Open(files_, place.segment);
    if (!opened.ok()) return opened.status();
    const absl::StatusOr<std::string> wrong = (*opened)->ReadHeader(writers_);
    if (!wrong.ok()) return wrong.status();
    if (!wrong->empty()) return DamageError(files_, name, 0, *wrong);
    segment_ = *std::move(opened);
  }
  const absl::StatusOr<std::string> wrong = segment_->ReadRecord(place.offset, record);
  if (!wrong.ok()) return wrong.status();
  if (!wrong->empty()) return DamageError(files_, name, place.offset, *wrong);
  return absl::OkStatus();
}

}  // namespace osprey::server::wal
