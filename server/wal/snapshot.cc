#include "server/wal/snapshot.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/wal/format/format.h"
#include "server/wal/segment_reader.h"

namespace osprey::server::wal {
namespace {

absl::Status ReadOnlyError(const std::string& path) {
  return absl::FailedPreconditionError(absl::StrCat(path, " was opened to read alone"));
}

// Ends at the length that the file had.
class LimitedFile final : public File {
 public:
  LimitedFile(std::unique_ptr<File> file, std::string path, uint64_t bytes)
      : file_(std::move(file)), path_(std::move(path)), bytes_(bytes) {}

  absl::Status Write(uint64_t, absl::Span<const Bytes>) override { return ReadOnlyError(path_); }
  absl::Status Sync() override { return ReadOnlyError(path_); }
  absl::Status Reserve(uint64_t, uint64_t) override { return ReadOnlyError(path_); }
  absl::Status ReleaseReserve() override { return ReadOnlyError(path_); }
  absl::StatusOr<uint64_t> ReadPastCache(uint64_t offset, absl::Span<std::byte> to) override {
    if (offset >= bytes_) return 0;
    const absl::StatusOr<uint64_t> got = file_->ReadPastCache(offset, to);
    if (!got.ok()) return got.status();
    return std::min(*got, bytes_ - offset);
  }

 private:
  const std::unique_ptr<File> file_;
  const std::string path_;
  const uint64_t bytes_;
};

// The files of a directory, of which the segments stay as they were at Freeze.
class FrozenFiles final : public FileSystem {
 public:
  explicit FrozenFiles(FileSystem& files) : files_(files) {}

  // A segment is complete, but for its close record, once the next one has a name. So lengths that
  // are read behind the names cover all that a later segment relies on. If the last segment has a
  // close record by then, the next one's name is there as well.
  absl::Status Freeze(absl::Span<const DirectoryId> writers) {
    for (int attempt = 0; attempt < kSnapshotAttemptsMax; ++attempt) {
      const absl::StatusOr<std::vector<uint64_t>> before = Segments();
      if (!before.ok()) return before.status();
      bytes_.clear();
      for (const uint64_t number : *before) {
        const absl::StatusOr<uint64_t> bytes = files_.FileBytes(SegmentName(number));
        if (absl::IsNotFound(bytes.status())) continue;  // removed meanwhile
        if (!bytes.ok()) return bytes.status();
        bytes_[number] = *bytes;
      }
      const absl::StatusOr<bool> is_limited = LeaveZerosOut(writers);
      if (!is_limited.ok()) return is_limited.status();
      if (!*is_limited) continue;
      const absl::StatusOr<std::vector<uint64_t>> after = Segments();
      if (!after.ok()) return after.status();
      is_frozen_ = NewestOf(*before) == NewestOf(*after);
      if (is_frozen_) return absl::OkStatus();
    }
    return absl::UnavailableError(
        absl::StrCat(PathOf(""), " gets new segments too fast to be read; try again later"));
  }

  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& name) override {
    return ReadOnlyError(PathOf(name));
  }
  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& name) override {
    absl::StatusOr<std::unique_ptr<File>> file = files_.Open(name);
    const uint64_t number = SegmentNumber(name);
    if (!file.ok() || number == 0 || !is_frozen_) return file;
    const auto found = bytes_.find(number);
    if (found == bytes_.end()) return absl::NotFoundError(PathOf(name));
    return std::make_unique<LimitedFile>(*std::move(file), PathOf(name), found->second);
  }
  absl::StatusOr<std::unique_ptr<File>> OpenToWrite(const std::string& name) override {
    return ReadOnlyError(PathOf(name));
  }
  absl::StatusOr<uint64_t> FileBytes(const std::string& name) override {
    return files_.FileBytes(name);
  }
  absl::Status LinkFrom(FileSystem&, const std::string& name) override {
    return ReadOnlyError(PathOf(name));
  }
  absl::Status Rename(const std::string& from, const std::string&) override {
    return ReadOnlyError(PathOf(from));
  }
  absl::Status Remove(const std::string& name) override { return ReadOnlyError(PathOf(name)); }
  absl::Status SyncDirectory() override { return ReadOnlyError(PathOf("")); }
  absl::StatusOr<std::vector<std::string>> List() override {
    absl::StatusOr<std::vector<std::string>> names = files_.List();
    if (!names.ok() || !is_frozen_) return names;
    names->erase(std::remove_if(names->begin(), names->end(),
                                [this](const std::string& name) {
                                  const uint64_t number = SegmentNumber(name);
                                  return number != 0 && !bytes_.contains(number);
                                }),
                 names->end());
    return names;
  }
  bool OverwritesInPlace() const override { return files_.OverwritesInPlace(); }
  absl::StatusOr<uint64_t> FreeBytes() override { return files_.FreeBytes(); }
  absl::StatusOr<std::unique_ptr<DirectoryLock>> Lock(LockHolder) override {
    return ReadOnlyError(PathOf(kLockName));
  }
  std::string PathOf(const std::string& name) const override { return files_.PathOf(name); }

