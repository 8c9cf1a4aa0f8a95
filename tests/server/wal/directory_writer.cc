#include "tests/server/wal/directory_writer.h"

#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/wal/checkpoint_reader.h"
#include "server/wal/checkpoint_writer.h"
#include "server/wal/disk/posix_file_system.h"
#include "server/wal/format/checksum.h"
#include "server/wal/replay.h"

namespace osprey::server::wal {
namespace {

class CollectingKeys final : public ReplayVisitor, public PartVisitor {
 public:
  absl::Status OnGroup(const LogRecord&, const Group& group,
                       const std::vector<std::vector<PiecePlace>>&) override {
    for (const Entry& entry : group.entries) keys.insert(std::string(entry.key));
    return absl::OkStatus();
  }
  absl::Status OnItem(const CheckpointItem& item, Bytes) override {
    keys.insert(std::string(item.key));
    return absl::OkStatus();
  }
  absl::Status OnValue(Bytes) override { return absl::OkStatus(); }
  absl::Status OnSession(Bytes) override { return absl::OkStatus(); }
  absl::Status OnShard(const ShardState&) override { return absl::OkStatus(); }

  std::set<std::string> keys;
};

}  // namespace

absl::StatusOr<std::set<std::string>> KeysOf(const DataDirectory& directory) {
  CollectingKeys collecting;
  absl::Status status =
      ReadCheckpoint(directory, 1, [&](uint32_t) -> PartVisitor& { return collecting; });
  if (status.ok()) status = Replay(directory, collecting).status();
  if (!status.ok()) return status;
  return std::move(collecting.keys);
}

absl::StatusOr<std::unique_ptr<DirectoryWriter>> DirectoryWriter::Open(const std::string& path,
                                                                       LogOptions options) {
  std::unique_ptr<DirectoryWriter> writer(new DirectoryWriter);
  absl::StatusOr<std::unique_ptr<FileSystem>> files = OpenPosixFileSystem(path);
  if (!files.ok()) return files.status();
  writer->files_ = *std::move(files);
  absl::StatusOr<std::unique_ptr<DataDirectory>> directory =
      DataDirectory::Open(*writer->files_, NewDirectory(), [] {
        std::random_device device;
        return (uint64_t{device()} << 32 | device()) | 1;
      });
  if (!directory.ok()) return directory.status();
  writer->directory_ = *std::move(directory);
  absl::StatusOr<std::set<std::string>> keys = KeysOf(*writer->directory_);
  if (!keys.ok()) return keys.status();
  writer->keys_ = *std::move(keys);
  CollectingKeys ignored;
  const absl::StatusOr<LogEnd> end = Replay(*writer->directory_, ignored);
  if (!end.ok()) return end.status();
  absl::StatusOr<std::unique_ptr<Log>> log =
      StartLog(*writer->directory_, *end, std::move(options));
  if (!log.ok()) return log.status();
  writer->log_ = *std::move(log);
  return writer;
}

absl::StatusOr<uint64_t> DirectoryWriter::Put(const std::string& value) {
  uint64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    number = keys_.size() + 1;
    const std::string key = absl::StrCat(kKeyPrefix, number);
    GroupBuilder group((GroupHeader()));
    Entry entry;
    entry.key = key;
    entry.version = number;
    entry.value = BytesOfText(value);
    entry.value_length = value.size();
    if (value.size() > kShortValueBytesMax) entry.value_checksum = Checksum(entry.value, 0);
    group.Add(entry);
    const absl::StatusOr<uint64_t> record = log_->Append({{RecordKind::kEntries, group.Parts()}});
    if (!record.ok()) return record.status();
    keys_.insert(key);
  }
  const absl::Status status = log_->Write();
  if (!status.ok()) return status;
  return number;
}

absl::Status DirectoryWriter::Checkpoint(uint32_t parts) {
  std::set<std::string> keys;
  uint64_t last = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    keys = keys_;
    last = log_->appended();
  }
  absl::StatusOr<std::unique_ptr<CheckpointWriter>> writer =
      CheckpointWriter::Begin(*directory_, *log_, parts, last + 1);
  if (!writer.ok()) return writer.status();
  uint32_t part = 0;
  for (const std::string& key : keys) {
    CheckpointItem item;
    item.key = key;
    const absl::Status status = (*writer)->part(part++ % parts).AddItem(item, {});
    if (!status.ok()) return status;
  }
  for (part = 0; part < parts; ++part) {
    const absl::Status status = (*writer)->part(part).Finish();
    if (!status.ok()) return status;
  }
  return (*writer)->Commit(last);
}

}  // namespace osprey::server::wal
