#include "server/cluster/table/replicated_changes.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/cluster/replication/test_hooks.h"
#include "xxhash.h"

namespace osprey::server {
namespace {

std::string BodyOf(wal::GroupBuilder& group) {
  std::string body;
  body.reserve(group.bytes());
  for (const wal::BodyPart& part : group.Parts()) absl::StrAppend(&body, wal::TextOf(part.bytes));
  return body;
}

}  // namespace

std::string BodyOfEntry(uint32_t partition, const wal::Entry& entry) {
  wal::GroupHeader header;
  header.shard = partition;
  wal::GroupBuilder group{header};
  group.Add(entry);
  return BodyOf(group);
}

void ReplicatedChanges::OnPut(absl::string_view key, index::ByteSpan value, uint64_t version,
                              uint64_t expiry_ns) {
  if (upload_ != nullptr) {
    wal::Entry entry = PutEntry(key, value, version, expiry_ns);
    entry.value = {};
    entry.pieces = PartsOf(value.size(), upload_->part_bytes());
    Add(entry);
    return upload_->NoteNamed();
  }
  assert(value.size() <= kReplicatedValueBytesMax);
  if (AddShortPut(key, value, version, expiry_ns)) return;
  wal::Entry entry = PutEntry(key, value, version, expiry_ns);
  const bool is_long = value.size() > wal::kShortValueBytesMax;
  if (is_long) entry.value_checksum = XXH3_64bits(value.data(), value.size());
  Add(entry);
  // The builder only points to a longer value, which the next change may move.
  if (is_long) OnRelease();
}

void ReplicatedChanges::OnExpired(absl::string_view key, uint64_t version) {
  if (!IsMistake(ReplicationMistake::kExpiryNotReported)) AddRemoval(key, version);
}

void ReplicatedChanges::TakeGroup(wal::GroupBuilder& group, uint64_t entries) {
  sink_.Decide(partition_, BodyOf(group), entries);
}

// A client sends the bound back with each further part of its flush, and may send any.
uint64_t ReplicatedChanges::VersionOfBound(uint64_t bound) const {
  return std::min(bound, last_version_());
}

std::string SessionBody(wal::EntryKind kind, uint64_t session) {
  assert(kind == wal::EntryKind::kSessionBegin || kind == wal::EntryKind::kSessionEnd);
  wal::Entry entry;
  entry.kind = kind;
  entry.client = session;
  return BodyOfEntry(0, entry);
}

std::string TimeMarkBody(uint64_t mark_ns) {
  wal::Entry entry;
  entry.kind = wal::EntryKind::kTimeMark;
  entry.expiry = mark_ns;
  return BodyOfEntry(0, entry);
}

}  // namespace osprey::server
