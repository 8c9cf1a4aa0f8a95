// Clients for many threads: a Client belongs to one thread at a time, and a pool lends them.
//
//   auto pool = osprey::ClientPool::Create("rdma://10.0.0.7:7411");
//   … in each thread:
//   absl::StatusOr<osprey::ClientPool::Lane> lane = (*pool)->Take();
//   if (lane.ok()) (*lane)->Get("planet");        // goes back when it is destroyed
//
// A lane is a Client with its own connection (over RDMA: a queue pair), buffers and location cache.
// Lanes share nothing. A busy thread should take a lane once and keep it: each Take costs a lock
// and a scan of the idle lanes. A thread gets its previous lane again if that is idle, because its
// location cache holds the keys that the thread uses.
//
// Bounds: at most PoolOptions::lanes_max lanes, connected when they are first needed. Each takes up
// to 2 x Options::buffer_bytes_max of registered memory and Options::slot_cache_bytes.
//
// Thread rule: a ClientPool is thread-safe, a Lane is not. Buffers of a lane's Client must be gone
// before the lane goes back, because the next thread may use the Client at any time.

#ifndef OSPREY_CLIENT_POOL_H_
#define OSPREY_CLIENT_POOL_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/client.h"

namespace osprey {

struct PoolOptions {
  Options client;  // of every lane
  // 1 to 4096. The server has its own limit (kvserver --connections-max).
  int lanes_max = 64;
};

class ClientPool {
 public:
  // A Client that is lent. Move-only. REQUIRES: the pool outlives it.
  class Lane {
   public:
    Lane(Lane&& other) noexcept;
    Lane& operator=(Lane&& other) noexcept;
    // Returns the Client to the pool. With operations in flight it is closed instead, which ends
    // them (CANCELLED): their callbacks belong to this thread.
    ~Lane();

    Client& operator*() const { return *client_; }
    Client* operator->() const { return client_.get(); }

   private:
    friend class ClientPool;
    Lane(ClientPool* pool, std::unique_ptr<Client> client)
        : pool_(pool), client_(std::move(client)) {}
    void Return();

    ClientPool* pool_;
    std::unique_ptr<Client> client_;
  };

  // Connects the first lane. Errors: Client::Connect's; INVALID_ARGUMENT for options out of range.
  static absl::StatusOr<std::unique_ptr<ClientPool>> Create(absl::string_view uri,
                                                            const PoolOptions& options = {});
  // REQUIRES: all Lanes have been returned.
  ~ClientPool();
  ClientPool(const ClientPool&) = delete;
  ClientPool& operator=(const ClientPool&) = delete;

  // A lane for the calling thread: an idle one, or a new one. If all lanes_max are taken, it waits
  // up to `wait` for one (at most kDeadlineMax). To connect a new one takes up to
  // Options::connect_timeout. Errors: RESOURCE_EXHAUSTED (Reason::kLanesTaken); for a new lane,
  // those of Client::Connect.
  absl::StatusOr<Lane> Take(absl::Duration wait = absl::ZeroDuration());

  // The number of connected lanes, taken or idle.
  int lanes() const;

 private:
  struct Idle {
    std::unique_ptr<Client> client;
    std::thread::id last;  // the thread that had it last
  };

  ClientPool(absl::string_view uri, const PoolOptions& options) : uri_(uri), options_(options) {}

  std::unique_ptr<Client> TakeIdle();
  absl::StatusOr<Lane> ConnectOne();
  void Return(std::unique_ptr<Client> client);

  const std::string uri_;
  const PoolOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<Idle> idle_;  // in order of use: the most recent is last
  int lanes_ = 0;           // idle, taken, and being connected
};

}  // namespace osprey

#endif  // OSPREY_CLIENT_POOL_H_
