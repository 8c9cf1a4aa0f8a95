// What a server says of itself in the store, as JSON:
//
//   {"incarnation":"00f1…","addresses":["rdma://10.0.0.1:7471"],"counter":17}

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

struct ServerRecord {
  uint64_t incarnation = 0;            // random, not 0: of one creation of the server's key
  std::vector<std::string> addresses;  // for clients and other servers
  uint64_t counter = 0;                // renewals so far

  friend bool operator==(const ServerRecord&, const ServerRecord&) = default;
};

std::string EncodeServerRecord(const ServerRecord& record);

// Errors: DATA_LOSS (it is no such record; says what is wrong).
absl::StatusOr<ServerRecord> DecodeServerRecord(absl::string_view text);

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_RIGHT_SERVER_RECORD_H_
