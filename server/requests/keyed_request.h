// A request on one key that came whole in its frame. It is parsed once, in place, and executed on
// the key's table.
//
//   frame ──ParseKeyed──> KeyedRequest ──by partition──> ExecuteKeyed (requests.h) ──> Answer
//
// Pure function of bytes. Thread rule: none.

#ifndef OSPREY_SERVER_REQUESTS_KEYED_REQUEST_H_
#define OSPREY_SERVER_REQUESTS_KEYED_REQUEST_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "index/layout/hash.h"
#include "index/writer/keys/writes.h"
#include "rdma/wire/protocol.h"

namespace osprey::server {

// Some fields belong to some opcodes alone.
struct KeyedRequest {
  rdma::FrameBytes frame;  // the whole request; key and value are views into it
  uint64_t sequence = 0;
  absl::string_view key;
  rdma::FrameBytes value;      // APPEND, and PUT without a rendezvous
  index::Condition condition;  // all but GET and TOUCH
  uint64_t ttl_ns = 0;         // PUT, EXPIRE; 0: forever
  int64_t by = 0;              // INCREMENT
  // Of the key. The caller of ParseKeyed sets both; the hint may stay unset.
  index::KeyHash hash;
  index::SlotHint hint;
  rdma::Opcode opcode = rdma::Opcode::kPut;
  bool rendezvous = false;   // PUT: the server READs the value
  bool wants_value = false;  // GET

  // Its answer is remembered: a repetition is not applied again.
  bool is_write() const { return opcode != rdma::Opcode::kGet && opcode != rdma::Opcode::kTouch; }
};

// Whether ParseKeyed parses requests with this opcode.
constexpr bool IsKeyed(uint8_t opcode) {
  switch (static_cast<rdma::Opcode>(opcode)) {
    case rdma::Opcode::kPut:
    case rdma::Opcode::kDelete:
    case rdma::Opcode::kIncrement:
    case rdma::Opcode::kAppend:
    case rdma::Opcode::kGet:
    case rdma::Opcode::kExpire:
    case rdma::Opcode::kTouch:
      return true;
    default:
      return false;
  }
}

inline index::Condition ConditionOf(uint8_t wire_condition, uint64_t version) {
  using Kind = index::Condition::Kind;
  static_assert(static_cast<int>(rdma::WireCondition::kAbsent) == static_cast<int>(Kind::kAbsent));
  static_assert(static_cast<int>(rdma::WireCondition::kVersionIs) ==
                static_cast<int>(Kind::kVersionIs));
  return {static_cast<Kind>(wire_condition), version};
}

// Sets the fields that a request of this opcode has, except for the hash. `frame` must outlive it.
// REQUIRES: `header` is the frame's and was checked, and IsKeyed(header.opcode). Errors:
// INVALID_ARGUMENT; `request` is then not to be used.
absl::Status ParseKeyed(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                        KeyedRequest& request);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_REQUESTS_KEYED_REQUEST_H_
