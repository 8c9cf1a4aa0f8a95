// What a cluster needs of the store that has its configuration: linearizable reads and conditional
// transactions. EtcdClient (etcd_client.h) is the store of a running server.
//
//   auto read = store.Range({"/osprey/a/shards/7"}, absl::Seconds(1));
//   Transaction swap;
//   swap.compares = {StoreCompare::ModRevision("/osprey/a/shards/7", read->keys[0].mod_revision)};
//   swap.operations = {StoreOperation::Put("/osprey/a/shards/7", record)};
//   switch (store.Execute(swap, absl::Seconds(1)).outcome) { … }
//
// Requests and answers are plain values: code that makes decisions can return requests and take
// answers, without a call that blocks.

#ifndef OSPREY_SERVER_CLUSTER_ETCD_ETCD_STORE_H_
#define OSPREY_SERVER_CLUSTER_ETCD_ETCD_STORE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace osprey {

// Keys and values are any bytes. Revisions are 1 or more, and rise with each change of the store.

struct StoredKey {
  std::string key;
  std::string value;
  int64_t create_revision = 0;  // of the change that created it
  int64_t mod_revision = 0;     // of its last change
  int64_t version = 0;          // changes since its creation; 1 after that

  friend bool operator==(const StoredKey&, const StoredKey&) = default;
};

// The origin of an answer. A cluster id other than the one seen before, or a lower revision, means
// that the store was replaced or restored from a backup. The caller has to check both.
struct StoreHeader {
  uint64_t cluster_id = 0;
  uint64_t member_id = 0;
  int64_t revision = 0;  // of the store when it answered; after a transaction: with its changes

  friend bool operator==(const StoreHeader&, const StoreHeader&) = default;
};

struct StoreRange {
  std::string key;               // not empty
  bool is_prefix = false;        // every key that begins with `key`, not `key` alone
  int64_t min_mod_revision = 0;  // leaves out keys that have not changed since
};

struct RangeAnswer {
  StoreHeader header;
  std::vector<StoredKey> keys;
};

// A condition of a transaction: the named property of `key` equals `number` or `value`. An absent
// key has revisions and version 0, and equals no value.
struct StoreCompare {
  enum class Property { kModRevision, kCreateRevision, kVersion, kValue };

  std::string key;
  Property property = Property::kModRevision;
  int64_t number = 0;
  std::string value;

  static StoreCompare ModRevision(std::string key, int64_t revision) {
    return {std::move(key), Property::kModRevision, revision, ""};
  }
  static StoreCompare CreateRevision(std::string key, int64_t revision) {
    return {std::move(key), Property::kCreateRevision, revision, ""};
  }
  static StoreCompare Version(std::string key, int64_t version) {
    return {std::move(key), Property::kVersion, version, ""};
  }
  static StoreCompare Value(std::string key, std::string value) {
    return {std::move(key), Property::kValue, 0, std::move(value)};
  }
  static StoreCompare Absent(std::string key) { return CreateRevision(std::move(key), 0); }
};

struct StoreOperation {
  enum class Kind { kPut, kDelete, kRange };

  Kind kind = Kind::kRange;
  StoreRange range;   // of a put or delete only its key
  std::string value;  // of a put

  static StoreOperation Put(std::string key, std::string value) {
    return {Kind::kPut, {std::move(key)}, std::move(value)};
  }
  static StoreOperation Delete(std::string key) { return {Kind::kDelete, {std::move(key)}, ""}; }
  static StoreOperation Range(StoreRange range) { return {Kind::kRange, std::move(range), ""}; }
};

// If all `compares` are true the operations take effect, in this order and as one change; else the
// ranges of `otherwise` are read. etcd's default limit is 128 of each, and 1.5 MiB. No two
// operations may put or delete the same key.
struct Transaction {
  std::vector<StoreCompare> compares;
  std::vector<StoreOperation> operations;
  std::vector<StoreRange> otherwise;
};

enum class TransactionOutcome {
  kApplied,     // the compares were true, and the operations took effect
  kRefused,     // a compare was false, and nothing changed
  kNotApplied,  // for sure: it was not sent, or the store refused it unseen. A later call may repeat
                // it.
  // It may have taken effect, or may still do so at any later time. Reading the keys again does not
  // exclude the latter: only a change of a revision that it compares does.
  kUnknown,
};

// The answer to one operation, or to one range of `otherwise`.
struct OperationResult {
  std::vector<StoredKey> keys;  // of a range
  int64_t deleted = 0;          // of a delete: 1 if the key was there
};

struct TransactionResult {
  TransactionOutcome outcome = TransactionOutcome::kUnknown;
  // OK if the outcome is kApplied or kRefused; else why, with the fix.
  absl::Status status;
  // Both only if `status` is OK; a result for each operation, or of each of `otherwise`.
  StoreHeader header;
  std::vector<OperationResult> results;
};

// Thread rule: one thread at a time. Calls block until the answer, or until `timeout` has passed
// since the call, by the machine's monotonic clock. They do not retain their arguments.
class ConfigurationStore {
 public:
  virtual ~ConfigurationStore() = default;

  // Reads as of some moment between call and return. Errors: DEADLINE_EXCEEDED or UNAVAILABLE (no
  // answer), UNAUTHENTICATED, PERMISSION_DENIED, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, DATA_LOSS
  // (an answer that is malformed). Each names what failed and the fix.
  virtual absl::StatusOr<RangeAnswer> Range(const StoreRange& range, absl::Duration timeout) = 0;

  // Executes a transaction at most once. The status of the result has the errors of Range.
  // RESOURCE_EXHAUSTED with kUnknown: the store has no space, and some versions of etcd say so
  // after the last transaction that took effect.
  virtual TransactionResult Execute(const Transaction& transaction, absl::Duration timeout) = 0;
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_ETCD_ETCD_STORE_H_
