// kvcli cluster create and status, with a real etcd.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/configuration/shard_record.h"
#include "server/cluster/right/server_record.h"
#include "tests/server/cluster/etcd/etcd_process.h"
#include "tests/server/cluster/etcd/scripted_http.h"
#include "tests/support/pty_process.h"
#include "tests/tools/kvcli_fixture.h"

namespace osprey {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr uint64_t kCopyRate = 1 << 20;  // of each server, bytes a second

// One etcd for all cases; each has a cluster of its own.
class KvcliClusterTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { etcd_ = std::make_unique<EtcdCluster>(); }
  static void TearDownTestSuite() { etcd_.reset(); }

  KvcliClusterTest() {
    EtcdUri uri = etcd_->ClientOptions().uri;
    uri.name = absl::StrCat("c", ++clusters_);
    name_ = uri.name;
    uri_ = uri.ToString();
    keys_ = std::make_unique<ClusterKeys>(uri.KeyPrefix());
  }

  ProgramResult Create(std::vector<std::string> flags = {}) const {
    std::vector<std::string> args = {"cluster", "create", uri_, "--memory=64MiB"};
    args.insert(args.end(), flags.begin(), flags.end());
    return RunKvcli(args);
  }
  ProgramResult Status() const { return RunKvcli({"cluster", "status", uri_}); }
  Json StatusJson() const {
    const ProgramResult result = RunKvcli({"cluster", "status", uri_, "--json"});
    EXPECT_EQ(result.exit_status, 0) << result.err;
    return Json::parse(result.out, nullptr, false);
  }

  // Of the store, whatever is there.
  static void Put(const std::string& key, const std::string& value) {
    Transaction put;
    put.operations = {StoreOperation::Put(key, value)};
    ASSERT_EQ(etcd_->NewClient()->Execute(put, absl::Seconds(10)).outcome,
              TransactionOutcome::kApplied);
  }
  static void Delete(const std::string& key) {
    Transaction deletion;
    deletion.operations = {StoreOperation::Delete(key)};
    ASSERT_EQ(etcd_->NewClient()->Execute(deletion, absl::Seconds(10)).outcome,
              TransactionOutcome::kApplied);
  }
  static std::vector<StoredKey> KeysBelow(const std::string& prefix) {
    return etcd_->NewClient()->Range({prefix, true}, absl::Seconds(10))->keys;
  }
  // Puts the key of a server, and returns its create revision.
  int64_t PutServer(const std::string& id, uint64_t incarnation, uint64_t counter) const {
    Put(keys_->Server(id), EncodeServerRecord({incarnation,
                                               {"rdma://10.0.0.7:7471", "shm:///run/" + id},
                                               counter,
                                               4,
                                               "z2",
                                               {},
                                               kCopyRate}));
    return KeysBelow(keys_->Server(id)).at(0).create_revision;
  }

  static inline std::unique_ptr<EtcdCluster> etcd_;
  static inline int clusters_ = 0;
  std::string name_;
  std::string uri_;
  std::unique_ptr<ClusterKeys> keys_;
};

TEST_F(KvcliClusterTest, CreateWritesTheClustersRecord) {
  const ProgramResult result = Create();
  ASSERT_EQ(result.exit_status, 0) << result.err;
  EXPECT_THAT(result.out, MatchesRegex("id=[0-9a-f]{16} shards=1 replicas=3 min_in_sync=2 "
                                       "shard_bytes=67108864\n"));
  const std::vector<StoredKey> keys = KeysBelow(keys_->Cluster());
  ASSERT_EQ(keys.size(), 1);
  const absl::StatusOr<ClusterRecord> record = DecodeClusterRecord(keys[0].value);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->shards, 1);
  EXPECT_EQ(record->replicas, 3);
  EXPECT_EQ(record->min_in_sync, 2);
  EXPECT_EQ(record->shard_bytes, uint64_t{64} << 20);
  EXPECT_NE(record->id, record->hash_seed);
  const std::vector<StoredKey> shards = KeysBelow(keys_->Shards());
  ASSERT_EQ(shards.size(), 1);
  EXPECT_TRUE(DecodeShardRecord(shards[0].value)->is_initial());
}

