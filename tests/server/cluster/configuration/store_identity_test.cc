#include "server/cluster/configuration/store_identity.h"

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/wal/format/checksum.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kCluster = 0xF1;
constexpr uint64_t kEtcd = 0xE7CD;

void MustNameTheFix(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("create a cluster under another name"));
}

TEST(StoreIdentityTest, AnEtcdThatGoesOnIsTheSame) {
  StoreIdentity identity(kCluster);
  EXPECT_TRUE(identity.Check({kEtcd, 1, 10}, 0).ok());
  EXPECT_TRUE(identity.Check({kEtcd, 2, 10}, 10).ok()) << "another member";
  EXPECT_TRUE(identity.Check({kEtcd, 1, 12}, 10).ok());
  EXPECT_TRUE(identity.CheckCluster(kCluster).ok());
  EXPECT_EQ(identity.revision(), 12);
}

TEST(StoreIdentityTest, AnAnswerToAnEarlierRequestMayBeOlder) {
  StoreIdentity identity(kCluster);
  ASSERT_TRUE(identity.Check({kEtcd, 1, 10}, 0).ok());
  const int64_t before = identity.revision();
  ASSERT_TRUE(identity.Check({kEtcd, 1, 20}, before).ok()) << "of a request that was sent later";
  EXPECT_TRUE(identity.Check({kEtcd, 1, 15}, before).ok());
  EXPECT_EQ(identity.revision(), 20);
  MustNameTheFix(identity.Check({kEtcd, 1, 19}, 20));
}

TEST(StoreIdentityTest, ALowerRevisionIsAnErrorForGood) {
  StoreIdentity identity(kCluster);
  ASSERT_TRUE(identity.Check({kEtcd, 1, 10}, 0).ok());
  const absl::Status status = identity.Check({kEtcd, 1, 9}, 10);
  MustNameTheFix(status);
  EXPECT_EQ(identity.Check({kEtcd, 1, 100}, 10), status);
  EXPECT_EQ(identity.CheckCluster(kCluster), status);
  EXPECT_EQ(identity.status(), status);
  EXPECT_EQ(identity.revision(), 10);
}

TEST(StoreIdentityTest, AnotherIdIsAnErrorForGood) {
  StoreIdentity identity(kCluster);
  ASSERT_TRUE(identity.Check({kEtcd, 1, 10}, 0).ok());
  MustNameTheFix(identity.Check({kEtcd + 1, 1, 11}, 10));
  EXPECT_FALSE(identity.Check({kEtcd, 1, 12}, 10).ok());
  StoreIdentity named(kCluster);
  MustNameTheFix(named.CheckCluster(kCluster + 1));
  EXPECT_FALSE(named.Check({kEtcd, 1, 10}, 0).ok());
  StoreIdentity anonymous(kCluster);
  EXPECT_FALSE(anonymous.Check({0, 1, 10}, 0).ok());
}

TEST(StoreIdentityTest, ItsImageIsKeptByARestart) {
  StoreIdentity identity(kCluster);
  const auto fresh = StoreIdentity::FromImage(identity.Image());
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_EQ(fresh->revision(), 0);
  ASSERT_TRUE(identity.Check({kEtcd, 1, 10}, 0).ok());
  auto read = StoreIdentity::FromImage(identity.Image());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->cluster_id(), kCluster);
  EXPECT_EQ(read->revision(), 10);
  EXPECT_TRUE(read->Check({kEtcd, 1, 10}, 10).ok());
  EXPECT_FALSE(read->Check({kEtcd, 1, 9}, 10).ok());
  auto again = StoreIdentity::FromImage(identity.Image());
  EXPECT_FALSE(again->Check({kEtcd + 1, 1, 20}, 10).ok());
}

TEST(StoreIdentityTest, ItsImageHasAFixedForm) {
  StoreIdentity identity(kCluster);
  ASSERT_TRUE(identity.Check({kEtcd, 1, 10}, 0).ok());
  const std::string image = identity.Image();
  ASSERT_EQ(image.size(), 48u);
  EXPECT_EQ(image.substr(0, 8), "OSTOREID");
  EXPECT_EQ(image.substr(8, 32),
            std::string(
                "\x01\0\0\0\0\0\0\0\xf1\0\0\0\0\0\0\0\xcd\xe7\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0", 32));
}

// No byte of it can change without an error.
TEST(StoreIdentityTest, ADamagedImageIsRefused) {
  StoreIdentity identity(kCluster);
  ASSERT_TRUE(identity.Check({kEtcd, 1, 10}, 0).ok());
  const std::string image = identity.Image();
  for (size_t i = 0; i < image.size() * 8; ++i) {
    std::string damaged = image;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << i % 8));
    const absl::Status status = StoreIdentity::FromImage(damaged).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << "bit " << i;
    EXPECT_THAT(std::string(status.message()), HasSubstr("create a cluster under another name"));
  }
  for (size_t bytes = 0; bytes < image.size(); ++bytes)
    EXPECT_FALSE(StoreIdentity::FromImage(image.substr(0, bytes)).ok());
  EXPECT_FALSE(StoreIdentity::FromImage(image + '\0').ok());
}

// With the right checksum: another program wrote it.
TEST(StoreIdentityTest, AnImageWithOtherFieldsIsRefused) {
  StoreIdentity identity(kCluster);
  ASSERT_TRUE(identity.Check({kEtcd, 1, 10}, 0).ok());
  const auto error = [&](void (*change)(StoreIdentityImage&)) {
    StoreIdentityImage image;
    std::memcpy(&image, identity.Image().data(), sizeof(image));
    change(image);
    image.checksum = server::wal::Checksum(
        {reinterpret_cast<const std::byte*>(&image), offsetof(StoreIdentityImage, checksum)},
        /*seed=*/0);
    return StoreIdentity::FromImage({reinterpret_cast<const char*>(&image), sizeof(image)})
        .status();
  };
  EXPECT_TRUE(error([](StoreIdentityImage&) {}).ok());
  const absl::Status newer = error([](StoreIdentityImage& image) { ++image.format; });
  EXPECT_EQ(newer.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(newer.message()), HasSubstr("newer program"));
  for (const auto change : std::vector<void (*)(StoreIdentityImage&)>{
           [](StoreIdentityImage& image) { image.reserved = 1; },
           [](StoreIdentityImage& image) { image.cluster_id = 0; },
           [](StoreIdentityImage& image) { image.etcd_cluster_id = 0; },
           [](StoreIdentityImage& image) { image.revision = 0; },
           [](StoreIdentityImage& image) { image.revision = -1; }}) {
    const absl::Status status = error(change);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr("impossible values"));
  }
}

}  // namespace
}  // namespace osprey
