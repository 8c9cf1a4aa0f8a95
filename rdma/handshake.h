// The private data of a connect request, of its acceptance and of its rejection. The same struct
// travels over rdma_cm and over the shm socket.
//
//   byte  0        4        6        8        10       12           16           20         24
//         +--------+--------+--------+--------+--------+------------+------------+----------+
//         | magic  |version | length | reason |credits | frame_bytes|reads_in_   | affinity |
//         |  u32   |  u16   |  u16   |  u16   |  u16   | _max u32   |flight u32  | u32      |
//         +--------+--------+--------+--------+--------+------------+------------+----------+
//
// It carries its own length because rdma_cm pads private data. A receiver compares magic and
// version first. It ignores bytes beyond its own struct, so that a later version may append fields.

#ifndef OSPREY_RDMA_HANDSHAKE_H_
#define OSPREY_RDMA_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rdma/transport.h"

namespace osprey::rdma {

inline constexpr uint32_t kHandshakeMagic = 0x5250534F;  // "OSPR", little endian
inline constexpr uint16_t kProtocolVersion = 10;
// A server of version `newest` serves clients of this version, too: the one of the release before. So servers can be
// upgraded one after the other, before or after their clients.
constexpr uint16_t OldestServed(uint16_t newest) { return newest - 1; }
// Servers answer Opcode::kServers.
inline constexpr uint16_t kServersSince = 10;

struct ConnectData {
  uint32_t magic = kHandshakeMagic;
  uint16_t version = kProtocolVersion;
  uint16_t length = 24;              // bytes of this struct in the sender's version
  uint16_t reason = 0;               // RejectReason, in a rejection
  uint16_t receive_credits = 0;      // receives that the sender has posted for its peer
  uint32_t frame_bytes_max = 0;      // of the sender
  uint32_t reads_in_flight_max = 0;  // READs that the sender may post
  // Set by a client that will resume a session: the low 32 bits of it, by which the server chooses
  // the poller for the connection. 0: any.
  uint32_t affinity = 0;
};
static_assert(std::is_trivially_copyable_v<ConnectData>);
static_assert(sizeof(ConnectData) == 24);
static_assert(offsetof(ConnectData, version) == 4);
static_assert(offsetof(ConnectData, length) == 6);
static_assert(offsetof(ConnectData, reason) == 8);
static_assert(offsetof(ConnectData, receive_credits) == 10);
static_assert(offsetof(ConnectData, frame_bytes_max) == 12);
static_assert(offsetof(ConnectData, reads_in_flight_max) == 16);
static_assert(offsetof(ConnectData, affinity) == 20);

// The least number of receives that a side may offer. With one, a peer could not send and be
// answered at once.
inline constexpr uint16_t kReceiveCreditsMin = 2;

// Parses the connect data of a peer. This side speaks `version` and those from `oldest` on. Errors, of
// rdma/errors.h: not an Osprey peer (too short, no magic, an impossible value), and the version
// mismatch. In a rejection, credits and frame length are not checked.
absl::StatusOr<ConnectData> ParseConnectData(Bytes bytes, uint16_t version, uint16_t oldest);
// Of this version alone.
inline absl::StatusOr<ConnectData> ParseConnectData(Bytes bytes,
                                                    uint16_t version = kProtocolVersion) {
  return ParseConnectData(bytes, version, version);
}
// The answer to a request that offered version `offered`, at a client of version `newest`. A rejection for another
// reason than the version may be of any version that both could speak: the server may not have read the request.
absl::StatusOr<ConnectData> ParseAnswer(Bytes bytes, uint16_t offered, uint16_t newest);

// The status of a connection that the peer at `uri` rejected with `rejection`. REQUIRES:
// `rejection.reason` is not kNone.
absl::Status RejectionError(const ConnectData& rejection, absl::string_view uri);

// Which version to offer to a server: the newest, or, after it has refused that, the one before.
class VersionOffer {
 public:
  // For Transport::Connect.
  uint16_t version() const { return version_; }
  // An attempt that offered it has ended with `why`. True: it is to be repeated at once. False: it is over, and `why` is
  // what there is to say. The next one offers the newest version.
  bool Repeats(absl::Status& why);
  // Whatever it was, a new attempt begins.
  void Reset() { version_ = 0; }

 private:
  uint16_t version_ = 0;
  absl::Status refusal_;  // of the newest version
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_HANDSHAKE_H_
