// A session in a checkpoint, byte by byte. Little-endian. Reserved bytes are zero.
//
//   0        16
//   +--------+--------+--------+-- … --+
//   | header | result | result |       |     by ascending sequence, at most kResultsKept
//   +--------+--------+--------+-- … --+
//
// Pure functions.

#ifndef OSPREY_SERVER_DURABILITY_SESSION_BYTES_H_
#define OSPREY_SERVER_DURABILITY_SESSION_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "server/requests/sessions.h"
#include "server/wal/disk/file_system.h"

namespace osprey::server {

struct SessionHeader {
  uint64_t id = 0;  // not 0
  uint32_t count = 0;
  uint32_t reserved = 0;
};
static_assert(std::is_trivially_copyable_v<SessionHeader>);
static_assert(sizeof(SessionHeader) == 16);
static_assert(offsetof(SessionHeader, count) == 8);

struct SessionResult {
  uint64_t sequence = 0;    // not 0
  uint32_t status = 0;      // absl::StatusCode
  uint16_t reason = 0;      // ReasonRow::wire (rdma/reasons.h)
  uint16_t has_number = 0;  // 0 or 1
  uint64_t version = 0;
  uint64_t slot = 0;  // a cursor; 0 for the slot of an item, which has no meaning in another life
  uint64_t value_length = 0;
  int64_t number = 0;
  uint64_t expiry = 0;  // ns, absolute; 0: none
};
static_assert(std::is_trivially_copyable_v<SessionResult>);
static_assert(sizeof(SessionResult) == 56);
static_assert(offsetof(SessionResult, status) == 8);
static_assert(offsetof(SessionResult, reason) == 12);
static_assert(offsetof(SessionResult, version) == 16);
static_assert(offsetof(SessionResult, expiry) == 48);

inline constexpr uint32_t kStatusCodeMax =
    static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);

// REQUIRES: a valid image.
std::string EncodeSession(const SessionImage& image);
// Why the bytes are no session; empty if they are one.
std::string DecodeSession(wal::Bytes bytes, SessionImage& image);

// Remembers a result, and forgets some that ResultWindow forgets. REQUIRES: sequence is not 0;
// image.results ascend.
void RememberResult(SessionImage& image, uint64_t sequence, const Result& result);
// Keeps what ResultWindow keeps: at most kResultsKept, the highest sequences.
void ForgetResults(SessionImage& image);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_SESSION_BYTES_H_
