#include "server/wal/checkpoint_reader.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rdma/background_thread.h"
#include "server/wal/disk/direct_reader.h"
#include "server/wal/format/checksum.h"
#include "server/wal/format/entry_format.h"

namespace osprey::server::wal {
namespace {

class PartReader {
 public:
  PartReader(const DataDirectory& directory, std::string name, std::unique_ptr<File> file,
             PartVisitor& visitor)
      : directory_(directory),
        name_(std::move(name)),
        reader_(std::move(file)),
        visitor_(visitor) {}

  absl::Status Read(const PartHeader& expected, const PartSummary& summary) {
    absl::Status status = ReadHeader(expected);
    if (!status.ok()) return status;
    while (!at_end_) {
      status = ReadBlock();
      if (!status.ok()) return status;
    }
    if (offset_ != summary.length || footer_.checksum != summary.checksum)
      return Damage(0, "it is another part than CURRENT names");
    const absl::StatusOr<Bytes> rest = reader_.Read(offset_, 1);
    if (!rest.ok()) return rest.status();
    if (!rest->empty()) return Damage(offset_, "the file goes on behind the footer");
    return absl::OkStatus();
  }

 private:
  absl::Status Damage(uint64_t offset, absl::string_view why) const {
    return DamageError(directory_.files(), name_, offset, why);
  }

  absl::Status ReadHeader(const PartHeader& expected) {
    const absl::StatusOr<Bytes> bytes = reader_.Read(0, sizeof(header_));
    if (!bytes.ok()) return bytes.status();
    if (bytes->size() < sizeof(header_)) return Damage(0, "the part header is cut off");
    std::memcpy(&header_, bytes->data(), sizeof(header_));
    const std::string wrong = header_.Validate();
    if (!wrong.empty()) return Damage(0, wrong);
    if (!Contains(directory_.ids(), header_.directory) || header_.life != expected.life ||
        header_.checkpoint != expected.checkpoint || header_.part != expected.part ||
        header_.parts != expected.parts) {
      return Damage(0, "it is another part than CURRENT names");
    }
    return absl::OkStatus();
  }

  absl::Status ReadBlock() {
    BlockHeader header;
    absl::StatusOr<Bytes> bytes = reader_.Read(offset_, sizeof(header));
    if (!bytes.ok()) return bytes.status();
    if (bytes->size() < sizeof(header)) return Damage(offset_, "the file ends without a footer");
    std::memcpy(&header, bytes->data(), sizeof(header));
    const uint64_t seed = SeedOf(header_.life, header_.part, offset_);
    std::string wrong = header.Validate(seed);
    if (!wrong.empty()) return Damage(offset_, wrong);
    bytes = reader_.Read(offset_, sizeof(header) + header.length);
    if (!bytes.ok()) return bytes.status();
    if (bytes->size() < sizeof(header) + header.length)
      return Damage(offset_, "the block is cut off");
    const Bytes body = bytes->subspan(sizeof(header));
    if (Checksum(body, seed) != header.body_checksum)
      return Damage(offset_, "the block's checksum is wrong");
    const auto kind = static_cast<BlockKind>(header.kind);
    if (value_left_ > 0 && kind != BlockKind::kValue)
      return Damage(offset_, "a value is not complete");
    absl::Status status = ReadBody(kind, header.count, body);
    if (!status.ok()) return status;
    if (kind != BlockKind::kFooter) {
      ++seen_.blocks;
      seen_.checksum = Checksum(BytesOf(header.header_checksum), seen_.checksum);
    }
    offset_ += sizeof(header) + header.length;
    return absl::OkStatus();
  }

  absl::Status ReadBody(BlockKind kind, uint32_t count, Bytes body) {
    switch (kind) {
      case BlockKind::kItems:
        return ReadItems(count, body);
      case BlockKind::kValue:
        if (body.size() > value_left_ || body.empty())
          return Damage(offset_, "a value is longer than its item says");
        value_left_ -= body.size();
        return visitor_.OnValue(body);
      case BlockKind::kSessions:
        return ReadSessions(count, body);
      case BlockKind::kShards:
        return ReadShards(count, body);
      case BlockKind::kFooter:
        return ReadFooter(body);
    }
    return Damage(offset_, "the block has an unknown kind");
  }

  absl::Status ReadItems(uint32_t count, Bytes body) {
    while (count > 0) {
      expected_.clear();
      values_.clear();
      for (; count > 0 && expected_.size() < kExpectedMax; --count) {
        absl::Status status = ParseItem(count, body);
        if (!status.ok()) return status;
      }
      visitor_.Expect(expected_);
      for (size_t i = 0; i < expected_.size(); ++i) {
        absl::Status status = visitor_.OnItem(expected_[i], values_[i]);
        if (!status.ok()) return status;
      }
    }
    return body.empty() ? absl::OkStatus() : Damage(offset_, "a block has more than its items");
  }

