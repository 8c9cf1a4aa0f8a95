// kvcli doctor --cluster: the checks of a cluster, from this machine. They change nothing.
//
//   cluster_etcd.cc   each endpoint of etcd: version, leader, alarms, time of a transaction
//   cluster.cc        the cluster's record; servers: key, right, addresses; shards: primary, replicas
//   clocks.cc         this machine's clocks, by which leases last and keys expire
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_DOCTOR_CLUSTER_H_
#define OSPREY_TOOLS_DOCTOR_CLUSTER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/cluster/etcd/etcd_messages.h"
#include "server/cluster/etcd/etcd_options.h"
#include "server/cluster/links/link_probe.h"
#include "tools/cluster/cluster_status.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/machine.h"

namespace osprey::doctor {

struct ClusterReport {
  std::vector<Finding> findings;
  bool has_etcd = false;  // an endpoint has answered
};

// `timeout`: of each call to etcd. Takes kRightTtl, and the time of the calls.
ClusterReport CheckCluster(const EtcdOptions& options, const Machine& machine,
                           absl::Duration timeout);

// ---- Parts, for CheckCluster and for tests. Each appends its findings.

// One endpoint's answers.
struct EndpointAnswer {
  std::string address;
  absl::Status failure;  // of one of the calls; not OK: the rest may be missing
  EtcdMemberStatus member;
  absl::Duration slowest;  // of some transactions
};
void CheckEndpoints(const std::vector<EndpointAnswer>& answers, std::vector<Finding>& findings);

using Probe = std::function<absl::Status(const LinkTarget&)>;
void CheckServers(const ClusterStatus& status, const Probe& probe, std::vector<Finding>& findings);
void CheckShards(const ClusterStatus& status, std::vector<Finding>& findings);
// Whether the servers that run have memory for all copies.
void CheckRoom(const ClusterStatus& status, std::vector<Finding>& findings);
void CheckClocks(const Machine& machine, std::vector<Finding>& findings);

// Asks each endpoint by itself.
std::vector<EndpointAnswer> AskEndpoints(const EtcdOptions& options, absl::Duration timeout);

// A message of the form "fault; fix".
Finding FindingOf(Outcome outcome, std::string check, absl::string_view message);

}  // namespace osprey::doctor

#endif  // OSPREY_TOOLS_DOCTOR_CLUSTER_H_
