// A client of a cluster with several shards, some of which do not answer. They delay their own keys
// alone, and what concerns all shards says which parts may be applied.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/common/registered_memory.h"
#include "client/engine/shard_engines.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rdma/address.h"
#include "rdma/open_domain.h"
#include "rdma/raw_clock.h"
#include "rdma/transport.h"
#include "tests/client/shards/client_shards_fixture.h"
#include "tests/client/shards/shard_servers.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ShardFaultsTest : public ClientShardsTest {};

TEST_F(ShardFaultsTest, AShardThatDoesNotAnswerDelaysItsOwnKeysAlone) {
  const std::unique_ptr<Client> client = Connect();
  constexpr uint32_t kFrozen = 2;
  constexpr int kInFlight = 8;
  servers_.Freeze(kFrozen);
  // The frozen shard has more keys than may be in flight. They take no room from the others, all of
  // which end.
  ASSERT_TRUE(client->set_operations_max(kInFlight).ok());
  const std::vector<std::string> keys = Keys(200);
  std::vector<KeyValue> items;
  for (const std::string& key : keys) items.push_back({key, "value"});
  bool done = false;
  ASSERT_TRUE(client
                  ->StartMultiPut(items, {},
                                  [&](const std::vector<absl::StatusOr<uint64_t>>& puts) {
                                    for (const auto& put : puts)
                                      EXPECT_TRUE(put.ok()) << put.status();
                                    done = true;
                                  })
                  .ok());
  while (client->in_flight() > kInFlight) client->Wait(kLong);
  EXPECT_FALSE(done);
  for (const std::string& key : keys) {
    if (ShardOf(key) != kFrozen) {
      EXPECT_EQ(client->Get(key)->bytes, "value");
      EXPECT_TRUE(client->Put(key, "other").ok());
    }
  }
  // Nor can more be started there.
  WriteOptions options;
  options.deadline = kShort;
  EXPECT_TRUE(absl::IsResourceExhausted(client->Put(KeyOf(kFrozen), "no room").status()));
  servers_.Thaw(kFrozen);
  while (!done) client->Wait(kLong);
  // Its deadlines hold.
  servers_.Freeze(kFrozen);
  const absl::Status late = client->Put(KeyOf(kFrozen), "late", options).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_TRUE(MayBeApplied(late));
  servers_.Thaw(kFrozen);
  EXPECT_TRUE(client->Put(KeyOf(kFrozen), "now").ok());
}

TEST_F(ShardFaultsTest, AShardGoesDownAndComesBack) {
  const std::unique_ptr<Client> client = Connect();
  for (uint32_t shard = 0; shard < kShards; ++shard)
    ASSERT_TRUE(client->Put(KeyOf(shard), "before").ok());
  const uint64_t dataset = client->dataset();
  // Shard 0 too: only Connect needs it.
  for (const uint32_t down : {0u, 3u}) {
    servers_.Stop(down);
    WriteOptions in_vain;
    in_vain.deadline = kShort;
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      if (shard != down) {
        EXPECT_EQ(client->Get(KeyOf(shard))->bytes, "before");
        EXPECT_TRUE(client->Put(KeyOf(shard, 1), "meanwhile").ok());
      }
    }
    const absl::Status late = client->Put(KeyOf(down, 1), "in vain", in_vain).status();
    EXPECT_FALSE(late.ok());
    EXPECT_TRUE(absl::IsUnavailable(late) || absl::IsDeadlineExceeded(late)) << late;
    EXPECT_FALSE(client->Get(KeyOf(down), kShort).ok());
    EXPECT_FALSE(client->connected());
    EXPECT_THAT(client->Describe(), HasSubstr("shards=4 shards_connected=3"));
    // What concerns all shards names the one that is down.
    const absl::Status count = client->Count(kShort).status();
    EXPECT_THAT(std::string(count.message()), HasSubstr(absl::StrCat("shard ", down, " of 4: ")));
    servers_.Start(down);
    EXPECT_EQ(client->Get(KeyOf(down))->bytes, "before");
    EXPECT_TRUE(client->Put(KeyOf(down, 1), "after").ok());
    EXPECT_TRUE(client->connected());
    EXPECT_EQ(client->dataset(), dataset);
  }
}

TEST_F(ShardFaultsTest, AFlushOfAPartSaysThatItMayBeApplied) {
  const std::unique_ptr<Client> client = Connect();
  for (uint32_t shard = 0; shard < kShards; ++shard)
    ASSERT_TRUE(client->Put(KeyOf(shard), "value").ok());
  servers_.Stop(1);
  const absl::Status status = client->Flush(absl::Seconds(2)).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard 1 of 4: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("other shards may have applied their part"));
  EXPECT_TRUE(MayBeApplied(status));
  servers_.Start(1);
  EXPECT_EQ(client->Count().value(), 1u);
}