  // Takes an item from the front of `body`, of `count` that are left, to expected_ and values_.
  absl::Status ParseItem(uint32_t count, Bytes& body) {
    ItemHeader header;
    if (body.size() < sizeof(header)) return Damage(offset_, "an item is cut off");
    std::memcpy(&header, body.data(), sizeof(header));
    const bool follows = header.flags == kValueFollows;
    if (header.flags > kValueFollows || header.reserved != 0 || header.key_length == 0 ||
        header.key_length > kKeyBytesMax || header.value_length > kValueBytesMax) {
      return Damage(offset_, "an item has impossible lengths or flags");
    }
    const uint64_t bytes = sizeof(header) + header.key_length + (follows ? 0 : header.value_length);
    if (header.length != RoundUp(bytes, kBlockAlignment) || body.size() < header.length ||
        HasBits(body.subspan(bytes, header.length - bytes))) {
      return Damage(offset_, "an item is not as long as its parts");
    }
    if (follows && count != 1) return Damage(offset_, "an item's value does not follow it");
    CheckpointItem& item = expected_.emplace_back();
    item.shard = header.shard;
    item.lives = header.lives;
    item.depth = header.depth;
    item.depth_min = header.depth_min;
    item.key = TextOf(body.subspan(sizeof(header), header.key_length));
    item.value_length = header.value_length;
    item.version = header.version;
    item.expiry = header.expiry;
    values_.push_back(
        follows ? Bytes() : body.subspan(sizeof(header) + header.key_length, header.value_length));
    ++seen_.items;
    seen_.bytes += item.key.size() + item.value_length;
    if (follows) value_left_ = item.value_length;
    body.remove_prefix(header.length);
    return absl::OkStatus();
  }

  absl::Status ReadSessions(uint32_t count, Bytes body) {
    for (; count > 0; --count) {
      uint32_t length = 0;
      if (body.size() < sizeof(length)) return Damage(offset_, "a session is cut off");
      std::memcpy(&length, body.data(), sizeof(length));
      const uint64_t bytes = RoundUp(sizeof(length) + uint64_t{length}, kBlockAlignment);
      if (body.size() < bytes) return Damage(offset_, "a session is cut off");
      absl::Status status = visitor_.OnSession(body.subspan(sizeof(length), length));
      if (!status.ok()) return status;
      body.remove_prefix(bytes);
    }
    return body.empty() ? absl::OkStatus() : Damage(offset_, "a block has more than its sessions");
  }

  absl::Status ReadShards(uint32_t count, Bytes body) {
    if (body.size() != uint64_t{count} * sizeof(ShardState))
      return Damage(offset_, "a block has another length than its shards");
    for (uint32_t i = 0; i < count; ++i) {
      ShardState shard;
      std::memcpy(&shard, body.data() + i * sizeof(shard), sizeof(shard));
      absl::Status status = visitor_.OnShard(shard);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status ReadFooter(Bytes body) {
    if (body.size() != sizeof(footer_)) return Damage(offset_, "the footer's length is wrong");
    std::memcpy(&footer_, body.data(), sizeof(footer_));
    if (std::memcmp(&footer_, &seen_, sizeof(footer_)) != 0)
      return Damage(offset_, "the footer counts other blocks or items");
    at_end_ = true;
    return absl::OkStatus();
  }

  static constexpr size_t kExpectedMax = 32;

  const DataDirectory& directory_;
  const std::string name_;
  DirectReader reader_;
  PartVisitor& visitor_;
  PartHeader header_;
  uint64_t offset_ = sizeof(PartHeader);
  uint64_t value_left_ = 0;
  std::vector<CheckpointItem> expected_;  // of the present block
  std::vector<Bytes> values_;             // theirs
  PartFooter seen_;
  PartFooter footer_;
  bool at_end_ = false;
};

}  // namespace

absl::Status ReadPart(const DataDirectory& directory, uint64_t checkpoint, uint32_t part,
                      uint32_t parts, const PartSummary& summary, PartVisitor& visitor) {
  const std::string name = PartName(checkpoint, part);
  absl::StatusOr<std::unique_ptr<File>> file = directory.files().Open(name);
  if (absl::IsNotFound(file.status()))
    return DamageError(directory.files(), name, 0, "the file is missing, and CURRENT names it");
  if (!file.ok()) return file.status();
  PartHeader expected;
  expected.part = part;
  expected.parts = parts;
  expected.checkpoint = checkpoint;
  expected.life = summary.life;
  return PartReader(directory, name, *std::move(file), visitor).Read(expected, summary);
}

absl::Status ReadCheckpoint(const DataDirectory& directory, uint32_t threads,
                            const std::function<PartVisitor&(uint32_t part)>& visitor_of) {
  const Current current = directory.current();
  const auto parts = static_cast<uint32_t>(current.parts.size());
  std::atomic<uint32_t> next{0};
  std::mutex mutex;
  absl::Status error;
  auto read = [&] {
    for (uint32_t part = next.fetch_add(1); part < parts; part = next.fetch_add(1)) {
      absl::Status status = ReadPart(directory, current.header.checkpoint, part, parts,
                                     current.parts[part], visitor_of(part));
      if (status.ok()) continue;
      next.store(parts);
      const std::lock_guard<std::mutex> lock(mutex);
      if (error.ok()) error = std::move(status);
    }
  };
  void* (*const run)(void*) = [](void* call) -> void* {
    (*static_cast<decltype(read)*>(call))();
    return nullptr;
  };
  std::vector<pthread_t> others;
  pthread_t thread;
  // If there are no more threads to have, those that run read all parts.
  while (others.size() + 1 < std::min(threads, parts) &&
         rdma::StartBackgroundThread("osprey-restore", run, &read, thread)) {
    others.push_back(thread);
  }
  read();
  for (const pthread_t other : others) pthread_join(other, nullptr);
  return error;
}

}  // namespace osprey::server::wal
