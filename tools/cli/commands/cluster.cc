// `kvcli cluster create`, `status` and `accept-loss`: of etcd, without a server.

#include <algorithm>
#include <bit>
#include <cassert>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/etcd/etcd_client.h"
#include "server/cluster/etcd/etcd_flags.h"
#include "tools/cli/commands/cluster_output.h"
#include "tools/cli/commands/run.h"
#include "tools/cluster/accept_loss.h"
#include "tools/cluster/cluster_status.h"
#include "tools/common/size_flag.h"

namespace osprey {
namespace {

constexpr char kCreate[] = "create";
constexpr char kStatus[] = "status";
constexpr char kAcceptLoss[] = "accept-loss";
constexpr uint32_t kReplicasDefault = 3;
constexpr uint32_t kShardsDefault = 1;
constexpr uint64_t kPageBytes = 4096;
// Of the transaction that creates a cluster. It does the same however often it is sent.
constexpr int kCreationsMax = 2;

EtcdFlags EtcdFlagsOf(Arguments arguments, const CommandOptions& options) {
  EtcdFlags flags = options.cluster.etcd;
  flags.uri = arguments[1];
  return flags;
}

absl::Status OutOfRange(absl::string_view flag, absl::string_view given, absl::string_view range) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": ", given, " is out of range; write ", range));
}

// What the flags of create say; without id and seed, which are drawn. Errors: INVALID_ARGUMENT.
absl::StatusOr<ClusterRecord> RecordOf(const CommandOptions& options) {
  if (!options.memory.has_value())
    return absl::InvalidArgumentError(
        "cluster create needs --memory=SIZE, which each server will have");
  ClusterRecord record;
  const uint64_t shards = options.cluster.shards.value_or(kShardsDefault);
  if (!std::has_single_bit(shards) || shards > kShardsMax)
    return OutOfRange("shards", absl::StrCat(shards),
                      absl::StrCat("a power of two up to ", kShardsMax));
  record.shards = static_cast<uint32_t>(shards);
  // CheckUsage has parsed it.
  const uint64_t memory = *server::ParseSize(*options.memory);
  if (memory < shards * kShardBytesMin || memory > kShardBytesMax || memory % kPageBytes != 0) {
    return OutOfRange("memory", *options.memory,
                      absl::StrCat(server::FormatSize(shards * kShardBytesMin), " to ",
                                   server::FormatSize(kShardBytesMax), ", in whole pages of ",
                                   server::FormatSize(kPageBytes)));
  }
  record.shard_bytes = ShardBytes(memory, record.shards);
  const uint64_t replicas = options.cluster.replicas.value_or(kReplicasDefault);
  if (replicas < 1 || replicas > kReplicasMax)
    return OutOfRange("replicas", absl::StrCat(replicas), absl::StrCat("1 to ", kReplicasMax));
  record.replicas = static_cast<uint32_t>(replicas);
  const uint64_t min = options.cluster.min_in_sync.value_or(MinInSync(record.replicas));
  if (min < 1 || min > replicas) {
    return OutOfRange("min-in-sync", absl::StrCat(min),
                      absl::StrCat("1 to --replicas (", replicas, ")"));
  }
  record.min_in_sync = static_cast<uint32_t>(min);
  return record;
}

// Why the cluster could not be created; OK if it was, by an earlier sending.
absl::Status ExplainRefusal(const TransactionResult& result, const EtcdUri& uri,
                            const ClusterRecord& ours) {
  // CreateCluster reads the key `cluster`, and the records of shards.
  assert(result.results.size() == 2);
  if (result.results[0].keys.empty()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "an earlier cluster ", uri.name, " was deleted in part: ", result.results[1].keys.size(),
        " of its shards are left; stop its servers, and delete the rest: etcdctl del --prefix ",
        uri.KeyPrefix()));
  }
  const absl::StatusOr<ClusterRecord> theirs = DecodeClusterRecord(result.results[0].keys[0].value);
  if (theirs.ok() && theirs->id == ours.id) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      "cluster ", uri.name,
      " exists: ", theirs.ok() ? DescribeCluster(*theirs) : std::string(theirs.status().message()),
      "; nothing was changed; start servers of it, or write another name"));
}

