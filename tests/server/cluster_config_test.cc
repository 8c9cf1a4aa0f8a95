// kvserver's flags as a server of a cluster.

#include "server/config/cluster_config.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/layout/layout.h"
#include "index/writer/table.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/config/config.h"
#include "server/config/host_limits.h"
#include "server/program/size_flag.h"
#include "tests/support/subprocess.h"

namespace osprey::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ClusterConfigTest : public testing::Test {
 protected:
  ClusterConfigTest() {
    WriteFile(key_file_, std::string(32, 'k'));
    flags_.listen = "rdma://10.0.0.7:7411,shm:///run/osprey.sock";
    flags_.memory = "64MiB";
    flags_.poll = "adaptive";
    flags_.connections_max = 100;
    flags_.evict = "none";
    flags_.cluster.etcd.uri = "etcd://10.0.0.1:2379,10.0.0.2:2379/shop";
    flags_.cluster.server_id = "a";
    flags_.cluster.listen = "rdma://10.0.0.7:7471,shm:///run/osprey-cluster.sock";
    flags_.cluster.key_file = key_file_;
  }

  static void WriteFile(const std::string& path, const std::string& content) {
    std::ofstream(path) << content;
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  }

  std::string Mistake() const {
    const absl::StatusOr<Config> config = MakeConfig(flags_);
    return config.ok() ? "none" : std::string(config.status().message());
  }

  const std::string directory_ = NewTemporaryDirectory();
  const std::string key_file_ = directory_ + "/key";
  FlagValues flags_;
};

TEST_F(ClusterConfigTest, GoodFlagsAreCopied) {
  flags_.cluster.backup_timeout = "250ms";
  flags_.cluster.zone = "Rack-1.b_c";
  flags_.cluster.rejoin_after = "0s";
  flags_.cluster.copy_rate = "100MiB";
  const absl::StatusOr<Config> config = MakeConfig(flags_);
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_TRUE(config->cluster.has_value());
  const ClusterConfig& cluster = *config->cluster;
  EXPECT_EQ(cluster.etcd.uri.name, "shop");
  EXPECT_EQ(cluster.etcd.uri.endpoints.size(), 2);
  EXPECT_EQ(cluster.server_id, "a");
  ASSERT_EQ(cluster.listen.size(), 2);
  EXPECT_EQ(cluster.listen[0].port, 7471);
  EXPECT_EQ(cluster.listen[1].path, "/run/osprey-cluster.sock");
  ASSERT_NE(cluster.key, nullptr);
  EXPECT_EQ(cluster.key->size(), 32);
  EXPECT_EQ(cluster.backup_timeout, absl::Milliseconds(250));
  EXPECT_EQ(cluster.zone, "Rack-1.b_c");
  EXPECT_EQ(cluster.rejoin_after, absl::ZeroDuration());
  EXPECT_EQ(cluster.copy_rate, uint64_t{100} << 20);
}

TEST_F(ClusterConfigTest, DefaultsAreThoseOfAClustersFirstForm) {
  const absl::StatusOr<Config> config = MakeConfig(flags_);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->value_bytes_max, config->memory_bytes / kClusterPartitions);
  EXPECT_EQ(config->partitions, kClusterPartitions);
  EXPECT_EQ(config->cluster->backup_timeout, absl::Seconds(1));
  EXPECT_EQ(config->cluster->rejoin_after, absl::Seconds(30));
  EXPECT_EQ(config->cluster->copy_rate, 0u) << "no limit";
}

TEST_F(ClusterConfigTest, PartitionsDoNotDependOnPollers) {
  for (const int64_t pollers : {1, 2, 3, 64}) {
    flags_.pollers = pollers;
    const absl::StatusOr<Config> config = MakeConfig(flags_);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->partitions, kClusterPartitions);
  }
}

TEST_F(ClusterConfigTest, WithoutAClusterThereIsNone) {
  flags_.cluster = {};
  const absl::StatusOr<Config> config = MakeConfig(flags_);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->cluster.has_value());
  EXPECT_EQ(config->partitions, 1);
  EXPECT_EQ(config->value_bytes_max, uint64_t{64} << 20);
}