TEST_F(KvcliClusterTest, FlagsSetReplicasAndHowManyAreNeeded) {
  const ProgramResult json = Create({"--replicas=5", "--min-in-sync=3", "--json"});
  ASSERT_EQ(json.exit_status, 0) << json.err;
  const Json created = Json::parse(json.out, nullptr, false);
  EXPECT_EQ(created["cluster"], name_);
  EXPECT_EQ(created["replicas"], 5);
  EXPECT_EQ(created["min_in_sync"], 3);
  EXPECT_EQ(created["shard_bytes"], 64 << 20);
}

TEST_F(KvcliClusterTest, ASingleReplicaIsEnoughForItself) {
  const ProgramResult result = Create({"--replicas=1"});
  EXPECT_THAT(result.out, HasSubstr(" replicas=1 min_in_sync=1 "));
}

TEST_F(KvcliClusterTest, AClusterThatExistsIsNotCreatedAgain) {
  ASSERT_EQ(Create().exit_status, 0);
  const std::string before = KeysBelow(keys_->Cluster()).at(0).value;
  ExpectFailure(Create({"--replicas=2"}), 1,
                absl::StrCat("cluster ", name_, " exists: 1 shard of 64MiB, 3 replicas, "));
  EXPECT_EQ(KeysBelow(keys_->Cluster()).at(0).value, before);
}

TEST_F(KvcliClusterTest, RestsOfADeletedClusterAreRefused) {
  Put(keys_->Shard(0), "{}");
  ExpectFailure(Create(), 1,
                absl::StrCat("an earlier cluster ", name_, " was deleted in part: 1 of its"));
  EXPECT_THAT(KeysBelow(keys_->Cluster()), IsEmpty());
}

TEST_F(KvcliClusterTest, StatusWithoutAClusterIsStatusOne) {
  ExpectFailure(Status(), 1, absl::StrCat("etcd has no cluster ", name_, "; make it: kvcli "));
}

TEST_F(KvcliClusterTest, StatusBeforeAnyServerSaysSo) {
  ASSERT_EQ(Create().exit_status, 0);
  const Json json = StatusJson();
  EXPECT_EQ(json["cluster"], name_);
  EXPECT_EQ(json["replicas"], 3);
  EXPECT_GE(json["revision"], 1);
  EXPECT_EQ(json["servers"], Json::array());
  ASSERT_EQ(json["shards"].size(), 1);
  EXPECT_EQ(json["shards"][0]["term"], 0);
  EXPECT_EQ(json["shards"][0]["in_sync"], Json::array());
  EXPECT_EQ(json["shards"][0]["missing"], 3);
  EXPECT_EQ(json["errors"], Json::array());
  const ProgramResult plain = Status();
  EXPECT_EQ(plain.exit_status, 0);
  EXPECT_THAT(plain.out, StartsWith(absl::StrCat("cluster=", name_, " id=")));
  EXPECT_THAT(plain.out, HasSubstr("\nshard=0 term=0 primary= in_sync= missing=3 ended=\n"));
}

