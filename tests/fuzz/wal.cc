// What stands on the disk of a data directory: any bytes as a group, and a directory of which files
// are overwritten, cut, extended or missing, partly with valid checksums again.
//
// Replay and the reading of the checkpoint end with the content or with an error that names a file.
// What is replayed once is replayed again after the log has been started.
//
// The directory is one of its own, or a copy of a copy. A backup of it fails with an error that
// names a file, or opens with the same content.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/wal/backup.h"
#include "server/wal/checkpoint_reader.h"
#include "server/wal/checkpoint_writer.h"
#include "server/wal/format/checksum.h"
#include "server/wal/log.h"
#include "tests/fuzz/support/input.h"
#include "tests/server/wal/sim_disk.h"

namespace osprey::server::wal {
namespace {

using fuzz::Input;

// Others for another `first`: a copy has an id of its own.
Random Draws(uint64_t first = 0) {
  return [number = first]() mutable { return ++number * 0x9e3779b97f4a7c15 | 1; };
}

// Sums up what it is given, so that two readings can be compared.
class Summing final : public ReplayVisitor, public PartVisitor {
 public:
  uint64_t sum() const { return sum_; }

  absl::Status OnGroup(const LogRecord& record, const Group& group,
                       const std::vector<std::vector<PiecePlace>>& pieces) override {
    OSPREY_MUST(pieces.size() == group.entries.size(), "pieces of other entries");
    Add(record.body);
    for (const Entry& entry : group.entries) {
      OSPREY_MUST(entry.key.size() <= kKeyBytesMax, "a key above its bound");
      OSPREY_MUST(!entry.pieces.empty() || entry.value.size() == entry.value_length,
                  "a value of another length");
    }
    return absl::OkStatus();
  }
  absl::Status OnItem(const CheckpointItem& item, Bytes value) override {
    OSPREY_MUST(value_left_ == 0, "an item within another's value");
    OSPREY_MUST(value.size() <= item.value_length, "a value above its length");
    value_left_ = item.value_length - value.size();
    Add(BytesOfText(item.key));
    Add(value);
    return absl::OkStatus();
  }
  absl::Status OnValue(Bytes bytes) override {
    OSPREY_MUST(bytes.size() <= value_left_, "more of a value than it has");
    value_left_ -= bytes.size();
    Add(bytes);
    return absl::OkStatus();
  }
  absl::Status OnSession(Bytes session) override {
    Add(session);
    return absl::OkStatus();
  }
  absl::Status OnShard(const ShardState& shard) override {
    sum_ += shard.lsn;
    return absl::OkStatus();
  }

 private:
  void Add(Bytes bytes) { sum_ = Checksum(bytes, sum_); }

