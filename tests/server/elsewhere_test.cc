// A server of a cluster that does not serve shard 0: what it tells clients instead of a Welcome, and which of them.

#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "rdma/authentication.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

constexpr uint64_t kCluster = 0xC1;
constexpr char kServers[] = "rdma://10.0.0.2:7411\nrdma://10.0.0.1:7411\n";

HarnessOptions Telling(std::string servers = kServers) {
  HarnessOptions options;
  options.data_id = kCluster;
  options.servers_to_tell = [servers = std::move(servers)] { return servers; };
  return options;
}

void Greet(ServerHarness& server, RawClient& client, uint32_t affinity = 0) {
  client.Connect(affinity);
  server.Settle();
  if (client.disconnected()) return;
  ASSERT_TRUE(client.connected());
  client.Hello(affinity, kIncarnation);
  server.Settle();
}

TEST(ServerElsewhereTest, GivesTheServersAndNothingElse) {
  ServerHarness server(Telling());
  RawClient client(server);
  for (const uint32_t shard : {0u, 3u}) {
    client.set_shard(shard, 0);
    ASSERT_NO_FATAL_FAILURE(Greet(server, client));
    EXPECT_TRUE(client.got_disconnect_notice());
    EXPECT_TRUE(client.disconnected());
    EXPECT_FALSE(client.welcomed());
    EXPECT_EQ(client.servers(), kServers);
    EXPECT_EQ(client.cluster(), kCluster);
  }
  EXPECT_EQ(server.engine().sessions(), 0u);
  EXPECT_EQ(server.engine().connections(), 0u);
  EXPECT_EQ(server.counters().sessions_created, 0u);
  EXPECT_EQ(server.closed(CloseReason::kNotServing), 2u);
  EXPECT_TRUE(server.log().empty()) << "each client that begins would be a line";
}

TEST(ServerElsewhereTest, WithAKeyOnlyAClientThatHasItGetsThem) {
  HarnessOptions options = Telling();
  options.key = rdma::AuthKey::FromBytes(std::string(32, 'k')).value();
  ServerHarness server(options);
  RawClient client(server), stranger(server);
  ASSERT_NO_FATAL_FAILURE(Greet(server, stranger));
  ASSERT_TRUE(stranger.challenged());
  EXPECT_FALSE(stranger.got_disconnect_notice());
  stranger.Respond(*rdma::AuthKey::FromBytes(std::string(32, 'x')).value());
  server.Settle();
  EXPECT_EQ(stranger.refused(), Reason::kAuthenticationFailed);
  EXPECT_FALSE(stranger.got_disconnect_notice());

  ASSERT_NO_FATAL_FAILURE(Greet(server, client));
  client.Respond(*options.key);
  server.Settle();
  ASSERT_TRUE(client.got_disconnect_notice());
  EXPECT_EQ(client.servers(), kServers);
  rdma::Proof proof;
  std::memcpy(proof.data(), client.elsewhere().proof, proof.size());
  EXPECT_EQ(proof, rdma::ServersProof(*options.key, client.nonces(), kCluster, kServers));
}

// All clients of a server that is lost come at once, and most of them find the next primary by themselves.
TEST(ServerElsewhereTest, ClientsThatReturnGetThemInTurn) {
  ServerHarness server(Telling());
  RawClient client(server);
  const auto is_told = [&](uint32_t affinity) {
    Greet(server, client, affinity);
    if (!client.got_disconnect_notice()) {
      EXPECT_EQ(ReasonOf(client.why_disconnected()), Reason::kNotServing);
    }
    return client.got_disconnect_notice();
  };
  EXPECT_TRUE(is_told(5));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(is_told(5));
  EXPECT_TRUE(is_told(0)) << "one that begins need not wait for those";
  server.Advance(kTellReturningEvery());
  EXPECT_TRUE(is_told(6));
  EXPECT_FALSE(is_told(7));
}

TEST(ServerElsewhereTest, OfTooManyServersItGivesTheFirst) {
  std::string many;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&many, "rdma://10.0.0.", i, ":7411\n");
  ServerHarness server(Telling(many));
  RawClient client(server);
  ASSERT_NO_FATAL_FAILURE(Greet(server, client));
  ASSERT_TRUE(client.got_disconnect_notice());
  EXPECT_GT(client.servers().size(), 4000u);
  EXPECT_TRUE(absl::StartsWith(many, client.servers()));
  EXPECT_EQ(client.servers().back(), '\n');
}

}  // namespace
}  // namespace osprey::server
