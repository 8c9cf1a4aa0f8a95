// The servers of a cluster with several shards, as a client sees them: an engine for each shard, over
// shared memory, on a thread of this process.
//
//   ShardServers servers(4);
//   Client::Connect(servers.uri())
//   servers.Stop(2); … servers.Start(2);
//
// Thread rule: one thread.

#ifndef OSPREY_TESTS_CLIENT_SHARDS_SHARD_SERVERS_H_
#define OSPREY_TESTS_CLIENT_SHARDS_SHARD_SERVERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rdma/transport.h"
#include "server/engine/engine.h"
#include "server/requests/tables.h"

namespace osprey {

class ShardServers {
 public:
  explicit ShardServers(uint32_t shards);
  ~ShardServers();

  // That of shard 0.
  const std::string& uri() const { return uri_; }
  std::string UriOf(uint32_t shard) const;

  // The server ends as by kill -9, but its table stays, and has its keys when it starts again.
  void Stop(uint32_t shard);
  void Start(uint32_t shard);
  // Likewise, as a server that says another number of shards.
  void StartAs(uint32_t shard, uint32_t said_shard, uint32_t said_shards);
  // It answers nothing until Thaw. (READs of its memory succeed.)
  void Freeze(uint32_t shard) { SetFrozen(shard, true); }
  void Thaw(uint32_t shard) { SetFrozen(shard, false); }

  // The keys that the server of this shard has.
  uint64_t KeysOf(uint32_t shard);

 private:
  struct Server {
    std::unique_ptr<rdma::Memory> region, scratch;
    std::unique_ptr<server::Tables> tables;
    std::unique_ptr<server::Engine> engine;  // null: it is stopped
    uint64_t incarnation = 0;
    bool frozen = false;
  };

  void SetFrozen(uint32_t shard, bool frozen);
  void Run();

  std::string uri_;
  std::unique_ptr<rdma::Domain> domain_;
  std::mutex mutex_;  // of the servers
  std::vector<Server> servers_;
  uint64_t last_random_ = 0x5E5500;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_CLIENT_SHARDS_SHARD_SERVERS_H_
