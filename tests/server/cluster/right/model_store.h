// A store in memory that executes ranges and transactions as etcd does, at once.

#ifndef OSPREY_TESTS_SERVER_CLUSTER_RIGHT_MODEL_STORE_H_
#define OSPREY_TESTS_SERVER_CLUSTER_RIGHT_MODEL_STORE_H_

#include <cstdint>
#include <map>
#include <string>

#include "server/cluster/etcd/etcd_store.h"

namespace osprey {

class ModelStore {
 public:
  RangeAnswer Range(const StoreRange& range) const;
  TransactionResult Execute(const Transaction& transaction);

 private:
  StoreHeader Header() const { return {1, 1, revision_}; }
  std::vector<StoredKey> Find(const StoreRange& range) const;
  bool Holds(const StoreCompare& compare) const;

  std::map<std::string, StoredKey> keys_;
  int64_t revision_ = 1;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SERVER_CLUSTER_RIGHT_MODEL_STORE_H_
