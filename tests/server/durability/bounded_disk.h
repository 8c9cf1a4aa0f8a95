// A directory on a real disk that says it has less space.
//
//   auto disk = std::make_unique<BoundedDisk>(*wal::OpenPosixFileSystem(path), capacity);
//
// Thread rule: as FileSystem.

#ifndef OSPREY_TESTS_SERVER_DURABILITY_BOUNDED_DISK_H_
#define OSPREY_TESTS_SERVER_DURABILITY_BOUNDED_DISK_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/wal/disk/file_system.h"

namespace osprey::server {

class BoundedDisk final : public wal::FileSystem {
  // Reserves what the disk says is free; writes are not bounded.
  class BoundedFile final : public wal::File {
   public:
    BoundedFile(std::unique_ptr<wal::File> file, BoundedDisk& disk)
        : file_(std::move(file)), disk_(disk) {}
    absl::Status Write(uint64_t offset, absl::Span<const wal::Bytes> pieces) override {
      return file_->Write(offset, pieces);
    }
    absl::Status Sync() override { return file_->Sync(); }
    absl::Status Reserve(uint64_t, uint64_t bytes) override {
      if (disk_.FreeBytes().value_or(0) >= bytes) return absl::OkStatus();
      return absl::ResourceExhaustedError("the disk is full");
    }
    absl::Status ReleaseReserve() override { return absl::OkStatus(); }
    absl::StatusOr<uint64_t> ReadPastCache(uint64_t offset, absl::Span<std::byte> to) override {
      return file_->ReadPastCache(offset, to);
    }

   private:
    const std::unique_ptr<wal::File> file_;
    BoundedDisk& disk_;
  };

 public:
  // The files may have `capacity` bytes together, which may change. It outlives this.
  BoundedDisk(std::unique_ptr<wal::FileSystem> files, const std::atomic<uint64_t>& capacity)
      : files_(std::move(files)), capacity_(capacity) {}

  absl::StatusOr<uint64_t> FreeBytes() override {
    const absl::StatusOr<std::vector<std::string>> names = List();
    if (!names.ok()) return names.status();
    uint64_t used = 0;
    // One that was removed meanwhile has none.
    for (const std::string& name : *names) used += FileBytes(name).value_or(0);
    const uint64_t capacity = capacity_;
    return capacity - std::min(used, capacity);
  }

  bool OverwritesInPlace() const override { return files_->OverwritesInPlace(); }
  absl::StatusOr<std::unique_ptr<wal::File>> Create(const std::string& name) override {
    return Bounded(files_->Create(name));
  }
  absl::StatusOr<std::unique_ptr<wal::File>> Open(const std::string& name) override {
    return files_->Open(name);
  }
  absl::StatusOr<std::unique_ptr<wal::File>> OpenToWrite(const std::string& name) override {
    return Bounded(files_->OpenToWrite(name));
  }
  absl::StatusOr<uint64_t> FileBytes(const std::string& name) override {
    return files_->FileBytes(name);
  }
  absl::Status LinkFrom(FileSystem& other, const std::string& name) override {
    return files_->LinkFrom(other, name);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return files_->Rename(from, to);
  }
  absl::Status Remove(const std::string& name) override { return files_->Remove(name); }
  absl::Status SyncDirectory() override { return files_->SyncDirectory(); }
  absl::StatusOr<std::vector<std::string>> List() override { return files_->List(); }
  absl::StatusOr<std::unique_ptr<wal::DirectoryLock>> Lock(wal::LockHolder holder) override {
    return files_->Lock(holder);
  }
  std::string PathOf(const std::string& name) const override { return files_->PathOf(name); }

 private:
  absl::StatusOr<std::unique_ptr<wal::File>> Bounded(
      absl::StatusOr<std::unique_ptr<wal::File>> file) {
    if (!file.ok()) return file;
    return std::make_unique<BoundedFile>(*std::move(file), *this);
  }

  const std::unique_ptr<wal::FileSystem> files_;
  const std::atomic<uint64_t>& capacity_;
};

}  // namespace osprey::server

#endif  // OSPREY_TESTS_SERVER_DURABILITY_BOUNDED_DISK_H_
