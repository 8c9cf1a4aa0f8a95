// `kvcli log verify` and `kvcli log dump`: what a data directory has, by reading it alone. A server
// may have it open.

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "server/wal/checkpoint_reader.h"
#include "server/wal/disk/posix_file_system.h"
#include "server/wal/format/checksum.h"
#include "server/wal/replay.h"
#include "server/wal/snapshot.h"
#include "tools/cli/commands/data_directory.h"
#include "tools/cli/commands/run.h"
#include "tools/terminal/progress.h"

namespace osprey {
namespace {

namespace wal = server::wal;

constexpr const char* kEntryKinds[] = {
    "",     "put",         "extend",      "delete",    "expire",     "session_begin", "session_end",
    "term", "shard_reset", "flush_bound", "time_mark", "value_part", "parts_dropped"};
constexpr size_t kEntryKindsCount = std::size(kEntryKinds);
static_assert(kEntryKindsCount == static_cast<size_t>(wal::EntryKind::kPartsDropped) + 1);

// ParseGroup accepts no other kinds.
const char* NameOf(wal::EntryKind kind) { return kEntryKinds[static_cast<size_t>(kind)]; }

// Lengths of the files that are read.
uint64_t BytesToRead(const wal::DataDirectory& directory) {
  const wal::Current current = directory.current();
  uint64_t bytes = 0;
  for (const wal::PartSummary& part : current.parts) bytes += part.length;
  const absl::StatusOr<std::vector<std::string>> names = directory.files().List();
  if (!names.ok()) return bytes;
  for (const std::string& name : *names) {
    if (wal::SegmentNumber(name) >= current.header.redo_segment)
      bytes += directory.files().FileBytes(name).value_or(0);
  }
  return bytes;
}

// Counts what it is given, and checks the values that the readers leave to their callers.
class Verification final : public wal::PartVisitor, public wal::ReplayVisitor {
 public:
  Verification(const wal::DataDirectory& directory, Progress& progress)
      : directory_(directory), progress_(progress) {}

  absl::Status Run() {
    absl::Status status =
        wal::ReadCheckpoint(directory_, 1, [this](uint32_t) -> wal::PartVisitor& { return *this; });
    if (!status.ok()) return status;
    absl::StatusOr<wal::LogEnd> end = wal::Replay(directory_, *this);
    if (!end.ok()) return end.status();
    end_ = *std::move(end);
    return absl::OkStatus();
  }

  std::vector<std::pair<std::string, std::string>> Rows() const {
    const wal::FormatFile& format = directory_.format();
    const wal::CurrentHeader current = directory_.current().header;
    std::vector<std::pair<std::string, std::string>> rows;
    const auto add = [&rows](absl::string_view name, const auto& value) {
      rows.emplace_back(std::string(name), absl::StrCat(value));
    };
    add("id", TextOf(format.directory));
    const bool is_copy = !(format.copied_from == wal::DirectoryId());
    add("copied_from", is_copy ? TextOf(format.copied_from) : "none");
    add("format", format.format);
    add("shards", format.shards);
    add("checkpoint", current.checkpoint);
    add("checkpoint_parts", current.parts);
    add("checkpoint_items", items_);
    add("checkpoint_bytes", item_bytes_);
    add("checkpoint_sessions", sessions_);
    add("redo_record", current.redo_record);
    add("segments", end_.segments.size());
    add("records", end_.last_record + 1 - end_.chain.front().first_record);
    add("last_record", end_.last_record);
    add("log_bytes", end_.bytes);
    add("entries", entries_);
    for (size_t kind = 1; kind < kEntryKindsCount; ++kind)
      add(absl::StrCat("entries_", kEntryKinds[kind]), by_kind_[kind]);
    add("synced_to", end_.synced_to);
    add("end", end_.clean ? "clean" : "tail");
    add("tail_records", end_.tail.size());
    add("time_mark_ns", end_.time_mark);
    add("version_ceiling", end_.version_ceiling);
    return rows;
  }

