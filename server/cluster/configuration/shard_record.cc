#include "server/cluster/configuration/shard_record.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/etcd/json_text.h"
#include "server/cluster/etcd/record_reader.h"

namespace osprey {
namespace {

using Json = nlohmann::json;

Replica ReadReplica(RecordReader& reader, const Json& json) {
  Replica replica;
  replica.server = reader.Text(json, "server");
  if (reader.ok() && !IsServerId(replica.server)) reader.Fail("names a server by no server's ID");
  replica.create_revision = static_cast<int64_t>(
      reader.Number(json, "create_revision", 1, std::numeric_limits<int64_t>::max()));
  replica.incarnation = reader.Id(json, "incarnation");
  replica.life = reader.Id(json, "life");
  return replica;
}

}  // namespace

const Replica* ShardRecord::Find(absl::string_view server) const {
  const auto found = std::find_if(in_sync.begin(), in_sync.end(),
                                  [&](const Replica& one) { return one.server == server; });
  return found == in_sync.end() ? nullptr : &*found;
}

size_t ShardRecord::Staying() const {
  return in_sync.size() - (move.has_value() && Find(move->from) != nullptr ? 1 : 0);
}

bool ShardRecord::Has(const Replica& replica) const {
  return std::find(in_sync.begin(), in_sync.end(), replica) != in_sync.end();
}

std::string EncodeShardRecord(const ShardRecord& record) {
  Json in_sync = Json::array();
  for (const Replica& replica : record.in_sync) {
    in_sync.push_back({{"server", replica.server},
                       {"create_revision", replica.create_revision},
                       {"incarnation", RecordId(replica.incarnation)},
                       {"life", RecordId(replica.life)}});
  }
  Json json = {
      {"format", kShardRecordFormat},
      {"term", record.term},
      {"primary", record.primary},
      {"in_sync", std::move(in_sync)},
  };
  if (record.move.has_value())
    json["move"] = {{"from", record.move->from}, {"to", record.move->to}};
  return JsonText(json);
}

absl::StatusOr<ShardRecord> DecodeShardRecord(absl::string_view text) {
  RecordReader reader("a shard's record", text, kShardRecordBytesMax);
  const Json& json = reader.json();
  const uint64_t format = reader.Number(json, "format", 1, std::numeric_limits<uint32_t>::max());
  if (reader.ok() && format > kShardRecordFormat)
    return absl::FailedPreconditionError(absl::StrCat("a shard's record has format ", format,
                                                      ", and this program reads up to ",
                                                      kShardRecordFormat, "; use a newer program"));
  ShardRecord record;
  record.term = reader.Number(json, "term", 0, kTermMax);
  record.primary = reader.Text(json, "primary");
  for (const Json& one : reader.List(json, "in_sync", kMembersMax)) {
    Replica replica = ReadReplica(reader, one);
    if (!reader.ok()) break;
    if (record.Find(replica.server) != nullptr)
      reader.Fail(absl::StrCat("has server ", replica.server, " in in_sync twice"));
    record.in_sync.push_back(std::move(replica));
  }
  if (record.term == 0 && !record.in_sync.empty())
    reader.Fail("has a replica before its first term");
  if (!record.primary.empty() && record.Find(record.primary) == nullptr)
    reader.Fail("has a primary that is not in sync");
  if (json.contains("move")) {
    ShardMove move{reader.Text(json["move"], "from"), reader.Text(json["move"], "to")};
    if (!IsServerId(move.from) || !IsServerId(move.to) || move.from == move.to)
      reader.Fail("has a move that is not from one server to another");
    record.move = std::move(move);
  }
  if (!reader.ok()) return reader.status();
  return record;
}

}  // namespace osprey
