// A frame of every message, for the tests of the protocol. All fields that may be nonzero are.

#ifndef OSPREY_TESTS_SUPPORT_PROTOCOL_FRAMES_H_
#define OSPREY_TESTS_SUPPORT_PROTOCOL_FRAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rdma/wire/protocol.h"

namespace osprey::rdma {

inline constexpr uint64_t kSession = 0x1122334455667788;
inline constexpr uint64_t kSequence = 0x0102030405060708;

std::string Join(std::vector<FrameBytes> pieces);
FrameBytes AsBytes(absl::string_view text);
// "00 01 ff" and the like, with spaces anywhere.
std::string FromHex(absl::string_view hex);
std::string WithByte(std::string frame, size_t at, uint8_t value);
// The frame, with its real length in the header.
std::string WithLength(std::string frame);

HelloBody AnyHello();
ChallengeBody AnyChallenge();
ResponseBody AnyResponse();
RefusedBody AnyRefused();
WelcomeBody AnyWelcome();
PutBody EagerPut(absl::string_view key, absl::string_view value);
PutBody RendezvousPut(absl::string_view key);
// For the key "key".
DeleteBody AnyDelete();
GetBody AnyGet();
IncrementBody AnyIncrement();
AppendBody AnyAppend();  // of "value"
FlushBody AnyFlush();
ExpireBody AnyExpire();
TouchBody AnyTouch();
HintsBody AnyHints();  // of 2
ReportBody AnyReport();
ReplyBody AnyReply();  // with the data "value"

template <typename Body>
std::string RequestFrame(Opcode opcode, const Body& body, absl::string_view payload) {
  const Message<Body> message(opcode, kSession, kSequence, body, payload.size());
  return Join({message.bytes(), AsBytes(payload)});
}

std::string HelloFrame(const HelloBody& body = AnyHello());
std::string ChallengeFrame(const ChallengeBody& body = AnyChallenge());
std::string ResponseFrame(const ResponseBody& body = AnyResponse());
std::string RefusedFrame(const RefusedBody& body = AnyRefused());
std::string WelcomeFrame(const WelcomeBody& body = AnyWelcome());
std::string ElsewhereFrame(absl::string_view servers);
std::string PutFrame(const PutBody& body, absl::string_view payload);
std::string DeleteFrame(const DeleteBody& body, absl::string_view payload);
std::string GetFrame(const GetBody& body, absl::string_view payload);
std::string IncrementFrame(const IncrementBody& body, absl::string_view payload);
std::string AppendFrame(const AppendBody& body, absl::string_view payload);
std::string FlushFrame(const FlushBody& body);
std::string ExpireFrame(const ExpireBody& body, absl::string_view payload);
std::string TouchFrame(const TouchBody& body, absl::string_view payload);
std::string ReportFrame(const ReportBody& body);
std::string HintsFrame(const HintsBody& body, const std::vector<uint64_t>& words);
std::string ReplyFrame(const ReplyBody& body, absl::string_view payload);
std::string EmptyFrame(Opcode opcode, uint64_t sequence);
// A Batch of these frames, valid or not.
std::string BatchFrame(const std::vector<std::string>& frames);

// Parses a frame of any opcode as a receiver does.
absl::Status ParseAny(absl::string_view text);

struct Named {
  std::string name;
  std::string frame;
  std::string golden;  // hex
};
// Every message once, with its golden bytes.
std::vector<Named> EveryMessage();

}  // namespace osprey::rdma

#endif  // OSPREY_TESTS_SUPPORT_PROTOCOL_FRAMES_H_