TEST_F(ClusterConfigTest, FlagsWithoutAClusterAreRefused) {
  const auto refused = [&](const std::string& flag, auto change) {
    flags_.cluster = {};
    change(flags_.cluster);
    EXPECT_EQ(Mistake(), "--" + flag +
                             ": it has a meaning only with --cluster; name the cluster, as "
                             "--cluster=etcd://HOST:2379/NAME, or leave it out");
  };
  refused("server-id", [](ClusterFlags& f) { f.server_id = "a"; });
  refused("cluster-listen", [](ClusterFlags& f) { f.listen = "shm:///run/c"; });
  refused("cluster-key-file", [](ClusterFlags& f) { f.key_file = "/key"; });
  refused("copy-rate", [](ClusterFlags& f) { f.copy_rate = "1MiB"; });
  refused("cluster-ca-file", [](ClusterFlags& f) { f.etcd.ca_file = "/ca"; });
  refused("cluster-certificate-file", [](ClusterFlags& f) { f.etcd.certificate_file = "/c"; });
  refused("cluster-certificate-key-file",
          [](ClusterFlags& f) { f.etcd.certificate_key_file = "/k"; });
  refused("cluster-user", [](ClusterFlags& f) { f.etcd.user = "u"; });
  refused("cluster-password-file", [](ClusterFlags& f) { f.etcd.password_file = "/p"; });
}

TEST_F(ClusterConfigTest, EachWrongFlagIsNamed) {
  const FlagValues good = flags_;
  const auto refused = [&](const std::string& flag, const std::string& what, auto change) {
    flags_ = good;
    change(flags_);
    EXPECT_THAT(Mistake(), StartsWith("--" + flag + ": "));
    EXPECT_THAT(Mistake(), HasSubstr(what));
  };
  refused("cluster", "does not begin with etcd://",
          [](FlagValues& f) { f.cluster.etcd.uri = "http://h/a"; });
  refused("cluster", "lacks the cluster's name",
          [](FlagValues& f) { f.cluster.etcd.uri = "etcd://h:2379"; });
  refused("cluster-ca-file", "write etcds:// for TLS",
          [&](FlagValues& f) { f.cluster.etcd.ca_file = key_file_; });
  refused("server-id", "--cluster needs it", [](FlagValues& f) { f.cluster.server_id = ""; });
  for (const std::string& id : {std::string("A"), std::string("a b"), std::string(64, 'a')})
    refused("server-id", "1 to 63 of", [&id](FlagValues& f) { f.cluster.server_id = id; });
  refused("listen", "has port 0", [](FlagValues& f) { f.listen = "rdma://10.0.0.7:0"; });
  refused("cluster-listen", "--cluster needs an address",
          [](FlagValues& f) { f.cluster.listen = ""; });
  refused("cluster-listen", "given twice",
          [](FlagValues& f) { f.cluster.listen = "shm:///a,shm:///a"; });
  refused("cluster-listen", "write it as", [](FlagValues& f) { f.cluster.listen = "tcp://h"; });
  refused("cluster-listen", "has port 0",
          [](FlagValues& f) { f.cluster.listen = "rdma://10.0.0.7:0"; });
  for (const char* any : {"rdma://0.0.0.0:7471", "rdma://[::]:7471"})
    refused("cluster-listen", "other servers can connect to",
            [any](FlagValues& f) { f.cluster.listen = any; });
  for (const char* taken : {"rdma://10.0.0.7:7411", "rdma://10.0.0.7", "shm:///run/osprey.sock"})
    refused("cluster-listen", "is an address of --listen, too",
            [taken](FlagValues& f) { f.cluster.listen = taken; });
  refused("cluster-listen", "is an address of --listen, too", [](FlagValues& f) {
    f.listen = "rdma://0.0.0.0:7471";
    f.cluster.listen = "rdma://10.0.0.7:7471";
  });
  refused("cluster-key-file", "a --cluster-listen of rdma:// needs it",
          [](FlagValues& f) { f.cluster.key_file = ""; });
  refused("cluster-key-file", "cannot be opened",
          [&](FlagValues& f) { f.cluster.key_file = key_file_ + "-none"; });
  refused("cluster-key-file", "the key of --auth-key-file",
          [&](FlagValues& f) { f.auth_key_file = key_file_; });
  for (const char* time : {"", "1", "99ms", "61s", "inf"})
    refused("backup-timeout", "", [time](FlagValues& f) { f.cluster.backup_timeout = time; });
  for (const std::string& zone : {std::string("a b"), std::string("a/b"), std::string(65, 'z')})
    refused("zone", "is no name of a zone", [zone](FlagValues& f) { f.cluster.zone = zone; });
  for (const char* time : {"", "1", "-1s", "25h", "inf"})
    refused("rejoin-after", "", [time](FlagValues& f) { f.cluster.rejoin_after = time; });
  for (const char* rate : {"0", "1000", "1MiB/s", "-1MiB", "fast"})
    refused("copy-rate", "", [rate](FlagValues& f) { f.cluster.copy_rate = rate; });
  refused("data-dir", "in memory only", [](FlagValues& f) { f.data_dir = "/data"; });
}