TEST_F(KvcliClusterTest, StatusMarksServersThatDoNotRenew) {
  ASSERT_EQ(Create().exit_status, 0);
  const int64_t a = PutServer("a", 0xa1, 7);
  const int64_t b = PutServer("b", 0xb1, 9);
  ShardRecord record;
  record.term = 4;
  record.primary = "a";
  record.in_sync = {{"a", a, 0xa1, 1}, {"b", b - 1, 0xb0, 2}};  // of an earlier key of b
  Put(keys_->Shard(0), EncodeShardRecord(record));
  std::atomic<bool> ends = false;
  std::thread renewals([&] {
    for (uint64_t counter = 8; !ends; ++counter) {
      PutServer("a", 0xa1, counter);
      absl::SleepFor(absl::Milliseconds(100));
    }
  });
  const Json json = StatusJson();
  const ProgramResult plain = Status();
  ends = true;
  renewals.join();
  ASSERT_EQ(json["servers"].size(), 2);
  EXPECT_EQ(json["servers"][0]["server"], "a");
  EXPECT_EQ(json["servers"][0]["incarnation"], "00000000000000a1");
  EXPECT_EQ(json["servers"][0]["renewed"], true);
  EXPECT_GT(json["servers"][0]["renewals"], 7);
  EXPECT_EQ(json["servers"][1]["renewed"], false);
  EXPECT_EQ(json["servers"][1]["renewals"], 9);
  EXPECT_EQ(json["servers"][0]["primaries"], 1);
  EXPECT_EQ(json["servers"][0]["copies"], 1);
  EXPECT_EQ(json["servers"][1]["primaries"], 0);
  EXPECT_EQ(json["servers"][1]["slots"], 4);
  EXPECT_EQ(json["servers"][1]["zone"], "z2");
  EXPECT_EQ(json["servers"][1]["addresses"], Json({"rdma://10.0.0.7:7471", "shm:///run/b"}));
  const Json& shard = json["shards"][0];
  EXPECT_EQ(shard["term"], 4);
  EXPECT_EQ(shard["primary"], "a");
  EXPECT_EQ(shard["missing"], 1);
  EXPECT_EQ(shard["in_sync"][0]["ended"], false);
  EXPECT_EQ(shard["in_sync"][1]["server"], "b");
  EXPECT_EQ(shard["in_sync"][1]["ended"], true);
  EXPECT_THAT(
      plain.out,
      HasSubstr("\nserver=b incarnation=00000000000000b1 renewals=9 renewed=no "
                "primaries=0 copies=1 slots=4 zone=z2 addresses=rdma://10.0.0.7:7471,shm:///run/b\n"
                "shard=0 term=4 primary=a in_sync=a,b missing=1 ended=b\n"));
}

TEST_F(KvcliClusterTest, UnreadableRecordsAreReportedBesideTheRest) {
  ASSERT_EQ(Create().exit_status, 0);
  Put(keys_->Server("b"), "{}");
  Put(keys_->Servers() + "X", "?");
  Put(keys_->Shard(0), "no json");
  const ProgramResult result = RunKvcli({"cluster", "status", uri_, "--json"});
  EXPECT_EQ(result.exit_status, 4);
  const Json json = Json::parse(result.out, nullptr, false);
  EXPECT_EQ(json["errors"].size(), 3);
  EXPECT_EQ(json["servers"][0]["readable"], false);
  EXPECT_EQ(json["shards"][0]["readable"], false);
  EXPECT_THAT(result.err, HasSubstr(keys_->Server("b")));
  EXPECT_THAT(Status().out, HasSubstr("\nserver=b readable=no\nshard=0 readable=no\n"));
  Put(keys_->Cluster(), "no json");
  ExpectFailure(Status(), 4, "the cluster's record ");
}

TEST_F(KvcliClusterTest, TextOfTheStoreIsEscaped) {
  ASSERT_EQ(Create().exit_status, 0);
  Put(keys_->Server("a"), EncodeServerRecord({1, {"\x1b[2J\nserver=b"}, 1}));
  EXPECT_THAT(Status().out, HasSubstr(" addresses=\\x1b[2J\\nserver=b\n"));
}

