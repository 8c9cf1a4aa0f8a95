#include "tools/cli/commands/cluster_output.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/cluster/configuration/shard_record.h"
#include "server/cluster/etcd/record_reader.h"
#include "server/program/printable.h"
#include "server/program/size_flag.h"

namespace osprey {
namespace {

std::string Plural(uint64_t number, absl::string_view thing) {
  return absl::StrCat(number, " ", thing, number == 1 ? "" : "s");
}

// What the store has is any text: it is escaped.
std::string Addresses(const ServerRecord& record, absl::string_view separator) {
  return absl::StrJoin(record.addresses, separator,
                       [](std::string* out, const std::string& address) {
                         absl::StrAppend(out, EscapedField(address));
                       });
}

std::string Names(const std::vector<Replica>& members, absl::string_view separator) {
  return absl::StrJoin(members, separator, [](std::string* out, const Replica& member) {
    absl::StrAppend(out, member.server);
  });
}

std::vector<Replica> WithoutKey(const ClusterStatus& status, const ShardRecord& record) {
  std::vector<Replica> ended;
  for (const Replica& member : record.in_sync) {
    if (!status.HasKey(member)) ended.push_back(member);
  }
  return ended;
}

uint64_t MissingIn(const ClusterRecord& cluster, const ShardRecord& record) {
  return cluster.replicas - std::min<uint64_t>(cluster.replicas, record.in_sync.size());
}

// Of all shards, as their records say.
struct Held {
  uint64_t primaries = 0, copies = 0;  // of these: it is the primary; it is in sync
};

Held HeldBy(const ClusterStatus& status, const std::string& id) {
  Held held;
  for (const std::optional<StoredShard>& shard : status.shards) {
    if (!shard.has_value() || shard->record.Find(id) == nullptr) continue;
    ++held.copies;
    if (shard->record.primary == id) ++held.primaries;
  }
  return held;
}

// A server in one line, without its end.
std::string ServerForPeople(const ClusterStatus& status, const std::string& id,
                            const ClusterStatus::Server& server) {
  if (!server.stored.record.has_value())
    return absl::StrCat("  server ", id, ": its record cannot be read");
  const ServerRecord& record = *server.stored.record;
  const Held held = HeldBy(status, id);
  return absl::StrCat(
      "  server ", id, ": ", Addresses(record, ", "),
      record.zone.empty() ? "" : "; zone " + record.zone, "; primary of ", held.primaries,
      ", copies of ", held.copies, ", memory for ", Plural(record.slots, "shard"), "; incarnation ",
      RecordId(record.incarnation), ", ", Plural(record.counter, "renewal"),
      server.is_renewed ? ""
                        : absl::StrCat("; no renewal in ", absl::FormatDuration(kRenewalWait()),
                                       ": it has ended, or is cut off from etcd"));
}

std::string ShardForPeople(const ClusterStatus& status, uint32_t shard) {
  std::string text = absl::StrCat("  shard ", shard, ": ");
  if (!status.shards[shard].has_value()) return text + "it has no readable record";
  const ShardRecord& record = status.shards[shard]->record;
  if (record.is_initial()) {
    return text + (record.term == 0 ? "no server has begun it; start the servers"
                                    : "its data was given up; the next server begins it, empty");
  }
  absl::StrAppend(&text, "term ", record.term, ", ",
                  record.primary.empty() ? "no primary" : "primary " + record.primary, ", in sync ",
                  Names(record.in_sync, " "));
  const uint64_t missing = MissingIn(status.cluster, record);
  if (missing > 0)
    absl::StrAppend(&text, "; ", record.in_sync.size(), " of ",
                    Plural(status.cluster.replicas, "replica"));
  if (record.move.has_value())
    absl::StrAppend(&text, "; the copy of ", record.move->from, " moves to ", record.move->to);
  if (record.in_sync.size() < status.cluster.min_in_sync)
    absl::StrAppend(&text, ", too few for writes");
  if (const std::vector<Replica> ended = WithoutKey(status, record); !ended.empty())
    absl::StrAppend(&text, "; ended: ", Names(ended, " "));
  return text;
}

std::string ServerPlain(const ClusterStatus& status, const std::string& id,
                        const ClusterStatus::Server& server) {
  if (!server.stored.record.has_value()) return absl::StrCat("server=", id, " readable=no");
  const ServerRecord& record = *server.stored.record;
  const Held held = HeldBy(status, id);
  return absl::StrCat("server=", id, " incarnation=", RecordId(record.incarnation),
                      " renewals=", record.counter, " renewed=", server.is_renewed ? "yes" : "no",
                      " primaries=", held.primaries, " copies=", held.copies,
                      " slots=", record.slots, " zone=", record.zone,
                      " addresses=", Addresses(record, ","));
}

std::string ShardPlain(const ClusterStatus& status, uint32_t shard) {
  if (!status.shards[shard].has_value()) return absl::StrCat("shard=", shard, " readable=no");
  const ShardRecord& record = status.shards[shard]->record;
  return absl::StrCat(
      "shard=", shard, " term=", record.term, " primary=", record.primary,
      " in_sync=", Names(record.in_sync, ","), " missing=", MissingIn(status.cluster, record),
      record.move.has_value() ? absl::StrCat(" move=", record.move->from, ":", record.move->to)
                              : "",
      " ended=", Names(WithoutKey(status, record), ","));
}

Json ServerJson(const ClusterStatus& status, const std::string& id,
                const ClusterStatus::Server& server) {
  Json json;
  json["server"] = id;
  json["readable"] = server.stored.record.has_value();
  if (!server.stored.record.has_value()) return json;
  json["incarnation"] = RecordId(server.stored.record->incarnation);
  json["addresses"] = server.stored.record->addresses;
  json["renewals"] = server.stored.record->counter;
  json["renewed"] = server.is_renewed;
  const Held held = HeldBy(status, id);
  json["primaries"] = held.primaries;
  json["copies"] = held.copies;
  json["slots"] = server.stored.record->slots;
  json["zone"] = server.stored.record->zone;
  return json;
}

Json ShardJson(const ClusterStatus& status, uint32_t shard) {
  Json json;
  json["shard"] = shard;
  json["readable"] = status.shards[shard].has_value();
  if (!status.shards[shard].has_value()) return json;
  const ShardRecord& record = status.shards[shard]->record;
  json["term"] = record.term;
  json["primary"] = record.primary;
  json["in_sync"] = Json::array();
  for (const Replica& member : record.in_sync) {
    Json one;
    one["server"] = member.server;
    one["incarnation"] = RecordId(member.incarnation);
    one["ended"] = !status.HasKey(member);
    json["in_sync"].push_back(std::move(one));
  }
  json["missing"] = MissingIn(status.cluster, record);
  json["move"] = nullptr;
  if (record.move.has_value())
    json["move"] = Json{{"from", record.move->from}, {"to", record.move->to}};
  return json;
}

}  // namespace

std::string DescribeCluster(const ClusterRecord& record) {
  return absl::StrCat(Plural(record.shards, "shard"), " of ",
                      server::FormatSize(record.shard_bytes), ", ",
                      Plural(record.replicas, "replica"), ", writes need ", record.min_in_sync,
                      " in sync; id ", RecordId(record.id));
}

Json ClusterJson(absl::string_view name, const ClusterRecord& record) {
  Json json;
  json["cluster"] = std::string(name);
  json["id"] = RecordId(record.id);
  json["replicas"] = record.replicas;
  json["min_in_sync"] = record.min_in_sync;
  json["shard_bytes"] = record.shard_bytes;
  return json;
}

std::string ClusterFields(const ClusterRecord& record) {
  return absl::StrCat("id=", RecordId(record.id), " shards=", record.shards,
                      " replicas=", record.replicas, " min_in_sync=", record.min_in_sync,
                      " shard_bytes=", record.shard_bytes);
}

void PrintClusterStatus(Output& out, const ClusterStatus& status) {
  std::vector<std::string> people = {
      absl::StrCat("cluster ", status.name, ": ", DescribeCluster(status.cluster))};
  std::vector<std::string> plain = {absl::StrCat(
      "cluster=", status.name, " ", ClusterFields(status.cluster), " revision=", status.revision)};
  Json json = ClusterJson(status.name, status.cluster);
  json["revision"] = status.revision;
  json["servers"] = Json::array();
  json["shards"] = Json::array();
  if (status.servers.empty()) people.emplace_back("  no server runs");
  for (const auto& [id, server] : status.servers) {
    people.push_back(ServerForPeople(status, id, server));
    plain.push_back(ServerPlain(status, id, server));
    json["servers"].push_back(ServerJson(status, id, server));
  }
  for (uint32_t shard = 0; shard < status.shards.size(); ++shard) {
    people.push_back(ShardForPeople(status, shard));
    plain.push_back(ShardPlain(status, shard));
    json["shards"].push_back(ShardJson(status, shard));
  }
  json["errors"] = Json::array();
  for (const absl::Status& error : status.errors)
    json["errors"].push_back(std::string(error.message()));
  out.Result(absl::StrJoin(people, "\n"), absl::StrJoin(plain, "\n"), json);
}

}  // namespace osprey