TEST_F(ClusterConfigTest, AnotherKeyThanTheClientsIsAccepted) {
  flags_.auth_key_file = directory_ + "/auth";
  WriteFile(flags_.auth_key_file, std::string(32, 'a'));
  EXPECT_EQ(Mistake(), "none");
}

TEST_F(ClusterConfigTest, OverSharedMemoryTheKeyIsOptional) {
  flags_.cluster.listen = "shm:///run/osprey-cluster.sock";
  flags_.cluster.key_file = "";
  const absl::StatusOr<Config> config = MakeConfig(flags_);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->cluster->key, nullptr);
}

TEST_F(ClusterConfigTest, FlagsOfTlsAreNamedInTheirErrors) {
  const auto mistake = [&](auto change) {
    flags_.cluster.etcd = {};
    flags_.cluster.etcd.uri = "etcds://h:2379/shop";
    change(flags_.cluster.etcd);
    return Mistake();
  };
  const std::string missing = directory_ + "/none";
  EXPECT_EQ(mistake([](EtcdFlags&) {}), "none");
  EXPECT_THAT(mistake([&](EtcdFlags& f) { f.ca_file = missing; }),
              StartsWith("--cluster-ca-file: cannot read the certificate of etcd's CA, "));
  EXPECT_EQ(mistake([&](EtcdFlags& f) { f.certificate_file = key_file_; }),
            "--cluster-certificate-file: etcd's client certificate lacks its key; give both or "
            "none");
  EXPECT_THAT(mistake([&](EtcdFlags& f) { f.certificate_key_file = key_file_; }),
              StartsWith("--cluster-certificate-key-file: "));
  EXPECT_EQ(mistake([&](EtcdFlags& f) {
              f.certificate_file = f.certificate_key_file = f.ca_file = key_file_;
            }),
            "none");
  EXPECT_THAT(mistake([](EtcdFlags& f) { f.user = "osprey"; }), StartsWith("--cluster-user: "));
  EXPECT_THAT(mistake([&](EtcdFlags& f) { f.password_file = key_file_; }),
              StartsWith("--cluster-password-file: "));
}

TEST_F(ClusterConfigTest, EveryMemoryOfAClusterIsAccepted) {
  EXPECT_EQ(kShardBytesMin, kClusterPartitions * index::Table::RegionBytesMin());
  EXPECT_EQ(kShardBytesMax, index::kRegionBytesMax);
  for (const uint64_t bytes : {kShardBytesMin, kShardBytesMax}) {
    flags_.memory = FormatSize(bytes);
    EXPECT_EQ(Mistake(), "none");
  }
}

TEST_F(ClusterConfigTest, TooLittleMemoryIsRefusedWithAFix) {
  flags_.memory = "1MiB";
  EXPECT_EQ(Mistake(),
            "--memory: 1MiB is too small for --cluster, which cuts it into 8 parts of at least "
            "256KiB; write 2MiB or more");
  flags_.memory = "4MiB";
  EXPECT_EQ(MakeConfig(flags_)->value_bytes_max, uint64_t{512} << 10);
  flags_.value_max = "1MiB";
  EXPECT_EQ(Mistake(),
            "--value-max: 1MiB is more than a value may have: --cluster cuts --memory=4MiB into "
            "parts of 512KiB, and a value lies in one; write less here, or more there");
}

