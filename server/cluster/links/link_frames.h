// The frames between the servers of a cluster. Little-endian, fixed structs, reserved bytes zero.
//
//   the server that connects                        the server that accepts
//   Hello {versions, cluster, both servers}     -->
//                                               <--  Challenge {nonce}       (with a key)
//   Response {nonce, mac}                       -->  (with a key)
//                                               <--  Welcome {version, proof}, or Refused {reason}
//   Data {pieces}, Ping                         -->
//                                               <--  Pong
//
// Each frame is a LinkHeader and the body of its type. The body of Data is a sequence of pieces:
//
//   +------------+-------------+---------+-------------+---------+---
//   | LinkHeader | PieceHeader | bytes … | PieceHeader | bytes … | …
//   +------------+-------------+---------+-------------+---------+---
//
// A message of any length is one piece or several, in order, and no other message's piece lies
// between them. So only the last piece of a frame can leave its message incomplete.
//
// The proofs are those of rdma/authentication.h, over Hello's and Welcome's body. No message of
// clients has bodies of these lengths, so that no proof made for one protocol is valid in the other.
//
// Header and Hello are the same in all versions of this protocol.

#ifndef OSPREY_SERVER_CLUSTER_LINKS_LINK_FRAMES_H_
#define OSPREY_SERVER_CLUSTER_LINKS_LINK_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rdma/transport.h"

namespace osprey {

inline constexpr uint32_t kLinkMagic = 0x4B4E4C4F;  // "OLNK"
// The versions of this program.
inline constexpr uint16_t kLinkVersionMin = 1;
inline constexpr uint16_t kLinkVersionMax = 1;
// Of one message: a group of entries (kGroupBytesMax) and what goes with it.
inline constexpr uint64_t kLinkMessageBytesMax = 16 << 20;
// A connection with shorter frames is refused: every fixed frame must fit, and some bytes of a piece.
inline constexpr uint32_t kLinkFrameBytesMin = 512;

enum class LinkFrame : uint8_t {
  kHello = 1,
  kChallenge = 2,
  kResponse = 3,
  kWelcome = 4,
  kRefused = 5,
  kData = 6,
  kPing = 7,
  kPong = 8,
};

enum class LinkRefusal : uint32_t {
  kVersion = 1,        // no version in common
  kCluster = 2,        // it belongs to another cluster
  kIncarnation = 3,    // it is not the incarnation that Hello is for
  kUnknownServer = 4,  // its configuration does not name Hello's server with that incarnation
  kWrongKey = 5,       // the proof is not made with its key
};

struct LinkHeader {
  uint32_t magic = kLinkMagic;
  uint8_t type = 0;  // LinkFrame
  uint8_t reserved[3] = {};
};
static_assert(std::is_trivially_copyable_v<LinkHeader>);
static_assert(sizeof(LinkHeader) == 8);
static_assert(offsetof(LinkHeader, type) == 4);

// Of the server that connects: kServerIdBytesMax, and at least one zero.
struct LinkServerName {
  char text[64] = {};
};

struct LinkHelloBody {
  uint16_t version_min = kLinkVersionMin;
  uint16_t version_max = kLinkVersionMax;
  uint32_t reserved = 0;
  uint64_t cluster_id = 0;
  LinkServerName server;              // that connects: its ID
  uint64_t incarnation = 0;           // … and its incarnation
  uint64_t expected_incarnation = 0;  // of the server that it connects to
};
static_assert(std::is_trivially_copyable_v<LinkHelloBody>);
static_assert(sizeof(LinkHelloBody) == 96);
static_assert(offsetof(LinkHelloBody, cluster_id) == 8);
static_assert(offsetof(LinkHelloBody, server) == 16);
static_assert(offsetof(LinkHelloBody, incarnation) == 80);
static_assert(offsetof(LinkHelloBody, expected_incarnation) == 88);

struct LinkChallengeBody {
  uint8_t nonce[32] = {};  // random, of this connection alone
};
static_assert(sizeof(LinkChallengeBody) == 32);

struct LinkResponseBody {
  uint8_t nonce[32] = {};  // random, of this connection alone
  uint8_t mac[32] = {};    // rdma::ClientProof over Hello's body
};
static_assert(sizeof(LinkResponseBody) == 64);

struct LinkWelcomeBody {
  uint16_t version = 0;  // of all that follows
  uint16_t reserved0 = 0;
  uint32_t reserved1 = 0;
  uint64_t incarnation = 0;  // of the server that accepts
  uint8_t proof[32] = {};  // rdma::ServerProof, with the cluster id as session; zero without a key
};
static_assert(std::is_trivially_copyable_v<LinkWelcomeBody>);
static_assert(sizeof(LinkWelcomeBody) == 48);
static_assert(offsetof(LinkWelcomeBody, incarnation) == 8);
static_assert(offsetof(LinkWelcomeBody, proof) == 16);

// Instead of Challenge or Welcome. The server that connected then disconnects.
struct LinkRefusedBody {
  uint32_t reason = 0;       // LinkRefusal; one of a later version is taken too
  uint16_t version_min = 0;  // of the server that refuses
  uint16_t version_max = 0;
};
static_assert(sizeof(LinkRefusedBody) == 8);

struct PieceHeader {
  uint64_t message_bytes = 0;  // of the whole message; the same in all its pieces
  uint32_t piece_bytes = 0;    // that follow: at least 1, unless the message is empty
  uint8_t kind = 0;            // of the message; the same in all its pieces
  uint8_t reserved[3] = {};
};
static_assert(std::is_trivially_copyable_v<PieceHeader>);
static_assert(sizeof(PieceHeader) == 16);
static_assert(offsetof(PieceHeader, piece_bytes) == 8);
static_assert(offsetof(PieceHeader, kind) == 12);

// A frame without a body: Ping, Pong.
inline std::string LinkFrameOf(LinkFrame type) {
  LinkHeader header;
  header.type = static_cast<uint8_t>(type);
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}
template <typename Body>
std::string LinkFrameOf(LinkFrame type, const Body& body) {
  std::string frame = LinkFrameOf(type);
  frame.append(reinterpret_cast<const char*>(&body), sizeof(body));
  return frame;
}

// The body as the proofs are made over it.
template <typename Body>
rdma::Bytes LinkBodyBytes(const Body& body) {
  return {reinterpret_cast<const std::byte*>(&body), sizeof(body)};
}

// REQUIRES: at most kServerIdBytesMax bytes.
LinkServerName LinkServerNameOf(absl::string_view server);
// REQUIRES: the name is of a Hello that was parsed.
inline absl::string_view ServerOf(const LinkServerName& name) {
  return {name.text, strnlen(name.text, sizeof(name.text))};
}

// What a peer sent: each of these checks all that it reads, and no parsed field is wrong. Errors:
// INVALID_ARGUMENT, with the field and its value.
absl::StatusOr<LinkFrame> ParseLinkHeader(rdma::Bytes frame);
// REQUIRES for all: ParseLinkHeader(frame) is their own type.
absl::StatusOr<LinkHelloBody> ParseLinkHello(rdma::Bytes frame);
absl::StatusOr<LinkChallengeBody> ParseLinkChallenge(rdma::Bytes frame);
absl::StatusOr<LinkResponseBody> ParseLinkResponse(rdma::Bytes frame);
absl::StatusOr<LinkWelcomeBody> ParseLinkWelcome(rdma::Bytes frame);
absl::StatusOr<LinkRefusedBody> ParseLinkRefused(rdma::Bytes frame);
// Ping, Pong.
absl::Status CheckEmptyLinkFrame(rdma::Bytes frame);

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_LINKS_LINK_FRAMES_H_
