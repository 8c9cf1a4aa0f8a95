#include "server/cluster/configuration/store_identity.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/wal/format/checksum.h"

namespace osprey {
namespace {

// Until there is a command by which an operator accepts another state of the store.
constexpr absl::string_view kFix =
    "; end all servers of the cluster, create a cluster under another name, and load the data "
    "again";

uint64_t ChecksumOf(const StoreIdentityImage& image) {
  return server::wal::Checksum(
      {reinterpret_cast<const std::byte*>(&image), offsetof(StoreIdentityImage, checksum)},
      /*seed=*/0);
}

}  // namespace

StoreIdentity::StoreIdentity(uint64_t cluster_id) {
  assert(cluster_id != 0);
  image_.cluster_id = cluster_id;
}

absl::StatusOr<StoreIdentity> StoreIdentity::FromImage(absl::string_view bytes) {
  const auto damaged = [](absl::string_view why) {
    return absl::DataLossError(
        absl::StrCat("the identity of the cluster's etcd, as this directory "
                     "has it, ",
                     why, kFix));
  };
  StoreIdentityImage image;
  if (bytes.size() != sizeof(image)) return damaged(absl::StrCat("has ", bytes.size(), " bytes"));
  std::memcpy(&image, bytes.data(), sizeof(image));
  if (image.magic != kStoreIdentityMagic) return damaged("begins with another magic number");
  if (image.checksum != ChecksumOf(image)) return damaged("has a wrong checksum");
  if (image.format != kStoreIdentityFormat)
    return absl::FailedPreconditionError(
        absl::StrCat("the identity of the cluster's etcd has format ", image.format,
                     ", and this program reads ", kStoreIdentityFormat, "; use a newer program"));
  if (image.cluster_id == 0 || image.revision < 0 || image.reserved != 0 ||
      (image.revision == 0) != (image.etcd_cluster_id == 0))
    return damaged("has impossible values");
  StoreIdentity identity(image.cluster_id);
  identity.image_ = image;
  return identity;
}

absl::Status StoreIdentity::Check(const StoreHeader& header, int64_t before) {
  assert(before <= image_.revision);
  if (!status_.ok()) return status_;
  if (header.cluster_id == 0 || header.revision < 1)
    return Fail("etcd answers without its identity");
  if (image_.etcd_cluster_id == 0) image_.etcd_cluster_id = header.cluster_id;
  if (header.cluster_id != image_.etcd_cluster_id)
    return Fail(absl::StrCat("etcd is another one: its cluster id is ", header.cluster_id,
                             ", and was ", image_.etcd_cluster_id));
  if (header.revision < before)
    return Fail(absl::StrCat("etcd has gone back to revision ", header.revision, " from ", before,
                             ": it was restored from a backup"));
  image_.revision = std::max(image_.revision, header.revision);
  return absl::OkStatus();
}

absl::Status StoreIdentity::CheckCluster(uint64_t cluster_id) {
  if (status_.ok() && cluster_id != image_.cluster_id)
    return Fail(absl::StrCat("etcd has another cluster of this name: its id is ",
                             absl::Hex(cluster_id, absl::kZeroPad16), ", and was ",
                             absl::Hex(image_.cluster_id, absl::kZeroPad16)));
  return status_;
}

absl::Status StoreIdentity::Fail(absl::string_view what) {
  status_ = absl::FailedPreconditionError(absl::StrCat(what, kFix));
  return status_;
}

std::string StoreIdentity::Image() const {
  StoreIdentityImage image = image_;
  image.checksum = ChecksumOf(image);
  return std::string(reinterpret_cast<const char*>(&image), sizeof(image));
}

}  // namespace osprey
