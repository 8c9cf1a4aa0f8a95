// kvcli doctor --cluster, with a real etcd and real servers.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/configuration/shard_record.h"
#include "server/cluster/links/link_frames.h"
#include "server/cluster/links/link_probe.h"
#include "server/cluster/right/server_record.h"
#include "tests/cluster/cluster_processes.h"
#include "tests/server/cluster/etcd/etcd_process.h"
#include "tests/tools/kvcli_fixture.h"

namespace osprey {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct DoctorResult {
  int exit_status = 0;
  Json json;
  std::string text;

  // "OUTCOME reason" of each finding of `check`.
  std::vector<std::string> Of(const std::string& check) const {
    std::vector<std::string> found;
    for (const Json& finding : json["findings"]) {
      if (finding["check"] != check) continue;
      found.push_back(absl::StrCat(finding["outcome"].get<std::string>(), " ",
                                   finding["reason"].get<std::string>()));
    }
    return found;
  }
};

DoctorResult Doctor(const std::string& uri, std::vector<std::string> flags = {}) {
  std::vector<std::string> args = {"doctor", "--cluster=" + uri, "--json", "--timeout=20"};
  args.insert(args.end(), flags.begin(), flags.end());
  const ProgramResult result = RunKvcli(args);
  EXPECT_EQ(result.err, "");
  DoctorResult doctor{result.exit_status, Json::parse(result.out, nullptr, false), result.out};
  if (!doctor.json.is_object()) ADD_FAILURE() << result.out;
  for (const Json& finding : doctor.json["findings"]) {
    const bool is_good = finding["outcome"] == "PASS" || finding["outcome"] == "SKIP";
    EXPECT_EQ(finding["mends"].empty(), is_good) << finding;
  }
  return doctor;
}

int StatusOf(const DoctorResult& result) {
  const std::string worst = result.json["worst"];
  return worst == "PASS" ? 0 : worst == "WARN" ? 1 : 4;
}

std::string UriOf(ClusterProcesses& cluster) {
  return cluster.etcd().ClientOptions().uri.ToString();
}

TEST(KvcliDoctorClusterTest, AClusterIsJudgedByItsServersAndReplicas) {
  ClusterProcesses cluster;
  const DoctorResult whole = Doctor(UriOf(cluster));
  EXPECT_EQ(whole.exit_status, StatusOf(whole));
  EXPECT_EQ(whole.Of("cluster").size(), 1u);
  ASSERT_EQ(whole.Of("server").size(), 3u);
  for (const std::string& finding : whole.Of("server"))
    EXPECT_THAT(finding, AllOf(HasSubstr("PASS s"), HasSubstr("answers at"))) << whole.text;
  EXPECT_THAT(whole.Of("shard"), ElementsAre(HasSubstr("3 of 3 replicas are in sync and run")));
  EXPECT_THAT(whole.Of("etcd"), ElementsAre(HasSubstr("has etcd 3.4")));
  EXPECT_EQ(whole.Of("clock").size(), 2u);
  EXPECT_EQ(whole.Of("time").size(), 1u);

  // A backup that is gone is dropped. Its key may be there still.
  const size_t primary = *cluster.Primary();
  cluster.Kill((primary + 1) % 3);
  ASSERT_TRUE(cluster.AwaitInSync(2, absl::Seconds(30))) << cluster.WhyNot();
  const DoctorResult short_of = Doctor(UriOf(cluster));
  EXPECT_EQ(short_of.exit_status, StatusOf(short_of));
  EXPECT_NE(short_of.exit_status, 0);
  EXPECT_THAT(short_of.Of("shard"),
              ElementsAre(HasSubstr("WARN 0: 2 of 3 replicas are in sync and run")));

  // The last one cannot be replaced.
  cluster.Kill((primary + 2) % 3);
  ASSERT_TRUE(cluster.AwaitInSync(1, absl::Seconds(30))) << cluster.WhyNot();
  const DoctorResult few = Doctor(UriOf(cluster));
  EXPECT_EQ(few.exit_status, 4);
  EXPECT_THAT(few.Of("shard"), ElementsAre(HasSubstr("FAIL 0: 1 of 3 replicas are in sync and run, "
                                                     "and writes need 2")));
}

TEST(KvcliDoctorClusterTest, AnAddressMustLeadToTheIncarnationOfTheKey) {
  ClusterProcessesOptions alone;
  alone.servers = alone.min_in_sync = 1;
  ClusterProcesses cluster(alone);
  const ClusterKeys keys(cluster.etcd().ClientOptions().uri.KeyPrefix());
  const absl::StatusOr<RangeAnswer> read =
      cluster.etcd().NewClient()->Range({keys.Servers(), true}, absl::Seconds(10));
  ASSERT_TRUE(read.ok() && read->keys.size() == 1);
  const ServerRecord server = *DecodeServerRecord(read->keys[0].value);
  const absl::StatusOr<RangeAnswer> record =
      cluster.etcd().NewClient()->Range({keys.Cluster()}, absl::Seconds(10));
  const uint64_t id = DecodeClusterRecord(record->keys.at(0).value)->id;
  const LinkTarget right{server.addresses[0], id, server.incarnation};
  EXPECT_EQ(ProbeLink(right, absl::Seconds(10)).message(), "");
  LinkTarget wrong = right;
  ++wrong.incarnation;
  EXPECT_THAT(ProbeLink(wrong, absl::Seconds(10)).message(), HasSubstr("another server listens"));
  wrong = right;
  ++wrong.cluster_id;
  EXPECT_THAT(ProbeLink(wrong, absl::Seconds(10)).message(), HasSubstr("of another cluster"));
  cluster.Stop(0);
  EXPECT_TRUE(absl::IsUnavailable(ProbeLink(right, absl::Seconds(1))) ||
              absl::IsDeadlineExceeded(ProbeLink(right, absl::Seconds(1))));
  cluster.Kill(0);
  EXPECT_FALSE(ProbeLink(right, absl::Seconds(1)).ok());
}

TEST(KvcliDoctorClusterTest, AnswersOfOtherProgramsAreNamed) {
  const auto judge = [](const std::string& frame) {
    return std::string(
        JudgeLinkAnswer({reinterpret_cast<const std::byte*>(frame.data()), frame.size()})
            .message());
  };
  LinkRefusedBody body;
  body.reason = static_cast<uint32_t>(LinkRefusal::kVersion);
  body.version_min = 7;
  body.version_max = 9;
  EXPECT_THAT(
      judge(LinkFrameOf(LinkFrame::kRefused, body)),
      HasSubstr("versions 7 to 9 of the protocol of links, and this kvcli 1 to 1; install"));
  body.reason = 77;
  EXPECT_THAT(judge(LinkFrameOf(LinkFrame::kRefused, body)), HasSubstr("unknown reason 77"));
  EXPECT_THAT(judge("HTTP/1.1 400 Bad Request"), HasSubstr("no server of a cluster"));
  EXPECT_THAT(judge(LinkFrameOf(LinkFrame::kPong)), HasSubstr("no server of a cluster"));
}

// One etcd for all cases; each has a cluster of its own, whose keys the case writes.
class KvcliDoctorEtcdTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { etcd_ = std::make_unique<EtcdCluster>(); }
  static void TearDownTestSuite() { etcd_.reset(); }

