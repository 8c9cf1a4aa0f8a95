// What groups have named since a joiner's copy began: so which parts of the copy are out of date.
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_CLUSTER_TABLE_COPIED_NAMES_H_
#define OSPREY_SERVER_CLUSTER_TABLE_COPIED_NAMES_H_

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "server/cluster/table/copy_chunk.h"
#include "server/wal/format/entries.h"

namespace osprey::server {

class CopiedNames {
 public:
  explicit CopiedNames(uint64_t seed) : seed_(seed) {}

  // An entry was applied.
  void Note(const wal::Entry& entry);
  // Whether the copy's item counts. If so, it gets the expiry that a group has given it.
  bool MayTake(CopiedItem& item) const;
  // Whether the copy's session counts.
  bool MayTakeSession(uint64_t session) const;
  void Clear();

 private:
  // Stands for a key. Two keys of one digest do not occur: 128 bits, and a random seed.
  using Digest = std::pair<uint64_t, uint64_t>;
  struct Named {
    bool has_value = false;  // a group has its value, or its deletion
    uint64_t version = 0;    // else: the value with this version …
    uint64_t expiry_ns = 0;  // … has this expiry
  };

  Digest Of(absl::string_view key) const;

  const uint64_t seed_;
  absl::flat_hash_map<Digest, Named> keys_;
  absl::flat_hash_set<uint64_t> ended_sessions_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_TABLE_COPIED_NAMES_H_
