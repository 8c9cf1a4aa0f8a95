#include "server/durability/partition_walk.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "index/layout/atomic_word.h"
#include "index/layout/layout.h"
#include "index/writer/table.h"

namespace osprey::server {
namespace {

// Copied in one hold of a lock: some 10 us.
constexpr uint64_t kStepBytes = 64 << 10;

// The copy of 1 GiB takes less.
constexpr absl::Duration kCopyLease = absl::Seconds(10);
// Then the value is copied under the lock.
constexpr int kCopiesMax = 8;

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

}  // namespace

absl::StatusOr<uint64_t> PartitionWalk::Step(Sink sink) {
  assert(!at_end_ && !has_long());
  copied_.clear();
  items_.clear();
  {
    const LockedTable table = tables_.Lock(partition_);
    cursor_ = table->Walk(
        cursor_, kStepBytes, [this](const index::WalkedKey& key) { Take(key); }, expired_);
  }
  at_end_ = cursor_ == 0;
  absl::string_view rest = copied_;
  for (auto& [item, key_length] : items_) {
    item.key = rest.substr(0, key_length);
    const absl::string_view value = rest.substr(key_length, item.value_length);
    rest.remove_prefix(key_length + value.size());
    absl::Status status = sink(item, wal::BytesOfText(value));
    if (!status.ok()) return status;
  }
  return copied_.size();
}

absl::StatusOr<uint64_t> PartitionWalk::LongStep(Sink sink) {
  const LongKey key = std::move(long_keys_.back());
  long_keys_.pop_back();
  wal::CheckpointItem item;
  item.shard = partition_;
  item.lives = key.clock;
  item.depth = key.depths.own;
  item.depth_min = key.depths.shallowest;
  item.key = key.key;
  if (!CopyValue(item)) return 0;
  absl::Status status = sink(item, wal::Bytes(value_.get(), item.value_length));
  value_.reset();
  if (!status.ok()) return status;
  return item.key.size() + item.value_length;
}

// Under the lock.
void PartitionWalk::Take(const index::WalkedKey& key) {
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

// Copies the value into value_ and completes the item. False if the key is gone, or has another value
// than at first.
bool PartitionWalk::CopyValue(wal::CheckpointItem& item) {
  for (int copies = 0;; ++copies) {
    index::Table::View seen;
    const absl::Time until = tables_.ServerTime() + kCopyLease;
    {
      const LockedTable table = tables_.Lock(partition_);
      const absl::StatusOr<index::Table::View> view = table->Find(item.key, expired_);
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
        if (!view->value.empty()) std::memcpy(value_.get(), view->value.data(), view->value.size());
        return true;
      }
      table->Lease(view->slot, until);
    }
    CopyWords(seen.value, value_.get());
    const LockedTable table = tables_.Lock(partition_);
    const absl::StatusOr<index::Table::View> view = table->Find(item.key, expired_);
    if (!view.ok() || view->version != item.version) return false;
    item.expiry = view->expiry_ns;
    if (view->slot == seen.slot && tables_.ServerTime() < until) return true;
  }
}

}  // namespace osprey::server
