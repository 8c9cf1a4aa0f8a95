#include "server/wal/log_queue.h"

#include "absl/strings/str_cat.h"

namespace osprey::server::wal {
namespace {

uint64_t LengthOf(const NewRecord& record) {
  uint64_t length = 0;
  for (const BodyPart& part : record.body) length += part.bytes.size();
  return length;
}

// A written chunk of more memory is not kept.
constexpr size_t kSpareBytesMax = 1 << 20;

constexpr uint64_t kCloseBytes =
    RoundUp(sizeof(RecordHeader) + sizeof(CloseBody), kRecordAlignment);

}  // namespace

// The close record needs its place too.
bool LogQueue::NeedsSegment(uint64_t offset, uint64_t record_bytes) const {
  return offset > kSegmentHeaderBytes && offset + record_bytes + kCloseBytes > segment_bytes_;
}

absl::StatusOr<uint64_t> LogQueue::Append(absl::Span<const NewRecord> records,
                                          absl::FunctionRef<absl::Status(uint64_t)> check_space,
                                          uint64_t spare_end) {
  uint64_t total = 0;
  bool has_pieces = false;
  for (const NewRecord& record : records) {
    const uint64_t length = LengthOf(record);
    const uint64_t length_max = record.kind == RecordKind::kPiece ? kPieceBytesMax : kRecordBodyMax;
    if (length > length_max) {
      return absl::InvalidArgumentError(
          absl::StrCat("a record of ", length, " bytes; the log takes at most ", length_max));
    }
    total += RoundUp(sizeof(RecordHeader) + length, kRecordAlignment);
    has_pieces |= record.kind == RecordKind::kPiece;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes_ > 0 && bytes_ + total > bytes_max_) {
    return absl::AbortedError(
        absl::StrCat("the log's queue is full: ", bytes_, " bytes are not written yet"));
  }
  uint64_t segments = 0;
  uint64_t offset = offset_;
  for (const NewRecord& record : records) {
    const uint64_t bytes = RoundUp(sizeof(RecordHeader) + LengthOf(record), kRecordAlignment);
    if (NeedsSegment(offset, bytes)) {
      ++segments;
      offset = kSegmentHeaderBytes;
    }
    offset += bytes;
  }
  bool may_begin_segment = true;
  if (segments > 0) {
    const absl::Status status = check_space(segments * segment_bytes_ + bytes_ + total);
    may_begin_segment = status.ok();
    if (!status.ok() && (has_pieces || offset_ + total + kCloseBytes > spare_end)) return status;
  }
  for (const NewRecord& record : records) Add(record, LengthOf(record), may_begin_segment);
  return next_number_ - 1;
}

void LogQueue::Add(const NewRecord& record, uint64_t length, bool may_begin_segment) {
  RecordHeader header;
  header.kind = static_cast<uint8_t>(record.kind);
  header.flags = kMustUnderstand;
  header.length = static_cast<uint32_t>(length);
  header.number = next_number_++;
  const bool begins_segment = may_begin_segment && NeedsSegment(offset_, header.bytes());
  if (begins_segment) offset_ = kSegmentHeaderBytes;
  if (begins_segment || chunks_.empty()) {
    LogChunk& added = chunks_.emplace_back();
    added.begins_segment = begins_segment;
    added.bytes = std::exchange(spare_, {});
  }
  LogChunk& chunk = chunks_.back();
  const uint64_t bytes = header.bytes() + (begins_segment ? kSegmentHeaderBytes + kCloseBytes : 0);
  chunk.disk_bytes += bytes;
  bytes_ += bytes;
  absl::StrAppend(&chunk.bytes, TextOf(BytesOf(header)));
  for (const BodyPart& part : record.body) {
    if (part.bytes.empty()) continue;
    if (part.pinned) {
      chunk.pinned.emplace_back(chunk.bytes.size(), part.bytes);
    } else {
      absl::StrAppend(&chunk.bytes, TextOf(part.bytes));
    }
  }
  absl::StrAppend(&chunk.bytes, TextOf(header.Padding()));
  offset_ += header.bytes();
}

void LogQueue::Take(std::vector<LogChunk>& chunks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  chunks_.swap(chunks);
}

void LogQueue::Release(LogChunk& chunk) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_ -= chunk.disk_bytes;
  const size_t capacity = chunk.bytes.capacity();
  if (capacity > kSpareBytesMax || capacity <= spare_.capacity()) return;
  spare_.swap(chunk.bytes);
  spare_.clear();
}

bool LogQueue::HasRoom() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_ < bytes_max_;
}

}  // namespace osprey::server::wal
