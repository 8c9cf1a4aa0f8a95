// What a server says of itself in the store, as JSON:
//
//   {"incarnation":"00f1…","addresses":["rdma://10.0.0.1:7471"],"clients":["rdma://10.0.0.1:7411"],
//    "counter":17,"slots":8,"zone":"rack-1","copy_rate":104857600,
//    "value_parts":1}

#ifndef OSPREY_SERVER_CLUSTER_RIGHT_SERVER_RECORD_H_
#define OSPREY_SERVER_CLUSTER_RIGHT_SERVER_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey {

inline constexpr size_t kServerRecordBytesMax = 16 << 10;
inline constexpr size_t kServerAddressesMax = 64;
inline constexpr uint32_t kServerSlotsMax = 1024;
inline constexpr size_t kZoneBytesMax = 64;

struct ServerRecord {
  uint64_t incarnation = 0;            // random, not 0: of one creation of the server's key
  std::vector<std::string> addresses;  // for other servers
  uint64_t counter = 0;                // renewals so far
  uint32_t slots = 0;                  // for so many shards it has memory; 0: it does not say
  std::string zone = "";               // IsZone; servers of one zone may fail together
  std::vector<std::string> clients =
      {};  // addresses of shard 0 for clients; empty: it does not say
  uint64_t copy_rate =
      0;  // bytes a second that it sends for copies at most; 0: no limit, or it does not say
  bool takes_parts = false;  // of values, from other servers (server/cluster/table/value_parts.h)

  friend bool operator==(const ServerRecord&, const ServerRecord&) = default;
};

// Whether it is a name of a zone: up to kZoneBytesMax of a to z, A to Z, 0 to 9, '.', '_' and '-'; or empty.
bool IsZone(absl::string_view text);

std::string EncodeServerRecord(const ServerRecord& record);

// Errors: DATA_LOSS (it is no such record; says what is wrong).
absl::StatusOr<ServerRecord> DecodeServerRecord(absl::string_view text);

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_RIGHT_SERVER_RECORD_H_