TEST_F(ShardFaultsTest, AFlushWithoutAnAnswerMayBeApplied) {
  const std::unique_ptr<Client> client = Connect();
  servers_.Stop(0);
  while (client->connected()) client->Poll();
  // The others receive their parts, and do not answer.
  for (uint32_t shard = 1; shard < kShards; ++shard) servers_.Freeze(shard);
  const absl::Status status = client->Flush(kShort).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard 0 of 4: no connection"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("other shards may have applied their part"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("not applied")));
  EXPECT_TRUE(MayBeApplied(status));
}

TEST_F(ShardFaultsTest, AFlushThatNoShardReceivedIsNotApplied) {
  const std::unique_ptr<Client> client = Connect();
  for (uint32_t shard = 0; shard < kShards; ++shard) servers_.Freeze(shard);
  ASSERT_TRUE(client->set_operations_max(1).ok());
  ASSERT_TRUE(client->StartPut(KeyOf(1), "value", {}, [](auto) {}).ok());
  const absl::Status refused = client->Flush().status();
  EXPECT_EQ(ReasonOf(refused), Reason::kTooManyOperations) << refused;
  EXPECT_TRUE(absl::EndsWith(refused.message(), "; not applied")) << refused;
  for (uint32_t shard = 0; shard < kShards; ++shard) servers_.Stop(shard);
  while (client->Describe().find("shards_connected=0") == std::string::npos) client->Poll();
  ASSERT_TRUE(client->set_operations_max(8).ok());
  const absl::Status unsent = client->Flush(kShort).status();
  EXPECT_TRUE(absl::EndsWith(unsent.message(), "; not applied")) << unsent;
  EXPECT_FALSE(MayBeApplied(unsent));
}

