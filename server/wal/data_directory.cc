#include "server/wal/data_directory.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/wal/format/checksum.h"
#include "server/wal/format/test_hooks.h"
#include "server/wal/segment_reader.h"

namespace osprey::server::wal {
namespace {

constexpr uint64_t kFormatBytesMax = sizeof(FormatFile) + kOriginsMax * sizeof(DirectoryId);
constexpr uint64_t kCurrentBytesMax = sizeof(CurrentHeader) + kPartsMax * sizeof(PartSummary);

absl::Status RemoveIfThere(FileSystem& files, const std::string& name) {
  const absl::Status status = files.Remove(name);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The first segment exists before FORMAT does, and has no record until then.
absl::Status CheckEmpty(FileSystem& files, const std::vector<std::string>& names) {
  const std::string first = SegmentName(1);
  for (const std::string& name : names) {
    if (name == kLockName || name == "lost+found" || name == kFormatNewName ||
        name == kCurrentName || name == kCurrentNewName || name == first) {
      continue;
    }
    return absl::FailedPreconditionError(
        absl::StrCat(files.PathOf(name), " exists, but ", files.PathOf(kFormatName),
                     " does not: name an empty data directory, or restore the missing file"));
  }
  if (!Contains(names, first)) return absl::OkStatus();
  const absl::StatusOr<std::string> bytes = ReadWhole(files, first, kSegmentHeaderBytes);
  if (bytes.ok()) return absl::OkStatus();
  if (!absl::IsDataLoss(bytes.status())) return bytes.status();
  return absl::FailedPreconditionError(absl::StrCat(files.PathOf(first), " has records, but ",
                                                    files.PathOf(kFormatName),
                                                    " does not exist: restore the missing file"));
}

// A backup writes FORMAT before all else.
absl::Status CheckEmptyForCopy(FileSystem& files, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name == kLockName || name == "lost+found" || name == kFormatNewName) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        files.PathOf(name),
        " exists, and its directory is no backup; name an empty directory, or an earlier backup"));
  }
  return absl::OkStatus();
}

