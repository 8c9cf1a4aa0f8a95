#include "server/durability/checkpoint.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "index/layout/atomic_word.h"
#include "index/layout/layout.h"
#include "index/writer/line_walk.h"
#include "index/writer/table.h"
#include "server/durability/session_bytes.h"
#include "server/wal/checkpoint_writer.h"

namespace osprey::server {
namespace {

// Of a power of two, as the number of partitions is. Loading has so much parallelism.
constexpr uint32_t kParts = 16;

// Copied in one hold of a lock: some 10 us.
constexpr uint64_t kStepBytes = 64 << 10;

// The copy of 1 GiB takes less.
constexpr absl::Duration kCopyLease = absl::Seconds(10);
// Then the value is copied under the lock.
constexpr int kCopiesMax = 8;

// A checkpoint's bytes beside those of keys and values, for each key.
constexpr uint64_t kBytesPerItem = 64;

// Copies memory that another thread may be changing. The caller finds out afterwards.
void CopyWords(absl::Span<const std::byte> from, std::byte* to) {
  const std::byte* at = from.data();
  size_t left = from.size();
  const auto in_word = static_cast<size_t>(reinterpret_cast<uintptr_t>(at) % index::kWordBytes);
  // Whole words of the region contain the value.
  for (size_t skip = in_word; left > 0; skip = 0) {
    const uint64_t word = index::GlimpseOf(at - skip);
    const size_t bytes = std::min(left, index::kWordBytes - skip);
    std::memcpy(to, reinterpret_cast<const std::byte*>(&word) + skip, bytes);
    at += bytes;
    to += bytes;
    left -= bytes;
  }
}

// Writes the items of one partition.
class PartitionCopy {
 public:
  // All outlive this. `parts` take the items in turn.
  PartitionCopy(Tables& tables, uint32_t partition, std::vector<wal::PartWriter*> parts,
                CheckpointSize& size)
      : tables_(tables), partition_(partition), parts_(std::move(parts)), size_(size) {}

  // One hold of the lock, and the writing of what it found, but for long values. Returns the bytes.
  absl::StatusOr<uint64_t> Step() {
    copied_.clear();
    items_.clear();
    {
      const LockedTable table = tables_.Lock(partition_);
      cursor_ =
          table->Walk(cursor_, kStepBytes, [this](const index::WalkedKey& key) { Take(key); });
    }
    at_end_ = cursor_ == 0;
    wal::PartWriter& part = NextPart();
    absl::string_view rest = copied_;
    for (auto& [item, key_length] : items_) {
      item.key = rest.substr(0, key_length);
      const absl::string_view value = rest.substr(key_length, item.value_length);
      rest.remove_prefix(key_length + value.size());
      absl::Status status = Add(part, item, wal::BytesOfText(value));
      if (!status.ok()) return status;
    }
    return copied_.size();
  }

  // One of the long values that the steps left out. Returns the bytes. REQUIRES: has_long().
  absl::StatusOr<uint64_t> LongStep() {
    const LongKey key = std::move(long_keys_.back());
    long_keys_.pop_back();
    wal::CheckpointItem item;
    item.shard = partition_;
    item.lives = key.clock;
    item.depth = key.depths.own;
    item.depth_min = key.depths.shallowest;
    item.key = key.key;
    if (!CopyValue(item)) return 0;
    absl::Status status = Add(NextPart(), item, wal::Bytes(value_.get(), item.value_length));
    value_.reset();
    if (!status.ok()) return status;
    return item.key.size() + item.value_length;
  }
  bool has_long() const { return !long_keys_.empty(); }
  bool at_end() const { return at_end_ && !has_long(); }

 private:
  struct LongKey {
    std::string key;
    uint8_t clock = 0;
    index::SegmentDepths depths;
  };

  wal::PartWriter& NextPart() { return *parts_[next_part_++ % parts_.size()]; }

