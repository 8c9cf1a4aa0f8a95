#include "server/cluster/configuration/cluster_record.h"

#include <bit>
#include <cassert>
#include <limits>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/cluster/configuration/shard_record.h"
#include "server/cluster/etcd/json_text.h"
#include "server/cluster/etcd/record_reader.h"

namespace osprey {
namespace {

constexpr uint64_t kPageBytes = 4096;

}  // namespace

absl::Status Validate(const ClusterRecord& record) {
  const auto wrong = [](auto... why) { return absl::InvalidArgumentError(absl::StrCat(why...)); };
  if (record.id == 0) return wrong("a cluster's id is random, and not 0");
  if (record.hash_seed == 0) return wrong("a cluster's hash_seed is random, and not 0");
  if (!std::has_single_bit(record.shards) || record.shards > kShardsMax)
    return wrong("shards is ", record.shards, "; use a power of two up to ", kShardsMax);
  if (record.replicas < 1 || record.replicas > kReplicasMax)
    return wrong("replicas is ", record.replicas, "; use 1 to ", kReplicasMax);
  if (record.min_in_sync < 1 || record.min_in_sync > record.replicas)
    return wrong("min_in_sync is ", record.min_in_sync, "; use 1 to ", record.replicas);
  if (record.shard_bytes < kShardBytesMin || record.shard_bytes > kShardBytesMax ||
      record.shard_bytes % kPageBytes != 0)
    return wrong("shard_bytes is ", record.shard_bytes, "; use a multiple of ", kPageBytes,
                 " from ", kShardBytesMin, " to ", kShardBytesMax);
  return absl::OkStatus();
}

std::string EncodeClusterRecord(const ClusterRecord& record) {
  const nlohmann::json json = {
      {"format", record.format},           {"id", RecordId(record.id)},
      {"shards", record.shards},           {"replicas", record.replicas},
      {"min_in_sync", record.min_in_sync}, {"hash_seed", RecordId(record.hash_seed)},
      {"shard_bytes", record.shard_bytes},
  };
  return JsonText(json);
}

absl::StatusOr<ClusterRecord> DecodeClusterRecord(absl::string_view text) {
  RecordReader reader("the cluster's record", text, kClusterRecordBytesMax);
  const nlohmann::json& json = reader.json();
  const auto number = [&](const char* name) {
    return static_cast<uint32_t>(
        reader.Number(json, name, 0, std::numeric_limits<uint32_t>::max()));
  };
  ClusterRecord record;
  record.format = number("format");
  if (reader.ok() && record.format > kClusterFormat)
    return absl::FailedPreconditionError(absl::StrCat("the cluster has format ", record.format,
                                                      ", and this program reads up to ",
                                                      kClusterFormat, "; use a newer program"));
  if (record.format == 0) reader.Fail("has format 0");
  record.id = reader.Id(json, "id");
  record.shards = number("shards");
  record.replicas = number("replicas");
  record.min_in_sync = number("min_in_sync");
  record.hash_seed = reader.Id(json, "hash_seed");
  record.shard_bytes = reader.Number(json, "shard_bytes", 0, kShardBytesMax);
  if (const absl::Status valid = Validate(record); reader.ok() && !valid.ok())
    reader.Fail(absl::StrCat("is of no cluster: ", valid.message()));
  if (!reader.ok()) return reader.status();
  return record;
}

Transaction CreateCluster(const ClusterKeys& keys, const ClusterRecord& record) {
  assert(Validate(record).ok());
  Transaction creation;
  const auto create = [&](const std::string& key, const std::string& value) {
    creation.compares.push_back(StoreCompare::Absent(key));
    creation.operations.push_back(StoreOperation::Put(key, value));
  };
  create(keys.Cluster(), EncodeClusterRecord(record));
  const std::string initial = EncodeShardRecord(ShardRecord());
  for (uint32_t shard = 0; shard < record.shards; ++shard) create(keys.Shard(shard), initial);
  creation.otherwise = {{keys.Cluster()}, {keys.Shards(), /*is_prefix=*/true}};
  return creation;
}

}  // namespace osprey