  uint64_t sum_ = 0;
  uint64_t value_left_ = 0;
};

std::string GroupOf(const std::string& key, const std::string& value) {
  GroupBuilder group((GroupHeader()));
  Entry entry;
  entry.key = key;
  entry.value = BytesOfText(value);
  entry.value_length = value.size();
  group.Add(entry);
  std::string body;
  for (const BodyPart& part : group.Parts()) absl::StrAppend(&body, TextOf(part.bytes));
  return body;
}

absl::Status Append(Log& log, RecordKind kind, const std::string& body) {
  const BodyPart part{BytesOfText(body), false};
  absl::Status status = log.Append({{kind, {&part, 1}}}).status();
  if (status.ok()) status = log.Write();
  return status;
}

struct Opened {
  std::unique_ptr<DataDirectory> directory;
  std::unique_ptr<Log> log;
  uint64_t sum = 0;
  absl::Status status;
};

Opened Open(SimDisk& disk) {
  Opened opened;
  absl::StatusOr<std::unique_ptr<DataDirectory>> directory =
      DataDirectory::Open(disk, NewDirectory(), Draws());
  opened.status = directory.status();
  if (!directory.ok()) return opened;
  opened.directory = *std::move(directory);
  Summing summing;
  opened.status =
      ReadCheckpoint(*opened.directory, 1, [&](uint32_t) -> PartVisitor& { return summing; });
  if (!opened.status.ok()) return opened;
  const absl::StatusOr<LogEnd> end = Replay(*opened.directory, summing);
  opened.status = end.status();
  if (!end.ok()) return opened;
  opened.sum = summing.sum();
  LogOptions options;
  options.segment_bytes = 8 << 10;
  options.zeros_bytes = 4 << 10;
  absl::StatusOr<std::unique_ptr<Log>> log = StartLog(*opened.directory, *end, options);
  opened.status = log.status();
  if (log.ok()) opened.log = *std::move(log);
  return opened;
}

// A directory with a checkpoint, and two segments behind it.
void Fill(SimDisk& disk) {
  const Opened opened = Open(disk);
  Log& log = *opened.log;
  OSPREY_MUST(Append(log, RecordKind::kEntries, GroupOf("old", "1")).ok(), "no append");
  auto writer = CheckpointWriter::Begin(*opened.directory, log, 1, log.appended() + 1);
  CheckpointItem item;
  item.key = "old";
  item.value_length = 1;
  PartWriter& part = (*writer)->part(0);
  absl::Status status = part.AddItem(item, BytesOfText("1"));
  item.key = "long";
  item.value_length = 3;
  if (status.ok()) status = part.AddItem(item, {});
  if (status.ok()) status = part.AddValue(BytesOfText("abc"));
  if (status.ok()) status = part.AddSession(BytesOfText("session"));
  if (status.ok()) status = part.AddShard({});
  if (status.ok()) status = part.Finish();
  if (status.ok()) status = (*writer)->Commit(log.appended());
  const std::string piece(5000, 'p');
  if (status.ok()) status = Append(log, RecordKind::kPiece, piece);
  GroupBuilder group((GroupHeader()));
  Entry entry;
  entry.key = "pieces";
  entry.value_length = piece.size();
  entry.value_checksum = Checksum(BytesOfText(piece), 0);
  entry.pieces = {{log.appended(), static_cast<uint32_t>(piece.size()), 0}};
  group.Add(entry);
  if (status.ok()) status = log.Append({{RecordKind::kEntries, group.Parts()}}).status();
  if (status.ok()) status = log.Write();
  if (status.ok()) status = log.Sync();
  for (int i = 0; i < 3 && status.ok(); ++i)
    status = Append(log, RecordKind::kEntries, GroupOf("new", std::string(1500, 'n')));
  if (status.ok()) status = log.Sync();
  if (status.ok()) status = Append(log, RecordKind::kEntries, GroupOf("tail", "t"));
  if (status.ok()) status = Append(log, RecordKind::kMark, "");
  OSPREY_MUST(status.ok(), "the directory cannot be made");
}

// Another body for a record, with checksums that are right; and other fields of its header.
void Reseal(Input& input, std::string& bytes, uint64_t number) {
  SegmentHeader segment;
  if (bytes.size() < sizeof(segment)) return;
  std::memcpy(&segment, bytes.data(), sizeof(segment));
  uint64_t offset = kSegmentHeaderBytes;
  RecordHeader header;
  for (uint64_t skip = input.Choice(6);; --skip) {
    if (bytes.size() < offset + sizeof(header)) return;
    std::memcpy(&header, bytes.data() + offset, sizeof(header));
    if (skip == 0 || header.length > bytes.size()) break;
    offset += header.bytes();
  }
  if (bytes.size() < offset + sizeof(header) + header.length) return;
  std::string body = bytes.substr(offset + sizeof(header), header.length);
  switch (input.Choice(4)) {
    case 0:
      body.replace(0, body.size(), input.Bytes(body.size()));
      body.resize(header.length, '\0');
      break;
    case 1:
      if (!body.empty()) body[input.UpTo(body.size() - 1)] = static_cast<char>(input.Byte());
      break;
    case 2:
      header.kind = input.Byte();
      header.flags = input.Byte();
      break;
    default:
      header.number += input.Any<int8_t>();
      header.synced_to = input.Number();
      header.length = static_cast<uint32_t>(input.Number());
      break;
  }
  header.Seal({BytesOfText(body)}, SeedOf(segment.life, number, offset));
  bytes.replace(offset, sizeof(header), reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.replace(offset + sizeof(header), body.size(), body);
}

// Another body for a block of a part, with checksums that are right.
void ResealBlock(Input& input, std::string& bytes) {
  PartHeader part;
  if (bytes.size() < sizeof(part)) return;
  std::memcpy(&part, bytes.data(), sizeof(part));
  uint64_t offset = sizeof(part);
  BlockHeader header;
  for (uint64_t skip = input.Choice(5);; --skip) {
    if (bytes.size() < offset + sizeof(header)) return;
    std::memcpy(&header, bytes.data() + offset, sizeof(header));
    if (skip == 0 || header.length > bytes.size()) break;
    offset += sizeof(header) + header.length;
  }
  if (bytes.size() < offset + sizeof(header) + header.length) return;
  if (input.Flag()) header.kind = input.Byte();
  if (input.Flag()) header.count = static_cast<uint32_t>(input.Number());
  std::string body = bytes.substr(offset + sizeof(header), header.length);
  if (!body.empty() && input.Flag()) {
    body[input.UpTo(body.size() - 1)] = static_cast<char>(input.Byte());
  } else if (body.size() >= sizeof(ItemHeader)) {
    // An item that is as long as it says, and longer than the block or not.
    ItemHeader item;
    std::memcpy(&item, body.data(), sizeof(item));
    item.flags = input.Choice(2);
    item.key_length = static_cast<uint16_t>(input.Choice(8));
    item.value_length = input.Number();
    item.length = static_cast<uint32_t>(
        RoundUp(sizeof(item) + item.key_length + (item.flags == 0 ? item.value_length : 0), 8));
    body.replace(0, sizeof(item), reinterpret_cast<const char*>(&item), sizeof(item));
  }
  header.Seal(BytesOfText(body), SeedOf(part.life, part.part, offset));
  bytes.replace(offset, sizeof(header), reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.replace(offset + sizeof(header), body.size(), body);
}

// Fields of a file with one header, sealed again.
template <typename T, typename Seal>
void ResealHeader(Input& input, std::string& bytes, const Seal& seal) {
  T header;
  if (bytes.size() < sizeof(header)) return;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const uint64_t words = std::min<uint64_t>(sizeof(header) / 8, 15);
  const uint64_t number = input.Number();
  std::memcpy(reinterpret_cast<char*>(&header) + 8 * input.UpTo(words - 1), &number, 8);
  seal(header);
  bytes.replace(0, sizeof(header), reinterpret_cast<const char*>(&header), sizeof(header));
}

// FORMAT with other fields, and as many origins as it says or another number.
void ResealFormat(Input& input, std::string& bytes) {
  std::vector<DirectoryId> origins;
  for (uint64_t at = sizeof(FormatFile); bytes.size() >= at + sizeof(DirectoryId);
       at += sizeof(DirectoryId)) {
    std::memcpy(&origins.emplace_back(), bytes.data() + at, sizeof(DirectoryId));
  }
  const uint32_t change = input.Choice(4);
  if (change == 1 && !origins.empty()) origins.pop_back();
  if (change == 2) origins.push_back({{input.Number(), input.Number()}});
  ResealHeader<FormatFile>(input, bytes, [&](FormatFile& header) {
    const uint32_t count = header.origins;
    header.Seal(origins);
    if (change != 3) return;
    header.origins = count;
    header.checksum = Checksum(BytesOf(header).first(offsetof(FormatFile, checksum)), 0);
  });
  bytes.resize(std::min(bytes.size(), sizeof(FormatFile)));
  for (const DirectoryId& origin : origins) absl::StrAppend(&bytes, TextOf(BytesOf(origin)));
}

void ResealFile(Input& input, const std::string& name, std::string& bytes) {
  if (name == kFormatName) {
    ResealFormat(input, bytes);
  } else if (name == kCurrentName) {
    std::vector<PartSummary> parts;
    if (bytes.size() >= sizeof(CurrentHeader) + sizeof(PartSummary)) {
      parts.resize(1);
      std::memcpy(parts.data(), bytes.data() + sizeof(CurrentHeader), sizeof(PartSummary));
    }
    ResealHeader<CurrentHeader>(input, bytes, [&](CurrentHeader& header) {
      header.checksum = CurrentChecksum(header, parts);
    });
  } else if (const uint64_t number = SegmentNumber(name); number == 0) {
    if (input.Flag()) return ResealBlock(input, bytes);
    ResealHeader<PartHeader>(input, bytes, [](PartHeader& header) { header.Seal(); });
  } else if (input.Flag()) {
    Reseal(input, bytes, number);
  } else {
    ResealHeader<SegmentHeader>(input, bytes, [](SegmentHeader& header) { header.Seal(); });
  }
}

void Change(Input& input, SimDisk& disk) {
  const std::vector<std::string> names = disk.Names();
  const std::string name = names[input.Choice(static_cast<uint32_t>(names.size()))];
  std::string bytes = disk.ContentOf(name);
  switch (input.Choice(6)) {
    case 0:
      disk.Hide(name);
      return;
    case 1:
      bytes.resize(input.UpTo(bytes.size()));
      break;
    case 2:
      bytes += input.Text(200);
      break;
    case 3: {
      const uint64_t at = input.UpTo(bytes.size());
      const std::string other = input.Text(100);
      bytes.replace(at, std::min<uint64_t>(other.size(), bytes.size() - at), other);
      break;
    }
    default:
      ResealFile(input, name, bytes);
      break;
  }
  disk.Put(name, bytes);
}

using Files = std::vector<std::pair<std::string, std::string>>;

Files FilesOf(const SimDisk& disk) {
  Files files;
  for (const std::string& name : disk.Names()) files.push_back({name, disk.ContentOf(name)});
  return files;
}

absl::Status BackUp(SimDisk& from, SimDisk& to, uint64_t first_draw) {
  return Backup(from, to, Draws(first_draw), [](uint64_t) {}).status();
}

// A directory, and a copy of a copy of it. A server has written to the first copy, so the second
// one has files of both.
std::pair<Files, Files> Directories() {
  SimDisk origin(1), copy(2), second(3);
  Fill(origin);
  OSPREY_MUST(BackUp(origin, copy, 1000).ok(), "no copy");
  const Opened opened = Open(copy);
  OSPREY_MUST(Append(*opened.log, RecordKind::kEntries, GroupOf("copy", "c")).ok(), "no append");
  OSPREY_MUST(BackUp(copy, second, 2000).ok(), "no copy of the copy");
  return {FilesOf(origin), FilesOf(second)};
}

void ChangedDirectory(Input& input) {
  static const std::pair<Files, Files> kFiles = Directories();
  SimDisk disk(1), copy(2);
  const bool is_copy = input.Flag();
  for (const auto& [name, bytes] : is_copy ? kFiles.second : kFiles.first) disk.Put(name, bytes);
  for (uint32_t changes = 1 + input.Choice(3); changes > 0; --changes) Change(input, disk);
  const absl::Status backup = BackUp(disk, copy, 3000);
  OSPREY_MUST(backup.ok() || absl::StrContains(backup.message(), "/data/"),
              "an error of the backup that names no file");
  Opened first = Open(disk);
  if (backup.ok()) {
    const Opened copied = Open(copy);
    OSPREY_MUST((copied.log == nullptr) == (first.log == nullptr),
                "only one of a directory and its copy is read");
    OSPREY_MUST(copied.sum == first.sum, "the copy has another content");
  }
  if (first.log == nullptr) {
    OSPREY_MUST(!first.status.ok() && absl::StrContains(first.status.message(), "/data/"),
                "an error that names no file");
    return;
  }
  const uint64_t last = first.log->appended();
  OSPREY_MUST(Append(*first.log, RecordKind::kMark, "").ok(), "the log does not go on");
  first.log.reset();
  first.directory.reset();
  const Opened second = Open(disk);
  OSPREY_MUST(second.log != nullptr, "what was recovered is not recovered again");
  OSPREY_MUST(second.sum == first.sum, "another content the second time");
  OSPREY_MUST(second.log->appended() == last + 1, "another end the second time");
}

}  // namespace
}  // namespace osprey::server::wal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace osprey::server::wal;
  osprey::fuzz::Input input(data, size);
  if (input.Flag()) {
    ChangedDirectory(input);
    return 0;
  }
  Group group;
  const std::string bytes = input.Rest();
  const std::string wrong = ParseGroup(BytesOfText(bytes), group);
  if (!wrong.empty()) return 0;
  // What is a group is one again when it is made from its entries.
  GroupBuilder builder(group.header);
  for (const Entry& entry : group.entries) builder.Add(entry);
  std::string again;
  for (const BodyPart& part : builder.Parts()) absl::StrAppend(&again, TextOf(part.bytes));
  OSPREY_MUST(again == bytes, "the group has other bytes when it is made again");
  return 0;
}