// Errors: ALREADY_EXISTS (with what is there), UNKNOWN (it may have been created), and those of
// ConfigurationStore::Execute for what was not applied.
absl::Status Create(ConfigurationStore& store, const EtcdUri& uri, const ClusterRecord& record,
                    absl::Duration timeout) {
  const Transaction creation = CreateCluster(ClusterKeys(uri.KeyPrefix()), record);
  bool is_unknown = false;
  TransactionResult result;
  for (int attempt = 0; attempt < kCreationsMax; ++attempt) {
    result = store.Execute(creation, timeout);
    switch (result.outcome) {
      case TransactionOutcome::kApplied:
        return absl::OkStatus();
      case TransactionOutcome::kRefused:
        return ExplainRefusal(result, uri, record);
      case TransactionOutcome::kNotApplied:
        if (!is_unknown) return result.status;
        break;
      case TransactionOutcome::kUnknown:
        is_unknown = true;
        break;
    }
  }
  return absl::UnknownError(absl::StrCat("cluster ", uri.name,
                                         " was perhaps created: ", result.status.message(),
                                         "; kvcli cluster status shows whether it was"));
}

// Of a call to etcd, or of what it answered.
ExitStatus FailAtEtcd(CommandContext& context, absl::string_view what, const absl::Status& status) {
  context.out->Error(what, status, "");
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
      return ExitStatus::kNo;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitStatus::kCannotConnect;
    default:
      return ExitStatus::kFailed;
  }
}

ExitStatus RunCreate(CommandContext& context, const std::string& what, EtcdClient& etcd) {
  ClusterRecord record = *RecordOf(context.options);
  record.id = DrawWord();
  record.hash_seed = DrawWord();
  const EtcdUri& uri = etcd.options().uri;
  if (absl::Status created = Create(etcd, uri, record, context.timeout); !created.ok())
    return FailAtEtcd(context, what, created);
  const std::string people =
      absl::StrCat("created cluster ", uri.name, ": ", DescribeCluster(record),
                   "\nstart its servers: kvserver --cluster=", uri.ToString(),
                   " --server-id=ID --cluster-listen=URI --cluster-key-file=FILE --listen=URI "
                   "--memory=",
                   server::FormatSize(record.shard_bytes * record.shards));
  context.out->Result(people, ClusterFields(record), ClusterJson(uri.name, record));
  return ExitStatus::kDone;
}

ExitStatus RunStatus(CommandContext& context, const std::string& what, EtcdClient& etcd) {
  const absl::StatusOr<ClusterStatus> status =
      ReadClusterStatus(etcd, etcd.options().uri, context.timeout);
  if (!status.ok()) return FailAtEtcd(context, what, status.status());
  PrintClusterStatus(*context.out, *status);
  for (const absl::Status& error : status->errors) context.out->PartError(what, error, "");
  return status->errors.empty() ? ExitStatus::kDone : ExitStatus::kFailed;
}

// The number of a shard, or an error.
absl::StatusOr<uint64_t> ShardIn(Arguments arguments) {
  uint64_t shard = 0;
  if (arguments.size() == 3 && absl::SimpleAtoi(arguments[2], &shard)) return shard;
  return absl::InvalidArgumentError(
      "cluster accept-loss needs the number of a shard; write: kvcli cluster accept-loss ETCD_URI "
      "SHARD");
}

// Asks on the terminal, because what is given up does not come back.
bool Confirmed(CommandContext& context, const ShardRecord& record, uint64_t shard) {
  if (context.options.yes) return true;
  if (!context.may_ask) return false;
  std::string servers;
  for (const Replica& member : record.in_sync) absl::StrAppend(&servers, " ", member.server);
  context.out->Ask(absl::StrCat("shard ", shard, " was on these servers:", servers,
                                ". If one of their processes can go on, the data comes back. Give "
                                "the data up? Type yes: "));
  std::string answer;
  std::getline(std::cin, answer);
  std::cin.clear();  // Ctrl-D means no, too
  return answer == "yes";
}

