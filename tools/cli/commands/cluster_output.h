// What `kvcli cluster` prints.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_CLI_COMMANDS_CLUSTER_OUTPUT_H_
#define OSPREY_TOOLS_CLI_COMMANDS_CLUSTER_OUTPUT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "server/cluster/configuration/cluster_record.h"
#include "tools/cluster/cluster_status.h"
#include "tools/terminal/output.h"

namespace osprey {

void PrintClusterStatus(Output& out, const ClusterStatus& status);

// "3 replicas, …" of a cluster's record.
std::string DescribeCluster(const ClusterRecord& record);
Json ClusterJson(absl::string_view name, const ClusterRecord& record);
// "id=… shards=… …"
std::string ClusterFields(const ClusterRecord& record);

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLI_COMMANDS_CLUSTER_OUTPUT_H_
