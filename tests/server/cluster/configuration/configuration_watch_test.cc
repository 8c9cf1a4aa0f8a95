#include "server/cluster/configuration/configuration_watch.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/cluster/right/model_store.h"

namespace osprey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ConfigurationWatchTest : public ::testing::Test {
 protected:
  void Put(const std::string& key, const std::string& value) {
    Transaction transaction;
    transaction.operations = {StoreOperation::Put(key, value)};
    (void)store_.Execute(transaction);
  }
  void Delete(const std::string& key) {
    Transaction transaction;
    transaction.operations = {StoreOperation::Delete(key)};
    (void)store_.Execute(transaction);
  }
  void PutShard(uint32_t shard, uint64_t term) {
    Put(keys_.Shard(shard), EncodeShardRecord({term, "a", {{"a", 1, 1, 1}}}));
  }
  WatchNews ReadShards() {
    const StoreRange range = watch_.ShardsRange();
    return watch_.TakeShards(range, store_.Range(range));
  }
  WatchNews ReadServers() { return watch_.TakeServers(store_.Range(watch_.ServersRange())); }

  const ClusterKeys keys_{"/osprey/test/"};
  ModelStore store_;
  ConfigurationWatch watch_{keys_, 4};
};

TEST_F(ConfigurationWatchTest, ReadsAllShardsAndThenWhatHasChanged) {
  EXPECT_EQ(watch_.Shard(3), nullptr);
  for (uint32_t shard = 0; shard < 4; ++shard) PutShard(shard, 1);
  EXPECT_THAT(ReadShards().changed, ElementsAre(0, 1, 2, 3));
  PutShard(2, 2);
  const StoreRange range = watch_.ShardsRange();
  const RangeAnswer answer = store_.Range(range);
  EXPECT_THAT(answer.keys, SizeIs(1));
  EXPECT_THAT(watch_.TakeShards(range, answer).changed, ElementsAre(2));
  ASSERT_NE(watch_.Shard(2), nullptr);
  EXPECT_EQ(watch_.Shard(2)->record.term, 2u);
  EXPECT_EQ(watch_.Shard(2)->mod_revision, answer.keys[0].mod_revision);
  EXPECT_THAT(ReadShards().changed, IsEmpty());
  EXPECT_EQ(watch_.Shard(1)->record.term, 1u);
}

TEST_F(ConfigurationWatchTest, SeesADeletedRecordInAWholeRead) {
  for (uint32_t shard = 0; shard < 4; ++shard) PutShard(shard, 1);
  (void)ReadShards();
  Delete(keys_.Shard(1));
  std::vector<uint32_t> changed;
  uint32_t reads = 0;
  for (; changed.empty() && reads <= kShardsReadsPerWhole; ++reads) changed = ReadShards().changed;
  EXPECT_THAT(changed, ElementsAre(1));
  EXPECT_EQ(reads, kShardsReadsPerWhole);
  EXPECT_EQ(watch_.Shard(1), nullptr);
  EXPECT_NE(watch_.Shard(0), nullptr);
  PutShard(1, 5);
  EXPECT_THAT(ReadShards().changed, ElementsAre(1));
}

TEST_F(ConfigurationWatchTest, AnOlderAnswerSaysNothing) {
  PutShard(0, 1);
  Put(keys_.Server("a"), EncodeServerRecord({1, {}, 0}));
  const StoreRange range = watch_.ShardsRange();
  const RangeAnswer shards = store_.Range(range);
  const RangeAnswer servers = store_.Range(watch_.ServersRange());
  PutShard(0, 2);
  Delete(keys_.Server("a"));
  EXPECT_TRUE(ReadShards().is_news);
  EXPECT_TRUE(ReadServers().is_news);
  const WatchNews late = watch_.TakeShards(range, shards);
  EXPECT_FALSE(late.is_news);
  EXPECT_THAT(late.changed, IsEmpty());
  EXPECT_EQ(watch_.Shard(0)->record.term, 2u);
  EXPECT_FALSE(watch_.TakeServers(servers).is_news);
  EXPECT_EQ(watch_.CreateRevision("a"), 0);
}