ExitStatus RunAcceptLoss(CommandContext& context, const std::string& what, EtcdClient& etcd,
                         uint64_t shard) {
  const EtcdUri& uri = etcd.options().uri;
  const absl::StatusOr<ClusterStatus> status =
      ReadClusterStatus(etcd, uri, context.timeout, EndedRightWait(), /*is_watched=*/true);
  if (!status.ok()) return FailAtEtcd(context, what, status.status());
  const absl::StatusOr<Transaction> transaction =
      AcceptLoss(ClusterKeys(uri.KeyPrefix()), *status, shard);
  if (!transaction.ok()) {
    context.out->Error(what, transaction.status(), "");
    return ExitStatus::kNo;
  }
  if (!Confirmed(context, status->shards[shard]->record, shard)) {
    context.out->Error(
        what,
        absl::FailedPreconditionError("not confirmed; nothing was given up. Write --yes to do so"),
        "");
    return ExitStatus::kNo;
  }
  const TransactionResult result = etcd.Execute(*transaction, context.timeout);
  switch (result.outcome) {
    case TransactionOutcome::kApplied:
      context.out->Result(
          absl::StrCat("gave up the data of shard ", shard, "; the next server begins it, empty"),
          absl::StrCat("shard=", shard, " given_up=yes"),
          nlohmann::json{{"shard", shard}, {"given_up", true}});
      return ExitStatus::kDone;
    case TransactionOutcome::kRefused:
      context.out->Error(
          what, absl::AbortedError("the cluster has changed meanwhile; see kvcli cluster status"),
          "");
      return ExitStatus::kNo;
    case TransactionOutcome::kNotApplied:
      return FailAtEtcd(context, what, result.status);
    case TransactionOutcome::kUnknown:
      break;
  }
  return FailAtEtcd(
      context, what,
      absl::UnknownError(absl::StrCat("perhaps it was given up: ", result.status.message(),
                                      "; kvcli cluster status shows whether it was")));
}

}  // namespace

absl::Status CheckCluster(Arguments arguments, const CommandOptions& options) {
  const bool is_create = arguments[0] == kCreate;
  const bool is_loss = arguments[0] == kAcceptLoss;
  if (!is_create && !is_loss && arguments[0] != kStatus) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no command 'cluster ", arguments[0],
                     "'; it is: kvcli cluster create ETCD_URI --memory=SIZE, cluster status "
                     "ETCD_URI, or cluster accept-loss ETCD_URI SHARD"));
  }
  if (is_loss) {
    if (absl::Status shard = ShardIn(arguments).status(); !shard.ok()) return shard;
  } else if (arguments.size() > 2 || options.yes) {
    return absl::InvalidArgumentError(
        "a shard's number and --yes are of cluster accept-loss; leave them out");
  }
  if (is_create) {
    if (absl::Status record = RecordOf(options).status(); !record.ok()) return record;
  } else if (options.memory || options.cluster.shards || options.cluster.replicas ||
             options.cluster.min_in_sync) {
    return absl::InvalidArgumentError(
        "--memory, --shards, --replicas and --min-in-sync are of cluster create; leave them out");
  }
  return MakeEtcdOptions(EtcdFlagsOf(arguments, options)).status();
}

ExitStatus RunCluster(CommandContext& context, Arguments arguments) {
  const std::string what = absl::StrCat("cluster ", arguments[0], " ", arguments[1]);
  absl::StatusOr<EtcdOptions> options = MakeEtcdOptions(EtcdFlagsOf(arguments, context.options));
  absl::StatusOr<std::unique_ptr<EtcdClient>> etcd =
      options.ok() ? EtcdClient::Create(*std::move(options)) : options.status();
  if (!etcd.ok()) {
    context.out->Error(what, etcd.status(), "");
    return ExitStatus::kFailed;
  }
  if (arguments[0] == kCreate) return RunCreate(context, what, **etcd);
  if (arguments[0] == kStatus) return RunStatus(context, what, **etcd);
  return RunAcceptLoss(context, what, **etcd, *ShardIn(arguments));
}

}  // namespace osprey