  absl::Status Add(wal::PartWriter& part, const wal::CheckpointItem& item, wal::Bytes value) {
    ++size_.items;
    size_.bytes += item.key.size() + item.value_length;
    return part.AddItem(item, value);
  }

  // Under the lock.
  void Take(const index::WalkedKey& key) {
    // The step ends with a whole line, whose keys may have more than kStepBytes.
    if (key.value.size() > index::kWalkedValueBytesMax ||
        (key.value.size() > kStepBytes / 16 && copied_.size() > kStepBytes)) {
      long_keys_.push_back({std::string(key.key), key.clock, key.depths});
      return;
    }
    wal::CheckpointItem item;
    item.shard = partition_;
    item.lives = key.clock;
    item.depth = key.depths.own;
    item.depth_min = key.depths.shallowest;
    item.value_length = key.value.size();
    item.version = key.version;
    item.expiry = key.expiry_ns;
    items_.emplace_back(item, key.key.size());
    absl::StrAppend(&copied_, key.key, wal::TextOf(key.value));
  }

  // Copies the value into value_ and completes the item. False if the key is gone, or has another
  // value than at first: the log has that change, which recovery prefers.
  bool CopyValue(wal::CheckpointItem& item) {
    for (int copies = 0;; ++copies) {
      index::Table::View seen;
      const absl::Time until = tables_.ServerTime() + kCopyLease;
      {
        const LockedTable table = tables_.Lock(partition_);
        const absl::StatusOr<index::Table::View> view = table->Find(item.key);
        if (!view.ok() || (copies > 0 && view->version != item.version)) return false;
        seen = *view;
        item.value_length = view->value.size();
        item.version = view->version;
        item.expiry = view->expiry_ns;
        const bool under_lock =
            view->value.size() <= index::kWalkedValueBytesMax || copies == kCopiesMax;
        // Not initialised, since every byte is copied.
        if (copies == 0) value_.reset(new std::byte[view->value.size() + 1]);
        if (under_lock) {
          if (!view->value.empty())
            std::memcpy(value_.get(), view->value.data(), view->value.size());
          return true;
        }
        table->Lease(view->slot, until);
      }
      CopyWords(seen.value, value_.get());
      const LockedTable table = tables_.Lock(partition_);
      const absl::StatusOr<index::Table::View> view = table->Find(item.key);
      if (!view.ok() || view->version != item.version) return false;
      item.expiry = view->expiry_ns;
      if (view->slot == seen.slot && tables_.ServerTime() < until) return true;
    }
  }

  Tables& tables_;
  const uint32_t partition_;
  const std::vector<wal::PartWriter*> parts_;
  CheckpointSize& size_;
  uint32_t next_part_ = 0;
  uint64_t cursor_ = 0;
  bool at_end_ = false;
  std::string copied_;                                         // of a step: keys and values
  std::vector<std::pair<wal::CheckpointItem, size_t>> items_;  // likewise; with the key's length
  std::vector<LongKey> long_keys_;
  std::unique_ptr<std::byte[]> value_;
};

absl::Status WriteItems(Tables& tables, const CheckpointInput& input, wal::CheckpointWriter& writer,
                        CheckpointSize& size) {
  const uint32_t partitions = tables.partitions();
  for (uint32_t partition = 0; partition < partitions; ++partition) {
    // Neighbours in the list of parts have different partitions, so loading threads rarely meet.
    std::vector<wal::PartWriter*> parts;
    for (uint32_t part = partition % kParts; part < kParts; part += partitions)
      parts.push_back(&writer.part(part));
    PartitionCopy copy(tables, partition, std::move(parts), size);
    while (!copy.at_end()) {
      if (input.stop != nullptr && input.stop->load(std::memory_order_relaxed))
        return absl::CancelledError("the checkpoint was stopped before its end");
      const absl::StatusOr<uint64_t> bytes = copy.has_long() ? copy.LongStep() : copy.Step();
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
