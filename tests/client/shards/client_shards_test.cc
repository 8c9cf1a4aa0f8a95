// A client of a cluster with several shards. Every operation reaches the shard of its key, and all
// shards together answer as one server does. A shard without a server delays its own keys alone.

#include <poll.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "client/osprey.h"
#include "client/pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/shards/client_shards_fixture.h"
#include "tests/client/shards/shard_servers.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;

// Every key of a scan, page by page, as often as it is found. `between` runs after each page.
template <typename Between>
std::map<std::string, int> ScanAll(Client& client, ScanOptions options, Between between) {
  std::map<std::string, int> found;
  std::string cursor;
  do {
    const absl::StatusOr<ScanPage> page = client.Scan(cursor, options);
    EXPECT_TRUE(page.ok()) << page.status();
    if (!page.ok()) break;
    for (const ScanItem& item : page->items) ++found[item.key];
    cursor = page->cursor;
    between();
  } while (!cursor.empty());
  return found;
}

TEST_F(ClientShardsTest, EveryOperationAgreesWithAModel) {
  const std::unique_ptr<Client> client = Connect();
  std::map<std::string, std::string> model;
  std::minstd_rand random(1);
  const auto pick = [&](uint32_t below) { return static_cast<uint32_t>(random() % below); };
  for (int step = 0; step < 2000; ++step) {
    const std::string key = absl::StrCat("key", pick(60));
    const auto in_model = model.find(key);
    const bool present = in_model != model.end();
    const std::string value = absl::StrCat(step, std::string(pick(4) == 0 ? 20'000 : 3, 'v'));
    SCOPED_TRACE(absl::StrCat("step ", step, " on ", key));
    switch (pick(9)) {
      case 0:
      case 1: {
        ASSERT_TRUE(client->Put(key, value).ok());
        model[key] = value;
        break;
      }
      case 2: {
        EXPECT_EQ(client->Delete(key).ok(), present);
        model.erase(key);
        break;
      }
      case 3: {
        WriteOptions options;
        options.if_absent = true;
        EXPECT_EQ(client->Put(key, value, options).ok(), !present);
        model.emplace(key, value);
        break;
      }
      case 4: {
        const std::string counter = absl::StrCat("n", pick(20));
        const absl::StatusOr<Number> number = client->Increment(counter, 3);
        ASSERT_TRUE(number.ok()) << number.status();
        std::string& known = model[counter];
        known = absl::StrCat((known.empty() ? 0 : std::stoll(known)) + 3);
        EXPECT_EQ(absl::StrCat(number->value), known);
        break;
      }
      case 5: {
        const std::string text = absl::StrCat("text", pick(20));
        ASSERT_TRUE(client->Append(text, "+").ok());
        model[text] += "+";
        break;
      }
      case 6: {
        EXPECT_EQ(client->Exists(key).value(), present);
        EXPECT_EQ(client->Touch(key).ok(), present);
        EXPECT_EQ(client->Expire(key, absl::Hours(1)).ok(), present);
        EXPECT_EQ(client->Ttl(key).ok(), present);
        EXPECT_EQ(client->Persist(key).ok(), present);
        break;
      }
      case 7: {
        Buffer buffer = client->AllocateBuffer(32'000).value();
        const absl::StatusOr<ValueInfo> got = client->GetInto(key, buffer);
        EXPECT_EQ(got.ok(), present);
        if (got.ok()) {
          EXPECT_EQ(std::string(reinterpret_cast<char*>(buffer.data()), got->length),
                    in_model->second);
        }
        std::fill_n(buffer.data(), 20'000, std::byte{'b'});
        ASSERT_TRUE(client->PutFrom(key, buffer, 0, 20'000).ok());
        model[key] = std::string(20'000, 'b');
        break;
      }
      default: {
        const absl::StatusOr<Value> got = client->Get(key);
        ASSERT_EQ(got.ok(), present) << got.status();
        if (got.ok()) {
          EXPECT_EQ(got->bytes, in_model->second);
        }
      }
    }
  }
  EXPECT_EQ(client->Count().value(), model.size());
  const std::map<std::string, int> found = ScanAll(*client, {}, [] {});
  EXPECT_EQ(found.size(), model.size());
  for (const auto& [key, times] : found) {
    EXPECT_EQ(model.count(key), 1u) << key;
    EXPECT_EQ(times, 1) << key;
  }
  // Each server has the keys of its shard.
  std::vector<uint64_t> keys(kShards);
  for (const auto& [key, value] : model) ++keys[ShardOf(key)];
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    EXPECT_GT(keys[shard], 0u);
    EXPECT_EQ(servers_.KeysOf(shard), keys[shard]);
  }
  EXPECT_EQ(client->Flush().value(), model.size());
  EXPECT_EQ(client->Count().value(), 0u);
}

TEST_F(ClientShardsTest, ManyKeysAreAnsweredInTheirOrder) {
  const std::unique_ptr<Client> client = Connect();
  ASSERT_TRUE(client->set_operations_max(8).ok());
  const std::vector<std::string> keys = Keys(200);
  std::vector<KeyValue> items;
  for (size_t i = 0; i + 1 < keys.size(); ++i) items.push_back({keys[i], keys[i]});
  items.push_back({"", "an empty key"});
  const auto puts = client->MultiPut(items);
  for (size_t i = 0; i + 1 < items.size(); ++i) EXPECT_TRUE(puts[i].ok()) << puts[i].status();
  EXPECT_EQ(ReasonOf(puts.back().status()), Reason::kEmptyKey);
  const auto right = [&](const std::vector<absl::StatusOr<Value>>& values) {
    for (size_t i = 0; i + 1 < keys.size(); ++i) {
      ASSERT_TRUE(values[i].ok()) << values[i].status();
      EXPECT_EQ(values[i]->bytes, keys[i]);
    }
    EXPECT_TRUE(absl::IsNotFound(values.back().status()));
  };
  right(client->MultiGet(Views(keys)));
  bool done = false;
  ASSERT_TRUE(client
                  ->StartMultiGet(Views(keys),
                                  [&](std::vector<absl::StatusOr<Value>> values) {
                                    right(values);
                                    done = true;
                                  })
                  .ok());
  while (!done) client->Wait(kLong);
  const auto deletes = client->MultiDelete(Views(keys));
  for (size_t i = 0; i + 1 < keys.size(); ++i) EXPECT_TRUE(deletes[i].ok()) << deletes[i].status();
  EXPECT_TRUE(absl::IsNotFound(deletes.back().status()));
  EXPECT_EQ(client->Count().value(), 0u);
}

TEST_F(ClientShardsTest, OneCallIsInFlightInAllShardsAtOnce) {
  const std::unique_ptr<Client> client = Connect();
  const std::vector<std::string> keys = Keys(32);
  std::set<uint32_t> shards;
  for (const std::string& key : keys) shards.insert(ShardOf(key));
  ASSERT_EQ(shards.size(), kShards);
  std::vector<KeyValue> items;
  for (const std::string& key : keys) items.push_back({key, "value"});
  // Servers that do not answer: what is sent was sent before any answer.
  for (uint32_t shard = 0; shard < kShards; ++shard) servers_.Freeze(shard);
  Counters before = client->counters();
  int done = 0;
  ASSERT_TRUE(client->StartMultiPut(items, {}, [&](auto) { ++done; }).ok());
  client->Poll();
  EXPECT_EQ(client->counters().messages - before.messages, keys.size());
  EXPECT_EQ(client->counters().frames - before.frames, kShards);
  for (uint32_t shard = 0; shard < kShards; ++shard) servers_.Thaw(shard);
  while (done < 1) client->Wait(kLong);
  before = client->counters();
  ASSERT_TRUE(client->StartMultiGet(Views(keys), [&](auto) { ++done; }).ok());
  client->Poll();
  EXPECT_EQ(client->counters().reads - before.reads, keys.size());
  while (done < 2) client->Wait(kLong);
}

TEST_F(ClientShardsTest, AScanFindsEveryKeyDespiteWrites) {
  const std::unique_ptr<Client> client = Connect();
  const std::vector<std::string> stay = Keys(3000);
  std::vector<KeyValue> items;
  for (const std::string& key : stay) items.push_back({key, "stays"});
  for (const auto& put : client->MultiPut(items)) ASSERT_TRUE(put.ok()) << put.status();
  ScanOptions options;
  options.limit = 100;
  const std::string value(100, 'o');
  int written = 0;
  const std::map<std::string, int> found = ScanAll(*client, options, [&] {
    std::vector<std::string> more;
    for (int i = 0; i < 200; ++i) more.push_back(absl::StrCat("other", written++));
    std::vector<KeyValue> others;
    for (const std::string& key : more) others.push_back({key, value});
    for (const auto& put : client->MultiPut(others)) ASSERT_TRUE(put.ok()) << put.status();
    ASSERT_TRUE(client->Delete(more.front()).ok());
  });
  for (const std::string& key : stay) EXPECT_EQ(found.count(key), 1u) << key;
  // With long values, which are fetched beside.
  ASSERT_TRUE(client->Put("long", std::string(100'000, 'l')).ok());
  options.values = true;
  options.prefix = "lo";
  std::string cursor;
  size_t bytes = 0;
  do {
    const absl::StatusOr<ScanPage> page = client->Scan(cursor, options);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const ScanItem& item : page->items) bytes += item.value.size();
    cursor = page->cursor;
  } while (!cursor.empty());
  EXPECT_EQ(bytes, 100'000u);
}

TEST_F(ClientShardsTest, TheCursorOfAShardThatIsNotThereIsRefused) {
  const std::unique_ptr<Client> client = Connect();
  for (const char* cursor : {"s04", "s40", "s1", "s00", "s01x", "t01"}) {
    EXPECT_EQ(ReasonOf(client->Scan(cursor).status()), Reason::kBadCursor) << cursor;
  }
  EXPECT_TRUE(client->Scan("s03").ok());
  EXPECT_EQ(client->Scan("s03")->cursor, "");
}

TEST_F(ClientShardsTest, ConnectNeedsShard0AndNoOther) {
  servers_.Stop(2);
  std::unique_ptr<Client> client = Connect();
  ASSERT_NE(client, nullptr);
  EXPECT_FALSE(client->connected());
  EXPECT_TRUE(client->Put(KeyOf(0), "value").ok());
  servers_.Start(2);
  EXPECT_TRUE(client->Put(KeyOf(2), "value").ok());
  EXPECT_TRUE(client->connected());
  // A server that can never be that shard's ends Connect.
  servers_.Stop(2);
  servers_.StartAs(2, 1, kShards);
  const absl::Status status = Client::Connect(servers_.uri()).status();
  EXPECT_EQ(ReasonOf(status), Reason::kWrongShard) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("has shard 1 of 4, not shard 2 of 4"));
  EXPECT_EQ(ReasonOf(Client::Connect(servers_.UriOf(1)).status()), Reason::kWrongShard);
}

TEST_F(ClientShardsTest, AClusterOfAnotherNumberOfShardsIsRefused) {
  const std::unique_ptr<Client> client = Connect();
  servers_.Stop(0);
  servers_.StartAs(0, 0, 2 * kShards);
  while (client->connected()) client->Poll();
  std::string message;
  for (const absl::Time end = absl::Now() + kLong; absl::Now() < end;) {
    message = std::string(client->Get(KeyOf(0), kShort).status().message());
    if (absl::StrContains(message, "shard 0")) break;
  }
  EXPECT_THAT(message, HasSubstr("has shard 0 of 8, not shard 0 of 4"));
  EXPECT_TRUE(client->Put(KeyOf(1), "value").ok());
}

TEST_F(ClientShardsTest, StatisticsAreSumsAndThoseOfEachShard) {
  const std::unique_ptr<Client> client = Connect();
  for (uint32_t shard = 0; shard < kShards; ++shard)
    ASSERT_TRUE(client->Put(KeyOf(shard), "value").ok());
  ASSERT_TRUE(client->Put(KeyOf(1, 1), "value").ok());
  const std::string stats = absl::StrCat("\n", client->ServerStats().value());
  for (const char* line : {"requests_put=5", "keys=5", "shard1.requests_put=2", "shard3.keys=1",
                           "evict=none", "shard2.evict=none", "value_bytes_max=1048576"})
    EXPECT_TRUE(absl::StrContains(stats, absl::StrCat("\n", line, "\n"))) << line << stats;
  EXPECT_FALSE(absl::StrContains(stats, "\nincarnation="));
  EXPECT_TRUE(absl::StrContains(stats, "\nuptime_seconds="));
  EXPECT_EQ(client->counters().connects, kShards);
  EXPECT_TRUE(client->Ping().ok());
  EXPECT_TRUE(client->MeasureRead(256).ok());
  std::vector<TraceStep> steps;
  ASSERT_TRUE(client->TraceGet(KeyOf(3), steps).ok());
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps[0].what, "shard");
  EXPECT_EQ(steps[0].detail, absl::StrCat("3 of 4: ", servers_.UriOf(3)));
}

TEST_F(ClientShardsTest, ACallbackMayStartOperationsInOtherShards) {
  const std::unique_ptr<Client> client = Connect();
  std::vector<std::string> keys;
  for (int i = 0; i < 40; ++i) keys.push_back(KeyOf(static_cast<uint32_t>(i * 3 % 4), i / 4));
  size_t next = 0;
  std::function<void()> step = [&] {
    if (next == keys.size()) return;
    ASSERT_TRUE(client
                    ->StartPut(keys[next++], "value", {},
                               [&](auto version) {
                                 EXPECT_TRUE(version.ok()) << version.status();
                                 step();
                               })
                    .ok());
  };
  step();
  while (client->in_flight() > 0) client->Wait(kLong);
  EXPECT_EQ(client->Count().value(), keys.size());
}

TEST_F(ClientShardsTest, AnEventLoopWaitsForAllShards) {
  const std::unique_ptr<Client> client = Connect();
  for (int i = 0; i < 20; ++i) {
    bool done = false;
    ASSERT_TRUE(client
                    ->StartPut(absl::StrCat("key", i), "value", {},
                               [&](auto version) {
                                 EXPECT_TRUE(version.ok()) << version.status();
                                 done = true;
                               })
                    .ok());
    for (;;) {
      while (client->Poll() > 0) {
      }
      if (done) break;
      const absl::Duration left = client->Arm();
      if (left <= absl::ZeroDuration()) continue;
      pollfd fd = {client->fd(), POLLIN, 0};
      ASSERT_GE(poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1), 0);
    }
  }
  Options options;
  options.wait = WaitMode::kEvent;
  options.deadline = kLong;
  const std::unique_ptr<Client> sleeper = Client::Connect(servers_.uri(), options).value();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(sleeper->Get(absl::StrCat("key", i))->bytes, "value");
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(sleeper->Put(absl::StrCat("key", i), "other").ok());
}

TEST_F(ClientShardsTest, PooledClientsHaveAllShards) {
  PoolOptions options;
  options.client.deadline = kLong;
  const std::unique_ptr<ClientPool> pool = ClientPool::Create(servers_.uri(), options).value();
  {
    ClientPool::Lane lane = pool->Take().value();
    for (const std::string& key : Keys(20)) EXPECT_TRUE(lane->Put(key, "value").ok());
  }
  ClientPool::Lane lane = pool->Take().value();
  EXPECT_EQ(lane->Count().value(), 20u);
}

// Descriptors of shared memory in this process, which client and servers share.
int SharedMemories() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    count += absl::StrContains(std::filesystem::read_symlink(entry, error).string(), "memfd:");
  }
  return count;
}

TEST_F(ClientShardsTest, ABufferThatIsGoneIsExposedToNoShard) {
  const std::unique_ptr<Client> client = Connect();
  const int before = SharedMemories();
  constexpr int kBuffers = 8;
  {
    std::vector<Buffer> buffers;
    for (int i = 0; i < kBuffers; ++i) {
      buffers.push_back(client->AllocateBuffer(100'000).value());
      for (uint32_t shard = 0; shard < kShards; ++shard)
        ASSERT_TRUE(client->PutFrom(KeyOf(shard), buffers.back(), 0, 100'000).ok());
    }
    // One of the client, and one of each server.
    EXPECT_EQ(SharedMemories(), before + kBuffers * (1 + static_cast<int>(kShards)));
  }
  for (const absl::Time end = absl::Now() + kLong; SharedMemories() > before && absl::Now() < end;)
    client->Poll();
  EXPECT_EQ(SharedMemories(), before);
}

TEST_F(ClientShardsTest, TheCApiReachesAllShards) {
  osprey_client* client = nullptr;
  ASSERT_EQ(osprey_connect(servers_.uri().c_str(), nullptr, &client, nullptr), OSPREY_OK);
  const std::vector<std::string> keys = Keys(40);
  std::vector<osprey_bytes> views;
  int arrived = 0;
  for (const std::string& key : keys) {
    views.push_back({key.data(), key.size()});
    ASSERT_EQ(osprey_put(client, key.data(), key.size(), "value", 5, nullptr, nullptr), OSPREY_OK);
    const auto count = [](void* of, osprey_result* result) {
      *static_cast<int*>(of) += osprey_result_code(result) == OSPREY_OK;
      osprey_result_free(result);
    };
    ASSERT_EQ(osprey_start_get(client, key.data(), key.size(), nullptr, count, &arrived),
              OSPREY_OK);
  }
  while (osprey_in_flight(client) > 0) osprey_wait(client, 1'000'000);
  EXPECT_EQ(arrived, 40);
  osprey_result* result = nullptr;
  EXPECT_EQ(osprey_multi_get(client, views.data(), views.size(), nullptr, &result), OSPREY_OK);
  osprey_result_free(result);
  std::string cursor;
  size_t found = 0;
  do {
    ASSERT_EQ(osprey_scan(client, cursor.c_str(), nullptr, &result), OSPREY_OK);
    found += osprey_result_count(result);
    cursor = osprey_result_cursor(result) == nullptr ? "" : osprey_result_cursor(result);
    osprey_result_free(result);
  } while (!cursor.empty());
  EXPECT_EQ(found, keys.size());
  EXPECT_EQ(osprey_client_counter(client, OSPREY_COUNTER_CONNECTS), kShards);
  EXPECT_EQ(osprey_client_counter(client, OSPREY_COUNTER_WRITES), keys.size());
  EXPECT_EQ(osprey_close(client), OSPREY_OK);
}

// One shard in such a form is as no shards.
TEST(ClientOfOneShardTest, HasNothingOfShards) {
  ShardServers servers(1);
  const std::unique_ptr<Client> client = Client::Connect(servers.uri()).value();
  ASSERT_TRUE(client->Put("key", "value").ok());
  EXPECT_FALSE(absl::StrContains(client->Describe(), "shard"));
  EXPECT_FALSE(absl::StrContains(client->ServerStats().value(), "shard0"));
  std::vector<TraceStep> steps;
  ASSERT_TRUE(client->TraceGet("key", steps).ok());
  EXPECT_NE(steps.at(0).what, "shard");
  EXPECT_EQ(ReasonOf(client->Scan("s01").status()), Reason::kBadCursor);
}

}  // namespace
}  // namespace osprey
