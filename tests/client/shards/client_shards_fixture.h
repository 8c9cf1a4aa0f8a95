// The base of tests of a client of a cluster with several shards: the servers, and keys of each shard.

#ifndef OSPREY_TESTS_CLIENT_SHARDS_CLIENT_SHARDS_FIXTURE_H_
#define OSPREY_TESTS_CLIENT_SHARDS_CLIENT_SHARDS_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "rdma/wire/shard.h"
#include "tests/client/shards/shard_servers.h"

namespace osprey {

inline constexpr uint32_t kShards = 4;
// Of operations that are to succeed: long, for sanitizers.
inline constexpr absl::Duration kLong = absl::Seconds(60);
inline constexpr absl::Duration kShort = absl::Milliseconds(300);

inline uint32_t ShardOf(absl::string_view key) { return rdma::ShardOf(key, kShards); }

// The i-th key of a shard.
inline std::string KeyOf(uint32_t shard, int i = 0) {
  for (int n = 0;; ++n) {
    std::string key = absl::StrCat("key", n);
    if (ShardOf(key) == shard && i-- == 0) return key;
  }
}

inline std::vector<std::string> Keys(int count) {
  std::vector<std::string> keys;
  for (int i = 0; i < count; ++i) keys.push_back(absl::StrCat("key", i));
  return keys;
}

inline std::vector<absl::string_view> Views(const std::vector<std::string>& keys) {
  return {keys.begin(), keys.end()};
}

class ClientShardsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Client> Connect(absl::Duration deadline = kLong) {
    Options options;
    options.deadline = deadline;
    options.connect_timeout = kLong;
    options.slot_cache_bytes = 1 << 16;
    options.backoff_last = absl::Milliseconds(100);
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(servers_.uri(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  ShardServers servers_{kShards};
};

}  // namespace osprey

#endif  // OSPREY_TESTS_CLIENT_SHARDS_CLIENT_SHARDS_FIXTURE_H_
