#include "tests/server/wal/wal_model.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey::server::wal {

std::string Difference(const ModelState& state, const ModelState& expected) {
  ModelState keys = state;
  keys.insert(expected.begin(), expected.end());
  for (const auto& [key, ignored] : keys) {
    const auto found = state.find(key);
    const auto right = expected.find(key);
    const uint64_t has = found == state.end() ? 0 : found->second.version;
    const uint64_t should = right == expected.end() ? 0 : right->second.version;
    if (has != should) return absl::StrCat(key, " is of record ", has, ", not ", should);
    if (found->second.value != right->second.value)
      return absl::StrCat(key, " of record ", has, " has another value");
  }
  return "nothing";
}

ModelState Model::StateAt(uint64_t number) const {
  ModelState state;
  for (uint64_t i = 1; i <= number; ++i) {
    for (const ModelEntry& entry : record(i).entries) {
      if (entry.is_delete) {
        state.erase(entry.key);
      } else {
        state[entry.key] = {i, entry.value};
      }
    }
  }
  return state;
}

void Recovered::Apply(uint64_t number, const ModelEntry& entry) {
  // The newer version wins.
  const auto found = state_.find(entry.key);
  if (found != state_.end() && found->second.version > number) return;
  if (entry.is_delete) {
    state_.erase(entry.key);
  } else {
    state_[entry.key] = {number, entry.value};
  }
}

absl::Status Recovered::OnGroup(const LogRecord& record, const Group& group,
                                const std::vector<std::vector<PiecePlace>>& pieces) {
  const uint64_t number = record.header.number;
  const auto fail = [&](absl::string_view what) {
    if (wrong_.empty()) wrong_ = absl::StrCat("record ", number, ": ", what);
  };
  if (number <= last_group_) fail("it comes after a later one");
  last_group_ = number;
  if (number > model_.last()) {
    fail("nothing of that number was appended");
    return absl::OkStatus();
  }
  const ModelRecord& expected = model_.record(number);
  if (group.entries.size() != expected.entries.size()) fail("it has another number of entries");
  for (size_t i = 0; i < group.entries.size() && i < expected.entries.size(); ++i) {
    const Entry& entry = group.entries[i];
    const ModelEntry& model = expected.entries[i];
    ModelEntry read;
    read.is_delete = entry.kind == EntryKind::kDelete;
    read.key = std::string(entry.key);
    read.value = std::string(TextOf(entry.value));
    if (!entry.pieces.empty() && pieces[i].empty()) continue;
    if (!pieces[i].empty()) {
      absl::StatusOr<std::string> value = ReadValue(directory_, entry, pieces[i]);
      if (!value.ok()) return value.status();
      read.value = *std::move(value);
    }
    if (read.is_delete != model.is_delete || read.key != model.key || read.value != model.value)
      fail(absl::StrCat("another entry than was appended for key ", model.key));
    Apply(number, read);
  }
  return absl::OkStatus();
}

absl::Status Recovered::OnItem(const CheckpointItem& item, Bytes value) {
  last_key_ = std::string(item.key);
  state_[last_key_] = {item.version, std::string(TextOf(value))};
  return absl::OkStatus();
}

absl::Status Recovered::OnValue(Bytes bytes) {
  absl::StrAppend(&state_[last_key_].value, TextOf(bytes));
  return absl::OkStatus();
}

absl::Status Recovered::OnSession(Bytes session) {
  sessions_ += session.size();
  return absl::OkStatus();
}

absl::Status Recovered::OnShard(const ShardState& shard) {
  shards_ += shard.lsn;
  return absl::OkStatus();
}

}  // namespace osprey::server::wal
