// Reads a file past the page cache, mostly from front to back.
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_WAL_DISK_DIRECT_READER_H_
#define OSPREY_SERVER_WAL_DISK_DIRECT_READER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "server/wal/disk/file_system.h"

namespace osprey::server::wal {

class DirectReader {
 public:
  explicit DirectReader(std::unique_ptr<File> file) : file_(std::move(file)) {}

  // The bytes at the offset: `length` of them, or fewer at the end of the file. Valid until the next
  // call. Reads more than that, for the calls that follow: little at first and after a jump, since many
  // files are looked into and not read.
  absl::StatusOr<Bytes> Read(uint64_t offset, uint64_t length) {
    if (offset < buffer_offset_ || offset + length > buffer_offset_ + buffer_length_) {
      const uint64_t begin = RoundDown(offset, kDirectAlignment);
      const bool follows =
          buffer_length_ > 0 && begin >= buffer_offset_ && begin <= buffer_offset_ + buffer_length_;
      const uint64_t ahead = follows ? kAheadBytesMax : kAheadBytesMin;
      const uint64_t bytes = std::max(RoundUp(offset + length - begin, kDirectAlignment), ahead);
      if (buffer_.size() < bytes) buffer_ = AlignedBuffer(bytes);
      buffer_length_ = 0;
      const absl::StatusOr<uint64_t> got = file_->ReadPastCache(begin, buffer_.span().first(bytes));
      if (!got.ok()) return got.status();
      buffer_offset_ = begin;
      buffer_length_ = *got;
    }
    const uint64_t end = buffer_offset_ + buffer_length_;
    if (offset >= end) return Bytes();
    return Bytes(buffer_.span().data() + (offset - buffer_offset_), std::min(length, end - offset));
  }

 private:
  // Disks are no faster with more. And new memory costs more than the reading.
  static constexpr uint64_t kAheadBytesMax = 1 << 20;
  static constexpr uint64_t kAheadBytesMin = 32 << 10;

  const std::unique_ptr<File> file_;
  AlignedBuffer buffer_;
  uint64_t buffer_offset_ = 0;
  uint64_t buffer_length_ = 0;
};

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_DISK_DIRECT_READER_H_