  absl::Status OnItem(const wal::CheckpointItem& item, wal::Bytes value) override {
    ++items_;
    item_bytes_ += item.key.size() + item.value_length;
    return Advance(sizeof(wal::ItemHeader) + item.key.size() + value.size());
  }
  absl::Status OnValue(wal::Bytes bytes) override { return Advance(bytes.size()); }
  absl::Status OnSession(wal::Bytes session) override {
    ++sessions_;
    return Advance(session.size());
  }
  absl::Status OnShard(const wal::ShardState&) override { return absl::OkStatus(); }

  absl::Status OnGroup(const wal::LogRecord& record, const wal::Group& group,
                       const std::vector<std::vector<wal::PiecePlace>>& pieces) override {
    for (size_t i = 0; i < group.entries.size(); ++i) {
      const wal::Entry& entry = group.entries[i];
      ++entries_;
      ++by_kind_[static_cast<size_t>(entry.kind)];
      const absl::Status status = CheckValue(record, entry, pieces[i]);
      if (!status.ok()) return status;
    }
    return Advance(record.header.bytes());
  }

 private:
  absl::Status CheckValue(const wal::LogRecord& record, const wal::Entry& entry,
                          const std::vector<wal::PiecePlace>& pieces) {
    if (!pieces.empty()) {
      (void)Advance(entry.value_length);
      return wal::ReadValue(directory_, entry, pieces).status();
    }
    if (!entry.pieces.empty() || entry.value_length <= wal::kShortValueBytesMax ||
        wal::Checksum(entry.value, 0) == entry.value_checksum) {
      return absl::OkStatus();
    }
    return wal::DamageError(directory_.files(), wal::SegmentName(record.place.segment),
                            record.place.offset, "a value's checksum is wrong");
  }

  absl::Status Advance(uint64_t bytes) {
    done_ += bytes;
    progress_.Update(done_, items_ + entries_, done_);
    return absl::OkStatus();
  }

  const wal::DataDirectory& directory_;
  Progress& progress_;
  wal::LogEnd end_;
  uint64_t items_ = 0;
  uint64_t item_bytes_ = 0;
  uint64_t sessions_ = 0;
  uint64_t entries_ = 0;
  std::array<uint64_t, kEntryKindsCount> by_kind_ = {};
  uint64_t done_ = 0;  // bytes
};

// Prints the entries of the log.
class Dump final : public wal::ReplayVisitor {
 public:
  Dump(CommandContext& context, Progress& progress) : context_(context), progress_(progress) {}

  // Goes on behind what an earlier attempt printed.
  absl::Status Run(const wal::DataDirectory& directory) {
    const uint64_t redo = directory.current().header.redo_record;
    if (last_ > 0 && redo > last_ + 1) {
      context_.out->Note(absl::StrCat("log dump: a checkpoint removed records up to ", redo - 1,
                                      " meanwhile; those behind ", last_, " are not printed"));
    }
    return wal::Replay(directory, *this).status();
  }

  absl::Status OnGroup(const wal::LogRecord& record, const wal::Group& group,
                       const std::vector<std::vector<wal::PiecePlace>>&) override {
    bytes_ += record.header.bytes();
    if (record.header.number <= last_) return absl::OkStatus();
    for (const wal::Entry& entry : group.entries) Print(record, group, entry);
    entries_ += group.entries.size();
    last_ = record.header.number;
    progress_.Update(bytes_, entries_, bytes_);
    // A reader of the output may have ended.
    if (last_ % kFlushEvery == 0 && !context_.out->Flush())
      return absl::CancelledError("the output cannot be written");
    return absl::OkStatus();
  }

 private:
  static constexpr uint64_t kFlushEvery = 1024;

