// The other end of a self-test, over TCP: any process that reaches the port. The bytes are what it
// sends, in pieces, before it goes or falls silent. What is taken is valid. What is said of it is one
// line that a terminal can show. The exchange is over by the deadline.

#include "rdma/selftest/selftest.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "rdma/selftest/control.h"
#include "rdma/selftest/endpoint.h"
#include "rdma/selftest/script.h"
#include "tests/fuzz/support/input.h"

namespace osprey::rdma::selftest {
namespace {

// Of an end that waits for one that sends nothing more.
constexpr absl::Duration kSilence() { return absl::Milliseconds(2); }
// Of one that goes, which no end waits for. (That deadlines hold is for libFuzzer's own to see.)
constexpr absl::Duration kPatience() { return absl::Seconds(5); }

void MustBeShown(absl::string_view text) {
  OSPREY_MUST(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; }),
              "bytes that a terminal must not see");
}

void MustBeOneLine(const absl::Status& status) {
  OSPREY_MUST(!status.message().empty(), "an error without a word");
  MustBeShown(status.message());
}

// What the other end tells of itself, if it is accepted: numbers that verbs can be given.
void MustBeUsable(const Message& message) {
  if (!message.ValidateParameters(kRemoteBytes).ok())
    return MustBeOneLine(message.ValidateParameters(kRemoteBytes));
  OSPREY_MUST(message.qpn != 0 && message.qpn < (1U << 24) && message.psn < (1U << 24),
              "a number of more than 24 bits");
  OSPREY_MUST(message.mtu >= IBV_MTU_256 && message.mtu <= IBV_MTU_4096, "an MTU that is none");
  OSPREY_MUST(message.bytes == kRemoteBytes && message.address != 0 &&
                  message.address + message.bytes >= message.address,
              "memory that has no address");
}

void MustBeValid(const Message& message, uint32_t step) {
  OSPREY_MUST(message.magic == kMagic && message.version == kVersion && message.step == step,
              "a message of another language, or another step");
  OSPREY_MUST(message.failed <= 1 && message.ethernet <= 1, "a flag that is neither 0 nor 1");
  OSPREY_MUST(message.Text().size() <= kTextBytes, "a text longer than its message");
  MustBeShown(message.Text());
  // A text that is set once more is the same.
  Message again;
  again.SetText(message.Text());
  OSPREY_MUST(again.Text() == message.Text(), "a text that is another one when told again");
  MustBeUsable(message);
}

// A message that is nearly right, so that what lies behind the first checks is reached, too.
Message TakeMessage(fuzz::Input& input, uint32_t step) {
  Message message;
  message.step = input.OneIn(8) ? input.Any<uint32_t>() : step;
  message.failed = input.OneIn(4) ? input.Byte() & 3 : 0;
  message.qpn = input.Flag() ? 17 : input.Any<uint32_t>();
  message.psn = input.Flag() ? 0xFFFFFF : input.Any<uint32_t>();
  message.bytes = input.Flag() ? kRemoteBytes : static_cast<uint32_t>(input.Number());
  message.address = input.Flag() ? 0x7F0000000000 : input.Number();
  message.mtu = input.Flag() ? 5 : input.Byte();
  message.ethernet = input.OneIn(4) ? input.Byte() : 1;
  const std::string text = input.Text(kTextBytes);
  std::copy(text.begin(), text.end(), message.text);
  // Any byte of it, reserved ones included.
  if (input.OneIn(4)) reinterpret_cast<uint8_t*>(&message)[input.Byte()] ^= input.Byte();
  return message;
}

// The bytes of all messages that the other end sends.
std::string TakeBytes(fuzz::Input& input, uint32_t messages) {
  std::string bytes;
  for (uint32_t step = 1; step <= messages; ++step) {
    if (input.OneIn(8)) {
      absl::StrAppend(&bytes, input.Text(2 * sizeof(Message)));
      continue;
    }
    const Message message = TakeMessage(input, step);
    bytes.append(reinterpret_cast<const char*>(&message), sizeof(message));
  }
  if (input.OneIn(4)) bytes.resize(input.UpTo(bytes.size()));
  return bytes;
}

class OtherEnd {
 public:
  OtherEnd() {
    int fds[2] = {-1, -1};
    // A packet is one piece, as recv would have it of a stream.
    OSPREY_MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0, "sockets");
    ours_.reset(fds[0]);
    theirs_.reset(fds[1]);
  }

  // In pieces, none of which lies in two messages: a packet's rest would be lost.
  void Send(absl::string_view bytes, fuzz::Input& input) const {
    size_t at = 0;
    for (int pieces = 0; at < bytes.size() && pieces < kPiecesMax; ++pieces) {
      const size_t whole = sizeof(Message) - at % sizeof(Message);
      const size_t piece = input.Flag() ? whole : 1 + input.UpTo(whole - 1);
      const size_t count = std::min(piece, bytes.size() - at);
      OSPREY_MUST(send(theirs_.get(), bytes.data() + at, count, MSG_DONTWAIT) ==
                      static_cast<ssize_t>(count),
                  "sending a piece");
      at += count;
    }
  }
  void Go() { theirs_.reset(); }
  Control Ours(absl::Time deadline) { return Control(std::move(ours_), deadline); }

 private:
  static constexpr int kPiecesMax = 128;  // of what a socket holds
  UniqueFd ours_, theirs_;
};

constexpr uint32_t kMessagesMax = 6;

// Which of them a Control accepts.
void TakeControl(fuzz::Input& input) {
  OtherEnd other;
  const bool goes = !input.OneIn(4);
  const uint32_t messages = 1 + input.Choice(kMessagesMax);
  other.Send(TakeBytes(input, messages), input);
  if (goes) other.Go();
  Control control = other.Ours(absl::Now() + (goes ? kPatience() : kSilence()));
  for (uint32_t step = 1; step <= messages + 1; ++step) {
    Message ours;
    ours.SetText(input.Text(8));
    const absl::StatusOr<Message> theirs = control.Exchange(ours);
    if (!theirs.ok()) return MustBeOneLine(theirs.status());
    MustBeValid(*theirs, step);
  }
}

// What a whole self-test makes of them. (Without an RDMA device it ends at its first step.)
void TakeScript(fuzz::Input& input) {
  OtherEnd other;
  const Role role = input.Flag() ? Role::kActive : Role::kPassive;
  other.Send(TakeBytes(input, 1 + input.Choice(kMessagesMax)), input);
  other.Go();
  const absl::Time deadline = absl::Now() + kPatience();
  Control control = other.Ours(deadline);
  Options options;
  options.device = "none such";
  const Report report = Script(role, options, "", control, deadline).Run();
  OSPREY_MUST(!report.empty() && !Passed(report), "a test that passed without a device");
  for (const Step& step : report) {
    OSPREY_MUST(!step.layer.empty() && !step.detail.empty(), "a step without a name");
    MustBeShown(step.detail);
    MustBeShown(step.hint);
  }
}

void One(fuzz::Input input) {
  enum { kMessage, kControl, kScript, kKinds };
  switch (input.Choice(kKinds)) {
    case kMessage: {
      const Message message = input.Flag() ? TakeMessage(input, 1) : input.Any<Message>();
      if (!message.Validate().ok()) return MustBeOneLine(message.Validate());
      return MustBeValid(message, message.step);
    }
    case kControl:
      return TakeControl(input);
    case kScript:
      return TakeScript(input);
  }
}

}  // namespace
}  // namespace osprey::rdma::selftest

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::rdma::selftest::One(osprey::fuzz::Input(data, size));
  return 0;
}
