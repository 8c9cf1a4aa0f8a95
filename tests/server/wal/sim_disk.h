// A disk in memory that does the worst that a real one may do with what was not synced.
//
// A file has two contents: the cached one, which the operating system shows, and the durable one,
// which a crash of the machine leaves. They differ by sectors of 512 B:
//
//              Write            Sync, or written back at any time
//   clean  ──────────> dirty ──────────────────────────────────────> clean
//                        |     Sync fails
//                        '──────────────> lost   cached new, durable old; no later Sync writes it
//
// A crash of the machine keeps any of the dirty sectors: a middle may be lost, an end kept. It
// keeps any of the names that were not synced, and any length between the old and the new one. A
// lost sector of a new file has zeros, or what an earlier file had there: the blocks of removed
// logs are used for new ones, and those of checkpoints likewise.
//
// Crash points: after `CrashAfter(n)` the n-th call that changes anything does it in part and
// fails, and so do all later ones.
//
// Thread rule: one thread.

#ifndef OSPREY_TESTS_SERVER_WAL_SIM_DISK_H_
#define OSPREY_TESTS_SERVER_WAL_SIM_DISK_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/wal/disk/file_system.h"
#include "tests/support/split_mix64.h"

namespace osprey::server::wal {

struct SimInode {
  enum class Sector : uint8_t { kClean, kDirty, kLost };
  std::string name;  // of its creation, or its last rename
  std::string cached;
  std::string durable;  // at least durable_size
  uint64_t durable_size = 0;
  std::vector<Sector> sectors;
  uint64_t reserved = 0;  // up to this offset
  uint64_t SpaceUsed() const { return std::max<uint64_t>(cached.size(), reserved); }
};

class SimDisk final : public FileSystem {
 public:
  static constexpr uint64_t kSectorBytes = 512;

  explicit SimDisk(uint64_t seed) : random_(seed) {}

  // --- The script's side.

  // UINT64_MAX: never.
  void CrashAfter(uint64_t steps) { steps_left_ = steps; }
  bool crashed() const { return crashed_; }
  // The process has ended; everything is as the operating system shows it.
  void Kill();
  // The machine has lost power.
  void LosePower();
  // In percent of the calls.
  void SetFaults(uint64_t write_fails, uint64_t sync_fails) {
    write_fails_ = write_fails;
    sync_fails_ = sync_fails;
  }
  // One of so many writes to a part of a checkpoint lands wrong. 0: none.
  void SetWrongWrites(uint64_t one_in) { wrong_write_one_in_ = one_in; }
  bool faulted() const { return faulted_; }  // since Kill or LosePower
  void set_capacity(uint64_t bytes) { capacity_ = bytes; }
  void set_links(bool allowed) { links_ = allowed; }
  void set_reserves(bool allowed) { reserves_ = allowed; }
  // Nothing more can be reserved, though bytes are free.
  void set_quota_used_up(bool used_up) { quota_used_up_ = used_up; }
  // Called within Sync, after its beginning, for what is written meanwhile.
  void set_during_sync(std::function<void(const std::string& name)> call) {
    during_sync_ = std::move(call);
  }

  std::vector<std::string> Names() const;
  uint64_t SizeOf(const std::string& name) const;
  // Its length, and what is reserved behind it.
  uint64_t SpaceOf(const std::string& name) const;
  bool NameIsDurable(const std::string& name) const { return durable_names_.contains(name); }
  std::string ContentOf(const std::string& name) const { return names_.at(name)->cached; }
  // The file has these bytes, durably.
  void Put(const std::string& name, std::string bytes);
  // The file is missing until Unhide. REQUIRES: it is there, and no other file is hidden.
  void Hide(const std::string& name);
  void Unhide();
  // Changes a bit, on the disk and in the cache.
  void FlipBit(const std::string& name, uint64_t offset, uint8_t bit);

  // --- FileSystem.
  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<File>> OpenToWrite(const std::string& name) override {
    return Open(name);
  }
  absl::StatusOr<uint64_t> FileBytes(const std::string& name) override;
  // REQUIRES: `other` is a SimDisk. The power of both is lost at once.
  absl::Status LinkFrom(FileSystem& other, const std::string& name) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& name) override;
  absl::Status SyncDirectory() override;
  absl::StatusOr<std::vector<std::string>> List() override;
  bool OverwritesInPlace() const override { return true; }
  absl::StatusOr<uint64_t> FreeBytes() override;
  absl::StatusOr<std::unique_ptr<DirectoryLock>> Lock(LockHolder holder) override;
  std::string PathOf(const std::string& name) const override { return "/data/" + name; }

 private:
  friend class SimFile;
  friend class SimLock;

  absl::Status Write(SimInode& inode, uint64_t offset, absl::Span<const Bytes> pieces);
  absl::Status Sync(SimInode& inode);
  absl::Status Reserve(SimInode& inode, uint64_t end);
  uint64_t SpaceUsed() const;
  uint64_t ReadPastCache(SimInode& inode, uint64_t offset, absl::Span<std::byte> to) const;

  // False: this call crashes.
  bool Step();
  // The sector's cached bytes become durable.
  void WriteBack(SimInode& inode, uint64_t sector, bool wrong = false);
  void GrowDurable(SimInode& inode, uint64_t bytes);
  void LosePowerOf(SimInode& inode);
  absl::Status Crashed() const;

  SplitMix64 random_;
  std::map<std::string, std::shared_ptr<SimInode>> names_;
  std::map<std::string, std::shared_ptr<SimInode>> durable_names_;
  std::map<std::string, std::shared_ptr<SimInode>> hidden_names_;  // of Hide, to restore
  std::map<std::string, std::shared_ptr<SimInode>> hidden_durable_names_;
  std::map<std::string, std::string> stale_;  // by StaleKey: what an earlier file left
  uint64_t steps_left_ = UINT64_MAX;
  bool crashed_ = false;
  bool locked_ = false;
  uint64_t write_fails_ = 0;
  uint64_t sync_fails_ = 0;
  uint64_t wrong_write_one_in_ = 0;
  bool faulted_ = false;
  uint64_t capacity_ = UINT64_MAX;
  bool links_ = true;
  bool reserves_ = true;
  bool quota_used_up_ = false;
  std::function<void(const std::string&)> during_sync_;
};

}  // namespace osprey::server::wal

#endif  // OSPREY_TESTS_SERVER_WAL_SIM_DISK_H_
