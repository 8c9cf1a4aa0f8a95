// The client of a server whose region is cut into partitions, in virtual time.

#include "index/layout/partitions.h"

#include <cstring>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/read/partition_maps.h"
#include "client/read/scans.h"
#include "client/reasons.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/client_engine_fixture.h"

namespace osprey {
namespace {

using client::ScanPlace;
using client::Scans;
using ::testing::HasSubstr;

class ClientPartitionsTest : public ClientEngineTest,
                             public ::testing::WithParamInterface<uint32_t> {
 protected:
  void SetUp() override {
    StartServer(/*incarnation=*/1, GetParam());
    StartEngine();
    BecomeReady();
  }
  static std::string KeyOf(int i) { return absl::StrCat("key", i); }
  // Some inline, some items.
  static std::string ValueOf(int i) {
    return absl::StrCat("value", i, std::string(i % 3 == 0 ? 300 : 0, 'v'));
  }
  void StoreMany(int keys) {
    for (int i = 0; i < keys; ++i) {
      const std::string value = ValueOf(i);
      index::Table& table = server_->TableOf(KeyOf(i));
      const index::WriteResult result = table.Put(
          KeyOf(i), {reinterpret_cast<const std::byte*>(value.data()), value.size()}, {}, now_);
      ASSERT_TRUE(result.status.ok()) << result.status;
      while (table.GrowStep(now_)) {
      }
    }
  }
  absl::StatusOr<Scans::Found> Page(const std::string& cursor, uint64_t limit,
                                    bool count_only = false) {
    Outcome<Scans::Found> outcome;
    Scans::Request request;
    request.from = ScanPlace::Parse(cursor).value();
    request.limit = limit;
    request.count_only = count_only;
    request.deadline = now_ + absl::Seconds(5);
    request.done = outcome.Callback();
    absl::Status started = engine_->start().Scan(std::move(request));
    if (!started.ok()) return started;
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(6)));
    return std::move(*outcome.value);
  }
};

INSTANTIATE_TEST_SUITE_P(Of, ClientPartitionsTest, ::testing::Values(1, 2, 4, 16));

TEST_P(ClientPartitionsTest, KeysOfEveryPartitionAreFoundByReadsAlone) {
  StoreMany(3000);
  for (uint32_t i = 0; i < GetParam(); ++i) EXPECT_GT(server_->table(i).stats().keys, 0u) << i;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3000; ++i) {
      const absl::StatusOr<Value> value = Get(KeyOf(i));
      ASSERT_TRUE(value.ok()) << value.status() << " " << i;
      ASSERT_EQ(value->bytes, ValueOf(i));
    }
  }
  EXPECT_TRUE(absl::IsNotFound(Get("no such key").status()));
  EXPECT_TRUE(server_->requests.empty());
  // The second time the items' locations are cached: a READ each.
  EXPECT_GE(engine_->counters().hints, 1000u);
  EXPECT_EQ(engine_->counters().stale_hints, 0u);
}

TEST_P(ClientPartitionsTest, LongValuesComeFromWhereTheirPartitionIs) {
  for (int i = 0; i < 12; ++i) {
    const std::string value(20000 + 1000 * i, static_cast<char>('a' + i));
    ASSERT_TRUE(Put(KeyOf(i), value).ok());
    const absl::StatusOr<Value> got = Get(KeyOf(i));
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->bytes, value);
  }
  EXPECT_EQ(engine_->counters().rpc_gets, 0u);
}

TEST_P(ClientPartitionsTest, WhatTheClientWroteItReadsWithOneRead) {
  const std::string value(500, 'v');
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(Put(KeyOf(i), value).ok());
  const uint64_t before = engine_->counters().reads;
  for (int i = 0; i < 200; ++i) ASSERT_EQ(Get(KeyOf(i))->bytes, value);
  EXPECT_EQ(engine_->counters().reads - before, 200u);
}

TEST_P(ClientPartitionsTest, AScanGoesThroughAllPartitionsInPagesOfAnySize) {
  StoreMany(3000);
  for (const uint64_t limit : {uint64_t{7}, uint64_t{500}, UINT64_MAX}) {
    std::set<std::string> found;
    std::string cursor;
    int pages = 0;
    do {
      const absl::StatusOr<Scans::Found> page = Page(cursor, limit);
      ASSERT_TRUE(page.ok()) << page.status();
      for (const index::ScanEntry& entry : page->entries)
        EXPECT_TRUE(found.insert(entry.key).second) << entry.key << " twice";
      cursor = page->next.Text();
      ASSERT_LE(++pages, 3000);
    } while (!cursor.empty());
    EXPECT_EQ(found.size(), 3000u) << limit;
    if (limit == UINT64_MAX) {
      EXPECT_EQ(pages, 1);
    }
  }
  EXPECT_EQ(Page("", UINT64_MAX, /*count_only=*/true)->count, 3000u);
  EXPECT_EQ(engine_->counters().messages, 0u);
}