 private:
  // Records may come where the newest segment has zeros now, within its length. False: it has begun
  // meanwhile.
  absl::StatusOr<bool> LeaveZerosOut(absl::Span<const DirectoryId> writers) {
    if (bytes_.empty()) return true;
    const auto newest = std::prev(bytes_.end());
    const bool had_header = newest->second >= kSegmentHeaderBytes;
    absl::StatusOr<bool> has_header = LimitToRecords(*newest, writers);
    if (!has_header.ok()) return has_header;
    if (*has_header) return had_header;
    // A crash may have left it so. Else the one before gets a close record, once this one has its header.
    if (newest != bytes_.begin()) {
      has_header = LimitToRecords(*std::prev(newest), writers);
      if (!has_header.ok()) return has_header;
    }
    has_header = LimitToRecords(*newest, writers);
    if (!has_header.ok()) return has_header;
    return !*has_header;
  }
  // A segment's number and length. Whether it has a valid header now.
  absl::StatusOr<bool> LimitToRecords(std::pair<const uint64_t, uint64_t>& segment,
                                      absl::Span<const DirectoryId> writers) {
    absl::StatusOr<std::unique_ptr<SegmentReader>> reader =
        SegmentReader::Open(files_, segment.first);
    if (absl::IsNotFound(reader.status())) return false;  // removed meanwhile
    if (!reader.ok()) return reader.status();
    const absl::StatusOr<std::string> wrong = (*reader)->ReadHeader(writers);
    if (!wrong.ok()) return wrong.status();
    if (!wrong->empty()) return false;
    const absl::StatusOr<uint64_t> end = (*reader)->EndOfRecords();
    if (!end.ok()) return end.status();
    segment.second = std::min(segment.second, *end);
    return true;
  }
  absl::StatusOr<std::vector<uint64_t>> Segments() {
    const absl::StatusOr<std::vector<std::string>> names = files_.List();
    if (!names.ok()) return names.status();
    std::vector<uint64_t> numbers;
    for (const std::string& name : *names) {
      if (const uint64_t number = SegmentNumber(name); number != 0) numbers.push_back(number);
    }
    return numbers;
  }
  static uint64_t NewestOf(const std::vector<uint64_t>& numbers) {
    return numbers.empty() ? 0 : *std::max_element(numbers.begin(), numbers.end());
  }

  FileSystem& files_;
  std::map<uint64_t, uint64_t> bytes_;  // of segments, by number
  bool is_frozen_ = false;
};

}  // namespace

absl::Status ReadSnapshot(FileSystem& files,
                          const std::function<absl::Status(const DataDirectory&)>& read) {
  for (int attempt = 1;; ++attempt) {
    FrozenFiles frozen(files);
    const absl::StatusOr<std::unique_ptr<DataDirectory>> directory =
        DataDirectory::OpenToRead(frozen);
    if (!directory.ok()) return directory.status();
    absl::Status status = frozen.Freeze((*directory)->ids());
    if (status.ok()) status = read(**directory);
    if (!absl::IsNotFound(status) && !absl::IsDataLoss(status)) return status;
    const absl::StatusOr<std::unique_ptr<DataDirectory>> now = DataDirectory::OpenToRead(files);
    if (!now.ok() ||
        (*now)->current().header.generation == (*directory)->current().header.generation) {
      return status;
    }
    if (attempt == kSnapshotAttemptsMax) {
      return absl::UnavailableError(
          absl::StrCat(files.PathOf(kCurrentName), " was replaced during ", attempt,
                       " attempts to read; try again later (", status.message(), ")"));
    }
  }
}

}  // namespace osprey::server::wal
