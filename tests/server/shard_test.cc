// A server of a cluster with several shards: which clients and which keys it refuses.

#include "rdma/wire/shard.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using testing::HasSubstr;

constexpr uint32_t kShards = 4;
constexpr uint32_t kShard = 2;

// Of this shard, or of another one.
std::string KeyOf(bool own) {
  for (int i = 0;; ++i) {
    const std::string key = "key" + std::to_string(i);
    if ((rdma::ShardOf(key, kShards) == kShard) == own) return key;
  }
}

class ServerShardTest : public testing::Test {
 protected:
  static HarnessOptions OfShard() {
    HarnessOptions options;
    options.shards = kShards;
    options.shard = kShard;
    return options;
  }
  void Greet(RawClient& client, uint32_t shard, uint32_t shards) {
    client.set_shard(shard, shards);
    client.Connect();
    server_.Settle();
    client.Hello();
    server_.Settle();
  }

  ServerHarness server_{OfShard()};
};

TEST_F(ServerShardTest, WelcomesItsShardAndSaysTheNumber) {
  for (const uint32_t believed : {0u, kShards}) {
    RawClient client(server_);
    Greet(client, kShard, believed);
    ASSERT_TRUE(client.welcomed()) << believed;
    EXPECT_EQ(client.welcome().shards, kShards);
    EXPECT_EQ(client.welcome().shard, kShard);
  }
  ServerHarness alone;
  RawClient client(alone);
  client.Establish();
  EXPECT_EQ(client.welcome().shards, 1u);
  EXPECT_EQ(client.welcome().shard, 0u);
}

TEST_F(ServerShardTest, RefusesAHelloOfAnotherShardOrCount) {
  const struct {
    uint32_t shard, shards;
    const char* line;
  } cases[] = {
      {1, 4, "it requests shard 1 of 4; this server has shard 2 of 4"},
      {2, 8, "it requests shard 2 of 8; this server has shard 2 of 4"},
      {0, 0, "it requests shard 0 of any number; this server has shard 2 of 4"},
  };
  uint64_t refused = 0;
  for (const auto& c : cases) {
    RawClient client(server_);
    Greet(client, c.shard, c.shards);
    EXPECT_FALSE(client.welcomed());
    EXPECT_EQ(client.refused(), Reason::kWrongShard);
    EXPECT_EQ(server_.closed(CloseReason::kWrongShard), ++refused);
    EXPECT_THAT(server_.log().back(), HasSubstr(c.line));
  }
  EXPECT_EQ(server_.counters().authentication_failures, 0u);
  EXPECT_EQ(server_.engine().sessions(), 0u);
}

TEST(ServerShardWithAKeyTest, NamesItsShardOnlyAfterTheProofOfTheKey) {
  HarnessOptions options;
  options.shards = kShards;
  options.shard = kShard;
  options.key = rdma::AuthKey::FromBytes(std::string(32, 'k')).value();
  ServerHarness server(options);
  const auto other = rdma::AuthKey::FromBytes(std::string(32, 'o')).value();
  for (const bool has_key : {false, true}) {
    RawClient client(server);
    client.set_shard(1, kShards);
    client.Connect();
    server.Settle();
    client.Hello();
    server.Settle();
    EXPECT_TRUE(client.challenged());
    EXPECT_EQ(client.refused(), std::nullopt);
    client.Respond(has_key ? *options.key : *other);
    server.Settle();
    EXPECT_EQ(client.refused(), has_key ? Reason::kWrongShard : Reason::kAuthenticationFailed);
    EXPECT_FALSE(client.welcomed());
  }
}

TEST_F(ServerShardTest, RefusesKeysOfOtherShards) {
  RawClient client(server_);
  client.set_shard(kShard, kShards);
  client.Establish();
  const std::string own = KeyOf(true), other = KeyOf(false);
  EXPECT_EQ(client.Ask(client.PutFrame(1, own, "value")).code, absl::StatusCode::kOk);
  const std::string shards = "of shard " + std::to_string(rdma::ShardOf(other, kShards)) +
                             " of 4; this server has shard 2";
  uint64_t sequence = 2;
  const std::vector<std::string> frames = {
      client.PutFrame(sequence++, other, "value"),
      client.RendezvousFrame(sequence++, other, Large(100'000)),
      client.DeleteFrame(sequence++, other),
      client.IncrementFrame(sequence++, other, 1),
      client.AppendFrame(sequence++, other, "more"),
      client.ExpireFrame(sequence++, other, 1'000'000'000),
      client.GetFrame(sequence++, other),
  };
  for (const std::string& frame : frames) {
    const RawReply reply = client.Ask(frame);
    EXPECT_EQ(reply.code, absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(reply.reason, Reason::kWrongShard);
    EXPECT_THAT(reply.data, HasSubstr(shards));
  }
  // The same answer again, and nothing of it was done.
  EXPECT_EQ(client.Ask(frames[0]).reason, Reason::kWrongShard);
  EXPECT_EQ(server_.Stored(other), std::nullopt);
  EXPECT_EQ(server_.Stored(own), "value");
  EXPECT_EQ(client.Ask(client.GetFrame(sequence, own)).data, "value");
}

}  // namespace
}  // namespace osprey::server
