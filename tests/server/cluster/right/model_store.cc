#include "tests/server/cluster/right/model_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

namespace osprey {

std::vector<StoredKey> ModelStore::Find(const StoreRange& range) const {
  std::vector<StoredKey> found;
  for (const auto& [name, key] : keys_) {
    const bool matches = range.is_prefix ? absl::StartsWith(name, range.key) : name == range.key;
    if (matches && key.mod_revision >= range.min_mod_revision) found.push_back(key);
  }
  return found;
}

RangeAnswer ModelStore::Range(const StoreRange& range) const { return {Header(), Find(range)}; }

bool ModelStore::Holds(const StoreCompare& compare) const {
  const auto found = keys_.find(compare.key);
  const StoredKey key = found == keys_.end() ? StoredKey() : found->second;
  switch (compare.property) {
    case StoreCompare::Property::kModRevision:
      return key.mod_revision == compare.number;
    case StoreCompare::Property::kCreateRevision:
      return key.create_revision == compare.number;
    case StoreCompare::Property::kVersion:
      return key.version == compare.number;
    case StoreCompare::Property::kValue:
      return found != keys_.end() && key.value == compare.value;
  }
  return false;
}

TransactionResult ModelStore::Execute(const Transaction& transaction) {
  TransactionResult result;
  const bool holds = std::all_of(transaction.compares.begin(), transaction.compares.end(),
                                 [&](const StoreCompare& compare) { return Holds(compare); });
  if (!holds) {
    result.outcome = TransactionOutcome::kRefused;
    for (const StoreRange& range : transaction.otherwise)
      result.results.push_back({Find(range), 0});
    result.header = Header();
    return result;
  }
  result.outcome = TransactionOutcome::kApplied;
  const bool changes = std::any_of(
      transaction.operations.begin(), transaction.operations.end(),
      [](const StoreOperation& one) { return one.kind != StoreOperation::Kind::kRange; });
  revision_ += changes;
  for (const StoreOperation& operation : transaction.operations) {
    OperationResult of;
    if (operation.kind == StoreOperation::Kind::kRange) of.keys = Find(operation.range);
    if (operation.kind == StoreOperation::Kind::kDelete)
      of.deleted = static_cast<int64_t>(keys_.erase(operation.range.key));
    if (operation.kind == StoreOperation::Kind::kPut) {
      StoredKey& key = keys_[operation.range.key];
      if (key.version == 0) key.create_revision = revision_;
      key.key = operation.range.key;
      key.value = operation.value;
      key.mod_revision = revision_;
      ++key.version;
    }
    result.results.push_back(std::move(of));
  }
  result.header = Header();
  return result;
}

}  // namespace osprey
