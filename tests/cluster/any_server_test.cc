// A client begins with the address of any server of the cluster: of one that is a backup, of one that has no copy of
// shard 0, and of one whose part changes. It finds the primaries by it.

#include <sys/stat.h>

#include <cstddef>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/reasons.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster_processes.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

// A new client that begins at `server` has what all have.
void ExpectServed(ClusterProcesses& cluster, size_t server, const std::string& value,
                  const Options& options = PatientOptions()) {
  SCOPED_TRACE(absl::StrCat("by the address of server ", server));
  const absl::StatusOr<std::unique_ptr<Client>> client =
      Client::Connect(cluster.uri(server), options);
  ASSERT_TRUE(client.ok()) << client.status() << "\n" << cluster.Log(server);
  for (int i = 0; i < 32; ++i) {
    const std::string key = absl::StrCat("key", i);
    const absl::StatusOr<uint64_t> put = (*client)->Put(key, value);
    ASSERT_TRUE(put.ok()) << put.status();
    const absl::StatusOr<Value> got = (*client)->Get(key);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->bytes, value);
  }
}

TEST(AnyServerTest, ABackupIsEnoughAndStaysSoAsItsPartChanges) {
  ClusterProcesses cluster;
  const std::optional<size_t> primary = cluster.Primary();
  ASSERT_TRUE(primary.has_value());
  for (size_t server = 0; server < cluster.servers(); ++server) {
    ASSERT_NO_FATAL_FAILURE(ExpectServed(cluster, server, absl::StrCat("of ", server)));
  }

  // The address is the primary's own when the server becomes one.
  EXPECT_EQ(cluster.Terminate(*primary), 0) << cluster.Log(*primary);
  const std::optional<size_t> next = cluster.AwaitOtherPrimary(*primary, kPatience);
  ASSERT_TRUE(next.has_value()) << cluster.WhyNot();
  ASSERT_NO_FATAL_FAILURE(ExpectServed(cluster, *next, "after the first change"));

  // … and one that comes back is a backup, which had been a primary.
  cluster.Start(*primary);
  ASSERT_TRUE(cluster.AwaitInSync(3, kPatience)) << cluster.WhyNot();
  const std::optional<size_t> present = cluster.Primary();
  ASSERT_TRUE(present.has_value());
  for (size_t server = 0; server < cluster.servers(); ++server) {
    if (server == *present) continue;
    ASSERT_NO_FATAL_FAILURE(ExpectServed(cluster, server, "after the second change"));
  }
  for (const std::string& crash : cluster.Crashed()) ADD_FAILURE() << crash;
}

TEST(AnyServerTest, AServerWithoutACopyOfShard0IsEnough) {
  ClusterProcesses cluster({.servers = 4,
                            .replicas = 2,
                            .min_in_sync = 1,
                            .shards = 4,
                            .shard_bytes = uint64_t{16} << 20,
                            .memory = "32MiB",
                            .flags = {}});
  std::optional<size_t> without;
  for (const absl::Time end = absl::Now() + kPatience; !without.has_value() && absl::Now() < end;) {
    const std::optional<ShardRecord> record = cluster.Record(0);
    if (!record.has_value()) continue;
    for (size_t server = 0; server < cluster.servers(); ++server) {
      const std::string id = absl::StrCat("s", server);
      bool has_copy = false;
      for (const Replica& member : record->in_sync) has_copy |= member.server == id;
      if (!has_copy) without = server;
    }
  }
  ASSERT_TRUE(without.has_value());
  ASSERT_NO_FATAL_FAILURE(ExpectServed(cluster, *without, "saturn"));
}

TEST(AnyServerTest, ABackupWithAKeyIsEnoughForClientsThatHaveIt) {
  const std::string directory = NewTemporaryDirectory();
  for (const char* name : {"right", "wrong"}) {
    std::ofstream(absl::StrCat(directory, "/", name))
        << "the " << name << " key of this test's clients: 32 B and more\n";
    chmod(absl::StrCat(directory, "/", name).c_str(), 0600);
  }
  ClusterProcesses cluster({.flags = {absl::StrCat("--auth-key-file=", directory, "/right")}});
  const std::optional<size_t> primary = cluster.Primary();
  ASSERT_TRUE(primary.has_value());
  const size_t backup = *primary == 0 ? 1 : 0;
  Options options = PatientOptions();
  options.auth_key_file = directory + "/right";
  ASSERT_NO_FATAL_FAILURE(ExpectServed(cluster, backup, "saturn", options));
  options.auth_key_file = directory + "/wrong";
  const absl::Status wrong = Client::Connect(cluster.uri(backup), options).status();
  EXPECT_EQ(ReasonOf(wrong), Reason::kAuthenticationFailed) << wrong;
}

// Nothing is left but a backup, which cannot be promoted without etcd.
TEST(AnyServerTest, WithoutAPrimaryTheErrorSaysSoInTime) {
  ClusterProcesses cluster;
  const std::optional<size_t> primary = cluster.Primary();
  ASSERT_TRUE(primary.has_value());
  const size_t named = *primary == 0 ? 1 : 0;
  cluster.etcd().Kill(0);
  for (size_t server = 0; server < cluster.servers(); ++server) {
    if (server != named) cluster.Kill(server);
  }
  Options options;
  options.connect_timeout = absl::Seconds(5);
  const absl::Status status = Client::Connect(cluster.uri(named), options).status();
  const std::string wanted =
      absl::StrCat(cluster.uri(named), " is in a cluster and does not serve");
  EXPECT_TRUE(absl::StrContains(status.message(), wanted)) << status;
}

}  // namespace
}  // namespace osprey
