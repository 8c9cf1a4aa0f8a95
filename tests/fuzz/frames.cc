// Every parser of frames and of private data: what it takes lies within the frame, and is all of
// the frame: put together again it is the same bytes. (rdma/wire/protocol.h, batch.h, handshake.h,
// rdma/verbs/frame.h.)

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "rdma/handshake.h"
#include "rdma/verbs/frame.h"
#include "rdma/wire/batch.h"
#include "rdma/wire/protocol.h"
#include "tests/fuzz/support/input.h"
#include "tests/support/parse_request.h"

namespace osprey::rdma {
namespace {

FrameBytes BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

void MustBeWithin(FrameBytes part, FrameBytes frame) {
  if (part.empty()) return;
  OSPREY_MUST(part.data() >= frame.data() && part.size() <= frame.size() &&
                  static_cast<size_t>(part.data() - frame.data()) <= frame.size() - part.size(),
              "a view reaches out of its frame");
}

// The frame that these parts make must be the one that was parsed.
template <typename Body>
void MustMake(FrameBytes frame, const Body& body, std::initializer_list<FrameBytes> payload) {
  FrameHeader header;
  std::memcpy(&header, frame.data(), sizeof(header));
  size_t bytes = 0;
  for (FrameBytes part : payload) {
    MustBeWithin(part, frame);
    bytes += part.size();
  }
  const Message<Body> message(static_cast<Opcode>(header.opcode), header.session, header.sequence,
                              body, bytes);
  std::string made(reinterpret_cast<const char*>(message.bytes().data()), message.bytes().size());
  for (FrameBytes part : payload)
    made.append(reinterpret_cast<const char*>(part.data()), part.size());
  OSPREY_MUST(BytesOf(made) == frame, "what was parsed is not what was in the frame");
}

template <typename Body>
void MustMakeRequest(FrameBytes frame) {
  const absl::StatusOr<RequestParts<Body>> request = ParseRequest<Body>(frame);
  if (!request.ok()) return;
  MustMake(frame, request->body, {BytesOf(request->key), request->value});
  OSPREY_MUST(!request->key.empty() && request->key.size() <= kKeyBytesMax, "a key of no length");
}

void Take(FrameBytes frame, bool in_batch) {
  const absl::StatusOr<FrameHeader> header = ParseHeader(frame);
  if (!header.ok()) return;
  OSPREY_MUST(header->length == frame.size(), "a header with another length was taken");
  switch (static_cast<Opcode>(header->opcode)) {
    case Opcode::kHello:
      if (auto body = ParseHello(frame); body.ok()) MustMake(frame, *body, {});
      return;
    case Opcode::kWelcome:
      if (auto body = ParseWelcome(frame); body.ok()) {
        MustMake(frame, *body, {});
        OSPREY_MUST(body->region.address <= UINT64_MAX - body->region.length,
                    "a region that wraps");
      }
      return;
    case Opcode::kChallenge:
      if (auto body = ParseChallenge(frame); body.ok()) MustMake(frame, *body, {});
      return;
    case Opcode::kResponse:
      if (auto body = ParseResponse(frame); body.ok()) MustMake(frame, *body, {});
      return;
    case Opcode::kRefused:
      if (auto body = ParseRefused(frame); body.ok()) MustMake(frame, *body, {});
      return;
    case Opcode::kPut:
      MustMakeRequest<PutBody>(frame);
      if (auto put = ParseRequest<PutBody>(frame); put.ok()) {
        OSPREY_MUST(put->body.rendezvous == 1 || put->value.size() == put->body.value_length,
                    "a value of another length");
        OSPREY_MUST(put->body.source.address <= UINT64_MAX - put->body.source.length,
                    "a source that wraps");
      }
      return;
    case Opcode::kDelete:
      MustMakeRequest<DeleteBody>(frame);
      return;
    case Opcode::kGet:
      MustMakeRequest<GetBody>(frame);
      return;
    case Opcode::kIncrement:
      MustMakeRequest<IncrementBody>(frame);
      return;
    case Opcode::kAppend:
      MustMakeRequest<AppendBody>(frame);
      return;
    case Opcode::kFlush:
      if (auto body = ParseFlush(frame); body.ok()) MustMake(frame, *body, {});
      return;
    case Opcode::kExpire:
      MustMakeRequest<ExpireBody>(frame);
      return;
    case Opcode::kTouch:
      MustMakeRequest<TouchBody>(frame);
      return;
    case Opcode::kHints:
      if (auto hints = ParseHints(frame); hints.ok()) {
        HintsBody body;
        body.count = hints->count;
        MustMake(frame, body, {hints->words});
      }
      return;
    case Opcode::kReport:
      if (auto body = ParseReport(frame); body.ok()) MustMake(frame, *body, {});
      return;
    case Opcode::kReply:
      if (auto reply = ParseReply(frame); reply.ok()) MustMake(frame, reply->body, {reply->data});
      return;
    case Opcode::kDisconnectNotice:
      if (ParseEmpty(frame).ok())
        OSPREY_MUST(frame.size() == sizeof(FrameHeader), "something after a header alone");
      if (auto told = ParseElsewhere(frame); told.ok() && frame.size() > sizeof(FrameHeader))
        MustMake(frame, told->body, {BytesOf(told->servers)});
      return;
    case Opcode::kPing:
    case Opcode::kStats:
    case Opcode::kServers:
      if (ParseEmpty(frame).ok())
        OSPREY_MUST(frame.size() == sizeof(FrameHeader), "something after a header alone");
      return;
    case Opcode::kBatch: {
      std::vector<FrameBytes> frames;
      if (!ParseBatch(frame, frames).ok()) return;
      OSPREY_MUST(!in_batch, "a Batch within a Batch");
      OSPREY_MUST(!frames.empty() && frames.size() <= kBatchFramesMax, "so many frames in a Batch");
      const std::byte* next = frame.data() + sizeof(FrameHeader);
      for (FrameBytes inner : frames) {
        OSPREY_MUST(inner.data() == next, "a gap in a Batch");
        next += inner.size();
        Take(inner, /*in_batch=*/true);
      }
      OSPREY_MUST(next == frame.data() + frame.size(), "bytes after a Batch's last frame");
      return;
    }
  }
  OSPREY_MUST(false, "an opcode that is none was taken");
}

constexpr Opcode kOpcodes[] = {Opcode::kHello,
                               Opcode::kWelcome,
                               Opcode::kChallenge,
                               Opcode::kResponse,
                               Opcode::kDisconnectNotice,
                               Opcode::kRefused,
                               Opcode::kPut,
                               Opcode::kDelete,
                               Opcode::kGet,
                               Opcode::kPing,
                               Opcode::kStats,
                               Opcode::kIncrement,
                               Opcode::kAppend,
                               Opcode::kFlush,
                               Opcode::kExpire,
                               Opcode::kTouch,
                               Opcode::kBatch,
                               Opcode::kHints,
                               Opcode::kReply,
                               Opcode::kReport,
                               Opcode::kServers};

// A frame whose header is as it should be, so that its body is looked at.
std::string WithHeader(fuzz::Input& input, std::string body, uint64_t session) {
  FrameHeader header;
  const Opcode opcode = kOpcodes[input.Choice(std::size(kOpcodes))];
  header.opcode = static_cast<uint8_t>(opcode);
  header.length = static_cast<uint32_t>(sizeof(header) + body.size());
  const bool greeting = opcode == Opcode::kHello || opcode == Opcode::kChallenge ||
                        opcode == Opcode::kResponse || opcode == Opcode::kRefused;
  const bool unnumbered = greeting || opcode == Opcode::kWelcome ||
                          opcode == Opcode::kDisconnectNotice || opcode == Opcode::kBatch ||
                          opcode == Opcode::kHints || opcode == Opcode::kReport;
  header.session = greeting ? 0 : session;
  header.sequence = unnumbered ? 0 : 1 + input.Byte();
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + body;
}

void TakeConnectData(fuzz::Input& input) {
  const bool right_version = input.Flag();
  ConnectData data = input.Any<ConnectData>();
  if (right_version) {
    data.magic = kHandshakeMagic;
    data.version = kProtocolVersion;
  }
  std::string bytes(reinterpret_cast<const char*>(&data), sizeof(data));
  bytes += input.Rest();
  bytes.resize(std::min<size_t>(bytes.size(), 196));  // what rdma_cm carries
  if (!right_version) bytes.resize(bytes.size() - bytes.size() % 32);
  const absl::StatusOr<ConnectData> parsed = ParseConnectData(BytesOf(bytes));
  if (!parsed.ok()) return;
  OSPREY_MUST(parsed->length >= sizeof(ConnectData) && parsed->length <= bytes.size(),
              "connect data longer than what came");
  if (parsed->reason != 0) {
    OSPREY_MUST(!RejectionError(*parsed, "rdma://h:1").ok(), "a rejection that is no error");
    return;
  }
  OSPREY_MUST(parsed->receive_credits >= kReceiveCreditsMin && parsed->frame_bytes_max > 0,
              "no credits, or frames of no bytes");
}

void TakeEnvelope(fuzz::Input& input) {
  FrameEnvelope envelope = input.Any<FrameEnvelope>();
  const bool right_length = input.Flag();
  const std::string rest = input.Rest();
  if (right_length) envelope.length = static_cast<uint32_t>(rest.size());
  const std::string bytes =
      std::string(reinterpret_cast<const char*>(&envelope), sizeof(envelope)) + rest;
  constexpr uint32_t kFrameBytesMax = 64;
  const absl::StatusOr<FrameEnvelope> parsed = ParseEnvelope(BytesOf(bytes), kFrameBytesMax);
  if (!parsed.ok()) return;
  OSPREY_MUST(parsed->length == rest.size() && parsed->length <= kFrameBytesMax,
              "an envelope of another length");
  (void)ParseEnvelope(BytesOf(bytes).first(bytes.size() % sizeof(envelope)), kFrameBytesMax);
}

void One(fuzz::Input input) {
  enum { kRaw, kHeader, kBatch, kConnectData, kEnvelope, kKinds };
  switch (input.Choice(kKinds)) {
    case kRaw:
      return Take(BytesOf(input.Rest()), false);
    case kHeader: {
      const std::string body = input.Text(700);
      return Take(BytesOf(WithHeader(input, body, 7)), false);
    }
    case kBatch: {
      std::string frames;
      uint32_t count = input.Byte();
      for (; count > 0 && !input.empty(); --count) {
        const std::string body = input.Text(200);
        frames += WithHeader(input, body, input.OneIn(16) ? 8 : 7);
      }
      frames += input.Rest();
      EmptyMessage batch(Opcode::kBatch, 7, 0);
      batch.header.length += static_cast<uint32_t>(frames.size());
      return Take(
          BytesOf(std::string(reinterpret_cast<const char*>(&batch.header), sizeof(batch.header)) +
                  frames),
          false);
    }
    case kConnectData:
      return TakeConnectData(input);
    case kEnvelope:
      return TakeEnvelope(input);
  }
}

}  // namespace
}  // namespace osprey::rdma

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::rdma::One(osprey::fuzz::Input(data, size));
  return 0;
}