// A server that starts writes a segment first.
absl::Status CheckNotStarted(FileSystem& files, const std::vector<std::string>& names,
                             const DirectoryId& own) {
  for (const std::string& name : names) {
    const uint64_t number = SegmentNumber(name);
    if (number == 0) continue;
    absl::StatusOr<std::unique_ptr<SegmentReader>> reader = SegmentReader::Open(files, number);
    if (!reader.ok()) return reader.status();
    const absl::StatusOr<std::string> wrong = (*reader)->ReadHeader({own});
    if (!wrong.ok()) return wrong.status();
    if (wrong->empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          files.PathOf(name), " is of a server that has used the backup; name an empty directory"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadWhole(FileSystem& files, const std::string& name,
                                      uint64_t bytes_max) {
  absl::StatusOr<std::unique_ptr<File>> file = files.Open(name);
  if (!file.ok()) return file.status();
  const AlignedBuffer buffer(bytes_max + 1);
  const absl::StatusOr<uint64_t> got = (*file)->ReadPastCache(0, buffer.span());
  if (!got.ok()) return got.status();
  if (*got > bytes_max) {
    return DamageError(files, name, bytes_max,
                       absl::StrCat("the file has more than ", bytes_max, " bytes"));
  }
  return std::string(TextOf(buffer.span().first(*got)));
}

absl::Status WriteWhole(FileSystem& files, const std::string& name,
                        absl::Span<const Bytes> pieces) {
  absl::Status status = RemoveIfThere(files, name);
  if (!status.ok()) return status;
  absl::StatusOr<std::unique_ptr<File>> file = files.Create(name);
  if (!file.ok()) return file.status();
  status = (*file)->Write(0, pieces);
  if (status.ok()) status = (*file)->Sync();
  return status;
}

absl::StatusOr<std::unique_ptr<DataDirectory>> DataDirectory::Open(FileSystem& files,
                                                                   const NewDirectory& options,
                                                                   Random random) {
  absl::StatusOr<std::unique_ptr<DirectoryLock>> lock = files.Lock(LockHolder::kServer);
  if (!lock.ok()) return lock.status();
  const absl::StatusOr<std::vector<std::string>> names = files.List();
  if (!names.ok()) return names.status();
  std::unique_ptr<DataDirectory> directory(
      new DataDirectory(files, std::move(random), *std::move(lock)));
  // What is there may not be durable, if the process before ended between a rename and its sync.
  absl::Status status =
      Contains(*names, kFormatName) ? files.SyncDirectory() : directory->Create(options, *names);
  if (status.ok()) status = directory->ReadFormat();
  if (status.ok()) status = directory->ReadCurrent();
  if (!status.ok()) return status;
  return directory;
}

absl::StatusOr<std::unique_ptr<DataDirectory>> DataDirectory::OpenToRead(FileSystem& files) {
  std::unique_ptr<DataDirectory> directory(new DataDirectory(files, nullptr, nullptr));
  absl::Status status = directory->ReadFormat();
  if (absl::IsNotFound(status)) {
    return absl::FailedPreconditionError(absl::StrCat(
        files.PathOf(kFormatName), " does not exist: its directory is no data directory"));
  }
  if (status.ok()) status = directory->ReadCurrent();
  if (!status.ok()) return status;
  return directory;
}

absl::StatusOr<std::unique_ptr<DataDirectory>> DataDirectory::OpenCopy(FileSystem& files,
                                                                       const DataDirectory& origin,
                                                                       Random random) {
  std::unique_ptr<DataDirectory> directory(new DataDirectory(files, std::move(random), nullptr));
  bool exists = false;
  // The lock creates a file, so the first look is without it.
  for (const bool is_locked : {false, true}) {
    if (is_locked) {
      absl::StatusOr<std::unique_ptr<DirectoryLock>> lock = files.Lock(LockHolder::kBackup);
      if (!lock.ok()) return lock.status();
      directory->lock_ = *std::move(lock);
    }
    const absl::StatusOr<std::vector<std::string>> names = files.List();
    if (!names.ok()) return names.status();
    exists = Contains(*names, kFormatName);
    const absl::Status status =
        exists ? directory->ReadCopy(origin, *names) : CheckEmptyForCopy(files, *names);
    if (!status.ok()) return status;
  }
  const absl::Status status = exists ? files.SyncDirectory() : directory->CreateCopy(origin);
  if (!status.ok()) return status;
  return directory;
}

absl::Status DataDirectory::ReadCopy(const DataDirectory& origin,
                                     const std::vector<std::string>& names) {
  absl::Status status = ReadFormat();
  if (!status.ok()) return status;
  if (format_.directory == origin.format().directory) {
    return absl::FailedPreconditionError(
        absl::StrCat(files_.PathOf(kFormatName),
                     " is of the very data directory to be copied; name an empty directory"));
  }
  if (!(format_.copied_from == origin.format().directory)) {
    return absl::FailedPreconditionError(absl::StrCat(
        files_.PathOf(kFormatName), " is of another data directory, or of another one's backup; ",
        "name an empty directory"));
  }
  if (Contains(names, kCurrentName)) status = ReadCurrent();
  if (status.ok()) status = CheckNotStarted(files_, names, format_.directory);
  return status;
}

absl::Status DataDirectory::CreateCopy(const DataDirectory& origin) {
  const absl::Span<const DirectoryId> more_origins = absl::MakeSpan(origin.ids()).subspan(1);
  if (more_origins.size() > kOriginsMax) {
    return absl::FailedPreconditionError(
        absl::StrCat(origin.files().PathOf(kFormatName), " has ", more_origins.size(),
                     " origins, the most that there may be; use kvcli export and import"));
  }
  format_ = origin.format();
  format_.directory = {{Draw(), Draw()}};
  format_.copied_from = origin.format().directory;
  absl::Status status = WriteFormat(more_origins);
  if (status.ok()) status = ReadFormat();
  return status;
}

absl::Status DataDirectory::WriteFormat(absl::Span<const DirectoryId> more_origins) {
  format_.Seal(more_origins);
  const Bytes origins(reinterpret_cast<const std::byte*>(more_origins.data()),
                      more_origins.size() * sizeof(DirectoryId));
  absl::Status status = WriteWhole(files_, kFormatNewName, {BytesOf(format_), origins});
  if (status.ok()) status = files_.Rename(kFormatNewName, kFormatName);
  if (status.ok()) status = files_.SyncDirectory();
  return status;
}

absl::Status DataDirectory::Create(const NewDirectory& options,
                                   const std::vector<std::string>& names) {
  absl::Status status = CheckEmpty(files_, names);
  if (!status.ok()) return status;
  format_ = FormatFile();
  format_.shards = options.shards;
  format_.directory = {{Draw(), Draw()}};
  format_.server = options.server;
  format_.hash_seed = options.hash_seed;
  SegmentHeader segment;
  segment.directory = format_.directory;
  segment.number = 1;
  segment.life = Draw();
  segment.first_record = 1;
  segment.Seal();
  status = WriteWhole(files_, SegmentName(1), {BytesOf(segment)});
  if (!status.ok()) return status;
  Current first;
  first.header.redo_segment = first.header.newest_segment = 1;
  first.header.newest_life = segment.life;
  first.header.redo_record = 1;
  status = ReplaceCurrent(std::move(first));
  if (status.ok()) status = WriteFormat({});
  return status;
}

absl::Status DataDirectory::ReadFormat() {
  const absl::StatusOr<std::string> bytes = ReadWhole(files_, kFormatName, kFormatBytesMax);
  if (!bytes.ok()) return bytes.status();
  if (bytes->size() < sizeof(format_)) return DamageError(files_, kFormatName, 0, "it is cut off");
  std::memcpy(&format_, bytes->data(), sizeof(format_));
  if (const std::string other = format_.OtherVersion(); !other.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        files_.PathOf(kFormatName), ": ", other, "; start the version of kvserver that wrote it"));
  }
  std::vector<DirectoryId> more_origins((bytes->size() - sizeof(format_)) / sizeof(DirectoryId));
  const uint64_t origins_bytes = more_origins.size() * sizeof(DirectoryId);
  if (origins_bytes > 0)
    std::memcpy(more_origins.data(), bytes->data() + sizeof(format_), origins_bytes);
  std::string wrong = format_.Validate(more_origins);
  if (wrong.empty() && bytes->size() != sizeof(format_) + origins_bytes)
    wrong = "bytes follow its origins";
  if (!wrong.empty()) return DamageError(files_, kFormatName, 0, wrong);
  ids_ = {format_.directory};
  if (!(format_.copied_from == DirectoryId())) ids_.push_back(format_.copied_from);
  ids_.insert(ids_.end(), more_origins.begin(), more_origins.end());
  return absl::OkStatus();
}

absl::Status DataDirectory::ReadCurrent() {
  const absl::StatusOr<std::string> bytes = ReadWhole(files_, kCurrentName, kCurrentBytesMax);
  if (absl::IsNotFound(bytes.status()) && ids_.size() > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        files_.PathOf(kCurrentName),
        " does not exist: the backup is not complete; run the same kvcli backup again"));
  }
  if (absl::IsNotFound(bytes.status()))
    return DamageError(files_, kCurrentName, 0, "the file is missing");
  if (!bytes.ok()) return bytes.status();
  Current read;
  if (bytes->size() < sizeof(read.header))
    return DamageError(files_, kCurrentName, 0, "it is cut off");
  std::memcpy(&read.header, bytes->data(), sizeof(read.header));
  std::string wrong = read.header.Validate(format_.directory);
  if (!wrong.empty()) return DamageError(files_, kCurrentName, 0, wrong);
  const uint64_t parts_bytes = read.header.parts * sizeof(PartSummary);
  if (bytes->size() != sizeof(read.header) + parts_bytes)
    return DamageError(files_, kCurrentName, sizeof(read.header), "its length is wrong");
  read.parts.resize(read.header.parts);
  if (parts_bytes > 0)
    std::memcpy(read.parts.data(), bytes->data() + sizeof(read.header), parts_bytes);
  if (read.header.checksum != CurrentChecksum(read.header, read.parts))
    return DamageError(files_, kCurrentName, 0, "its checksum is wrong");
  const std::lock_guard<std::mutex> lock(mutex_);
  current_ = std::move(read);
  return absl::OkStatus();
}