TEST_F(KvcliClusterTest, MistakesAreUsageErrors) {
  const auto create = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> args = {"cluster", "create", uri_};
    args.insert(args.end(), flags.begin(), flags.end());
    return RunKvcli(args);
  };
  ExpectFailure(create({}), 2, "cluster create needs --memory=SIZE");
  ExpectFailure(create({"--memory=many"}), 2, "--memory: 'many' is no size");
  for (const char* size : {"1MiB", "2097153", "3TiB"})
    ExpectFailure(create({absl::StrCat("--memory=", size)}), 2,
                  absl::StrCat("--memory: ", size, " is out of range; write 2MiB to 2TiB"));
  for (const char* replicas : {"0", "8"})
    ExpectFailure(Create({absl::StrCat("--replicas=", replicas)}), 2, "write 1 to 7");
  for (const char* min : {"0", "4"})
    ExpectFailure(Create({absl::StrCat("--min-in-sync=", min)}), 2, "1 to --replicas (3)");
  ExpectFailure(Create({"--cluster-ca-file=/ca.pem"}), 2, "--cluster-ca-file: ");
  ExpectFailure(Create({"--cluster-user="}), 2, "--cluster-user: it is given and empty");
  ExpectFailure(Create({"--ttl=1"}), 2, "--ttl is not for this command");
  for (const char* flag : {"--memory=64MiB", "--replicas=3", "--min-in-sync=2"})
    ExpectFailure(RunKvcli({"cluster", "status", uri_, flag}), 2, "are of cluster create");
  ExpectFailure(RunKvcli({"cluster", "status"}), 2, "cluster create|status|move|");
  ExpectFailure(RunKvcli({"cluster", "adapt", uri_}), 2, "no command 'cluster adapt'");
  for (const char* uri : {"", "http://h/a", "etcd://h:2379", "etcd://h:0/a", "etcd://h/A"})
    ExpectFailure(RunKvcli({"cluster", "status", uri}), 2, "write etcd://HOST:2379");
  EXPECT_THAT(KeysBelow(keys_->Cluster()), IsEmpty());
}

TEST_F(KvcliClusterTest, ShardsAreAPowerOfTwo) {
  for (const char* shards : {"0", "3", "128"})
    ExpectFailure(Create({absl::StrCat("--shards=", shards)}), 2, "write a power of two up to 64");
  ExpectFailure(Create({"--shards=64", "--memory=100MiB"}), 2, "write 128MiB to 2TiB");
  ASSERT_EQ(Create({"--shards=8"}).exit_status, 0);
  const Json json = StatusJson();
  ASSERT_EQ(json["shards"].size(), 8);
  EXPECT_EQ(json["shards"][7]["shard"], 7);
  EXPECT_EQ(DecodeClusterRecord(KeysBelow(keys_->Cluster()).at(0).value)->shard_bytes, 8u << 20);
}

