#include "server/cluster/table/table_copy.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/cluster/replication/test_hooks.h"
#include "server/cluster/table/value_parts.h"

namespace osprey::server {
namespace {

// A chunk of sessions ends when it has so many bytes. Else it is what one step of the walk finds.
constexpr uint64_t kSessionBytes = 48 << 10;

}  // namespace

TableCopy::TableCopy(Tables& tables, std::vector<SessionImage> sessions)
    : tables_(tables), sessions_(std::move(sessions)) {
  BeginWalk();
}

std::string TableCopy::NextChunk(uint64_t time_mark_ns) {
  assert(!at_end_);
  const bool has_sessions = !sessions_.empty();
  AddSessions();
  if (!has_sessions && !long_.value.empty()) AddPart();
  while (!has_sessions && !at_end_ && chunk_.items() == 0) StepWalk();
  return chunk_.Finish(at_end_, tables_.LastVersion(), time_mark_ns);
}

void TableCopy::AddSessions() {
  while (!sessions_.empty() && chunk_.bytes() < kSessionBytes) {
    chunk_.AddSession(sessions_.back());
    sessions_.pop_back();
  }
}

void TableCopy::AddPart() {
  const ChunkPart part{long_.copied, long_.value.size()};
  const wal::Bytes value =
      wal::BytesOfText(long_.value)
          .subspan(part.offset, std::min(kReplicatedValueBytesMax, part.bytes - part.offset));
  chunk_.AddPart({long_.key, value, long_.version, long_.expiry_ns}, part);
  long_.copied += value.size();
  if (long_.copied == part.bytes) long_ = LongItem();
}

void TableCopy::BeginWalk() {
  walk_.emplace(tables_, partition_,
                IsMistake(ReplicationMistake::kCopyLeavesOutExpired)
                    ? index::ExpiredKeys::kAbsent
                    : index::ExpiredKeys::kPresent);
}

void TableCopy::StepWalk() {
  if (walk_->at_end()) {
    ++partition_;
    at_end_ = partition_ == tables_.partitions();
    if (!at_end_) BeginWalk();
    return;
  }
  const auto add = [this](const wal::CheckpointItem& item, wal::Bytes value) {
    if (value.size() > kReplicatedValueBytesMax) {
      long_ = {std::string(item.key), std::string(wal::TextOf(value)), item.version, item.expiry,
               0};
      AddPart();
    } else {
      chunk_.AddItem({item.key, value, item.version, item.expiry});
    }
    return absl::OkStatus();
  };
  const absl::StatusOr<uint64_t> bytes =
      walk_->has_long() ? walk_->LongStep(add) : walk_->Step(add);
  assert(bytes.ok());
  (void)bytes;
}

}  // namespace osprey::server