TEST_F(ShardFaultsTest, CloseEndsOperationsOfAllShards) {
  std::unique_ptr<Client> client = Connect();
  for (uint32_t shard = 0; shard < kShards; ++shard) servers_.Freeze(shard);
  int cancelled = 0;
  Buffer buffer = client->AllocateBuffer(100'000).value();
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    const auto done = [&](absl::StatusOr<uint64_t> version) {
      cancelled += absl::IsCancelled(version.status());
    };
    ASSERT_TRUE(client->StartPut(KeyOf(shard), "value", {}, done).ok());
    ASSERT_TRUE(client->StartPutFrom(KeyOf(shard, 1), buffer, 0, 100'000, {}, done).ok());
  }
  client->Poll();
  client.reset();
  EXPECT_EQ(cancelled, 2 * static_cast<int>(kShards));
}

// Keys of one call, `count` of each of `shards`.
std::vector<std::string> KeysOf(const std::vector<uint32_t>& shards, int count) {
  std::vector<std::string> keys;
  for (const uint32_t shard : shards) {
    for (int i = 0; i < count; ++i) keys.push_back(KeyOf(shard, i));
  }
  return keys;
}

std::vector<KeyValue> ItemsOf(const std::vector<std::string>& keys) {
  std::vector<KeyValue> items;
  for (const std::string& key : keys) items.push_back({key, "value"});
  return items;
}

TEST_F(ShardFaultsTest, KeysOfOneShardStartWhileAnotherDoesNotAnswer) {
  const std::unique_ptr<Client> client = Connect();
  ASSERT_TRUE(client->set_operations_max(2).ok());
  servers_.Freeze(1);
  servers_.Freeze(2);
  // Shard 1 has no room at first, because of other calls.
  for (int i = 10; i < 12; ++i)
    ASSERT_TRUE(client->StartPut(KeyOf(1, i), "value", {}, [](auto) {}).ok());
  const std::vector<std::string> keys = KeysOf({1, 2}, 5);
  int done = 0;
  ASSERT_TRUE(client
                  ->StartMultiPut(ItemsOf(keys), {},
                                  [&](const std::vector<absl::StatusOr<uint64_t>>& puts) {
                                    for (const auto& put : puts)
                                      EXPECT_TRUE(put.ok()) << put.status();
                                    ++done;
                                  })
                  .ok());
  client->Poll();
  EXPECT_EQ(client->in_flight(), 2 + 2 + 1);  // (the last: it waits for room)
  servers_.Thaw(1);
  for (const absl::Time end = absl::Now() + kLong; servers_.KeysOf(1) < 7 && absl::Now() < end;)
    client->Wait(absl::Milliseconds(10));
  EXPECT_EQ(servers_.KeysOf(1), 7u);
  EXPECT_EQ(done, 0);
  servers_.Thaw(2);
  while (client->in_flight() > 0) client->Wait(kLong);
  EXPECT_EQ(done, 1);
}

TEST_F(ShardFaultsTest, KeysWaitForRoomUntilTheDeadline) {
  std::unique_ptr<Client> client = Connect();
  ASSERT_TRUE(client->set_operations_max(2).ok());
  servers_.Freeze(1);
  for (int i = 10; i < 12; ++i)
    ASSERT_TRUE(client->StartPut(KeyOf(1, i), "value", {}, [](auto) {}).ok());
  const std::vector<std::string> keys = KeysOf({0, 1}, 5);
  std::vector<absl::StatusOr<uint64_t>> answers;
  const auto done = [&](std::vector<absl::StatusOr<uint64_t>> puts) { answers = std::move(puts); };
  WriteOptions options;
  options.deadline = absl::Seconds(5);
  ASSERT_TRUE(client->StartMultiPut(ItemsOf(keys), options, done).ok());
  while (answers.empty()) client->Wait(kLong);
  ASSERT_EQ(answers.size(), keys.size());
  for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(answers[i].ok()) << answers[i].status();
  for (size_t i = 5; i < keys.size(); ++i)
    EXPECT_EQ(ReasonOf(answers[i].status()), Reason::kTooManyOperations) << answers[i].status();
  // Those of a Client that is closed end at once.
  answers.clear();
  ASSERT_TRUE(client->StartMultiPut(ItemsOf(keys), {}, done).ok());
  client->Poll();
  client.reset();
  ASSERT_EQ(answers.size(), keys.size());
  EXPECT_EQ(ReasonOf(answers.back().status()), Reason::kClosed) << answers.back().status();
}

TEST_F(ShardFaultsTest, ACallIsRefusedIfNoneOfItsShardsHasRoom) {
  const std::unique_ptr<Client> client = Connect();
  ASSERT_TRUE(client->set_operations_max(1).ok());
  servers_.Freeze(1);
  int done = 0;
  ASSERT_TRUE(client->StartPut(KeyOf(1), "value", {}, [&](auto) { ++done; }).ok());
  const std::vector<std::string> full = KeysOf({1}, 3);
  const absl::Status refused = client->StartMultiPut(ItemsOf(full), {}, [](auto) {});
  EXPECT_EQ(ReasonOf(refused), Reason::kTooManyOperations) << refused;
  const std::vector<std::string> empty = KeysOf({3}, 3);
  ASSERT_TRUE(client->StartMultiPut(ItemsOf(empty), {}, [&](auto) { ++done; }).ok());
  servers_.Thaw(1);
  while (client->in_flight() > 0) client->Wait(kLong);
  EXPECT_EQ(done, 2);
}

// (Poll asserts it.)
TEST_F(ShardFaultsTest, TimeNeverDecreasesInALongMultiGet) {
  const std::unique_ptr<Client> client = Connect();
  servers_.Stop(3);
  while (client->connected()) client->Poll();
  const std::vector<std::string> keys = Keys(8000);
  const auto values = client->MultiGet(Views(keys), kShort);
  for (size_t i = 0; i < keys.size(); ++i)
    EXPECT_EQ(absl::IsNotFound(values[i].status()), ShardOf(keys[i]) != 3) << values[i].status();
}

TEST(ShardEnginesTest, AllEndBeforeOneIsDestroyed) {
  ShardServers servers(kShards);
  const std::unique_ptr<rdma::Domain> domain = rdma::OpenDomain(servers.uri()).value();
  rdma::TransportOptions transport_options = rdma::TransportOptionsOf(rdma::Address::Scheme::kShm);
  transport_options.accepts = false;
  client::EngineOptions options;
  options.connection.uri = servers.uri();
  const auto now = [] { return absl::FromUnixNanos(RawClockNs()); };
  options.clock = now;
  options.coarse_clock = now;
  auto engines = std::make_unique<client::ShardEngines>(
      *domain, [&] { return domain->NewTransport(transport_options); }, options);
  ASSERT_TRUE(engines->Open().ok());
  while (!engines->connected()) engines->Poll(now());
  ASSERT_TRUE(engines->AddShards().ok());
  while (!engines->connected()) engines->Poll(now());
  // A PutFrom in the last shard, which its server does not answer. Close does not end it, since the
  // server may READ the value.
  servers.Freeze(kShards - 1);
  constexpr size_t kBytes = 100'000;
  auto memory = std::make_shared<client::RegisteredMemory>(
      nullptr, domain->Allocate(kBytes, rdma::Access::kRemoteRead).value(), kBytes,
      engines->exposer_link());
  const std::weak_ptr<client::ExposerLink> first_link = engines->at(0).exposer_link();
  bool done = false;
  client::UserMemory source{memory->memory->data(), kBytes, std::move(memory)};
  client::ShardEngines& used = *engines;
  ASSERT_TRUE(used.at(kShards - 1)
                  .start()
                  .PutFrom("key", std::move(source), {}, now() + kLong,
                           [&](const absl::StatusOr<uint64_t>& version) {
                             done = true;
                             EXPECT_EQ(ReasonOf(version.status()), Reason::kClosed);
                             // The engine of shard 0 is still there, and refuses.
                             ASSERT_FALSE(first_link.expired());
                             EXPECT_EQ(ReasonOf(used.at(0).start().Put("key", "value", {},
                                                                       now() + kLong, [](auto) {})),
                                       Reason::kClosed);
                           })
                  .ok());
  engines->Poll(now());
  engines->Close();
  ASSERT_FALSE(done);
  engines.reset();
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace osprey