// Server a has ended, and b restarted since; nothing shows that c has ended but that it does not renew.
TEST_F(KvcliClusterTest, AShardWhoseServersAreLostIsGivenUp) {
  ASSERT_EQ(Create({"--shards=2"}).exit_status, 0);
  const int64_t b = PutServer("b", 0xb1, 9);
  const int64_t c = PutServer("c", 0xc1, 9);
  ShardRecord record;
  record.term = 4;
  record.primary = "a";
  record.in_sync = {{"a", b, 0xa1, 1}, {"b", b - 1, 0xb0, 2}, {"c", c, 0xc1, 3}};
  Put(keys_->Shard(1), EncodeShardRecord(record));
  const auto accept = [&](const std::string& shard, std::vector<std::string> flags = {"--yes"}) {
    std::vector<std::string> args = {"cluster", "accept-loss", uri_, shard};
    args.insert(args.end(), flags.begin(), flags.end());
    return RunKvcli(args);
  };
  ExpectFailure(accept("1", {}), 1, "not confirmed; nothing was given up. Write --yes");
  ExpectFailure(accept("0"), 1, "shard 0: no server has data of it");
  ExpectFailure(accept("2"), 1, "there is no shard 2; the cluster has shards 0 to 1");
  ExpectFailure(accept("x"), 2, "needs the number of a shard");
  ExpectFailure(RunKvcli({"cluster", "accept-loss", uri_}), 2,
                "write: kvcli cluster accept-loss ETCD_URI SHARD [--yes]");
  ExpectFailure(RunKvcli({"cluster", "status", uri_, "1"}), 2,
                "write: kvcli cluster status ETCD_URI");

  std::atomic<bool> ends = false;
  std::thread renewals([&] {
    for (uint64_t counter = 10; !ends; ++counter) {
      PutServer("c", 0xc1, counter);
      absl::SleepFor(absl::Milliseconds(100));
    }
  });
  const ProgramResult while_c_runs = accept("1");
  ends = true;
  renewals.join();
  ExpectFailure(while_c_runs, 1, "shard 1: server c has its data, and runs; nothing is lost");
  EXPECT_EQ(DecodeShardRecord(KeysBelow(keys_->Shard(1)).at(0).value)->in_sync.size(), 3u);

  const ProgramResult given_up = accept("1");
  EXPECT_EQ(given_up.exit_status, 0) << given_up.err;
  EXPECT_EQ(given_up.out, "shard=1 given_up=yes\n");
  const absl::StatusOr<ShardRecord> after =
      DecodeShardRecord(KeysBelow(keys_->Shard(1)).at(0).value);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(after->is_initial());
  EXPECT_EQ(after->term, 4u) << "terms go on";
  EXPECT_THAT(KeysBelow(keys_->Server("c")), IsEmpty()) << "its right has ended";
  EXPECT_EQ(KeysBelow(keys_->Server("b")).size(), 1u) << "that key is of another life";
  EXPECT_THAT(Status().out, HasSubstr("\nshard=1 term=4 primary= in_sync= missing=3 ended=\n"));
}