Current DataDirectory::current() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return current_;
}

absl::Status DataDirectory::CheckCertain() const {
  if (!uncertain_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      files_.PathOf(kCurrentName), " may or may not have been replaced; start the server again"));
}

absl::Status DataDirectory::ReplaceCurrent(Current next) {
  assert(lock_ != nullptr);
  if (absl::Status status = CheckCertain(); !status.ok()) return status;
  next.header.directory = format_.directory;
  next.header.generation = current().header.generation + 1;
  next.header.parts = static_cast<uint32_t>(next.parts.size());
  next.header.checksum = CurrentChecksum(next.header, next.parts);
  const Bytes parts(reinterpret_cast<const std::byte*>(next.parts.data()),
                    next.parts.size() * sizeof(PartSummary));
  absl::Status status = WriteWhole(files_, kCurrentNewName, {BytesOf(next.header), parts});
  // The names of the files that it points to are durable before it is.
  if (status.ok() && !IsMutant(Mutant::kDirectoryNotSynced)) status = files_.SyncDirectory();
  if (!status.ok()) return status;
  status = files_.Rename(kCurrentNewName, kCurrentName);
  if (status.ok() && !IsMutant(Mutant::kDirectoryNotSynced)) status = files_.SyncDirectory();
  if (!status.ok()) {
    uncertain_ = true;
    return status;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  current_ = std::move(next);
  return absl::OkStatus();
}

bool DataDirectory::IsUnused(const std::string& name) const {
  const CurrentHeader header = current().header;
  if (const uint64_t number = SegmentNumber(name); number != 0) return number < header.redo_segment;
  uint64_t checkpoint = 0;
  uint32_t part = 0;
  return ParsePartName(name, checkpoint, part) && checkpoint != header.checkpoint;
}

absl::Status DataDirectory::RemoveUnused() {
  return RemoveIf([this](const std::string& name) { return IsUnused(name); });
}

absl::Status DataDirectory::RemoveLeftovers(const std::vector<uint64_t>& chain) {
  return RemoveIf([this, &chain](const std::string& name) {
    if (name == kCurrentNewName || name == kFormatNewName || name == kSegmentNewName ||
        name == kCopyNewName) {
      return true;
    }
    const uint64_t number = SegmentNumber(name);
    const bool is_dropped =
        number != 0 && std::find(chain.begin(), chain.end(), number) == chain.end();
    return is_dropped || IsUnused(name);
  });
}

absl::Status DataDirectory::RemoveIf(const std::function<bool(const std::string&)>& is_unused) {
  assert(lock_ != nullptr);
  const absl::StatusOr<std::vector<std::string>> names = files_.List();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (!is_unused(name)) continue;
    const absl::Status status = RemoveIfThere(files_, name);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace osprey::server::wal
