#include "tools/doctor/cluster.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/cluster/etcd/etcd_client.h"
#include "server/cluster/right/right_times.h"
#include "server/program/printable.h"

namespace osprey::doctor {
namespace {

constexpr char kCluster[] = "cluster";
constexpr char kServer[] = "server";
constexpr char kShard[] = "shard";
constexpr char kRoom[] = "room";
constexpr char kStart[] = "start the servers that are missing   # kvcli cluster status shows them";

// Of a connection to a server and its first answer.
constexpr absl::Duration kProbeMax() { return absl::Seconds(2); }

Finding JudgeServer(const std::string& id, const ClusterStatus::Server& server, uint64_t cluster_id,
                    const Probe& probe) {
  if (!server.stored.record.has_value()) {
    return {Outcome::kFail,
            kServer,
            absl::StrCat(id, " has a key in etcd that cannot be read"),
            {"find out which program wrote it, and restart the server"}};
  }
  if (!server.is_renewed) {
    return {
        Outcome::kFail,
        kServer,
        absl::StrCat(id, " has not renewed its key for ", absl::FormatDuration(kRightTtl()),
                     ": it has ended, is stopped, or cannot reach etcd, so its right has ended"),
        {"start it again, or repair its network to etcd"}};
  }
  for (const std::string& address : server.stored.record->addresses) {
    const absl::Status reached = probe({address, cluster_id, server.stored.record->incarnation});
    if (reached.ok()) continue;
    return FindingOf(Outcome::kFail, kServer,
                     absl::StrCat(id, " at ", EscapedField(address), ": ", reached.message()));
  }
  return {Outcome::kPass,
          kServer,
          absl::StrCat(id, " renews its right, and answers at ",
                       EscapedField(absl::StrJoin(server.stored.record->addresses, ", "))),
          {}};
}

absl::StatusOr<ClusterStatus> StatusOf(const EtcdOptions& options, absl::Duration timeout) {
  const absl::StatusOr<std::unique_ptr<EtcdClient>> etcd = EtcdClient::Create(options);
  if (!etcd.ok()) return etcd.status();
  return ReadClusterStatus(**etcd, options.uri, timeout, kRightTtl());
}

bool Runs(const ClusterStatus& status, const Replica& member) {
  return status.HasKey(member) && status.servers.at(member.server).is_renewed;
}

// Of a record that was begun.
Finding JudgeShard(const ClusterStatus& status, const std::string& shard,
                   const ShardRecord& record) {
  std::vector<std::string> running, ended;
  for (const Replica& member : record.in_sync)
    (Runs(status, member) ? running : ended).push_back(member.server);
  const std::string count = absl::StrCat(running.size(), " of ", status.cluster.replicas,
                                         " replicas are in sync and run");
  if (running.empty()) {
    return {Outcome::kFail,
            kShard,
            absl::StrCat(shard, ": none of its servers in sync runs: ", absl::StrJoin(ended, ", ")),
            {"let those that are only stopped or cut off go on; if all have ended, the keys are "
             "gone: kvcli cluster accept-loss ETCD_URI SHARD"}};
  }
  const Replica* const primary = record.Find(record.primary);
  if (primary == nullptr || !Runs(status, *primary)) {
    return {Outcome::kFail,
            kShard,
            absl::StrCat(shard, " has no primary: ",
                         primary == nullptr ? "none is named" : record.primary + " does not run",
                         "; in sync: ", absl::StrJoin(running, ", ")),
            {"wait 5 s for another server to take over; then read the logs of those in sync"}};
  }
  if (running.size() < status.cluster.min_in_sync) {
    return {Outcome::kFail,
            kShard,
            absl::StrCat(shard, ": ", count, ", and writes need ", status.cluster.min_in_sync),
            {kStart}};
  }
  if (running.size() < status.cluster.replicas) {
    return {Outcome::kWarn,
            kShard,
            absl::StrCat(shard, ": ", count,
                         ended.empty() ? "" : "; ended: " + absl::StrJoin(ended, ", ")),
            {kStart}};
  }
  return {Outcome::kPass,
          kShard,
          absl::StrCat(shard, ": term ", record.term, ", primary ", record.primary, ", ", count),
          {}};
}

void CheckInEtcd(const EtcdOptions& options, absl::Duration timeout,
                 std::vector<Finding>& findings) {
  const absl::StatusOr<ClusterStatus> status = StatusOf(options, timeout);
  if (!status.ok()) {
    findings.push_back(FindingOf(Outcome::kFail, kCluster, status.status().message()));
    return;
  }
  findings.push_back(
      {Outcome::kPass,
       kCluster,
       absl::StrCat(status->name, ": ", status->cluster.replicas, " replicas, writes need ",
                    status->cluster.min_in_sync, " in sync"),
       {}});
  CheckServers(
      *status, [](const LinkTarget& target) { return ProbeLink(target, kProbeMax()); }, findings);
  CheckShards(*status, findings);
  CheckRoom(*status, findings);
}

}  // namespace

Finding FindingOf(Outcome outcome, std::string check, absl::string_view message) {
  const size_t at = message.rfind("; ");
  Finding finding{outcome, std::move(check), std::string(message.substr(0, at)), {}};
  finding.fixes.emplace_back(at == absl::string_view::npos
                                 ? "kvcli doctor   # at both ends, checks RDMA"
                                 : message.substr(at + 2));
  return finding;
}

void CheckServers(const ClusterStatus& status, const Probe& probe, std::vector<Finding>& findings) {
  if (status.servers.empty()) {
    findings.push_back({Outcome::kFail,
                        kServer,
                        "no server of the cluster runs",
                        {"kvserver --cluster=ETCD_URI --server-id=ID …   # on each host"}});
  }
  for (const auto& [id, server] : status.servers)
    findings.push_back(JudgeServer(id, server, status.cluster.id, probe));
}

void CheckShards(const ClusterStatus& status, std::vector<Finding>& findings) {
  for (size_t number = 0; number < status.shards.size(); ++number) {
    const std::string shard = absl::StrCat(number);
    if (!status.shards[number].has_value()) {
      findings.push_back({Outcome::kFail,
                          kShard,
                          absl::StrCat(shard, " has no record in etcd that can be read"),
                          {"find out which program changed it, and restore etcd from a backup"}});
    } else if (status.shards[number]->record.is_initial()) {
      findings.push_back({Outcome::kFail,
                          kShard,
                          absl::StrCat(shard, ": no server has begun it"),
                          {"kvserver --cluster=ETCD_URI --server-id=ID …   # on each host"}});
    } else {
      findings.push_back(JudgeShard(status, shard, status.shards[number]->record));
    }
  }
}

void CheckRoom(const ClusterStatus& status, std::vector<Finding>& findings) {
  uint64_t room = 0, servers = 0;
  for (const auto& [id, server] : status.servers) {
    if (!server.is_renewed || !server.stored.record.has_value()) continue;
    ++servers;
    room += std::min(server.stored.record->slots, status.cluster.shards);
  }
  // With fewer servers each shard has a warning of its own.
  if (servers < status.cluster.replicas) return;
  const uint64_t copies = uint64_t{status.cluster.shards} * status.cluster.replicas;
  const std::string text = absl::StrCat("the servers that run have memory for ", room,
                                        " copies of shards; there are to be ", copies);
  if (room >= copies) {
    findings.push_back({Outcome::kPass, kRoom, text, {}});
  } else {
    findings.push_back({Outcome::kWarn,
                        kRoom,
                        text,
                        {"start more servers, or give them more --memory   # kvcli cluster status "
                         "shows how many shards each has memory for"}});
  }
}

ClusterReport CheckCluster(const EtcdOptions& options, const Machine& machine,
                           absl::Duration timeout) {
  ClusterReport report;
  const std::vector<EndpointAnswer> answers = AskEndpoints(options, timeout);
  CheckEndpoints(answers, report.findings);
  // One that answers with an error has answered.
  report.has_etcd = std::any_of(answers.begin(), answers.end(), [](const EndpointAnswer& answer) {
    return !absl::IsUnavailable(answer.failure) && !absl::IsDeadlineExceeded(answer.failure);
  });
  if (report.has_etcd) CheckInEtcd(options, timeout, report.findings);
  CheckClocks(machine, report.findings);
  return report;
}

}  // namespace osprey::doctor