// Servers a and b have both copies of four shards, c and d have none. d does not renew its key.
TEST_F(KvcliClusterTest, CopiesMoveByCommand) {
  ASSERT_EQ(Create({"--shards=4", "--replicas=2"}).exit_status, 0);
  const int64_t a = PutServer("a", 0xa1, 1), b = PutServer("b", 0xb1, 1);
  PutServer("c", 0xc1, 1);
  PutServer("d", 0xd1, 1);
  for (uint32_t shard = 0; shard < 4; ++shard) {
    ShardRecord record;
    record.term = 4;
    record.primary = "a";
    record.in_sync = {{"a", a, 0xa1, shard + 1}, {"b", b, 0xb1, shard + 11}};
    Put(keys_->Shard(shard), EncodeShardRecord(record));
  }
  std::atomic<bool> ends = false;
  std::thread renewals([&] {
    for (uint64_t counter = 2; !ends; ++counter) {
      for (const auto& [id, incarnation] : {std::pair("a", 0xa1), {"b", 0xb1}, {"c", 0xc1}})
        PutServer(id, static_cast<uint64_t>(incarnation), counter);
      absl::SleepFor(absl::Milliseconds(100));
    }
  });
  const auto run = [&](std::vector<std::string> args) {
    args.insert(args.begin(), "cluster");
    args.insert(args.begin() + 2, uri_);
    return RunKvcli(args);
  };
  const auto move_of = [&](uint32_t shard) {
    return DecodeShardRecord(KeysBelow(keys_->Shard(shard)).at(0).value)->move;
  };

  ExpectFailure(run({"move", "0", "a", "d"}), 1, "no server d runs");
  ExpectFailure(run({"move", "0", "c", "a"}), 1, "shard 0: server c has no copy in sync");
  ExpectFailure(run({"move", "0", "a", "b"}), 1, "shard 0: server b has a copy");
  ExpectFailure(run({"move", "4", "a", "c"}), 1, "there is no shard 4");
  ExpectFailure(run({"move", "0", "a"}), 2, "write: kvcli cluster move ETCD_URI SHARD FROM TO");
  ExpectFailure(run({"cancel-move", "0"}), 1, "shard 0: no copy moves");
  ExpectFailure(run({"drain", "x"}), 1, "no server x runs");

  // Of 8 copies at three servers c gets two, of which a keeps its primaries.
  const ProgramResult plan = run({"rebalance"});
  EXPECT_EQ(plan.exit_status, 0) << plan.err;
  EXPECT_EQ(plan.out, "shard=0 from=b to=c begun=no\nshard=1 from=a to=c begun=no\n");
  EXPECT_EQ(move_of(0), std::nullopt);
  EXPECT_EQ(run({"rebalance", "--yes"}).out,
            "shard=0 from=b to=c begun=yes\nshard=1 from=a to=c begun=yes\n");
  EXPECT_EQ(move_of(0), (ShardMove{"b", "c"}));
  EXPECT_EQ(move_of(1), (ShardMove{"a", "c"}));
  EXPECT_EQ(run({"rebalance"}).out, "moves=0 moving=2\n") << "it is balanced once these are done";
  const std::unique_ptr<PtyProcess> waits =
      *PtyProcess::Start({"tools/kvcli", "cluster", "await-moves", uri_});
  EXPECT_TRUE(waits->Await("moves ["));
  EXPECT_THAT(Status().out, HasSubstr("shard=0 term=4 primary=a in_sync=a,b missing=0 move=b:c "));
  EXPECT_EQ(StatusJson()["shards"][0]["move"], (Json{{"from", "b"}, {"to", "c"}}));
  ExpectFailure(run({"move", "0", "a", "c"}), 1, "its copy at b moves to c already");
  ExpectFailure(run({"drain", "a"}), 1, "shard 0: a copy moves");
  EXPECT_EQ(run({"cancel-move", "0"}).out, "shard=0 cancelled=yes\n");
  waits->Type("\x03");
  EXPECT_EQ(waits->AwaitEnd(), 1) << waits->screen();
  EXPECT_THAT(waits->screen(), HasSubstr("copies that move: 1; the servers go on"));
  const std::unique_ptr<PtyProcess> again =
      *PtyProcess::Start({"tools/kvcli", "cluster", "await-moves", uri_});
  EXPECT_TRUE(again->Await("moves ["));
  EXPECT_EQ(run({"cancel-move", "1"}).exit_status, 0);
  EXPECT_EQ(again->AwaitEnd(), 0) << again->screen();
  EXPECT_THAT(again->screen(), HasSubstr("no copy moves"));
  EXPECT_EQ(run({"await-moves"}).out, "moving=0\n");
  EXPECT_EQ(move_of(0), std::nullopt);

  EXPECT_EQ(run({"drain", "b"}).out,
            "shard=0 from=b to=c begun=no\nshard=1 from=b to=c begun=no\n"
            "shard=2 from=b to=c begun=no\nshard=3 from=b to=c begun=no\n");
  const Json drain = Json::parse(run({"drain", "b", "--json"}).out);
  const uint64_t bytes =
      4 * DecodeClusterRecord(KeysBelow(keys_->Cluster()).at(0).value)->shard_bytes;
  EXPECT_EQ(drain["bytes_most"], bytes);
  EXPECT_EQ(drain["seconds_at_copy_rate"], bytes / kCopyRate);
  ends = true;
  renewals.join();
  ExpectFailure(run({"drain", "b"}), 1, "shard 0: each other server that runs has a copy, or no");
}

TEST_F(KvcliClusterTest, FilesThatCannotBeReadAreStatusFour) {
  ExpectFailure(
      RunKvcli({"cluster", "status", "etcds://127.0.0.1:2379/a", "--cluster-ca-file=/none/ca.pem"}),
      4, "--cluster-ca-file: cannot read the certificate of etcd's CA, /none/ca.pem");
}

TEST(KvcliEtcdTest, AnAbsentEtcdIsStatusThree) {
  for (const char* command : {"create", "status"}) {
    std::vector<std::string> args = {"cluster", command, "etcd://127.0.0.1:1/a"};
    if (command == std::string("create")) args.emplace_back("--memory=64MiB");
    ExpectFailure(RunKvcli(args), 3, "etcd at 127.0.0.1:1: ");
  }
}

