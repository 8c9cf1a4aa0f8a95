// What the store may contain of a cluster, and a data directory of the store: records of any bytes, or
// with the right form and any fields; answers to the watch and to swaps. What is taken keeps to its
// bounds, and is the same when it is written again. An error says what is wrong.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/configuration/configuration_watch.h"
#include "server/cluster/configuration/shard_swaps.h"
#include "server/cluster/configuration/store_identity.h"
#include "server/cluster/configuration/swap_tracker.h"
#include "server/cluster/right/server_record.h"
#include "server/wal/format/checksum.h"
#include "tests/fuzz/support/input.h"

namespace osprey {
namespace {

using fuzz::Input;

const ClusterKeys& Keys() {
  static const ClusterKeys keys("/osprey/a/");
  return keys;
}

void MustBeError(const absl::Status& status) {
  OSPREY_MUST(status.code() == absl::StatusCode::kDataLoss ||
                  status.code() == absl::StatusCode::kFailedPrecondition,
              "an error of another kind");
  OSPREY_MUST(!status.message().empty() && status.message().size() < 800, "an error of no use");
}

// --- Records

std::string AnyValue(Input& input) {
  switch (input.Choice(6)) {
    case 0:
      return absl::StrCat("\"", absl::Hex(input.Number(), absl::kZeroPad16), "\"");
    case 1:
      return absl::StrCat(input.Number());
    case 2:
      return absl::StrCat("\"", input.Text(8), "\"");
    case 3:
      return "[]";
    case 4:
      return "{}";
    default:
      return input.Text(8);
  }
}

std::string Field(Input& input, absl::string_view name, absl::string_view usual) {
  if (input.OneIn(8)) return absl::StrCat(",\"", name, "\":", AnyValue(input));
  return input.OneIn(16) ? "" : absl::StrCat(",\"", name, "\":", usual);
}
std::string Object(const std::string& fields) {
  return absl::StrCat("{", fields.empty() ? "" : fields.substr(1), "}");
}

std::string Id(Input& input) {
  return absl::StrCat("\"", absl::Hex(1 + input.Choice(4), absl::kZeroPad16), "\"");
}
std::string Server(Input& input) {
  return std::string(1, static_cast<char>('a' + input.Choice(3)));
}

std::string ReplicaJson(Input& input) {
  return Object(absl::StrCat(Field(input, "server", absl::StrCat("\"", Server(input), "\"")),
                             Field(input, "create_revision", absl::StrCat(1 + input.Choice(4))),
                             Field(input, "incarnation", Id(input)),
                             Field(input, "life", Id(input))));
}
std::string ShardText(Input& input) {
  if (input.OneIn(8)) return input.Text(80);
  std::string in_sync;
  for (uint32_t left = input.Choice(4); left > 0; --left)
    absl::StrAppend(&in_sync, in_sync.empty() ? "" : ",", ReplicaJson(input));
  return Object(absl::StrCat(Field(input, "format", "1"),
                             Field(input, "term", absl::StrCat(input.Choice(3))),
                             Field(input, "primary", absl::StrCat("\"", Server(input), "\"")),
                             Field(input, "in_sync", absl::StrCat("[", in_sync, "]"))));
}
std::string ClusterText(Input& input) {
  return Object(absl::StrCat(Field(input, "format", "1"), Field(input, "id", Id(input)),
                             Field(input, "shards", "64"), Field(input, "replicas", "3"),
                             Field(input, "min_in_sync", "2"), Field(input, "hash_seed", Id(input)),
                             Field(input, "shard_bytes", "1073741824")));
}
std::string ServerText(Input& input) {
  if (input.OneIn(8)) return input.Text(80);
  return Object(absl::StrCat(Field(input, "incarnation", Id(input)),
                             Field(input, "counter", absl::StrCat(input.Number())),
                             Field(input, "addresses", R"(["rdma://a"])")));
}

void MustFit(const ShardRecord& record) {
  OSPREY_MUST(record.term <= kTermMax && record.in_sync.size() <= kMembersMax, "beyond its bounds");
  OSPREY_MUST(record.is_initial() == record.in_sync.empty(), "a term without a replica");
  OSPREY_MUST(record.primary.empty() || record.Find(record.primary) != nullptr,
              "a primary that is not in sync");
  for (const Replica& replica : record.in_sync) {
    OSPREY_MUST(IsServerId(replica.server) && replica.create_revision >= 1 &&
                    replica.incarnation != 0 && replica.life != 0,
                "no replica");
    OSPREY_MUST(record.Find(replica.server) == &replica, "a server twice");
  }
  const auto again = DecodeShardRecord(EncodeShardRecord(record));
  OSPREY_MUST(again.ok() && *again == record, "another record when it is written again");
}

void TakeRecords(Input& input) {
  const bool has_form = input.Flag();
  const std::string rest = has_form ? "" : input.Rest();
  const auto shard = DecodeShardRecord(has_form ? ShardText(input) : rest);
  if (shard.ok())
    MustFit(*shard);
  else
    MustBeError(shard.status());
  const auto cluster = DecodeClusterRecord(has_form ? ClusterText(input) : rest);
  if (cluster.ok()) {
    OSPREY_MUST(Validate(*cluster).ok(), "a record of no cluster");
    const auto again = DecodeClusterRecord(EncodeClusterRecord(*cluster));
    OSPREY_MUST(again.ok() && *again == *cluster, "another record when it is written again");
    OSPREY_MUST(CreateCluster(Keys(), *cluster).compares.size() <= 128, "too large a transaction");
  } else {
    MustBeError(cluster.status());
  }
  const auto server = DecodeServerRecord(has_form ? ServerText(input) : rest);
  if (server.ok())
    OSPREY_MUST(server->incarnation != 0 && server->addresses.size() <= kServerAddressesMax,
                "beyond its bounds");
  else
    MustBeError(server.status());
  if (const auto number = Keys().ParseShard(rest); number.has_value())
    OSPREY_MUST(Keys().Shard(*number) == rest, "another key");
}

// --- The image of the store's identity

void TakeImage(Input& input) {
  StoreIdentity whole(1 + input.Number() / 2);
  if (input.Flag()) (void)whole.Check({1 + input.Number() / 2, 1, 1 + input.Choice(100)}, 0);
  std::string image = whole.Image();
  for (uint32_t left = input.Choice(4); left > 0; --left)
    image[input.Choice(static_cast<uint32_t>(image.size()))] = static_cast<char>(input.Byte());
  if (input.Flag()) {
    const uint64_t checksum = server::wal::Checksum(
        {reinterpret_cast<const std::byte*>(image.data()), image.size() - sizeof(uint64_t)}, 0);
    image.replace(image.size() - sizeof(checksum), sizeof(checksum),
                  reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  }
  auto read = StoreIdentity::FromImage(image);
  if (!read.ok()) return MustBeError(read.status());
  OSPREY_MUST(read->Image() == image, "another image when it is written again");
  const int64_t before = read->revision();
  if (read->Check({input.Number(), 1, static_cast<int64_t>(input.Number())}, before).ok())
    OSPREY_MUST(read->revision() >= std::max<int64_t>(before, 1), "a store that went back");
}

// --- A script of answers

StoredKey AnyKey(Input& input, int64_t revision) {
  StoredKey key;
  switch (input.Choice(4)) {
    case 0:
      key.key = Keys().Servers() + (input.Flag() ? Server(input) : input.Text(4));
      break;
    case 1:
      key.key = Keys().Shards() + input.Text(3);
      break;
    default:
      key.key = Keys().Shard(input.Choice(5));
      break;
  }
  key.create_revision = 1 + input.Choice(4);
  key.mod_revision = std::max<int64_t>(key.create_revision, revision - input.Choice(3));
  key.value = input.Flag() ? ShardText(input) : ServerText(input);
  key.version = 1;
  return key;
}

absl::StatusOr<ShardSwap> AnySwap(Input& input, const StoredShard& seen) {
  const ShardRecord& record = seen.record;
  ShardAuthor author{Keys(), {Server(input), 1 + input.Choice(4), 1 + input.Choice(4), 7}};
  if (!record.in_sync.empty() && input.Flag())
    author.self = record.in_sync[input.Choice(static_cast<uint32_t>(record.in_sync.size()))];
  switch (input.Choice(7)) {
    case 0:
      return AdoptShard(author, seen, input.Number());
    case 1:
      return DropMember(author, seen, Server(input), input.Choice(3));
    case 2:
      return AddMember(author, seen, {Server(input), input.Choice(3), 3, input.Choice(3)});
    case 3:
      return PromoteSelf(author, seen, input.Choice(4), input.Number());
    case 4:
      return HandOver(author, seen, Server(input), input.Number());
    case 5: {
      const Replica before = author.self;
      author.self.incarnation += input.Choice(2);
      author.self.create_revision += input.Choice(2);
      return ResumePlace(author, seen, before);
    }
    default:
      return RenewRecord(author, seen);
  }
}

void TakeAnswers(Input& input) {
  ConfigurationWatch watch(Keys(), 4);
  SwapTracker tracker(0);
  bool is_sent = false;
  while (!input.empty()) {
    const int64_t revision = 1 + input.Choice(20);
    RangeAnswer answer{{1, 1, revision}, {}};
    for (uint32_t left = input.Choice(4); left > 0; --left)
      answer.keys.push_back(AnyKey(input, revision));
    const StoreRange asked = watch.ShardsRange();
    for (const WatchNews& news : {watch.TakeServers(answer), watch.TakeShards(asked, answer)}) {
      OSPREY_MUST(news.errors.size() <= kWatchErrorsMax, "too many errors");
      for (const absl::Status& error : news.errors) MustBeError(error);
      OSPREY_MUST(news.is_news || (news.changed.empty() && news.errors.empty()),
                  "an old answer that changed something");
    }
    for (uint32_t shard = 0; shard < 4; ++shard) {
      if (watch.Shard(shard) != nullptr) MustFit(watch.Shard(shard)->record);
    }
    if (watch.Shard(0) != nullptr) (void)tracker.Saw(*watch.Shard(0));
    if (is_sent && input.Flag()) {
      TransactionResult result;
      result.outcome = static_cast<TransactionOutcome>(input.Choice(4));
      result.header = answer.header;
      result.results.resize(input.Choice(3));
      for (OperationResult& one : result.results)
        for (uint32_t left = input.Choice(3); left > 0; --left)
          one.keys.push_back(AnyKey(input, revision));
      const absl::Status status = tracker.TakeAnswer(result, input.Choice(2));
      if (!status.ok()) MustBeError(status);
      is_sent = false;
    } else if (!is_sent) {
      const absl::StatusOr<ShardSwap> swap = AnySwap(input, tracker.shard());
      if (!swap.ok()) {
        MustBeError(swap.status());
      } else {
        MustFit(swap->next);
        OSPREY_MUST(SwapTransaction(Keys(), {*swap}).compares.size() <= 3, "too many compares");
        is_sent = tracker.MayBegin(*swap);
        if (is_sent) tracker.Begin(*swap);
      }
    }
    const std::vector<Replica> counted = tracker.Counted();
    for (const Replica& member : tracker.shard().record.in_sync)
      OSPREY_MUST(std::find(counted.begin(), counted.end(), member) != counted.end(),
                  "a member that is not counted");
  }
}

}  // namespace
}  // namespace osprey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::fuzz::Input input(data, size);
  switch (input.Choice(3)) {
    case 0:
      osprey::TakeRecords(input);
      break;
    case 1:
      osprey::TakeImage(input);
      break;
    default:
      osprey::TakeAnswers(input);
      break;
  }
  return 0;
}
