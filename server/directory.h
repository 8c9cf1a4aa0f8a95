// Where a server of a cluster does not serve shard 0, it tells clients the cluster's servers at the addresses that a URI
// names. So the address of any server is enough for a client to begin.
//
//   Directory::Start(config, server)       it has the addresses
//   directory.Yield()                      … no longer: the engines of shard 0 are about to listen there
//   directory.Resume()                     they have ended
//
// It is an engine that welcomes no client (EngineOptions::only_tells_servers), on a thread of its own. It needs no right
// to serve: what it tells are addresses, and the server at each of them says for itself whether it serves.
//
// Thread rule: thread-safe; Yield and Resume by turns.

#ifndef OSPREY_SERVER_DIRECTORY_H_
#define OSPREY_SERVER_DIRECTORY_H_

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rdma/host_memory.h"
#include "rdma/transport.h"
#include "server/clock.h"
#include "server/cluster/node/wake.h"
#include "server/config/config.h"
#include "server/config/host_limits.h"
#include "server/engine/engine.h"
#include "server/requests/tables.h"
#include "server/stats/admission.h"

namespace osprey::server {

struct Server;

class Directory {
 public:
  // Clients that it greets at a time. Each is gone after some round trips.
  static constexpr size_t kConnectionsMax = kDirectoryConnections;

  // REQUIRES: the node has started; it and `config` outlive this. Errors: RESOURCE_EXHAUSTED (no memory, descriptor or
  // thread). A place at which it cannot listen is none: it is in the log, and tried again.
  static absl::StatusOr<std::unique_ptr<Directory>> Start(const Config& config, Server& server);
  ~Directory();
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  // Returns when nothing of it is at the addresses any more.
  void Yield();
  void Resume();

 private:
  // Between attempts to listen.
  static constexpr absl::Duration kListenEvery() { return absl::Seconds(1); }

  Directory(const Config& config, Server& server, rdma::HostMemory memory);
  absl::Status Open();
  void Run();
  absl::Status Tell();
  absl::Status Drive(Engine& engine);

  const Config& config_;
  Server& server_;
  Clock clock_;
  Admission admission_;
  const uint64_t incarnation_;
  rdma::HostMemory memory_;  // of tables that stay empty, and are exposed to no client
  std::vector<std::unique_ptr<rdma::Memory>> regions_, scratch_;  // by Server::places
  std::unique_ptr<Tables> tables_;
  Wake wake_;
  pthread_t thread_ = {};
  bool has_thread_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> has_turn_{true};  // changed under the mutex
  // Guarded by the mutex.
  bool is_open_ = false;
  bool ends_ = false;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DIRECTORY_H_