TEST_F(ClusterConfigTest, FilesOfLinksAndOfEtcdAreCounted) {
  const Config config = *MakeConfig(flags_);
  Config alone = config;
  alone.cluster.reset();
  // 256 links from others, 64 to others, two clients of etcd.
  EXPECT_GE(DescriptorsFor(config), DescriptorsFor(alone) + 256 + 64 + 2 * 5);
  Machine machine;
  machine.memory_bytes = config.memory_bytes;
  machine.descriptors_max = DescriptorsFor(config);
  EXPECT_TRUE(CheckMachine(config, machine).ok()) << CheckMachine(config, machine);
  EXPECT_EQ(MemoriesPerClient(config, machine), kMemoriesLeast);
  --machine.descriptors_max;
  EXPECT_TRUE(CheckMachine(alone, machine).ok());
  EXPECT_THAT(std::string(CheckMachine(config, machine).message()),
              StartsWith("--connections-max: for 100 "));
}

}  // namespace
std::string MistakeOfShards(uint32_t shards, absl::Span<const absl::string_view> listen,
                            absl::string_view cluster_listen) {
  std::vector<rdma::Address> addresses;
  for (const absl::string_view address : listen)
    addresses.push_back(rdma::ParseAddress(address).value());
  const std::vector<rdma::Address> other = {rdma::ParseAddress(cluster_listen).value()};
  return std::string(CheckShardAddresses(shards, addresses, other).message());
}

TEST(ShardAddressesTest, EachShardHasItsOwn) {
  EXPECT_EQ(
      MistakeOfShards(8, {"rdma://10.0.0.7:7411", "shm:///run/o.sock"}, "rdma://10.0.0.7:7419"),
      "");
  EXPECT_EQ(MistakeOfShards(1, {"rdma://10.0.0.7:7411"}, "rdma://10.0.0.7:7412"), "");
  EXPECT_THAT(MistakeOfShards(8, {"rdma://10.0.0.7:7411"}, "rdma://10.0.0.7:7418"),
              HasSubstr("that of shard 7 would meet another address, rdma://10.0.0.7:7418"));
  EXPECT_THAT(MistakeOfShards(8, {"rdma://0.0.0.0:7411"}, "rdma://10.0.0.7:7412"),
              HasSubstr("shard 1"));
  EXPECT_THAT(MistakeOfShards(4, {"rdma://10.0.0.7:7411", "rdma://10.0.0.7:7413"}, "shm:///c"),
              HasSubstr("rdma://10.0.0.7:7413 has 4 shards"));
  EXPECT_THAT(MistakeOfShards(2, {"shm:///run/o", "shm:///run/o.1"}, "shm:///c"),
              HasSubstr("shm:///run/o.1"));
  EXPECT_THAT(MistakeOfShards(64, {"rdma://10.0.0.7:65500"}, "shm:///c"), HasSubstr("65535"));
}

std::vector<rdma::Address> Parsed(const std::vector<std::string>& uris) {
  std::vector<rdma::Address> addresses;
  for (const std::string& uri : uris) addresses.push_back(rdma::ParseAddress(uri).value());
  return addresses;
}

TEST(ClientAddressesTest, OfAllInterfacesIsThatOfTheOtherServers) {
  using Uris = std::vector<std::string>;
  const std::vector<rdma::Address> listen =
      Parsed({"rdma://0.0.0.0:7411", "rdma://[::]:7500", "rdma://10.0.0.2", "shm:///run/a"});
  EXPECT_EQ(ClientAddresses(listen, Parsed({"shm:///run/links", "rdma://[fd00::1]:7900"})),
            (Uris{"rdma://[fd00::1]:7411", "rdma://[fd00::1]:7500", "rdma://10.0.0.2:7411",
                  "shm:///run/a"}));
  EXPECT_EQ(ClientAddresses(listen, Parsed({"shm:///run/links"})),
            (Uris{"rdma://10.0.0.2:7411", "shm:///run/a"}));
}

TEST(ClientAddressesTest, PathsAreAbsoluteSinceClientsRunElsewhere) {
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(ClientAddresses(Parsed({"shm://run/a"}), {}),
            (std::vector<std::string>{"shm://" + here + "/run/a"}));
}

}  // namespace osprey::server