// A read that was lost shows nothing; the next one has what it would have had.
TEST_F(ConfigurationWatchTest, ALostAnswerLosesNoChange) {
  PutShard(0, 1);
  (void)watch_.ShardsRange();
  EXPECT_THAT(ReadShards().changed, ElementsAre(0)) << "after the loss of the first answer";
  PutShard(0, 2);
  (void)watch_.ShardsRange();
  EXPECT_THAT(ReadShards().changed, ElementsAre(0));
}

TEST_F(ConfigurationWatchTest, ServersComeGoAndComeAgain) {
  const ServerRecord record{1, {"rdma://a"}, 0};
  Put(keys_.Server("a"), EncodeServerRecord(record));
  EXPECT_THAT(ReadServers().errors, IsEmpty());
  const int64_t created = watch_.CreateRevision("a");
  EXPECT_GT(created, 0);
  EXPECT_EQ(watch_.servers().at("a").record, record);
  Put(keys_.Server("a"), EncodeServerRecord(record));
  (void)ReadServers();
  EXPECT_EQ(watch_.CreateRevision("a"), created);
  EXPECT_GT(watch_.servers().at("a").mod_revision, created);
  Delete(keys_.Server("a"));
  (void)ReadServers();
  EXPECT_EQ(watch_.CreateRevision("a"), 0);
  EXPECT_THAT(watch_.servers(), IsEmpty());
  Put(keys_.Server("a"), EncodeServerRecord(record));
  (void)ReadServers();
  EXPECT_GT(watch_.CreateRevision("a"), created);
}

TEST_F(ConfigurationWatchTest, AMalformedRecordIsReportedAndTheOneBeforeKept) {
  PutShard(0, 1);
  const ServerRecord record{1, {}, 0};
  Put(keys_.Server("a"), EncodeServerRecord(record));
  (void)ReadShards();
  (void)ReadServers();
  Put(keys_.Shard(0), "garbage");
  Put(keys_.Server("a"), "garbage");
  const WatchNews shards = ReadShards();
  EXPECT_THAT(shards.changed, IsEmpty());
  ASSERT_THAT(shards.errors, SizeIs(1));
  EXPECT_THAT(std::string(shards.errors[0].message()), HasSubstr(keys_.Shard(0)));
  EXPECT_EQ(watch_.Shard(0)->record.term, 1u);
  const WatchNews servers = ReadServers();
  ASSERT_THAT(servers.errors, SizeIs(1));
  EXPECT_THAT(std::string(servers.errors[0].message()), HasSubstr(keys_.Server("a")));
  EXPECT_EQ(watch_.servers().at("a").record, record);
  PutShard(0, 2);
  EXPECT_THAT(ReadShards().changed, ElementsAre(0));
}

// That of another incarnation is not the record before.
TEST_F(ConfigurationWatchTest, AMalformedNewServerHasNoRecord) {
  Put(keys_.Server("a"), EncodeServerRecord({1, {}, 0}));
  (void)ReadServers();
  Delete(keys_.Server("a"));
  Put(keys_.Server("a"), "garbage");
  EXPECT_THAT(ReadServers().errors, SizeIs(1));
  EXPECT_EQ(watch_.servers().at("a").record, std::nullopt);
  EXPECT_GT(watch_.CreateRevision("a"), 0);
}

TEST_F(ConfigurationWatchTest, KeysOfNoShardAreReportedAndBounded) {
  PutShard(0, 1);
  for (const char* rest : {"4", "63", "x", "", "00", "1/2", "\xff\n"})
    Put(keys_.Shards() + rest, "x");
  const WatchNews news = ReadShards();
  EXPECT_THAT(news.changed, ElementsAre(0));
  EXPECT_THAT(news.errors, SizeIs(7));
  for (const absl::Status& error : news.errors)
    EXPECT_EQ(std::string(error.message()).find('\n'), std::string::npos);
  for (int i = 0; i < 100; ++i) Put(absl::StrCat(keys_.Shards(), "more", i), "x");
  EXPECT_THAT(ReadShards().errors, SizeIs(kWatchErrorsMax));
  Put(keys_.Servers() + "UPPER", "x");
  EXPECT_THAT(ReadServers().errors, SizeIs(1));
}

}  // namespace
}  // namespace osprey
