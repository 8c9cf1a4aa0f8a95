// Whether the store is still the one that it was. An etcd that was restored from a backup has an
// earlier state: by it a server would be promoted that lacks acknowledged writes, or be primary twice.
//
//   StoreIdentity identity(cluster.id);                        // or FromImage
//   const int64_t before = identity.revision();                // before the request is sent
//   const auto answer = store.Range(…);
//   if (absl::Status status = identity.Check(answer->header, before); !status.ok()) stop serving
//
// Each answer has to have the etcd cluster's id that the first one had. Its revision is at least the
// highest that was seen before its request was sent, since reads are linearizable. (One that was sent
// earlier, on another connection, may come with a lower one.)
//
// The first mistake stays: until its end the server serves nothing, becomes no primary and resumes no
// place.
//
// Image, which a data directory keeps so that a restart does not forget it. Little-endian:
//
//   0       8        12         16           24             32         40         48
//   +-------+--------+----------+------------+--------------+----------+----------+
//   | magic | format | reserved | cluster id | etcd's id    | revision | checksum |
//   +-------+--------+----------+------------+--------------+----------+----------+
//
//   checksum  XXH3-64 of the bytes before, unseeded
//
// Thread rule: one thread at a time.

#ifndef OSPREY_SERVER_CLUSTER_CONFIGURATION_STORE_IDENTITY_H_
#define OSPREY_SERVER_CLUSTER_CONFIGURATION_STORE_IDENTITY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/cluster/etcd/etcd_store.h"

namespace osprey {

inline constexpr uint64_t kStoreIdentityMagic = 0x444945524f54534f;  // "OSTOREID"
inline constexpr uint32_t kStoreIdentityFormat = 1;

struct StoreIdentityImage {
  uint64_t magic = kStoreIdentityMagic;
  uint32_t format = kStoreIdentityFormat;
  uint32_t reserved = 0;
  uint64_t cluster_id = 0;       // ClusterRecord::id, not 0
  uint64_t etcd_cluster_id = 0;  // 0: no answer was seen
  int64_t revision = 0;          // 0: no answer was seen
  uint64_t checksum = 0;
};
static_assert(std::is_trivially_copyable_v<StoreIdentityImage>);
static_assert(sizeof(StoreIdentityImage) == 48);
static_assert(offsetof(StoreIdentityImage, cluster_id) == 16);
static_assert(offsetof(StoreIdentityImage, etcd_cluster_id) == 24);
static_assert(offsetof(StoreIdentityImage, revision) == 32);
static_assert(offsetof(StoreIdentityImage, checksum) == 40);

class StoreIdentity {
 public:
  // Of a cluster whose store was not seen yet. REQUIRES: not 0.
  explicit StoreIdentity(uint64_t cluster_id);
  // Errors: DATA_LOSS (no such image, or a damaged one), FAILED_PRECONDITION (of a newer program).
  static absl::StatusOr<StoreIdentity> FromImage(absl::string_view bytes);

  // `before`: revision() when the request was sent. Errors: FAILED_PRECONDITION, from then on always;
  // names what differs, and the fix.
  absl::Status Check(const StoreHeader& header, int64_t before);
  // The id in the key `cluster`. Errors as of Check.
  absl::Status CheckCluster(uint64_t cluster_id);

  // OK, or the first mistake.
  const absl::Status& status() const { return status_; }
  uint64_t cluster_id() const { return image_.cluster_id; }
  // The highest that an answer had; 0: none was seen.
  int64_t revision() const { return image_.revision; }
  // sizeof(StoreIdentityImage) bytes.
  std::string Image() const;

 private:
  absl::Status Fail(absl::string_view what);

  StoreIdentityImage image_;
  absl::Status status_;
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_CONFIGURATION_STORE_IDENTITY_H_
