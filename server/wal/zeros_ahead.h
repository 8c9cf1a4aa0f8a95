// Zeros behind the newest record, on the disk before records come there.
//
//   segment   | header | record … record | zeros …  |  reserved (SpareSpace)  |
//                                        ^ records   ^ end()
//
// A sync of records that replace zeros writes these records alone. Elsewhere a sync writes the inode as
// well: the file's length, and which of its blocks have data. That costs a write more, or a commit of
// the file system's journal.
//
// The zeros cost a second write of as many bytes, so they only pay where syncs are of few bytes.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_SERVER_WAL_ZEROS_AHEAD_H_
#define OSPREY_SERVER_WAL_ZEROS_AHEAD_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "server/wal/disk/file_system.h"

namespace osprey::server::wal {

class ZerosAhead {
 public:
  // Zeros are written if a sync covered no more bytes on average. The inode's write takes 55 us, in which
  // the same disk writes about as much.
  static constexpr uint64_t kBytesPerSyncMax = 64 << 10;

  // 0: there are none.
  explicit ZerosAhead(uint64_t bytes) : bytes_(bytes) {}

  // Another segment begins, which has none.
  void Restart() { end_ = 0; }
  // The records of `file`, the newest segment, are written up to `records`. Writes zeros behind them, up to
  // `limit` at most, where the last ones are used up. `written` and `syncs`: bytes and syncs of the log so
  // far. Errors: those of File::Write.
  absl::Status KeepBehind(File& file, uint64_t records, uint64_t limit, uint64_t written,
                          uint64_t syncs) {
    if (bytes_ == 0 || records < end_) return absl::OkStatus();
    const bool pays = written - written_ <= kBytesPerSyncMax * (syncs - syncs_ + 1);
    written_ = written;
    syncs_ = syncs;
    const uint64_t begin = RoundUp(records, kDirectAlignment);
    const uint64_t end = RoundDown(std::min(begin + bytes_, limit), kDirectAlignment);
    end_ = records + bytes_;
    if (!pays || begin >= end) return absl::OkStatus();
    const absl::Status status = Write(file, begin, end);
    // The reservation lacks what another program has taken.
    if (absl::IsResourceExhausted(status)) return absl::OkStatus();
    end_ = end;
    return status;
  }
  uint64_t end() const { return end_; }

 private:
  static absl::Status Write(File& file, uint64_t begin, uint64_t end) {
    static constexpr std::byte kZeros[16 << 10] = {};
    std::vector<Bytes> pieces;
    for (uint64_t at = begin; at < end; at += sizeof(kZeros))
      pieces.push_back(Bytes(kZeros).first(std::min<uint64_t>(sizeof(kZeros), end - at)));
    return file.Write(begin, pieces);
  }

  const uint64_t bytes_;
  uint64_t end_ = 0;      // of the newest segment's zeros, or where to look again
  uint64_t written_ = 0;  // when zeros were considered last
  uint64_t syncs_ = 0;
};

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_ZEROS_AHEAD_H_
