// A cluster of real processes: an etcd, and kvservers that can be killed, stopped and ended. Over shared
// memory, and in the lab over verbs.
//
//   ClusterProcesses cluster;                       etcd, and servers that are in sync
//   Client::Connect(cluster.uri(), …)
//   cluster.Kill(*cluster.Primary());
//   cluster.AwaitInSync(2, absl::Seconds(30))
//
// Thread rule: one thread.

#ifndef OSPREY_TESTS_CLUSTER_CLUSTER_PROCESSES_H_
#define OSPREY_TESTS_CLUSTER_CLUSTER_PROCESSES_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/client.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/shard_record.h"
#include "server/cluster/etcd/etcd_client.h"
#include "tests/server/cluster/etcd/etcd_process.h"

namespace osprey {

// On a busy machine.
inline constexpr absl::Duration kPatience = absl::Minutes(1);

inline Options PatientOptions() {
  Options options;
  options.deadline = kPatience;
  options.connect_timeout = kPatience;
  return options;
}

struct ClusterProcessesOptions {
  size_t servers = 3;
  uint32_t replicas = 0;  // 0: as many as servers
  uint32_t min_in_sync = 2;
  uint32_t shards = 1;
  uint64_t shard_bytes = 0;  // with which it is created; 0: a part of 16 MiB
  std::string memory = "256MiB";
  std::vector<std::string> flags;  // of each server
};

class ClusterProcesses {
 public:
  // Creates the cluster, and starts the servers. A failure to do so ends the test's process.
  explicit ClusterProcesses(ClusterProcessesOptions options = {});
  // Kills all of them.
  ~ClusterProcesses();
  ClusterProcesses(const ClusterProcesses&) = delete;
  ClusterProcesses& operator=(const ClusterProcesses&) = delete;

  // The addresses of all servers, for clients.
  std::string uri() const;
  // That of one.
  const std::string& uri(size_t server) const { return servers_[server].uri; }
  size_t servers() const { return servers_.size(); }
  uint32_t shards() const { return options_.shards; }
  size_t replicas() const { return options_.replicas == 0 ? servers() : options_.replicas; }
  EtcdCluster& etcd() { return etcd_; }
  // The cluster, for kvcli.
  const std::string& etcd_uri() const { return etcd_uri_; }

  // --- Faults. They return at once, but for Terminate and Kill, which wait for the end.
  void Start(size_t server);
  void Kill(size_t server);      // SIGKILL
  int Terminate(size_t server);  // SIGTERM; the exit status
  void Stop(size_t server);      // SIGSTOP
  void Continue(size_t server);  // SIGCONT
  // Servers that have ended by themselves; each with its output.
  std::vector<std::string> Crashed();
  // -1: it does not run.
  pid_t pid(size_t server) const { return servers_[server].pid; }
  // The output of all of a server's lives.
  std::string Log(size_t server) const;

  // --- What the store says. Nothing: it does not answer in time, or there is none.
  std::optional<ShardRecord> Record(uint32_t shard = 0);
  std::optional<size_t> Primary(uint32_t shard = 0);
  // How many shards each server is the primary of. Nothing: the store does not answer in time.
  std::optional<std::vector<size_t>> Primaries();
  // The term of each shard; 0: the store does not answer in time.
  std::vector<uint64_t> Terms();
  // How often the primary of a shard has changed since Terms returned `terms`, of the shard with the most changes.
  uint64_t ChangesSince(const std::vector<uint64_t>& terms);
  // How many shards each server is in sync of.
  std::vector<size_t> Copies();
  // Whether a copy moves. True, too, if the store does not answer in time.
  bool HasMoves();
  // Waits until so many replicas of each shard are in sync, of servers that run, under a primary, and stay
  // it for half a second. False: not in time; then WhyNot says what there is instead.
  bool AwaitInSync(size_t replicas, absl::Duration time_max);
  // … until another server than this one is the primary of shard 0. Nothing: not in time.
  std::optional<size_t> AwaitOtherPrimary(size_t server, absl::Duration time_max);
  // … until each server is the primary of as many shards as the others, or one less. False: not in time.
  bool AwaitBalance(absl::Duration time_max);
  std::string WhyNot();

  // What an operator does: `kvcli cluster`, a command, this cluster and arguments. It needs //tools:kvcli. False, with its output on
  // stdout: it is refused, as what has changed meanwhile is, or a server whose beat is late.
  bool RunKvcli(const std::string& command, const std::vector<std::string>& args = {});

 private:
  struct Server {
    std::string id;
    std::string uri;
    std::string cluster_uri;
    pid_t pid = -1;  // -1: it does not run
    bool is_stopped = false;
    int64_t key_before = 0;         // create revision of its key in the store, of an earlier life
    std::vector<std::string> logs;  // paths, by life
  };

  void Create();
  // Create revisions of the servers' keys; 0: there is none. Nothing: the store does not answer.
  std::optional<std::vector<int64_t>> KeysOfServers();
  bool IsInSync(size_t replicas, uint32_t shard, const std::vector<int64_t>& keys);

  const ClusterProcessesOptions options_;
  const std::string directory_;
  EtcdCluster etcd_;
  const std::string etcd_uri_;
  const ClusterKeys keys_;
  const std::unique_ptr<EtcdClient> store_;
  std::vector<Server> servers_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_CLUSTER_CLUSTER_PROCESSES_H_
