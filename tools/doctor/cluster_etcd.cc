#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "server/cluster/etcd/etcd_client.h"
#include "server/cluster/right/right_times.h"
#include "tools/doctor/cluster.h"

namespace osprey::doctor {
namespace {

constexpr char kEtcd[] = "etcd";
constexpr int kTransactions = 5;
constexpr int kMajorMin = 3;
constexpr int kMinorMin = 4;
// A share of kRenewalTimeout: a slower etcd has little left for a busy minute.
constexpr int kSlowShare = 10;
// Half of etcd's default for --quota-backend-bytes.
constexpr uint64_t kDatabaseBytesMax = uint64_t{1} << 30;

// It is never true, and not read-only: so etcd replicates it as it does a renewal, and nothing changes.
Transaction NoChange(const EtcdUri& uri) {
  const std::string key = uri.KeyPrefix() + "doctor";
  Transaction transaction;
  transaction.compares = {StoreCompare::Version(key, -1)};
  transaction.operations = {StoreOperation::Put(key, "")};
  return transaction;
}

EndpointAnswer Ask(EtcdOptions options, absl::Duration timeout) {
  EndpointAnswer answer;
  answer.address = options.uri.endpoints.front().ToString();
  const Transaction transaction = NoChange(options.uri);
  absl::StatusOr<std::unique_ptr<EtcdClient>> client = EtcdClient::Create(std::move(options));
  answer.failure = client.status();
  if (!client.ok()) return answer;
  absl::StatusOr<EtcdMemberStatus> member = (*client)->MemberStatus(0, timeout);
  answer.failure = member.status();
  if (!member.ok()) return answer;
  answer.member = *std::move(member);
  for (int i = 0; i < kTransactions && answer.failure.ok(); ++i) {
    const absl::Time began = absl::Now();
    answer.failure = (*client)->Execute(transaction, timeout).status;
    // The first one may fetch a token.
    if (i > 0) answer.slowest = std::max(answer.slowest, absl::Now() - began);
  }
  return answer;
}

bool IsOld(const std::string& version) {
  const std::vector<std::string> parts = absl::StrSplit(version, '.');
  int major = 0, minor = 0;
  if (parts.size() < 2 || !absl::SimpleAtoi(parts[0], &major) ||
      !absl::SimpleAtoi(parts[1], &minor))
    return true;
  return std::pair(major, minor) < std::pair(kMajorMin, kMinorMin);
}

std::string Milliseconds(absl::Duration time) {
  return absl::StrCat(absl::ToInt64Milliseconds(time), " ms");
}

Finding JudgeMember(const EndpointAnswer& answer) {
  const std::string& version = answer.member.version;
  if (IsOld(version)) {
    return {Outcome::kFail,
            kEtcd,
            absl::StrCat(answer.address, " has etcd ", Excerpt(version), ", and servers need 3.4"),
            {"apt-get install etcd-server   # on Debian 12: 3.4"}};
  }
  if (answer.member.leader_id == 0) {
    return {Outcome::kFail,
            kEtcd,
            absl::StrCat(answer.address, " has no leader: most of its members must run"),
            {"etcdctl endpoint status --cluster   # which members run"}};
  }
  if (!answer.member.errors.empty()) {
    return {Outcome::kFail,
            kEtcd,
            absl::StrCat(answer.address,
                         " has an alarm: ", Excerpt(absl::StrJoin(answer.member.errors, ", "))),
            {"etcdctl alarm list   # NOSPACE: compact, defrag, and then: etcdctl alarm disarm"}};
  }
  const std::string time = Milliseconds(answer.slowest);
  if (answer.slowest > kRenewalTimeout() / kSlowShare) {
    return {answer.slowest > kRenewalTimeout() ? Outcome::kFail : Outcome::kWarn,
            kEtcd,
            absl::StrCat(answer.address, " takes ", time,
                         " for a transaction: a server gives up after ",
                         Milliseconds(kRenewalTimeout()), ", and then its right may lapse"),
            {"give etcd a faster disk, or one of its own   # see its metric "
             "etcd_disk_wal_fsync_duration_seconds"}};
  }
  if (answer.member.database_bytes > kDatabaseBytesMax) {
    return {Outcome::kWarn,
            kEtcd,
            absl::StrCat(answer.address, " has a database of ", answer.member.database_bytes >> 20,
                         " MiB: servers renew their keys "
                         "each second, and old revisions stay without compaction"),
            {"etcd --auto-compaction-retention=1h   # and once: etcdctl compact, etcdctl defrag"}};
  }
  return {Outcome::kPass,
          kEtcd,
          absl::StrCat(answer.address, " has etcd ", version, ", and takes ", time,
                       " for a transaction"),
          {}};
}

}  // namespace

std::vector<EndpointAnswer> AskEndpoints(const EtcdOptions& options, absl::Duration timeout) {
  std::vector<EndpointAnswer> answers;
  for (const EtcdEndpoint& endpoint : options.uri.endpoints) {
    EtcdOptions one = options;
    one.uri.endpoints = {endpoint};
    answers.push_back(Ask(std::move(one), timeout));
  }
  return answers;
}

void CheckEndpoints(const std::vector<EndpointAnswer>& answers, std::vector<Finding>& findings) {
  const EndpointAnswer* first = nullptr;
  for (const EndpointAnswer& answer : answers) {
    if (!answer.failure.ok()) {
      findings.push_back(FindingOf(Outcome::kFail, kEtcd, answer.failure.message()));
      continue;
    }
    findings.push_back(JudgeMember(answer));
    if (first == nullptr) first = &answer;
    if (answer.member.header.cluster_id == first->member.header.cluster_id) continue;
    findings.push_back(
        {Outcome::kFail,
         kEtcd,
         absl::StrCat(answer.address, " and ", first->address, " are members of different etcds"),
         {"name only members of one etcd in --cluster, at all servers"}});
  }
}

}  // namespace osprey::doctor
