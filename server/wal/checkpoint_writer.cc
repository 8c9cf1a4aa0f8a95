#include "server/wal/checkpoint_writer.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/wal/checkpoint_reader.h"
#include "server/wal/format/checksum.h"
#include "server/wal/format/entry_format.h"
#include "server/wal/format/test_hooks.h"

namespace osprey::server::wal {
namespace {

// Longer values have blocks of their own, which are written from where they are.
constexpr uint64_t kValueInBlockMax = 64 << 10;
// Of a part, in the page cache and not on the disk.
constexpr uint64_t kUnsyncedBytesMax = 8 << 20;

Bytes ZerosAfter(uint64_t bytes) {
  static constexpr std::byte kZeros[kBlockAlignment] = {};
  return Bytes(kZeros).first(RoundUp(bytes, kBlockAlignment) - bytes);
}

// For the verification, which discards what it reads, and pauses after each MiB.
class PausingVisitor final : public PartVisitor {
 public:
  explicit PausingVisitor(const std::function<void()>& pause) : pause_(pause) {}

  absl::Status OnItem(const CheckpointItem& item, Bytes value) override {
    return Count(sizeof(ItemHeader) + item.key.size() + value.size());
  }
  absl::Status OnValue(Bytes bytes) override { return Count(bytes.size()); }
  absl::Status OnSession(Bytes session) override { return Count(session.size()); }
  absl::Status OnShard(const ShardState&) override { return absl::OkStatus(); }

 private:
  absl::Status Count(uint64_t bytes) {
    constexpr uint64_t kBytesBetween = 1 << 20;
    bytes_ += bytes;
    if (pause_ && bytes_ >= kBytesBetween) {
      bytes_ = 0;
      pause_();
    }
    return absl::OkStatus();
  }