TEST_P(ClientPartitionsTest, AScanGoesOnBehindABreakInWhateverPartitionItWas) {
  StoreMany(3000);
  Outcome<Scans::Found> outcome;
  Scans::Request request;
  request.limit = UINT64_MAX;
  request.deadline = now_ + absl::Seconds(30);
  request.done = outcome.Callback();
  ASSERT_TRUE(engine_->start().Scan(std::move(request)).ok());
  // A block of READs each, then a break.
  for (int breaks = 0; breaks < 10 && !outcome.done(); ++breaks) {
    for (int i = 0; i < 12; ++i) Step();
    network_.Break(server_->connection());
    RunFor(absl::Milliseconds(50));
  }
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(30)));
  ASSERT_TRUE(outcome.status().ok()) << outcome.status();
  std::multiset<std::string> keys;
  for (const index::ScanEntry& entry : outcome.value->value().entries) keys.insert(entry.key);
  for (int i = 0; i < 3000; ++i) EXPECT_EQ(keys.count(KeyOf(i)), 1u) << i;
}

TEST_P(ClientPartitionsTest, TheNextServerMayHaveAnotherNumberOfPartitions) {
  StoreMany(300);
  ASSERT_EQ(Get(KeyOf(9))->bytes, ValueOf(9));
  const std::string cursor = Page("", 10)->next.Text();
  KillServer();
  StartServer(/*incarnation=*/2, GetParam() == 1 ? 8 : 1);
  ASSERT_TRUE(Put("planet", "saturn", {}, absl::Seconds(10)).ok());
  EXPECT_EQ(Get("planet")->bytes, "saturn");
  EXPECT_TRUE(absl::IsNotFound(Get(KeyOf(9)).status()));
  EXPECT_EQ(Page("", UINT64_MAX)->count, 1u);
  EXPECT_EQ(ReasonOf(Page(cursor, 10).status()), Reason::kStaleCursor);
}

TEST_P(ClientPartitionsTest, ACursorInAPartitionThatIsNotThereIsRefused) {
  ScanPlace place;
  place.dataset = 1;
  place.partition = 63;
  EXPECT_EQ(ReasonOf(Page(place.Text(), 10).status()), Reason::kBadCursor);
  place.partition = 64;
  EXPECT_EQ(ReasonOf(ScanPlace::Parse(place.Text()).status()), Reason::kBadCursor);
}

// --- Servers that lie ---------------------------------------------------------------------------

class ClientPartitionsHostileTest : public ClientEngineTest {
 protected:
  void ExpectFailure(absl::string_view why) {
    StartEngine();
    RunFor(absl::Seconds(1));
    EXPECT_EQ(engine_->connection().times_ready(), 0u);
    EXPECT_THAT(std::string(engine_->connection().last_error().message()),
                HasSubstr(std::string(why)));
  }
};

TEST_F(ClientPartitionsHostileTest, MorePartitionsThanFitTheRegionAreRefused) {
  StartServer();
  server_->tamper_welcome = [](rdma::FrameHeader&, rdma::WelcomeBody& body) {
    body.region.length = 1 << 20;
    body.partitions = 64;
  };
  ExpectFailure("a region of 1048576 bytes with 64 partitions");
}

TEST_F(ClientPartitionsHostileTest, PartitionsThatAreNoTablesAreRefusedByNumber) {
  StartServer();
  server_->tamper_welcome = [](rdma::FrameHeader&, rdma::WelcomeBody& body) {
    body.partitions = 2;
  };
  ExpectFailure("partition 0");
}

TEST_F(ClientPartitionsHostileTest, PartitionsMustHashAlike) {
  StartServer(/*incarnation=*/1, /*partitions=*/2);
  const index::PartitionSpan span =
      index::SpanOfPartition(server_->region().size(), /*partitions=*/2, 1);
  const absl::Span<std::byte> second = server_->region().subspan(span.offset, span.bytes);
  std::memset(second.data(), 0, second.size());
  index::TableOptions options;
  options.incarnation = index::IncarnationOfPartition(1, 1);
  options.hash_seed = 8;
  const auto table = index::Table::Create(second, options);
  ASSERT_TRUE(table.ok()) << table.status();
  ExpectFailure("partition 1 hashes keys unlike partition 0");
}

}  // namespace
}  // namespace osprey
