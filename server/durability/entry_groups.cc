#include "server/durability/entry_groups.h"

#include "absl/types/optional.h"
#include "server/requests/decimal_int.h"

namespace osprey::server {
namespace {

wal::EntryResult WireResultOf(const Result& result) {
  wal::EntryResult entry;
  entry.status = static_cast<uint32_t>(result.code);
  entry.reason = WireNumberOf(result.reason);
  entry.version = result.version;
  entry.number = result.number;
  entry.length = result.value_length;
  entry.cursor = result.slot;
  entry.expiry = result.expiry;
  return entry;
}

}  // namespace

// The write that the entry is the effect of, and its answer, if that has more than the version.
void EntryGroups::NameWrite(wal::Entry& entry) const {
  assert(write_ != nullptr);
  // The parts of a flush have one answer for all deletes.
  if (write_->opcode == rdma::Opcode::kFlush) return;
  entry.client = write_->session;
  entry.sequence = write_->sequence;
  Result result;
  result.code = absl::StatusCode::kOk;
  result.version = entry.version;
  switch (write_->opcode) {
    case rdma::Opcode::kIncrement: {
      const absl::optional<int64_t> number = ParseNumber(wal::TextOf(entry.value));
      assert(number.has_value());
      result.has_number = true;
      result.number = *number;
      break;
    }
    case rdma::Opcode::kAppend:
      result.value_length = entry.value_length;
      break;
    case rdma::Opcode::kExpire:
      result.expiry = entry.expiry;
      break;
    default:
      return;
  }
  entry.result = WireResultOf(result);
  entry.has_number = result.has_number;
}

void EntryGroups::OnExpire(absl::string_view key, uint64_t version, uint64_t expiry_ns) {
  wal::Entry entry;
  entry.kind = wal::EntryKind::kExpire;
  entry.key = key;
  entry.version = version;
  entry.expiry = expiry_ns;
  NameWrite(entry);
  Add(entry);
}

void EntryGroups::OnDelete(absl::string_view key, uint64_t version, uint64_t deletion) {
  wal::Entry entry;
  entry.kind = wal::EntryKind::kDelete;
  entry.key = key;
  entry.version = version;
  NameWrite(entry);
  if (entry.client != 0) {
    Result result;
    result.code = absl::StatusCode::kOk;
    result.version = deletion;
    entry.result = WireResultOf(result);
  }
  Add(entry);
}

void EntryGroups::OnEvict(absl::string_view key, uint64_t version) { AddRemoval(key, version); }

void EntryGroups::AddRemoval(absl::string_view key, uint64_t version) {
  wal::Entry entry;
  entry.kind = wal::EntryKind::kDelete;
  entry.key = key;
  entry.version = version;
  Add(entry);
}

void EntryGroups::OnResult(const Result& result) {
  assert(write_ != nullptr);
  wal::Entry entry;
  entry.kind = wal::EntryKind::kFlushBound;
  entry.client = write_->session;
  entry.sequence = write_->sequence;
  entry.version = VersionOfBound(result.version);
  entry.result = WireResultOf(result);
  Add(entry);
}

void EntryGroups::Add(const wal::Entry& entry) {
  Begin(entry.expiry);
  group_.Add(entry);
  End();
}

void EntryGroups::BeginGroup() {
  wal::GroupHeader header;
  header.shard = shard_;
  header.first_lsn = lsn_ + 1;
  header.commit_point = lsn_;
  group_.Reset(header);
}

}  // namespace osprey::server
