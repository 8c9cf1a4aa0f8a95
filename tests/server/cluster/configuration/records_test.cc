// The records that a cluster has in the store: read as written, and checked as a hostile program's.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/configuration/shard_record.h"
#include "tests/server/cluster/right/model_store.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;

const ClusterKeys kKeys("/osprey/test/");

ClusterRecord Cluster() { return {1, 0xF1, 64, 3, 2, 0x5E0F, 1 << 30}; }

ShardRecord Shard() { return {4, "a", {{"a", 17, 0xA1, 0xA2}, {"b", 18, 0xB1, 0xB2}}}; }

// --- Keys

TEST(ClusterKeysTest, AreReadAsTheyAreWritten) {
  EXPECT_EQ(kKeys.Cluster(), "/osprey/test/cluster");
  EXPECT_EQ(kKeys.Server("a-1"), "/osprey/test/servers/a-1");
  EXPECT_EQ(kKeys.ParseServer(kKeys.Server("a-1")), "a-1");
  EXPECT_EQ(kKeys.ParseShard(kKeys.Shard(0)), 0u);
  EXPECT_EQ(kKeys.ParseShard(kKeys.Shard(kShardsMax - 1)), kShardsMax - 1);
}

TEST(ClusterKeysTest, OthersAreRefused) {
  for (const char* rest :
       {"shards/", "shards/01", "shards/+1", "shards/ 1", "shards/1x", "shards/64", "shards/-1",
        "shards/4294967297", "shards", "cluster", "servers/1"})
    EXPECT_EQ(kKeys.ParseShard(absl::StrCat("/osprey/test/", rest)), std::nullopt) << rest;
  EXPECT_EQ(kKeys.ParseShard("/osprey/other/shards/1"), std::nullopt);
  for (const std::string& rest :
       {std::string("servers/"), std::string("servers/A"), std::string("servers/a/b"),
        "servers/" + std::string(64, 'a'), std::string("servers/a\0", 10), std::string("shards/1")})
    EXPECT_EQ(kKeys.ParseServer("/osprey/test/" + rest), std::nullopt) << rest;
}

// --- The cluster's record

TEST(ClusterRecordTest, IsReadAsItWasWritten) {
  const std::string text = EncodeClusterRecord(Cluster());
  EXPECT_EQ(text, R"({"format":1,"hash_seed":"0000000000005e0f","id":"00000000000000f1",)"
                  R"("min_in_sync":2,"replicas":3,"shard_bytes":1073741824,"shards":64})");
  const auto read = DecodeClusterRecord(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Cluster());
  EXPECT_TRUE(DecodeClusterRecord(absl::StrReplaceAll(text, {{"{", R"({"later":[{}],)"}})).ok());
}

TEST(ClusterRecordTest, NamesWhatIsWrong) {
  const std::string good = EncodeClusterRecord(Cluster());
  const std::vector<std::vector<std::string>> cases = {
      {R"("shards":64)", R"("shards":48)", "power of two"},
      {R"("shards":64)", R"("shards":128)", "power of two"},
      {R"("shards":64)", R"("shards":0)", "power of two"},
      {R"("shards":64)", R"("shards":-1)", "shards"},
      {R"("shards":64)", R"("shards":64.0)", "shards"},
      {R"("shards":64)", R"("shards":4294967360)", "shards"},
      {R"(,"shards":64)", "", "no shards"},
      {R"("replicas":3)", R"("replicas":0)", "replicas"},
      {R"("replicas":3)", R"("replicas":8)", "replicas"},
      {R"("min_in_sync":2)", R"("min_in_sync":4)", "min_in_sync"},
      {R"("min_in_sync":2)", R"("min_in_sync":0)", "min_in_sync"},
      {"1073741824", "1073741825", "shard_bytes"},
      {"1073741824", "4096", "shard_bytes"},
      {"1073741824", "18446744073709551615", "shard_bytes"},
      {"00000000000000f1", "0000000000000000", "id"},
      {"0000000000005e0f", "5e0f", "hash_seed"},
      {R"("0000000000005e0f")", "24079", "hash_seed"},
      {R"("format":1)", R"("format":0)", "format"},
      {R"("format":1)", R"("format":[])", "format"},
      {"{", "[", "JSON"},
      {"}", absl::StrCat(R"(,"x":")", std::string(kClusterRecordBytesMax, 'x'), "\"}"), "bytes"},
  };
  for (const auto& one : cases) {
    const std::string text = absl::StrReplaceAll(good, {{one[0], one[1]}});
    ASSERT_NE(text, good) << one[0];
    const absl::Status status = DecodeClusterRecord(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one[2]));
  }
}