  void Print(const wal::LogRecord& record, const wal::Group& group, const wal::Entry& entry) {
    std::string people = absl::StrFormat(
        "%d  shard %d  %s  %s  version %d  %d bytes", record.header.number, group.header.shard,
        NameOf(entry.kind), ForTerminal(entry.key), entry.version, entry.value_length);
    if (entry.expiry != 0) {
      absl::StrAppend(&people, "  expires ",
                      absl::FormatTime(absl::FromUnixNanos(static_cast<int64_t>(entry.expiry)),
                                       absl::UTCTimeZone()));
    }
    if (entry.client != 0)
      absl::StrAppend(&people, "  client ", entry.client, " sequence ", entry.sequence);
    const std::string plain = absl::StrJoin(
        {absl::StrCat(record.header.number), absl::StrCat(group.header.shard),
         std::string(NameOf(entry.kind)), EscapedField(entry.key), absl::StrCat(entry.version),
         absl::StrCat(entry.expiry), absl::StrCat(entry.value_length), absl::StrCat(entry.client),
         absl::StrCat(entry.sequence)},
        "\t");
    Json json;
    if (context_.out->form() == Output::Form::kJson) {
      json["record"] = record.header.number;
      json["shard"] = group.header.shard;
      json["kind"] = NameOf(entry.kind);
      SetBytes(json, "key", entry.key);
      json["version"] = entry.version;
      json["expiry_ns"] = entry.expiry;
      json["value_bytes"] = entry.value_length;
      json["client"] = entry.client;
      json["sequence"] = entry.sequence;
    }
    context_.out->Result(people, plain, json);
  }

  CommandContext& context_;
  Progress& progress_;
  uint64_t last_ = 0;  // record that is printed
  uint64_t entries_ = 0;
  uint64_t bytes_ = 0;
};

ExitStatus RunVerify(CommandContext& context, const std::string& path) {
  const std::string what = absl::StrCat("log verify ", path);
  const absl::StatusOr<std::unique_ptr<wal::FileSystem>> files = wal::OpenPosixFileSystem(path);
  if (!files.ok()) return FailLocally(context, what, files.status());
  std::vector<std::pair<std::string, std::string>> rows;
  const absl::Status status = wal::ReadSnapshot(**files, [&](const wal::DataDirectory& directory) {
    Progress progress(context.draws_err, "verify", BytesToRead(directory));
    Verification verification(directory, progress);
    absl::Status verified = verification.Run();
    if (verified.ok()) rows = verification.Rows();
    return verified;
  });
  if (!status.ok()) return FailLocally(context, what, status);
  context.out->Table(absl::StrCat(path, " is valid"), rows);
  return ExitStatus::kDone;
}

ExitStatus RunDump(CommandContext& context, const std::string& path) {
  const std::string what = absl::StrCat("log dump ", path);
  const absl::StatusOr<std::unique_ptr<wal::FileSystem>> files = wal::OpenPosixFileSystem(path);
  if (!files.ok()) return FailLocally(context, what, files.status());
  // Lines on the same terminal would break the line of the progress.
  Progress progress(context.draws_err && !context.draws_out, "dump", 0);
  Dump dump(context, progress);
  const absl::Status status = wal::ReadSnapshot(
      **files, [&dump](const wal::DataDirectory& directory) { return dump.Run(directory); });
  progress.Clear();
  return status.ok() ? ExitStatus::kDone : FailLocally(context, what, status);
}

constexpr char kVerify[] = "verify";
constexpr char kDump[] = "dump";

}  // namespace

absl::Status CheckLog(Arguments arguments, const CommandOptions& /*options*/) {
  if (arguments[0] == kVerify || arguments[0] == kDump) return CheckPath("DIR", arguments[1]);
  return absl::InvalidArgumentError(
      absl::StrCat("there is no command 'log ", arguments[0],
                   "'; it is: kvcli log verify DIR, or log dump DIR"));
}

ExitStatus RunLog(CommandContext& context, Arguments arguments) {
  return arguments[0] == kVerify ? RunVerify(context, arguments[1])
                                 : RunDump(context, arguments[1]);
}

}  // namespace osprey