  const std::function<void()>& pause_;
  uint64_t bytes_ = 0;
};

}  // namespace

PartWriter::PartWriter(std::unique_ptr<File> file, const PartHeader& header)
    : file_(std::move(file)), header_(header) {
  summary_.life = header.life;
}

absl::StatusOr<std::unique_ptr<PartWriter>> PartWriter::Create(FileSystem& files,
                                                               const PartHeader& header) {
  const std::string name = PartName(header.checkpoint, header.part);
  absl::Status status = files.Remove(name);
  if (!status.ok() && !absl::IsNotFound(status)) return status;
  absl::StatusOr<std::unique_ptr<File>> file = files.Create(name);
  if (!file.ok()) return file.status();
  status = (*file)->Write(0, {BytesOf(header)});
  if (!status.ok()) return status;
  return std::unique_ptr<PartWriter>(new PartWriter(*std::move(file), header));
}

absl::Status PartWriter::Add(BlockKind kind, absl::Span<const Bytes> pieces, uint64_t bytes) {
  assert(value_left_ == 0 && !finished_ && bytes <= kBlockBytesMax);
  if (kind != kind_ || buffer_.size() + bytes > kBlockBytesMax) {
    absl::Status status = WriteBuffered();
    if (!status.ok()) return status;
    kind_ = kind;
  }
  for (const Bytes& piece : pieces) absl::StrAppend(&buffer_, TextOf(piece));
  ++count_;
  return absl::OkStatus();
}

absl::Status PartWriter::WriteBuffered() {
  if (buffer_.empty()) return absl::OkStatus();
  absl::Status status = WriteBlock(kind_, count_, BytesOfText(buffer_));
  buffer_.clear();
  count_ = 0;
  return status;
}

absl::Status PartWriter::WriteBlock(BlockKind kind, uint32_t count, Bytes body) {
  BlockHeader header;
  header.kind = static_cast<uint32_t>(kind);
  header.length = static_cast<uint32_t>(body.size());
  header.count = count;
  header.Seal(body, SeedOf(header_.life, header_.part, offset_));
  absl::Status status = file_->Write(offset_, {BytesOf(header), body});
  offset_ += sizeof(header) + body.size();
  unsynced_ += sizeof(header) + body.size();
  if (status.ok() && unsynced_ > kUnsyncedBytesMax) {
    status = file_->Sync();
    unsynced_ = 0;
  }
  if (kind != BlockKind::kFooter) {
    ++footer_.blocks;
    footer_.checksum = Checksum(BytesOf(header.header_checksum), footer_.checksum);
  }
  return status;
}

absl::Status PartWriter::AddItem(const CheckpointItem& item, Bytes value) {
  assert(!item.key.empty() && item.key.size() <= kKeyBytesMax);
  assert(value.size() <= item.value_length);
  const bool is_here = value.size() == item.value_length && value.size() <= kValueInBlockMax;
  const uint64_t bytes = sizeof(ItemHeader) + item.key.size() + (is_here ? value.size() : 0);
  ItemHeader header;
  header.length = static_cast<uint32_t>(RoundUp(bytes, kBlockAlignment));
  header.key_length = static_cast<uint16_t>(item.key.size());
  header.flags = is_here ? 0 : kValueFollows;
  header.lives = item.lives;
  header.value_length = item.value_length;
  header.version = item.version;
  header.expiry = item.expiry;
  header.shard = item.shard;
  header.depth = item.depth;
  header.depth_min = item.depth_min;
  absl::Status status =
      Add(BlockKind::kItems,
          {BytesOf(header), BytesOfText(item.key), is_here ? value : Bytes(), ZerosAfter(bytes)},
          header.length);
  ++footer_.items;
  footer_.bytes += item.key.size() + item.value_length;
  if (!status.ok() || is_here) return status;
  value_left_ = item.value_length;
  status = WriteBuffered();
  if (status.ok() && !value.empty()) status = AddValue(value);
  return status;
}

absl::Status PartWriter::AddValue(Bytes bytes) {
  assert(bytes.size() <= value_left_);
  value_left_ -= bytes.size();
  while (!bytes.empty()) {
    const Bytes block = bytes.first(std::min<uint64_t>(bytes.size(), kBlockBytesMax));
    absl::Status status = WriteBlock(BlockKind::kValue, 0, block);
    if (!status.ok()) return status;
    bytes.remove_prefix(block.size());
  }
  return absl::OkStatus();
}

absl::Status PartWriter::AddSession(Bytes session) {
  const auto length = static_cast<uint32_t>(session.size());
  const uint64_t bytes = sizeof(length) + session.size();
  return Add(BlockKind::kSessions, {BytesOf(length), session, ZerosAfter(bytes)},
             RoundUp(bytes, kBlockAlignment));
}

absl::Status PartWriter::AddShard(const ShardState& shard) {
  return Add(BlockKind::kShards, {BytesOf(shard)}, sizeof(shard));
}

absl::Status PartWriter::Finish() {
  assert(value_left_ == 0);
  absl::Status status = WriteBuffered();
  if (status.ok()) status = WriteBlock(BlockKind::kFooter, 1, BytesOf(footer_));
  if (status.ok() && !IsMutant(Mutant::kCurrentBeforeParts)) status = file_->Sync();
  if (!status.ok()) return status;
  summary_.length = offset_;
  summary_.checksum = footer_.checksum;
  finished_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Begin(DataDirectory& directory,
                                                                          Log& log, uint32_t parts,
                                                                          uint64_t redo_record) {
  assert(parts > 0 && parts <= kPartsMax);
  // Its parts would replace those that the disk's CURRENT may name.
  if (absl::Status status = directory.CheckCertain(); !status.ok()) return status;
  std::unique_ptr<CheckpointWriter> writer(
      new CheckpointWriter(directory, log, parts, redo_record));
  for (uint32_t i = 0; i < parts; ++i) {
    PartHeader header;
    header.part = i;
    header.directory = directory.format().directory;
    header.checkpoint = writer->id_;
    header.life = directory.Draw();
    header.parts = parts;
    header.redo_record = redo_record;
    header.Seal();
    absl::StatusOr<std::unique_ptr<PartWriter>> part =
        PartWriter::Create(directory.files(), header);
    if (!part.ok()) return part.status();
    writer->parts_.push_back(*std::move(part));
  }
  return writer;
}

CheckpointWriter::~CheckpointWriter() {
  if (keep_) return;
  for (uint32_t i = 0; i < parts_max_; ++i) (void)directory_.files().Remove(PartName(id_, i));
}

absl::Status CheckpointWriter::Verify(const std::function<void()>& pause) const {
  PausingVisitor visitor(pause);
  for (uint32_t i = 0; i < parts_.size(); ++i) {
    absl::Status status = ReadPart(directory_, id_, i, static_cast<uint32_t>(parts_.size()),
                                   parts_[i]->summary(), visitor);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Commit(uint64_t walk_end, const std::function<void()>& pause) {
  for (const std::unique_ptr<PartWriter>& part : parts_) assert(part->finished());
  absl::Status status = IsMutant(Mutant::kPartsNotVerified) ? absl::OkStatus() : Verify(pause);
  const bool skips_sync = IsMutant(Mutant::kLogBehindWalk) && redo_record_ <= log_.synced() + 1;
  if (status.ok() && !skips_sync) status = log_.Write();
  if (status.ok() && !skips_sync) status = log_.Sync();
  if (!status.ok()) return status;
  assert(skips_sync || (walk_end <= log_.synced() && redo_record_ <= log_.synced() + 1));
  const LogPosition position = log_.PositionOf(redo_record_);
  Current next = directory_.current();
  next.header.checkpoint = id_;
  next.header.redo_record = redo_record_;
  next.header.redo_segment = position.redo_segment;
  next.header.newest_segment = position.newest_segment;
  next.header.newest_life = position.newest_life;
  next.header.synced_to = position.synced_to;
  log_.RaiseCurrentMarks(next.header);
  next.parts.clear();
  for (const std::unique_ptr<PartWriter>& part : parts_) next.parts.push_back(part->summary());
  if (IsMutant(Mutant::kOldFilesRemovedFirst)) {
    const Current old = directory_.current();
    for (uint32_t i = 0; i < old.parts.size(); ++i)
      (void)directory_.files().Remove(PartName(old.header.checkpoint, i));
  }
  status = directory_.ReplaceCurrent(std::move(next));
  keep_ = status.ok() || directory_.uncertain();
  if (status.ok()) removal_ = directory_.RemoveUnused();
  return status;
}

}  // namespace osprey::server::wal