TEST(ClusterRecordTest, OfANewerFormatAsksForANewerProgram) {
  for (const char* text : {R"({"format":2})", R"({"format":4294967295,"shards":"many"})"}) {
    const absl::Status status = DecodeClusterRecord(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("newer program"));
  }
}

TEST(ClusterRecordTest, WritesNeedTwoReplicasWhereThereAreThree) {
  EXPECT_EQ(MinInSync(1), 1u);
  EXPECT_EQ(MinInSync(2), 1u);
  EXPECT_EQ(MinInSync(3), 2u);
  EXPECT_EQ(MinInSync(kReplicasMax), 2u);
}

TEST(CreateClusterTest, CreatesAllRecordsAtOnce) {
  ModelStore store;
  const TransactionResult result = store.Execute(CreateCluster(kKeys, Cluster()));
  ASSERT_EQ(result.outcome, TransactionOutcome::kApplied);
  EXPECT_EQ(*DecodeClusterRecord(store.Range({kKeys.Cluster()}).keys[0].value), Cluster());
  const std::vector<StoredKey> shards = store.Range({kKeys.Shards(), true}).keys;
  ASSERT_EQ(shards.size(), 64u);
  for (const StoredKey& shard : shards) {
    EXPECT_TRUE(DecodeShardRecord(shard.value)->is_initial());
    EXPECT_EQ(shard.mod_revision, result.header.revision);
  }
  EXPECT_LE(CreateCluster(kKeys, Cluster()).compares.size(), 128u) << "etcd's limit";
}

TEST(CreateClusterTest, ChangesNothingWhereAnyOfItIs) {
  for (const std::string& key : {kKeys.Cluster(), kKeys.Shard(0), kKeys.Shard(63)}) {
    ModelStore store;
    Transaction before;
    before.operations = {StoreOperation::Put(key, "x")};
    (void)store.Execute(before);
    const TransactionResult result = store.Execute(CreateCluster(kKeys, Cluster()));
    ASSERT_EQ(result.outcome, TransactionOutcome::kRefused);
    ASSERT_EQ(result.results.size(), 2u);
    EXPECT_EQ(result.results[0].keys.size() + result.results[1].keys.size(), 1u);
    EXPECT_EQ(store.Range({"/", true}).keys.size(), 1u);
  }
}

// --- A shard's record

TEST(ShardRecordTest, IsReadAsItWasWritten) {
  const std::string text = EncodeShardRecord(Shard());
  EXPECT_EQ(text,
            R"({"format":1,"in_sync":[{"create_revision":17,"incarnation":"00000000000000a1",)"
            R"("life":"00000000000000a2","server":"a"},{"create_revision":18,)"
            R"("incarnation":"00000000000000b1","life":"00000000000000b2","server":"b"}],)"
            R"("primary":"a","term":4})");
  const auto read = DecodeShardRecord(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Shard());
  const auto initial = DecodeShardRecord(EncodeShardRecord({}));
  ASSERT_TRUE(initial.ok()) << initial.status();
  EXPECT_TRUE(initial->is_initial());
}

