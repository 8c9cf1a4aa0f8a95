// Executes requests on the table. Each function is one request that came whole in its frame; values
// that do not fit into a frame are rendezvous.h's business.
//
// Thread rule: the table's thread.

#ifndef OSPREY_SERVER_REQUESTS_H_
#define OSPREY_SERVER_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "index/table.h"
#include "rdma/protocol.h"

namespace osprey::server {

// How long the space of a value stays as it is for a reader that was told its slot (R6): the
// default deadline of a client's operation (1 s) twice. A reader that comes later finds its READ
// torn or the item dead, and asks again.
inline constexpr absl::Duration kGetLease() { return absl::Seconds(2); }

// A reply on its way. `value` is a view into the table, valid until the next call on it: send the
// answer before.
struct Answer {
  rdma::ReplyBody body;
  std::string text;        // statistics, or what went wrong
  rdma::FrameBytes value;  // GET

  absl::StatusCode code() const { return static_cast<absl::StatusCode>(body.status); }
  rdma::FrameBytes data() const;
};

Answer AnswerOf(absl::StatusCode code, absl::string_view text);
Answer AnswerOf(const index::WriteResult& result);

index::Condition ConditionOf(uint8_t wire_condition, uint64_t version);

// The value came in the frame. INVALID_ARGUMENT when it is longer than `value_bytes_max`.
Answer ExecutePut(index::Table& table, const rdma::PutRequest& request, uint64_t value_bytes_max,
                  absl::Time now);
Answer ExecuteDelete(index::Table& table, const rdma::DeleteRequest& request, absl::Time now);
// A value of more than `data_bytes_max` is not sent: the answer says its slot, which stays as it is
// for kGetLease.
Answer ExecuteGet(index::Table& table, const rdma::GetRequest& request, size_t data_bytes_max,
                  absl::Time now);

absl::Status ValueTooLong(uint64_t value_length, uint64_t value_bytes_max);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_REQUESTS_H_