  KvcliDoctorEtcdTest() {
    EtcdUri uri = etcd_->ClientOptions().uri;
    uri.name = absl::StrCat("c", ++clusters_);
    uri_ = uri.ToString();
    endpoint_ = uri.endpoints[0].ToString();
    keys_ = std::make_unique<ClusterKeys>(uri.KeyPrefix());
  }

  void Create() const {
    const ProgramResult result = RunKvcli({"cluster", "create", uri_, "--memory=64MiB"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
  }
  static void Put(const std::string& key, const std::string& value) {
    Transaction put;
    put.operations = {StoreOperation::Put(key, value)};
    ASSERT_EQ(etcd_->NewClient()->Execute(put, absl::Seconds(10)).outcome,
              TransactionOutcome::kApplied);
  }
  int64_t PutServer(const std::string& id, uint64_t counter) const {
    Put(keys_->Server(id), EncodeServerRecord({0xb1, {"shm:///absent/" + id}, counter}));
    return etcd_->NewClient()
        ->Range({keys_->Server(id)}, absl::Seconds(10))
        ->keys.at(0)
        .create_revision;
  }

  static inline std::unique_ptr<EtcdCluster> etcd_;
  static inline int clusters_ = 0;
  std::string uri_;
  std::string endpoint_;
  std::unique_ptr<ClusterKeys> keys_;
};

TEST_F(KvcliDoctorEtcdTest, AWrongNameIsAFailureWithItsFix) {
  const DoctorResult result = Doctor(uri_);
  EXPECT_EQ(result.exit_status, 4);
  EXPECT_THAT(result.Of("cluster"), ElementsAre(HasSubstr("FAIL etcd has no cluster c")));
  EXPECT_THAT(result.text, HasSubstr("make it: kvcli cluster create"));
  const absl::StatusOr<RangeAnswer> left =
      etcd_->NewClient()->Range({"/osprey/", true}, absl::Seconds(10));
  ASSERT_TRUE(left.ok());
  for (const StoredKey& key : left->keys) EXPECT_THAT(key.key, Not(HasSubstr("doctor")));
}

TEST_F(KvcliDoctorEtcdTest, AClusterThatNoServerHasBegunFails) {
  Create();
  const DoctorResult result = Doctor(uri_);
  EXPECT_EQ(result.exit_status, 4);
  EXPECT_THAT(result.Of("server"), ElementsAre("FAIL no server of the cluster runs"));
  EXPECT_THAT(result.Of("shard"), ElementsAre("FAIL 0: no server has begun it"));
}

TEST_F(KvcliDoctorEtcdTest, StoppedServersAndAMissingPrimaryFail) {
  Create();
  const int64_t a = PutServer("a", 1);
  const int64_t b = PutServer("b", 1);
  ShardRecord record;
  record.term = 4;
  record.primary = "a";
  record.in_sync = {{"a", a, 0xb1, 1}, {"b", b, 0xb1, 2}};
  Put(keys_->Shard(0), EncodeShardRecord(record));
  std::atomic<bool> ends = false;
  std::thread renewals([&] {
    for (uint64_t counter = 2; !ends; ++counter) {
      PutServer("b", counter);
      absl::SleepFor(absl::Milliseconds(100));
    }
  });
  const DoctorResult result = Doctor(uri_);
  ends = true;
  renewals.join();
  EXPECT_EQ(result.exit_status, 4);
  EXPECT_THAT(result.Of("server"), ElementsAre(HasSubstr("FAIL a has not renewed its key for 3s"),
                                               HasSubstr("FAIL b at shm:///absent/b: ")));
  EXPECT_THAT(result.Of("shard"), ElementsAre("FAIL 0 has no primary: a does not run; in sync: b"));
  EXPECT_THAT(Doctor(uri_).Of("shard"),
              ElementsAre("FAIL 0: none of its servers in sync runs: a, b"));
}

TEST_F(KvcliDoctorEtcdTest, RecordsThatCannotBeReadFail) {
  Create();
  Put(keys_->Server("b"), "{}");
  Put(keys_->Shard(0), "no json");
  const DoctorResult result = Doctor(uri_);
  EXPECT_THAT(result.Of("server"), ElementsAre(HasSubstr("FAIL b has a key in etcd that cannot")));
  EXPECT_THAT(result.Of("shard"), ElementsAre(HasSubstr("FAIL 0 has no record in etcd that can")));
}

TEST_F(KvcliDoctorEtcdTest, EachEndpointIsAskedByItself) {
  Create();
  const std::string name = uri_.substr(uri_.rfind('/'));
  const DoctorResult one = Doctor(absl::StrCat("etcd://127.0.0.1:1,", endpoint_, name));
  EXPECT_EQ(one.exit_status, 4);
  EXPECT_THAT(one.Of("etcd"), ElementsAre(HasSubstr("FAIL etcd at 127.0.0.1:1: cannot connect"),
                                          HasSubstr(endpoint_ + " has etcd 3.4")));
  EXPECT_EQ(one.Of("cluster").size(), 1u);
  const DoctorResult none = Doctor("etcd://127.0.0.1:1" + name);
  EXPECT_EQ(none.exit_status, 3);
  EXPECT_EQ(none.Of("cluster").size(), 0u);
}

TEST_F(KvcliDoctorEtcdTest, EndpointsOfTwoEtcdsFail) {
  const EtcdCluster other;
  const std::string second = other.ClientOptions().uri.endpoints[0].ToString();
  const DoctorResult result = Doctor(absl::StrCat("etcd://", endpoint_, ",", second, "/x"));
  EXPECT_THAT(result.text, HasSubstr("are members of different etcds"));
}

TEST_F(KvcliDoctorEtcdTest, MistakesAreUsageErrors) {
  const auto fails = [&](const std::vector<std::string>& flags, const std::string& message) {
    std::vector<std::string> args = {"doctor"};
    args.insert(args.end(), flags.begin(), flags.end());
    ExpectFailure(RunKvcli(args), 2, message);
  };
  fails({"--cluster=http://h/a"}, "write etcd://HOST:2379");
  fails({"--cluster=" + uri_, "--peer=shm:///x"}, "--cluster stands without --peer");
  fails({"--cluster=" + uri_, "--self-test"}, "--cluster stands without --peer");
  fails({"--cluster-user=u"}, "flags of etcd need --cluster=ETCD_URI");
  ExpectFailure(RunKvcli({"--cluster=" + uri_, "cluster", "status", uri_}), 2,
                "--cluster is not for this command");
}

TEST(KvcliDoctorTlsTest, AnUnknownAuthorityIsNamed) {
  const TestCertificates certificates;
  const EtcdCluster etcd(1, {}, &certificates);
  EtcdUri uri = etcd.ClientOptions().uri;
  uri.name = "secure";
  const DoctorResult without = Doctor(uri.ToString());
  EXPECT_EQ(without.exit_status, 3);
  EXPECT_THAT(without.text, HasSubstr("check that it runs there, and the CA, certificate and key"));
  const DoctorResult with =
      Doctor(uri.ToString(), {"--cluster-ca-file=" + certificates.Path("ca.pem"),
                              "--cluster-certificate-file=" + certificates.Path("client.pem"),
                              "--cluster-certificate-key-file=" + certificates.Path("client.key")});
  EXPECT_THAT(with.Of("etcd"), ElementsAre(HasSubstr("has etcd 3.4")));
}

}  // namespace
}  // namespace osprey
