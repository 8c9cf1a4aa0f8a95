// The messages of etcd's JSON gateway (api/etcdserverpb/rpc.proto of etcd 3.4): keys and values are
// base64, 64-bit integers are strings, and fields that are zero are left out.
//
// Answers are checked as a hostile peer's. All of an answer is valid, or it is an error.
//
// Thread rule: plain functions.

#ifndef OSPREY_SERVER_CLUSTER_ETCD_ETCD_MESSAGES_H_
#define OSPREY_SERVER_CLUSTER_ETCD_ETCD_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/cluster/etcd/etcd_store.h"

namespace osprey {

// What one member says of itself.
struct EtcdMemberStatus {
  StoreHeader header;
  std::string version;
  uint64_t leader_id = 0;  // 0: it has no leader
  uint64_t database_bytes = 0;
  std::vector<std::string> errors;  // alarms among them
};

// How the gateway reports an error of gRPC.
struct EtcdError {
  int code = 0;         // of gRPC (google.rpc.Code), 1 to 16
  std::string message;  // printable
};

std::string RangeRequest(const StoreRange& range);
std::string TransactionRequest(const Transaction& transaction);
std::string AuthenticateRequest(const std::string& user, const std::string& password);

// The answers with status 200. Errors: DATA_LOSS, with what is wrong with the answer.
absl::StatusOr<RangeAnswer> ParseRangeAnswer(absl::string_view text, const StoreRange& range);
// The outcome is kApplied or kRefused.
absl::StatusOr<TransactionResult> ParseTransactionAnswer(absl::string_view text,
                                                         const Transaction& transaction);
// A token has 1 to 4096 printable bytes without spaces, so it fits into a header of HTTP.
absl::StatusOr<std::string> ParseToken(absl::string_view text);
absl::StatusOr<EtcdMemberStatus> ParseMemberStatus(absl::string_view text);

// The answer with another status; nullopt: it is not one of etcd's gateway.
std::optional<EtcdError> ParseEtcdError(absl::string_view text);

// For messages: at most 200 bytes of `text`, escaped.
std::string Excerpt(absl::string_view text);

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_ETCD_ETCD_MESSAGES_H_
