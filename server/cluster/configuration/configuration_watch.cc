#include "server/cluster/configuration/configuration_watch.h"

#include <cassert>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

void Report(WatchNews& news, const StoredKey& key, const absl::Status& why) {
  if (news.errors.size() < kWatchErrorsMax)
    news.errors.emplace_back(why.code(),
                             absl::StrCat(absl::CHexEscape(key.key), ": ", why.message()));
}

absl::Status UnknownKey() {
  return absl::DataLossError("no program of this cluster has such a key; delete it");
}

}  // namespace

ConfigurationWatch::ConfigurationWatch(ClusterKeys keys, uint32_t shards)
    : keys_(std::move(keys)), shards_(shards) {
  assert(shards >= 1 && shards <= kShardsMax);
}

StoreRange ConfigurationWatch::ServersRange() const {
  return {keys_.Servers(), /*is_prefix=*/true};
}

StoreRange ConfigurationWatch::ShardsRange() {
  StoreRange range{keys_.Shards(), /*is_prefix=*/true};
  if (reads_left_ == 0) {
    reads_left_ = kShardsReadsPerWhole - 1;
    return range;
  }
  --reads_left_;
  range.min_mod_revision = shards_revision_ + 1;
  return range;
}

WatchNews ConfigurationWatch::TakeServers(const RangeAnswer& answer) {
  WatchNews news;
  if (answer.header.revision < servers_revision_) return news;
  news.is_news = true;
  servers_revision_ = answer.header.revision;
  std::map<std::string, WatchedServer> servers;
  for (const StoredKey& key : answer.keys) {
    std::optional<std::string> id = keys_.ParseServer(key.key);
    if (!id.has_value()) {
      Report(news, key, UnknownKey());
      continue;
    }
    WatchedServer server{key.create_revision, key.mod_revision, std::nullopt};
    absl::StatusOr<ServerRecord> record = DecodeServerRecord(key.value);
    if (record.ok()) {
      server.record = *std::move(record);
    } else {
      Report(news, key, record.status());
      const auto before = servers_.find(*id);
      if (before != servers_.end() && before->second.create_revision == key.create_revision)
        server.record = before->second.record;
    }
    servers.emplace(*std::move(id), std::move(server));
  }
  servers_ = std::move(servers);
  return news;
}

WatchNews ConfigurationWatch::TakeShards(const StoreRange& asked, const RangeAnswer& answer) {
  WatchNews news;
  if (answer.header.revision < shards_revision_) return news;
  news.is_news = true;
  shards_revision_ = answer.header.revision;
  std::vector<bool> is_changed(shards_.size());
  std::vector<bool> is_there(shards_.size(), asked.min_mod_revision != 0);
  for (const StoredKey& key : answer.keys) {
    const std::optional<uint32_t> shard = keys_.ParseShard(key.key);
    if (!shard.has_value() || *shard >= shards_.size()) {
      Report(news, key, UnknownKey());
      continue;
    }
    is_there[*shard] = true;
    std::optional<StoredShard>& stored = shards_[*shard];
    if (stored.has_value() && stored->mod_revision == key.mod_revision) continue;
    absl::StatusOr<ShardRecord> record = DecodeShardRecord(key.value);
    if (!record.ok()) {
      Report(news, key, record.status());
      continue;
    }
    stored = StoredShard{*shard, key.mod_revision, *std::move(record)};
    is_changed[*shard] = true;
  }
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    if (!is_there[shard]) {
      is_changed[shard] = shards_[shard].has_value();
      shards_[shard].reset();
    }
    if (is_changed[shard]) news.changed.push_back(shard);
  }
  return news;
}

int64_t ConfigurationWatch::CreateRevision(absl::string_view server) const {
  const auto found = servers_.find(std::string(server));
  return found == servers_.end() ? 0 : found->second.create_revision;
}

const StoredShard* ConfigurationWatch::Shard(uint32_t shard) const {
  assert(shard < shards_.size());
  return shards_[shard].has_value() ? &*shards_[shard] : nullptr;
}

}  // namespace osprey
