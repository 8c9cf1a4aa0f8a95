#include "server/durability/checkpoint.h"

#include <memory>
#include <utility>
#include <vector>

#include "index/writer/table.h"
#include "server/durability/partition_walk.h"
#include "server/durability/session_bytes.h"
#include "server/wal/checkpoint_writer.h"

namespace osprey::server {
namespace {

// Of a power of two, as the number of partitions is. Loading has so much parallelism.
constexpr uint32_t kParts = 16;

// A checkpoint's bytes beside those of keys and values, for each key.
constexpr uint64_t kBytesPerItem = 64;

absl::Status WriteItems(Tables& tables, const CheckpointInput& input, wal::CheckpointWriter& writer,
                        CheckpointSize& size) {
  const uint32_t partitions = tables.partitions();
  for (uint32_t partition = 0; partition < partitions; ++partition) {
    // Neighbours in the list of parts have different partitions, so loading threads rarely meet.
    std::vector<wal::PartWriter*> parts;
    for (uint32_t part = partition % kParts; part < kParts; part += partitions)
      parts.push_back(&writer.part(part));
    PartitionWalk walk(tables, partition);
    for (uint32_t step = 0; !walk.at_end(); ++step) {
      if (input.stop != nullptr && input.stop->load(std::memory_order_relaxed))
        return absl::CancelledError("the checkpoint was stopped before its end");
      const auto add = [&, part = parts[step % parts.size()]](const wal::CheckpointItem& item,
                                                              wal::Bytes value) {
        ++size.items;
        size.bytes += item.key.size() + item.value_length;
        return part->AddItem(item, value);
      };
      const absl::StatusOr<uint64_t> bytes = walk.has_long() ? walk.LongStep(add) : walk.Step(add);
      if (!bytes.ok()) return bytes.status();
      if (input.pause) input.pause(*bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t CheckpointBytesOf(const index::TableStats& stats) {
  return stats.key_bytes + stats.value_bytes + stats.keys * kBytesPerItem;
}

absl::StatusOr<CheckpointSize> WriteCheckpoint(wal::DataDirectory& directory, wal::Log& log,
                                               Tables& tables, const CheckpointInput& input) {
  absl::StatusOr<std::unique_ptr<wal::CheckpointWriter>> writer =
      wal::CheckpointWriter::Begin(directory, log, kParts, input.redo_record);
  if (!writer.ok()) return writer.status();
  if (input.sessions) {
    for (const SessionImage& session : input.sessions()) {
      absl::Status status = (*writer)->part(0).AddSession(wal::BytesOfText(EncodeSession(session)));
      if (!status.ok()) return status;
    }
  }
  CheckpointSize size;
  absl::Status status = WriteItems(tables, input, **writer, size);
  // Each change that the walk saw was appended under the lock that the walk held later.
  const uint64_t walk_end = log.appended();
  const auto pause = [&input] {
    if (input.pause) input.pause(0);
  };
  for (uint32_t part = 0; part < kParts && status.ok(); ++part) {
    status = (*writer)->part(part).Finish();
    pause();
  }
  if (status.ok()) status = (*writer)->Commit(walk_end, pause);
  if (!status.ok()) return status;
  size.removal = (*writer)->removal();
  return size;
}

}  // namespace osprey::server
