#include "tools/cluster/cluster_status.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/store_identity.h"
#include "server/cluster/right/right_times.h"

namespace osprey {
namespace {

// The keys of `answer` that begin with `prefix`.
RangeAnswer Below(const std::string& prefix, const RangeAnswer& answer) {
  RangeAnswer part;
  part.header = answer.header;
  for (const StoredKey& key : answer.keys) {
    if (absl::StartsWith(key.key, prefix)) part.keys.push_back(key);
  }
  return part;
}

absl::StatusOr<ClusterRecord> RecordIn(const RangeAnswer& answer, const EtcdUri& uri) {
  const std::string key = ClusterKeys(uri.KeyPrefix()).Cluster();
  const auto found = std::find_if(answer.keys.begin(), answer.keys.end(),
                                  [&](const StoredKey& stored) { return stored.key == key; });
  if (found != answer.keys.end()) return DecodeClusterRecord(found->value);
  return absl::NotFoundError(absl::StrCat("etcd has no cluster ", uri.name,
                                          "; make it: kvcli cluster create ", uri.ToString(),
                                          " --memory=SIZE"));
}

void Append(std::vector<absl::Status>& errors, WatchNews news) {
  errors.insert(errors.end(), news.errors.begin(), news.errors.end());
}

bool IsRenewed(const std::map<std::string, WatchedServer>& before, const std::string& id,
               const WatchedServer& server) {
  const auto found = before.find(id);
  return found == before.end() || found->second.mod_revision != server.mod_revision;
}

// For so long etcd answers in time for a server's renewals.
absl::Status Watch(ConfigurationStore& store, const ClusterKeys& keys, absl::Duration time) {
  for (const absl::Time end = absl::Now() + time; absl::Now() < end;) {
    absl::SleepFor(absl::Milliseconds(200));
    const absl::Time asked = absl::Now();
    const absl::Status status = store.Range({keys.Cluster()}, kRenewalTimeout()).status();
    if (!status.ok()) return status;
    if (absl::Now() - asked > kRenewalTimeout()) {
      return absl::UnavailableError(
          "etcd answered too late for servers to renew their right; try again");
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool ClusterStatus::HasKey(const Replica& member) const {
  const auto found = servers.find(member.server);
  return found != servers.end() && found->second.stored.create_revision == member.create_revision;
}

absl::StatusOr<ClusterStatus> ReadClusterStatus(ConfigurationStore& store, const EtcdUri& uri,
                                                absl::Duration timeout, absl::Duration renewal_wait,
                                                bool is_watched) {
  const ClusterKeys keys(uri.KeyPrefix());
  // Of all keys: they are of one revision.
  const StoreRange range{uri.KeyPrefix(), /*is_prefix=*/true};
  absl::StatusOr<RangeAnswer> all = store.Range(range, timeout);
  if (!all.ok()) return all.status();
  const absl::StatusOr<ClusterRecord> cluster = RecordIn(*all, uri);
  if (!cluster.ok()) return cluster.status();
  StoreIdentity identity(cluster->id);
  if (absl::Status same = identity.Check(all->header, 0); !same.ok()) return same;
  ConfigurationWatch watch(keys, cluster->shards);
  WatchNews news = watch.TakeServers(Below(keys.Servers(), *all));
  const std::map<std::string, WatchedServer> before = watch.servers();
  if (!before.empty()) {
    if (absl::Status status = is_watched ? Watch(store, keys, renewal_wait) : absl::OkStatus();
        !status.ok())
      return status;
    if (!is_watched) absl::SleepFor(renewal_wait);
    all = store.Range(range, timeout);
    if (!all.ok()) return all.status();
    if (absl::Status same = identity.Check(all->header, identity.revision()); !same.ok())
      return same;
    news = watch.TakeServers(Below(keys.Servers(), *all));
  }
  ClusterStatus status;
  status.name = uri.name;
  status.cluster = *cluster;
  status.revision = all->header.revision;
  Append(status.errors, std::move(news));
  const StoreRange shards = watch.ShardsRange();
  Append(status.errors, watch.TakeShards(shards, Below(keys.Shards(), *all)));
  for (uint32_t shard = 0; shard < cluster->shards; ++shard) {
    const StoredShard* const stored = watch.Shard(shard);
    status.shards.push_back(stored == nullptr ? std::nullopt : std::make_optional(*stored));
  }
  for (const auto& [id, server] : watch.servers())
    status.servers[id] = {server, IsRenewed(before, id, server), !before.contains(id)};
  return status;
}

}  // namespace osprey
