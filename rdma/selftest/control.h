// The messages between the two ends of a self-test over TCP. They are fixed, and each is answered
// by one.
//
//    0        8   10     12      16      20      24      28      32          40          48
//    +--------+---+------+-------+-------+-------+-------+-------+-----------+-----------+
//    | magic  |ver|status| step  | qpn   | psn   | rkey  | bytes | address   | seed      |
//    +--------+---+------+-------+-------+-------+-------+-------+-----------+-----------+
//    | gid 16 B         | lid | cm_port | mtu | ethernet | 0 … | text 176 B              |
//    +------------------+-----+---------+-----+----------+-----+-------------------------+
//
// Little-endian. Every received message is hostile until Validate has passed.

#ifndef OSPREY_RDMA_SELFTEST_CONTROL_H_
#define OSPREY_RDMA_SELFTEST_CONTROL_H_

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/address.h"
#include "rdma/unique_fd.h"
#include "rdma/verbs/device/address.h"

namespace osprey::rdma::selftest {

inline constexpr uint64_t kMagic = 0x464C45535250534F;  // "OSPRSELF"
inline constexpr uint16_t kVersion = 1;
inline constexpr size_t kTextBytes = 176;

struct Message {
  uint64_t magic = kMagic;
  uint16_t version = kVersion;
  uint16_t failed = 0;  // 1: the step failed here; `text` has the reason
  uint32_t step = 0;    // counted: both ends must be at the same one
  // The queue pair and its memory; 0 in steps without one.
  uint32_t qpn = 0;  // 24 bits
  uint32_t psn = 0;  // 24 bits
  uint32_t rkey = 0;
  uint32_t bytes = 0;
  uint64_t address = 0;
  uint64_t seed = 0;  // of the test pattern
  uint8_t gid[16] = {};
  uint16_t lid = 0;
  uint16_t cm_port = 0;
  uint8_t mtu = 0;  // ibv_mtu, 1 to 5
  uint8_t ethernet = 0;
  uint8_t reserved[10] = {};
  char text[kTextBytes] = {};  // printable ASCII, then zeros

  void SetText(absl::string_view value);
  // Always printable.
  std::string Text() const;

  // Errors: INVALID_ARGUMENT: magic, version, a flag that is neither 0 nor 1, reserved bytes.
  absl::Status Validate() const;
  // Checks a message that describes a queue pair with `bytes_wanted` of memory: numbers within
  // their bits, memory that does not wrap. Errors: INVALID_ARGUMENT.
  absl::Status ValidateParameters(uint32_t bytes_wanted) const;
};
static_assert(sizeof(Message) == 256);
static_assert(std::is_trivially_copyable_v<Message>);
static_assert(offsetof(Message, failed) == 10 && offsetof(Message, step) == 12);
static_assert(offsetof(Message, qpn) == 16 && offsetof(Message, address) == 32);
static_assert(offsetof(Message, gid) == 48 && offsetof(Message, text) == 80);

// As ResolveAddress (rdma/verbs/device/address.h), but over TCP, without an RDMA device.
absl::StatusOr<SocketAddress> ResolveTcp(const Address& address);
// The length for bind and connect.
socklen_t LengthOf(const SocketAddress& address);

// The connection. It reads only what is asked for, and ends by its deadline.
class Control {
 public:
  // `fd`: a connected stream.
  Control(UniqueFd fd, absl::Time deadline);

  // Connects to HOST[:PORT]. Errors: INVALID_ARGUMENT (no address), UNAVAILABLE, DEADLINE_EXCEEDED.
  static absl::StatusOr<Control> Connect(absl::string_view peer, absl::Time deadline);

  // Sends ours and waits for the peer's of the same step, which it validates. Errors: UNAVAILABLE
  // (the peer has gone), DEADLINE_EXCEEDED, INVALID_ARGUMENT (an invalid message).
  absl::StatusOr<Message> Exchange(Message ours);

  void set_deadline(absl::Time time) { deadline_ = time; }

 private:
  absl::Status Wait(short events) const;
  absl::Status Write(const Message& message);
  absl::StatusOr<Message> Read();

  UniqueFd fd_;
  absl::Time deadline_;
  uint32_t step_ = 0;
};

}  // namespace osprey::rdma::selftest

#endif  // OSPREY_RDMA_SELFTEST_CONTROL_H_
