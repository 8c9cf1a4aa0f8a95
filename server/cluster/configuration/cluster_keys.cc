#include "server/cluster/configuration/cluster_keys.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace osprey {

bool IsServerId(absl::string_view id) {
  return !id.empty() && id.size() <= kServerIdBytesMax &&
         std::all_of(id.begin(), id.end(), [](char c) {
           return absl::ascii_islower(static_cast<unsigned char>(c)) ||
                  absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
         });
}

std::string ClusterKeys::Server(absl::string_view id) const { return absl::StrCat(Servers(), id); }

std::string ClusterKeys::Shard(uint32_t shard) const { return absl::StrCat(Shards(), shard); }

std::optional<std::string> ClusterKeys::ParseServer(absl::string_view key) const {
  if (!absl::ConsumePrefix(&key, Servers()) || !IsServerId(key)) return std::nullopt;
  return std::string(key);
}

std::optional<uint32_t> ClusterKeys::ParseShard(absl::string_view key) const {
  uint32_t shard = 0;
  absl::string_view number = key;
  if (!absl::ConsumePrefix(&number, Shards()) || !absl::SimpleAtoi(number, &shard) ||
      shard >= kShardsMax || Shard(shard) != key)
    return std::nullopt;
  return shard;
}

}  // namespace osprey