TEST(ShardRecordTest, AMoveIsReadAsItWasWritten) {
  ShardRecord record = Shard();
  record.move = ShardMove{"a", "d"};
  EXPECT_EQ(record.Staying(), 1u);
  const std::string text = EncodeShardRecord(record);
  EXPECT_THAT(text, HasSubstr(R"("move":{"from":"a","to":"d"})"));
  const auto read = DecodeShardRecord(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, record);
  for (const char* bad : {R"("move":{"from":"a","to":"a"})", R"("move":{"from":"a"})",
                          R"("move":{"from":"a","to":"../d"})", R"("move":7)"}) {
    EXPECT_EQ(
        DecodeShardRecord(absl::StrReplaceAll(text, {{R"("move":{"from":"a","to":"d"})", bad}}))
            .status()
            .code(),
        absl::StatusCode::kDataLoss)
        << bad;
  }
}

TEST(ShardRecordTest, TheLargestFits) {
  ShardRecord record{kTermMax, std::string(kServerIdBytesMax, 'a'), {}};
  for (size_t i = 0; i < kMembersMax; ++i)
    record.in_sync.push_back({std::string(kServerIdBytesMax, static_cast<char>('a' + i)), INT64_MAX,
                              UINT64_MAX, UINT64_MAX});
  const auto read = DecodeShardRecord(EncodeShardRecord(record));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, record);
  record.in_sync.push_back({"more", 1, 1, 1});
  EXPECT_FALSE(DecodeShardRecord(EncodeShardRecord(record)).ok());
}

TEST(ShardRecordTest, NamesWhatIsWrong) {
  const std::string good = EncodeShardRecord(Shard());
  const std::vector<std::vector<std::string>> cases = {
      {R"("primary":"a")", R"("primary":"c")", "primary"},
      {R"("primary":"a")", R"("primary":1)", "primary"},
      {R"(,"primary":"a")", "", "no primary"},
      {R"("term":4)", R"("term":0)", "before its first term"},
      {R"("term":4)", R"("term":9007199254740993)", "term"},
      {R"("term":4)", R"("term":"4")", "term"},
      {R"("server":"b")", R"("server":"a")", "twice"},
      {R"("server":"b")", R"("server":"../b")", "server"},
      {R"("server":"b")", R"("server":"")", "server"},
      {R"("create_revision":18)", R"("create_revision":0)", "create_revision"},
      {R"("create_revision":18)", R"("create_revision":9223372036854775808)", "create_revision"},
      {"00000000000000b1", "0000000000000000", "incarnation"},
      {"00000000000000b2", "000000000000000b2", "life"},
      {R"(,"life":"00000000000000b2")", "", "life"},
      {R"("in_sync":[)", R"("in_sync":[null,)", "server"},
      {R"("in_sync":[)", R"("in_sync":{"a":1},"x":[)", "in_sync"},
      {R"("format":1)", R"("format":0)", "format"},
  };
  for (const auto& one : cases) {
    const std::string text = absl::StrReplaceAll(good, {{one[0], one[1]}});
    ASSERT_NE(text, good) << one[0];
    const absl::Status status = DecodeShardRecord(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one[2])) << text;
  }
  for (const std::string& text :
       {std::string(), std::string("null"), std::string(100000, '['), std::string("\0", 1)})
    EXPECT_EQ(DecodeShardRecord(text).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodeShardRecord(R"({"format":2})").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ShardRecordTest, AShardThatWasGivenUpKeepsItsTerm) {
  ShardRecord record = Shard();
  EXPECT_FALSE(record.is_initial());
  record.primary.clear();
  record.in_sync.clear();
  EXPECT_TRUE(record.is_initial());
  EXPECT_EQ(*DecodeShardRecord(EncodeShardRecord(record)), record);
}

TEST(ShardRecordTest, ANameIsNoReplica) {
  const ShardRecord record = Shard();
  EXPECT_TRUE(record.HasAsPrimary({"a", 17, 0xA1, 0xA2}));
  EXPECT_FALSE(record.HasAsPrimary({"b", 18, 0xB1, 0xB2}));
  for (const Replica& other :
       {Replica{"a", 19, 0xA1, 0xA2}, Replica{"a", 17, 0xA3, 0xA2}, Replica{"a", 17, 0xA1, 0xA3}}) {
    EXPECT_FALSE(record.Has(other));
    EXPECT_FALSE(record.HasAsPrimary(other));
  }
}

}  // namespace
}  // namespace osprey
