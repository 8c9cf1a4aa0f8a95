#include "server/cluster/table/copied_names.h"

#include "server/cluster/replication/test_hooks.h"
#include "xxhash.h"

namespace osprey::server {

CopiedNames::Digest CopiedNames::Of(absl::string_view key) const {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(key.data(), key.size(), seed_);
  return {hash.low64, hash.high64};
}

void CopiedNames::Note(const wal::Entry& entry) {
  switch (entry.kind) {
    case wal::EntryKind::kPut:
    case wal::EntryKind::kDelete:
      keys_[Of(entry.key)].has_value = true;
      return;
    case wal::EntryKind::kExpire: {
      Named& named = keys_[Of(entry.key)];
      named.version = entry.version;
      named.expiry_ns = entry.expiry;
      return;
    }
    case wal::EntryKind::kSessionEnd:
      ended_sessions_.insert(entry.client);
      return;
    default:
      return;
  }
}

bool CopiedNames::MayTake(CopiedItem& item) const {
  const auto found = keys_.find(Of(item.key));
  if (found == keys_.end()) return true;
  const Named& named = found->second;
  if (named.has_value) return IsMistake(ReplicationMistake::kCopyOverAppends);
  if (IsMistake(ReplicationMistake::kCopyWithoutExpired)) return false;
  // No other version has come since: that would be a group's.
  if (named.version == item.version && !IsMistake(ReplicationMistake::kCopyForgetsExpiry))
    item.expiry_ns = named.expiry_ns;
  return true;
}

bool CopiedNames::MayTakeSession(uint64_t session) const {
  return !ended_sessions_.contains(session) || IsMistake(ReplicationMistake::kCopyRevivesSessions);
}

void CopiedNames::Clear() {
  keys_.clear();
  ended_sessions_.clear();
}

}  // namespace osprey::server
