// Builds and parses the messages of rdma/wire/wire.h. Pure functions of bytes: no transport, no
// index, no state.
//
// Hostile bytes stop at the parser. A Parse function returns views into the frame only after its
// checks: every length lies within the frame, every reserved byte is zero, every enumeration has a
// defined value. Its error names the wrong field. The caller closes only that connection.
//
// Building yields the fixed part of a frame in a small struct whose bytes() goes to Transport::Send
// as the first piece. Key and value follow as pieces of their own, so that no byte is copied twice.

#ifndef OSPREY_RDMA_WIRE_PROTOCOL_H_
#define OSPREY_RDMA_WIRE_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "rdma/wire/wire.h"

namespace osprey::rdma {

using FrameBytes = absl::Span<const std::byte>;

// The fixed part of one message to send.
template <typename Body>
struct Message {
  FrameHeader header;
  Body body;

  // `payload_bytes` is the length of the rest of the frame (key and value).
  Message(Opcode opcode, uint64_t session, uint64_t sequence, const Body& b, size_t payload_bytes)
      : body(b) {
    static_assert(sizeof(Message) == sizeof(FrameHeader) + sizeof(Body));
    header.opcode = static_cast<uint8_t>(opcode);
    header.length = static_cast<uint32_t>(sizeof(Message) + payload_bytes);
    header.session = session;
    header.sequence = sequence;
  }
  FrameBytes bytes() const { return {reinterpret_cast<const std::byte*>(this), sizeof(Message)}; }
};

// A message that consists of its header: DisconnectNotice, Ping, Stats.
struct EmptyMessage {
  FrameHeader header;

  EmptyMessage(Opcode opcode, uint64_t session, uint64_t sequence) {
    header.opcode = static_cast<uint8_t>(opcode);
    header.length = sizeof(FrameHeader);
    header.session = session;
    header.sequence = sequence;
  }
  FrameBytes bytes() const { return {reinterpret_cast<const std::byte*>(&header), sizeof(header)}; }
};

// A body in wire form, over which the proofs of rdma/authentication.h are computed.
template <typename Body>
FrameBytes BodyBytes(const Body& body) {
  static_assert(std::is_trivially_copyable_v<Body>);
  return {reinterpret_cast<const std::byte*>(&body), sizeof(body)};
}

// The header of any frame. Errors: INVALID_ARGUMENT.
absl::StatusOr<FrameHeader> ParseHeader(FrameBytes frame);
// The same check without the header.
absl::Status CheckHeader(FrameBytes frame);
// A copy of the header, since frames have no alignment. REQUIRES: CheckHeader(frame) was OK.
inline FrameHeader HeaderOf(FrameBytes frame) {
  FrameHeader header;
  std::memcpy(&header, frame.data(), sizeof(header));
  return header;
}

// Parts of a frame that was checked: copies of bodies, since frames have no alignment, and views.
template <typename Body>
Body BodyOf(FrameBytes frame) {
  static_assert(std::is_trivially_copyable_v<Body>);
  Body body;
  std::memcpy(&body, frame.data() + sizeof(FrameHeader), sizeof(Body));
  return body;
}
template <typename Body>
FrameBytes AfterBody(FrameBytes frame) {
  constexpr size_t kBytes = sizeof(FrameHeader) + sizeof(Body);
  return {frame.data() + kBytes, frame.size() - kBytes};
}
// The key at the start of `rest`, and what follows it.
inline absl::string_view KeyOf(FrameBytes rest, size_t key_length) {
  return {reinterpret_cast<const char*>(rest.data()), key_length};
}
inline FrameBytes AfterKey(FrameBytes rest, size_t key_length) {
  return {rest.data() + key_length, rest.size() - key_length};
}

// A request on a key. Key and value lie within the frame.
template <typename Body>
struct RequestParts {
  Body body;
  absl::string_view key;  // 1 … kKeyBytesMax bytes
  FrameBytes value;       // APPEND, and PUT without a rendezvous; otherwise empty
};
using PutRequest = RequestParts<PutBody>;

// REQUIRES: the request was checked (checks.h).
template <typename Body>
RequestParts<Body> PartsOf(FrameBytes frame) {
  RequestParts<Body> parts;
  parts.body = BodyOf<Body>(frame);
  const FrameBytes rest = AfterBody<Body>(frame);
  parts.key = KeyOf(rest, parts.body.key_length);
  parts.value = AfterKey(rest, parts.body.key_length);
  return parts;
}

// Bodies. REQUIRES: ParseHeader(frame) was OK and its opcode is the function's own. Errors:
// INVALID_ARGUMENT.
absl::StatusOr<HelloBody> ParseHello(FrameBytes frame);
absl::StatusOr<ChallengeBody> ParseChallenge(FrameBytes frame);
absl::StatusOr<ResponseBody> ParseResponse(FrameBytes frame);
absl::StatusOr<RefusedBody> ParseRefused(FrameBytes frame);
absl::StatusOr<WelcomeBody> ParseWelcome(FrameBytes frame);

// A DisconnectNotice that comes instead of a Welcome. Without a body it has no servers.
struct Elsewhere {
  ElsewhereBody body;
  absl::string_view servers;  // within the frame
};
absl::StatusOr<Elsewhere> ParseElsewhere(FrameBytes frame);

absl::StatusOr<FlushBody> ParseFlush(FrameBytes frame);

struct HintsMessage {
  uint32_t count = 0;
  FrameBytes words;  // `count` words of 8 bytes, within the frame, unaligned
};
absl::StatusOr<HintsMessage> ParseHints(FrameBytes frame);
// Its counts are not checked.
absl::StatusOr<ReportBody> ParseReport(FrameBytes frame);

// Checks that the frame is only its header, as DisconnectNotice, Ping and Stats are.
absl::Status ParseEmpty(FrameBytes frame);

struct Reply {
  ReplyBody body;
  FrameBytes data;
};
absl::StatusOr<Reply> ParseReply(FrameBytes frame);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_WIRE_PROTOCOL_H_
