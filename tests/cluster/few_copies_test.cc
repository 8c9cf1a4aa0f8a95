// A primary whose last companions were lost refuses writes, and its clients go on reading, new ones too. A copy takes its time.

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/reasons.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster_processes.h"

namespace osprey {
namespace {

TEST(FewCopiesTest, WritesFailWithAReasonAndReadsGoOn) {
  ClusterProcesses cluster;
  const std::unique_ptr<Client> writer = *Client::Connect(cluster.uri(), PatientOptions());
  ASSERT_TRUE(writer->Put("planet", "saturn").ok());
  const std::optional<size_t> primary = cluster.Primary();
  ASSERT_TRUE(primary.has_value());
  for (size_t server = 0; server < cluster.servers(); ++server) {
    if (server != *primary) cluster.Kill(server);
  }
  ASSERT_TRUE(cluster.AwaitInSync(1, kPatience)) << cluster.WhyNot();
  ASSERT_EQ(cluster.Primary(), primary);

  // One that comes now has no session that others could have.
  const absl::StatusOr<std::unique_ptr<Client>> reader =
      Client::Connect(cluster.uri(), PatientOptions());
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (Client* const client : {writer.get(), reader->get()}) {
    const absl::Status put = client->Put("planet", "neptune").status();
    ASSERT_EQ(ReasonOf(put), Reason::kTooFewReplicas) << put << cluster.Log(*primary);
    EXPECT_FALSE(MayBeApplied(put)) << put;
    const absl::StatusOr<Value> value = client->Get("planet");
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(value->bytes, "saturn");
  }

  const size_t other = *primary == 0 ? 1 : 0;
  cluster.Start(other);
  ASSERT_TRUE(cluster.AwaitInSync(2, kPatience)) << cluster.WhyNot();
  const absl::StatusOr<uint64_t> put = (*reader)->Put("planet", "uranus");
  EXPECT_TRUE(put.ok()) << put.status();
  // The other one has the reader's session, too.
  cluster.Terminate(*primary);
  EXPECT_TRUE(cluster.AwaitOtherPrimary(*primary, kPatience).has_value()) << cluster.WhyNot();
  const absl::StatusOr<Value> value = (*reader)->Get("planet");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->bytes, "uranus");
}

// Without the limit that is a matter of a second: a server that ends by itself leaves nothing to wait for.
TEST(CopyRateTest, ACopyTakesItsTime) {
  ClusterProcesses cluster({.servers = 2, .min_in_sync = 1, .flags = {"--copy-rate=1MiB"}});
  const std::unique_ptr<Client> client = *Client::Connect(cluster.uri(), PatientOptions());
  constexpr int kMib = 8;
  for (int i = 0; i < 16 * kMib; ++i) {
    const absl::StatusOr<uint64_t> put = client->Put(absl::StrCat(i), std::string(64 << 10, 'x'));
    ASSERT_TRUE(put.ok()) << put.status();
  }
  const std::optional<size_t> primary = cluster.Primary();
  ASSERT_TRUE(primary.has_value());
  const size_t other = 1 - *primary;
  ASSERT_EQ(cluster.Terminate(other), 0) << cluster.Log(other);
  ASSERT_TRUE(cluster.AwaitInSync(1, kPatience)) << cluster.WhyNot();
  const absl::Time began = absl::Now();
  cluster.Start(other);
  ASSERT_TRUE(cluster.AwaitInSync(2, kPatience)) << cluster.WhyNot();
  EXPECT_GE(absl::Now() - began, absl::Seconds(kMib - 1));
}

}  // namespace
}  // namespace osprey
