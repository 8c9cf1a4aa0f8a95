// Members of a real etcd, for tests: on 127.0.0.1, with a directory each, ended when the object ends.

#ifndef OSPREY_TESTS_SERVER_CLUSTER_ETCD_ETCD_PROCESS_H_
#define OSPREY_TESTS_SERVER_CLUSTER_ETCD_ETCD_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/cluster/etcd/etcd_client.h"

namespace osprey {

// Certificates of one authority, made by openssl in a directory of their own.
class TestCertificates {
 public:
  TestCertificates();
  TestCertificates(const TestCertificates&) = delete;
  TestCertificates& operator=(const TestCertificates&) = delete;

  // The path of ca.pem; of NAME.pem and NAME.key, where NAME is server (for 127.0.0.1), client, or
  // named (it has a common name); of other-ca.pem, other.pem and other.key of another authority.
  std::string Path(absl::string_view name) const;

 private:
  const std::string directory_;
};

// Thread rule: one thread.
class EtcdCluster {
 public:
  // Starts so many members, each with `flags`, and returns when all serve. With `certificates`, which
  // must outlive the cluster, clients use TLS and must have one. A failure to start ends the test's
  // process, with etcd's output.
  explicit EtcdCluster(size_t members = 1, std::vector<std::string> flags = {},
                       const TestCertificates* certificates = nullptr);
  ~EtcdCluster();
  EtcdCluster(const EtcdCluster&) = delete;
  EtcdCluster& operator=(const EtcdCluster&) = delete;

  // For all members, beginning with `first`.
  EtcdOptions ClientOptions(size_t first = 0) const;
  std::unique_ptr<EtcdClient> NewClient(size_t first = 0) const;

  // Waits until a member that runs is the leader, and says which.
  size_t WaitForLeader() const;

  void Kill(size_t member);      // by SIGKILL, and waits for its end
  void Restart(size_t member);   // after Kill, on its data; returns when it serves
  void Stop(size_t member);      // by SIGSTOP
  void Continue(size_t member);  // by SIGCONT

  // Runs etcdctl with these arguments for `member`; a failure fails the test.
  void Control(const std::vector<std::string>& arguments, size_t member = 0) const;

 private:
  struct Member {
    uint16_t client_port = 0;
    uint16_t peer_port = 0;
    pid_t pid = -1;  // -1: it does not run
    bool is_stopped = false;
  };

  void Start(size_t member);
  bool Serves(size_t member) const;
  std::string ClientUrl(size_t member) const;
  std::string PeerUrl(size_t member) const;
  // Waits until all members that run serve.
  void WaitUntilReady();

  const std::vector<std::string> flags_;
  const TestCertificates* const certificates_;
  const std::string directory_;
  std::vector<Member> members_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SERVER_CLUSTER_ETCD_ETCD_PROCESS_H_