TEST(KvcliEtcdTest, OverTlsFilesAreGivenByFlags) {
  const TestCertificates certificates;
  const EtcdCluster etcd(1, {}, &certificates);
  EtcdUri uri = etcd.ClientOptions().uri;
  uri.name = "secure";
  const std::vector<std::string> create = {"cluster", "create", uri.ToString(), "--memory=64MiB"};
  ExpectFailure(RunKvcli(create), 3, "check that it runs there, and the CA");
  std::vector<std::string> with_files = create;
  with_files.insert(with_files.end(),
                    {"--cluster-ca-file=" + certificates.Path("ca.pem"),
                     "--cluster-certificate-file=" + certificates.Path("client.pem"),
                     "--cluster-certificate-key-file=" + certificates.Path("client.key")});
  const ProgramResult result = RunKvcli(with_files);
  EXPECT_EQ(result.exit_status, 0) << result.err;
}

// The first answer is lost, and the second sending finds out what came of it.
TEST(KvcliEtcdTest, AnUnknownOutcomeIsFoundOut) {
  EtcdCluster etcd;
  EtcdUri uri = etcd.ClientOptions().uri;
  uri.name = "late";
  etcd.Stop(0);
  std::thread wakes([&] {
    absl::SleepFor(absl::Seconds(4));
    etcd.Continue(0);
  });
  const ProgramResult result =
      RunKvcli({"cluster", "create", uri.ToString(), "--memory=64MiB", "--timeout=3"});
  wakes.join();
  EXPECT_EQ(result.exit_status, 0) << result.err;
  const ClusterKeys keys(uri.KeyPrefix());
  const absl::StatusOr<RangeAnswer> read =
      etcd.NewClient()->Range({keys.Cluster()}, absl::Seconds(10));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->keys.size(), 1);
  EXPECT_THAT(result.out,
              HasSubstr(absl::StrCat("id=", absl::Hex(DecodeClusterRecord(read->keys[0].value)->id,
                                                      absl::kZeroPad16))));
}

TEST(KvcliEtcdTest, AnOutcomeThatStaysUnknownIsStatusFour) {
  ScriptedHttp silent(ScriptedHttp::Hangup());
  const ProgramResult result =
      RunKvcli({"cluster", "create", absl::StrCat("etcd://127.0.0.1:", silent.port(), "/a"),
                "--memory=64MiB"});
  ExpectFailure(result, 4, "cluster a was perhaps created: etcd at 127.0.0.1:");
  EXPECT_EQ(silent.Requests().size(), 2);
}

// The first sending took effect, so the second one is refused.
TEST(KvcliEtcdTest, ARefusalByItsOwnRecordIsSuccess) {
  ScriptedHttp etcd([](ScriptedHttp& server, int connection, int number) {
    if (number == 1) return false;
    const std::string request = server.Requests().back();
    const Json sent = Json::parse(request.substr(request.find("\r\n\r\n")), nullptr, false);
    const Json& put = sent["success"][0]["request_put"];
    const Json key = {{"key", put["key"]},
                      {"value", put["value"]},
                      {"create_revision", "5"},
                      {"mod_revision", "5"},
                      {"version", "1"}};
    const Json header = {{"cluster_id", "1"}, {"member_id", "1"}, {"revision", "5"}};
    const Json found = {{"response_range", {{"header", header}, {"kvs", {key}}, {"count", "1"}}}};
    const Json none = {{"response_range", {{"header", header}}}};
    const Json answer = {{"header", header}, {"responses", {found, none}}};
    return server.Send(connection, HttpAnswerOf(200, answer.dump()));
  });
  const ProgramResult result =
      RunKvcli({"cluster", "create", absl::StrCat("etcd://127.0.0.1:", etcd.port(), "/twice"),
                "--memory=64MiB"});
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(etcd.Requests().size(), 2);
}

}  // namespace
}  // namespace osprey
