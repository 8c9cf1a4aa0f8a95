// What the store has of servers and shards, kept up by reads at intervals: no watches of etcd's, since
// one that is cut off is silent, and a compacted one has gaps.
//
//   ConfigurationWatch watch(keys, cluster.shards);
//   for (;;) {                                              // every 300 ms
//     const StoreRange servers = watch.ServersRange();
//     if (auto answer = store.Range(servers, timeout); answer.ok()) {
//       if (watch.TakeServers(*answer).is_news) … PeerWatch::Saw(answer->keys, now());
//     }
//     const StoreRange shards = watch.ShardsRange();
//     if (auto answer = store.Range(shards, timeout); answer.ok())
//       for (uint32_t shard : watch.TakeShards(shards, *answer).changed) …
//   }
//
// Servers are always read whole: their keys change at each renewal anyway. Of shards mostly those that
// have changed since the last answer are read. Such a read does not show a deleted record, so now and
// then all are.
//
// Answers may come in any order: one that is older than the last that was taken says nothing. A record
// that is malformed is reported, and the one before it kept: its server or shard stays as it was.
//
// Thread rule: one thread. The caller checks each answer's header first (store_identity.h).

#ifndef OSPREY_SERVER_CLUSTER_CONFIGURATION_CONFIGURATION_WATCH_H_
#define OSPREY_SERVER_CLUSTER_CONFIGURATION_CONFIGURATION_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/shard_record.h"
#include "server/cluster/etcd/etcd_store.h"
#include "server/cluster/right/server_record.h"

namespace osprey {

struct WatchedServer {
  int64_t create_revision = 0;
  int64_t mod_revision = 0;
  std::optional<ServerRecord> record;  // of its last readable value; nothing: there was none

  friend bool operator==(const WatchedServer&, const WatchedServer&) = default;
};

struct WatchNews {
  // False: the answer is older than what is known, and changed nothing.
  bool is_news = false;
  std::vector<uint32_t> changed;     // shards whose record is another, or is gone; ascending
  std::vector<absl::Status> errors;  // with the key; at most kWatchErrorsMax
};

inline constexpr size_t kWatchErrorsMax = 8;
// Of so many reads of shards one reads all: every 10 s at an interval of 300 ms.
inline constexpr uint32_t kShardsReadsPerWhole = 32;

class ConfigurationWatch {
 public:
  // REQUIRES: 1 to kShardsMax shards.
  ConfigurationWatch(ClusterKeys keys, uint32_t shards);

  // What to read next.
  StoreRange ServersRange() const;
  StoreRange ShardsRange();

  // The answer to a read of ServersRange. Server changes are in servers() alone.
  WatchNews TakeServers(const RangeAnswer& answer);
  // The answer to `asked`, which ShardsRange returned.
  WatchNews TakeShards(const StoreRange& asked, const RangeAnswer& answer);

  // Of the store, when servers() was read last; 0: it was not.
  int64_t servers_revision() const { return servers_revision_; }
  // By ID. A server that is not there has no key.
  const std::map<std::string, WatchedServer>& servers() const { return servers_; }
  // Of the server's key; 0: it is not there. For PromoteSelf.
  int64_t CreateRevision(absl::string_view server) const;
  // All changes of shards up to this revision of the store were taken; 0: none was read yet.
  int64_t shards_revision() const { return shards_revision_; }
  // nullptr: the shard has no record, or none was read yet. REQUIRES: shard < shards.
  const StoredShard* Shard(uint32_t shard) const;

 private:
  const ClusterKeys keys_;
  std::map<std::string, WatchedServer> servers_;
  int64_t servers_revision_ = 0;  // of the store, when it answered last
  std::vector<std::optional<StoredShard>> shards_;
  int64_t shards_revision_ = 0;  // all changes up to it are in shards_; 0: not read yet
  uint32_t reads_left_ = 0;      // until all shards are read
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_CONFIGURATION_CONFIGURATION_WATCH_H_
