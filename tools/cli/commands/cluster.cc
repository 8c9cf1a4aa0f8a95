// `kvcli cluster …`: of etcd, without a server.

#include <algorithm>
#include <bit>
#include <cassert>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/etcd/etcd_client.h"
#include "server/cluster/etcd/etcd_flags.h"
#include "server/program/size_flag.h"
#include "tools/cli/commands/cluster_output.h"
#include "tools/cli/commands/run.h"
#include "tools/cluster/accept_loss.h"
#include "tools/cluster/cluster_status.h"
#include "tools/cluster/moves.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/progress.h"

namespace osprey {
namespace {

constexpr char kCreate[] = "create";
constexpr char kStatus[] = "status";
constexpr char kAcceptLoss[] = "accept-loss";
constexpr char kMove[] = "move";
constexpr char kCancelMove[] = "cancel-move";
constexpr char kAwaitMoves[] = "await-moves";
constexpr char kRebalance[] = "rebalance";
constexpr char kDrain[] = "drain";

// The commands, with what follows ETCD_URI.
struct ClusterCommand {
  const char* name;
  size_t arguments;  // name and URI included
  const char* usage;
  bool takes_yes;
};
constexpr ClusterCommand kClusterCommands[] = {
    {kCreate, 2, "create ETCD_URI --memory=SIZE", false},
    {kStatus, 2, "status ETCD_URI", false},
    {kMove, 5, "move ETCD_URI SHARD FROM TO", false},
    {kCancelMove, 3, "cancel-move ETCD_URI SHARD", false},
    {kAwaitMoves, 2, "await-moves ETCD_URI", false},
    {kRebalance, 2, "rebalance ETCD_URI [--yes]", true},
    {kDrain, 3, "drain ETCD_URI SERVER [--yes]", true},
    {kAcceptLoss, 3, "accept-loss ETCD_URI SHARD [--yes]", true},
};

bool TakesShard(absl::string_view command) {
  return command == kMove || command == kCancelMove || command == kAcceptLoss;
}

constexpr uint32_t kReplicasDefault = 3;
constexpr uint32_t kShardsDefault = 1;
constexpr uint64_t kPageBytes = 4096;
// How often await-moves reads the records: a move takes seconds.
constexpr absl::Duration kMovesInterval() { return absl::Milliseconds(500); }
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
        "cluster create needs --memory=SIZE, for one copy of all keys");
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

absl::StatusOr<uint64_t> ShardArgument(Arguments arguments) {
  uint64_t shard = 0;
  if (absl::SimpleAtoi(arguments[2], &shard)) return shard;
  return absl::InvalidArgumentError(absl::StrCat(
      "cluster ", arguments[0], " needs the number of a shard, as kvcli cluster status shows it"));
}

// Of one transaction, which compares what was read.
ExitStatus Execute(CommandContext& context, const std::string& what, EtcdClient& etcd,
                   const Transaction& transaction) {
  const TransactionResult result = etcd.Execute(transaction, context.timeout);
  switch (result.outcome) {
    case TransactionOutcome::kApplied:
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
      absl::UnknownError(absl::StrCat("perhaps it was done: ", result.status.message(),
                                      "; kvcli cluster status shows whether it was")));
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
  if (const ExitStatus executed = Execute(context, what, etcd, *transaction);
      executed != ExitStatus::kDone)
    return executed;
  context.out->Result(
      absl::StrCat("gave up the data of shard ", shard, "; the next server begins it, empty"),
      absl::StrCat("shard=", shard, " given_up=yes"),
      nlohmann::json{{"shard", shard}, {"given_up", true}});
  return ExitStatus::kDone;
}

// Copies that are to be at another server.
uint64_t Moving(const ClusterStatus& status) {
  return static_cast<uint64_t>(std::count_if(
      status.shards.begin(), status.shards.end(), [](const std::optional<StoredShard>& shard) {
        return shard.has_value() && shard->record.move.has_value();
      }));
}

// Rounded up.
std::string SecondsText(absl::Duration time) {
  return absl::FormatDuration(absl::Ceil(time, absl::Seconds(1)));
}

void PrintMoves(CommandContext& context, const ClusterStatus& status,
                const std::vector<PlacedMove>& moves, bool begun) {
  std::vector<std::string> people, plain;
  Json json;
  json["begun"] = begun;
  json["moves"] = Json::array();
  for (const PlacedMove& move : moves) {
    people.push_back(
        absl::StrCat("  shard ", move.shard, ": from ", move.move.from, " to ", move.move.to));
    plain.push_back(absl::StrCat("shard=", move.shard, " from=", move.move.from,
                                 " to=", move.move.to, " begun=", begun ? "yes" : "no"));
    json["moves"].push_back(
        Json{{"shard", move.shard}, {"from", move.move.from}, {"to", move.move.to}});
  }
  const MovesCost cost = CostOf(status, moves);
  json["bytes_most"] = cost.bytes;
  if (cost.time.has_value()) json["seconds_at_copy_rate"] = absl::ToDoubleSeconds(*cost.time);
  const uint64_t moving = Moving(status);
  json["moving"] = moving;
  if (moves.empty()) plain.push_back(absl::StrCat("moves=0 moving=", moving));
  std::string first = "no copy has to move";
  if (moves.empty() && moving > 0) {
    first = absl::StrCat("no other copy can begin to move; ", moving,
                         " move already: run this again when kvcli cluster status shows no move");
  }
  if (!moves.empty() && begun) {
    first =
        "the servers move these copies, one to each server at a time; kvcli cluster status "
        "shows how far they are";
  } else if (!moves.empty()) {
    first = absl::StrCat(
        "these copies would move, of up to ", server::FormatSize(cost.bytes), " in all",
        cost.time.has_value() ? absl::StrCat(", which take up to ", SecondsText(*cost.time),
                                             " at the servers' --copy-rate")
                              : ", as fast as the network allows, since not all servers "
                                "that send them have a --copy-rate",
        "; nothing was changed, --yes does so");
  }
  people.insert(people.begin(), first);
  context.out->Result(absl::StrJoin(people, "\n"), absl::StrJoin(plain, "\n"), json);
}

ExitStatus Begin(CommandContext& context, const std::string& what, EtcdClient& etcd,
                 const ClusterStatus& status, const std::vector<PlacedMove>& moves) {
  const absl::StatusOr<std::vector<Transaction>> transactions =
      BeginMoves(ClusterKeys(etcd.options().uri.KeyPrefix()), status, moves);
  if (!transactions.ok()) {
    context.out->Error(what, transactions.status(), "");
    return ExitStatus::kNo;
  }
  size_t begun = 0;
  for (const Transaction& transaction : *transactions) {
    if (const ExitStatus executed = Execute(context, what, etcd, transaction);
        executed != ExitStatus::kDone) {
      if (begun > 0) PrintMoves(context, status, {moves.begin(), moves.begin() + begun}, true);
      return executed;
    }
    begun += transaction.operations.size();
  }
  PrintMoves(context, status, moves, /*begun=*/true);
  return ExitStatus::kDone;
}

// Until no copy moves. The servers go on without this command, whatever ends it.
ExitStatus RunAwaitMoves(CommandContext& context, const std::string& what, EtcdClient& etcd) {
  const CatchInterrupts catching;
  std::optional<Progress> progress;
  uint64_t most = 0;
  for (;;) {
    const absl::StatusOr<ClusterStatus> status =
        ReadClusterStatus(etcd, etcd.options().uri, context.timeout, absl::ZeroDuration());
    if (progress.has_value()) progress->Clear();
    if (!status.ok()) return FailAtEtcd(context, what, status.status());
    for (const absl::Status& error : status->errors) context.out->PartError(what, error, "");
    if (!status->errors.empty()) return ExitStatus::kFailed;
    const uint64_t moving = Moving(*status);
    if (moving == 0) break;
    if (Interrupted()) {
      context.out->Error(what,
                         absl::CancelledError(absl::StrCat(
                             "copies that move: ", moving,
                             "; the servers go on; kvcli cluster status shows how far they are")),
                         "");
      return ExitStatus::kNo;
    }
    most = std::max(most, moving);
    if (!progress.has_value()) progress.emplace(context.draws_err, "moves", most);
    progress->Update(most - moving, 0, 0);
    SleepUnlessInterrupted(kMovesInterval());
  }
  context.out->Result("no copy moves", "moving=0", nlohmann::json{{"moving", 0}});
  return ExitStatus::kDone;
}

// move, cancel-move, rebalance and drain.
ExitStatus RunMoves(CommandContext& context, const std::string& what, EtcdClient& etcd,
                    Arguments arguments) {
  const EtcdUri& uri = etcd.options().uri;
  const absl::StatusOr<ClusterStatus> status = ReadClusterStatus(etcd, uri, context.timeout);
  if (!status.ok()) return FailAtEtcd(context, what, status.status());
  if (arguments[0] == kCancelMove) {
    const uint64_t shard = *ShardArgument(arguments);
    const absl::StatusOr<Transaction> transaction =
        CancelMove(ClusterKeys(uri.KeyPrefix()), *status, shard);
    if (!transaction.ok()) {
      context.out->Error(what, transaction.status(), "");
      return ExitStatus::kNo;
    }
    if (const ExitStatus executed = Execute(context, what, etcd, *transaction);
        executed != ExitStatus::kDone)
      return executed;
    context.out->Result(absl::StrCat("the copies of shard ", shard, " stay where they are"),
                        absl::StrCat("shard=", shard, " cancelled=yes"),
                        nlohmann::json{{"shard", shard}, {"cancelled", true}});
    return ExitStatus::kDone;
  }
  if (arguments[0] == kMove) {
    const uint64_t shard = *ShardArgument(arguments);
    if (const absl::Status known = ShardIn(*status, shard).status(); !known.ok()) {
      context.out->Error(what, known, "");
      return ExitStatus::kNo;
    }
    return Begin(context, what, etcd, *status,
                 {{static_cast<uint32_t>(shard), {arguments[3], arguments[4]}}});
  }
  // *Else* what cannot be read counts as no copy.
  for (const absl::Status& error : status->errors) context.out->PartError(what, error, "");
  if (!status->errors.empty()) return ExitStatus::kFailed;
  const absl::StatusOr<std::vector<PlacedMove>> moves =
      arguments[0] == kDrain ? PlanDrain(*status, arguments[2]) : PlanRebalance(*status);
  if (!moves.ok()) {
    context.out->Error(what, moves.status(), "");
    return ExitStatus::kNo;
  }
  if (context.options.yes && !moves->empty()) return Begin(context, what, etcd, *status, *moves);
  PrintMoves(context, *status, *moves, /*begun=*/false);
  return ExitStatus::kDone;
}

}  // namespace

absl::Status CheckCluster(Arguments arguments, const CommandOptions& options) {
  const auto* const command =
      std::find_if(std::begin(kClusterCommands), std::end(kClusterCommands),
                   [&](const ClusterCommand& one) { return arguments[0] == one.name; });
  if (command == std::end(kClusterCommands)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no command 'cluster ", arguments[0], "'; it is: kvcli cluster ",
        absl::StrJoin(
            kClusterCommands, ", cluster ",
            [](std::string* out, const ClusterCommand& one) { absl::StrAppend(out, one.usage); })));
  }
  if (arguments.size() != command->arguments || (options.yes && !command->takes_yes))
    return absl::InvalidArgumentError(absl::StrCat("write: kvcli cluster ", command->usage));
  if (TakesShard(arguments[0])) {
    if (absl::Status shard = ShardArgument(arguments).status(); !shard.ok()) return shard;
  }
  if (arguments[0] == kCreate) {
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
  if (arguments[0] == kAcceptLoss)
    return RunAcceptLoss(context, what, **etcd, *ShardArgument(arguments));
  if (arguments[0] == kAwaitMoves) return RunAwaitMoves(context, what, **etcd);
  return RunMoves(context, what, **etcd, arguments);
}

}  // namespace osprey
