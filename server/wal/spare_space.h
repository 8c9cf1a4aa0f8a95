// Disk space behind the newest record, for what has to be logged while the disk is full: changes that
// were under way, marks, and the end.
//
//   segment   | header | record … record |  spare, reserved  |
//                              KeepBehind ^                   ^ end()
//
// Writes are refused before the disk is full, but another program may fill it at any time. The marks
// go on for as long as writes are refused.
//
// Thread rule: end() and is_supported() on any thread; the others on one at a time.

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
  // The records of `file`, the newest segment, end at `begin`, and will end at `end`. Keeps at least
  // half of the space behind that. False: the disk has less.
  bool KeepBehind(File& file, uint64_t begin, uint64_t end) {
    if (!is_supported() || end + bytes_ / 2 <= this->end()) return true;
    // The new records come first: they must not lack what is reserved behind them.
    const absl::Status status = file.Reserve(begin, end - begin + bytes_);
    is_missing_ = absl::IsResourceExhausted(status);
    if (status.ok()) {
      end_.store(end + bytes_, std::memory_order_relaxed);
    } else if (!is_missing_) {
      is_supported_.store(false, std::memory_order_relaxed);
    }
    return !is_missing_;
  }
  // The last KeepBehind found too little.
  bool is_missing() const { return is_missing_; }
  // After it, the records are written up to `end`. ext4 keeps what it found before the disk was full.
  // A checkpoint may need that, so it goes back where no earlier reservation is left to keep.
  void GiveBackPart(File& file, uint64_t end) {
    if (is_missing_ && this->end() <= end) (void)file.ReleaseReserve();
  }

  // Whether this file system can, as far as is known.
  bool is_supported() const { return is_supported_.load(std::memory_order_relaxed); }
  // Up to this offset of the newest segment there is space. 0: unknown.
  uint64_t end() const { return end_.load(std::memory_order_relaxed); }

 private:
  const uint64_t bytes_;
  bool is_missing_ = false;
  std::atomic<bool> is_supported_{bytes_ != 0};
  std::atomic<uint64_t> end_{0};
};

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_SPARE_SPACE_H_
