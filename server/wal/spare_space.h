// Disk space behind the newest record, for what has to be logged while the disk is full: changes that
// were under way, marks, and the end.
//
//   segment   | header | record … record |  spare, reserved  |
//                              KeepBehind ^                   ^ end()
//
// Writes are refused before the disk is full, but another program may fill it at any time. The marks
// go on for as long as writes are refused.
//
// Thread rule: end() on any thread; the others on one at a time.

#ifndef OSPREY_SERVER_WAL_SPARE_SPACE_H_
#define OSPREY_SERVER_WAL_SPARE_SPACE_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "server/wal/disk/file_system.h"

namespace osprey::server::wal {

class SpareSpace {
 public:
  explicit SpareSpace(uint64_t bytes) : bytes_(bytes) {}

  // Another segment begins, for which nothing is reserved.
  void Restart() { end_.store(0, std::memory_order_relaxed); }
  // The records of `file`, the newest segment, will end at `offset`. Keeps at least half of the space
  // behind it. False: the disk has less.
  bool KeepBehind(File& file, uint64_t offset) {
    if (bytes_ == 0 || offset + bytes_ / 2 <= end()) return true;
    const absl::Status status = file.Reserve(offset, bytes_);
    if (status.ok()) {
      end_.store(offset + bytes_, std::memory_order_relaxed);
    } else if (!absl::IsResourceExhausted(status)) {
      bytes_ = 0;  // this file system cannot
    }
    return !absl::IsResourceExhausted(status);
  }

  // Up to this offset of the newest segment there is space. 0: unknown.
  uint64_t end() const { return end_.load(std::memory_order_relaxed); }

 private:
  uint64_t bytes_;
  std::atomic<uint64_t> end_{0};
};

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_SPARE_SPACE_H_
