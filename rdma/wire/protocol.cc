#include "rdma/wire/protocol.h"

#include "absl/strings/str_cat.h"

namespace osprey::rdma {
namespace {

constexpr uint64_t kLivenessBytes = 8;

// The error of one wrong field. Every refusal of this file is made here, so that each names its
// field and its value. Out of line, so that the checks of a correct frame are short.
[[gnu::cold, gnu::noinline]] absl::Status Bad(absl::string_view field, uint64_t value,
                                              absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("malformed frame: ", field, " is ", value, ", expected ", expected));
}
[[gnu::cold, gnu::noinline]] absl::Status BadAtLeast(absl::string_view field, uint64_t value,
                                                     uint64_t least) {
  return Bad(field, value, absl::StrCat("at least ", least));
}

// The required session and sequence of a frame with this opcode.
enum class Addressing { kNone, kSession, kRequest, kUnknownOpcode };

constexpr Addressing AddressingOf(uint8_t opcode) {
  switch (static_cast<Opcode>(opcode)) {
    case Opcode::kHello:
    case Opcode::kChallenge:
    case Opcode::kResponse:
    case Opcode::kRefused:
      return Addressing::kNone;
    case Opcode::kWelcome:
    case Opcode::kDisconnectNotice:
    case Opcode::kBatch:
    case Opcode::kHints:
    case Opcode::kReport:
      return Addressing::kSession;
    case Opcode::kPut:
    case Opcode::kDelete:
    case Opcode::kGet:
    case Opcode::kPing:
    case Opcode::kStats:
    case Opcode::kIncrement:
    case Opcode::kAppend:
    case Opcode::kFlush:
    case Opcode::kExpire:
    case Opcode::kTouch:
    case Opcode::kReply:
      return Addressing::kRequest;
  }
  return Addressing::kUnknownOpcode;
}

inline absl::Status CheckAddressing(const FrameHeader& header) {
  const Addressing addressing = AddressingOf(header.opcode);
  if (addressing == Addressing::kUnknownOpcode)
    return Bad("opcode", header.opcode, "one of this version");
  const bool with_session = addressing != Addressing::kNone;
  const bool with_sequence = addressing == Addressing::kRequest;
  if ((header.session != 0) != with_session) {
    return Bad("session", header.session, with_session ? "one that was given" : "0");
  }
  if ((header.sequence != 0) != with_sequence) {
    return Bad("sequence", header.sequence, with_sequence ? "at least 1" : "0");
  }
  return absl::OkStatus();
}

// Twice in line, for CheckHeader and for ParseHeader: each frame of either side passes here.
[[gnu::always_inline]] inline absl::Status CheckedHeader(FrameBytes frame) {
  if (frame.size() < sizeof(FrameHeader))
    return BadAtLeast("length", frame.size(), sizeof(FrameHeader));
  const FrameHeader header = HeaderOf(frame);
  if (header.magic != kFrameMagic) return Bad("magic", header.magic, absl::StrCat(kFrameMagic));
  if (header.flags != 0) return Bad("flags", header.flags, "0");
  if (header.length != frame.size()) {
    return Bad("length", header.length, absl::StrCat("the ", frame.size(), " bytes of the frame"));
  }
  return CheckAddressing(header);
}

template <typename Body>
inline absl::Status CheckFixed(FrameBytes frame) {
  constexpr size_t kBytes = sizeof(FrameHeader) + sizeof(Body);
  return frame.size() >= kBytes ? absl::OkStatus() : BadAtLeast("length", frame.size(), kBytes);
}

// A copy of the fixed body, since frames have no alignment. REQUIRES: CheckFixed.
template <typename Body>
inline Body FixedBody(FrameBytes frame) {
  Body body;
  std::memcpy(&body, frame.data() + sizeof(FrameHeader), sizeof(Body));
  return body;
}

template <typename Body>
inline FrameBytes Rest(FrameBytes frame) {
  return {frame.data() + sizeof(FrameHeader) + sizeof(Body),
          frame.size() - sizeof(FrameHeader) - sizeof(Body)};
}

inline absl::Status CheckNoRest(FrameBytes rest, FrameBytes frame) {
  if (rest.empty()) return absl::OkStatus();
  return Bad("length", frame.size(), absl::StrCat(frame.size() - rest.size()));
}

// Parses a message that consists of its body.
template <typename Body>
absl::StatusOr<Body> WholeBody(FrameBytes frame) {
  if (absl::Status status = CheckFixed<Body>(frame); !status.ok()) return status;
  if (absl::Status status = CheckNoRest(Rest<Body>(frame), frame); !status.ok()) return status;
  return FixedBody<Body>(frame);
}

[[gnu::cold, gnu::noinline]] absl::Status BadKeyLength(FrameBytes rest, uint16_t key_length) {
  if (key_length == 0 || key_length > kKeyBytesMax)
    return Bad("key_length", key_length, absl::StrCat("1 to ", kKeyBytesMax));
  return Bad("key_length", key_length,
             absl::StrCat("at most the ", rest.size(), " bytes that follow"));
}

// The key stands at the start of `rest`.
inline absl::Status CheckKey(FrameBytes rest, uint16_t key_length) {
  if (key_length != 0 && key_length <= kKeyBytesMax && key_length <= rest.size())
    return absl::OkStatus();
  return BadKeyLength(rest, key_length);
}

// REQUIRES: CheckKey.
inline absl::string_view KeyOf(FrameBytes rest, uint16_t key_length) {
  return {reinterpret_cast<const char*>(rest.data()), key_length};
}

// REQUIRES: CheckKey.
inline FrameBytes AfterKey(FrameBytes rest, uint16_t key_length) {
  return {rest.data() + key_length, rest.size() - key_length};
}

inline absl::Status CheckCondition(uint8_t condition, uint64_t condition_version,
                                   bool absent_allowed) {
  if (condition == static_cast<uint8_t>(WireCondition::kVersionIs)) return absl::OkStatus();
  if (condition > static_cast<uint8_t>(WireCondition::kVersionIs) ||
      (condition == static_cast<uint8_t>(WireCondition::kAbsent) && !absent_allowed)) {
    return Bad("condition", condition, absent_allowed ? "0 to 2" : "0 or 2");
  }
  if (condition_version == 0) return absl::OkStatus();
  return Bad("condition_version", condition_version, "0 without a condition on it");
}

// The common part of Delete, Increment, Append and Expire: a condition on the version, two reserved
// fields, and the key at the start of `rest`.
template <typename Body>
absl::Status CheckConditional(const Body& body, FrameBytes rest) {
  if (absl::Status status =
          CheckCondition(body.condition, body.condition_version, /*absent_allowed=*/false);
      !status.ok()) {
    return status;
  }
  if (body.reserved0 != 0) return Bad("reserved0", body.reserved0, "0");
  if (body.reserved1 != 0) return Bad("reserved1", body.reserved1, "0");
  return CheckKey(rest, body.key_length);
}

// A message of such a body and the key.
template <typename Request, typename Body>
absl::StatusOr<Request> ParseConditional(FrameBytes frame) {
  if (absl::Status status = CheckFixed<Body>(frame); !status.ok()) return status;
  const Body body = FixedBody<Body>(frame);
  const FrameBytes rest = Rest<Body>(frame);
  if (absl::Status status = CheckConditional(body, rest); !status.ok()) return status;
  if (absl::Status status = CheckNoRest(AfterKey(rest, body.key_length), frame); !status.ok())
    return status;
  return Request{body, KeyOf(rest, body.key_length)};
}

inline absl::Status CheckValueFollows(uint64_t value_length, FrameBytes value) {
  if (value_length == value.size()) return absl::OkStatus();
  return Bad("value_length", value_length,
             absl::StrCat("the ", value.size(), " bytes after the key"));
}

inline absl::Status CheckEager(const PutBody& body, FrameBytes value) {
  if (absl::Status status = CheckValueFollows(body.value_length, value); !status.ok())
    return status;
  if (body.source.address != 0)
    return Bad("source.address", body.source.address, "0 without a rendezvous");
  if (body.source.length != 0)
    return Bad("source.length", body.source.length, "0 without a rendezvous");
  if (body.source.key != 0) return Bad("source.key", body.source.key, "0 without a rendezvous");
  if (body.value_hash != 0) return Bad("value_hash", body.value_hash, "0 without a rendezvous");
  return absl::OkStatus();
}

absl::Status CheckRendezvous(const PutBody& body, FrameBytes frame, FrameBytes value) {
  if (body.value_length == 0)
    return Bad("value_length", body.value_length, "at least 1 in a rendezvous");
  if (body.source.length != body.value_length) {
    return Bad("source.length", body.source.length,
               absl::StrCat("value_length, ", body.value_length));
  }
  if (body.source.address > UINT64_MAX - body.source.length) {
    return Bad("source.address", body.source.address, "one with source.length bytes after it");
  }
  return CheckNoRest(value, frame);
}

}  // namespace

absl::Status CheckHeader(FrameBytes frame) { return CheckedHeader(frame); }

absl::StatusOr<FrameHeader> ParseHeader(FrameBytes frame) {
  if (absl::Status status = CheckedHeader(frame); !status.ok()) return status;
  return HeaderOf(frame);
}

absl::StatusOr<HelloBody> ParseHello(FrameBytes frame) {
  absl::StatusOr<HelloBody> body = WholeBody<HelloBody>(frame);
  if (!body.ok()) return body;
  if ((body->resume_incarnation != 0) != (body->resume_session != 0)) {
    return Bad("resume_incarnation", body->resume_incarnation, "0 exactly when resume_session is");
  }
  if (body->liveness.length < kLivenessBytes) {
    return Bad("liveness.length", body->liveness.length, absl::StrCat("at least ", kLivenessBytes));
  }
  if (body->liveness.address > UINT64_MAX - body->liveness.length) {
    return Bad("liveness.address", body->liveness.address,
               "one with liveness.length bytes after it");
  }
  if (body->liveness.reserved != 0) return Bad("liveness.reserved", body->liveness.reserved, "0");
  if (body->reserved != 0) return Bad("reserved", body->reserved, "0");
  return body;
}

absl::StatusOr<WelcomeBody> ParseWelcome(FrameBytes frame) {
  absl::StatusOr<WelcomeBody> body = WholeBody<WelcomeBody>(frame);
  if (!body.ok()) return body;
  if (body->incarnation == 0) return Bad("incarnation", body->incarnation, "not 0");
  if (body->region.length == 0) return Bad("region.length", body->region.length, "at least 1");
  if (body->region.address > UINT64_MAX - body->region.length) {
    return Bad("region.address", body->region.address, "one with region.length bytes after it");
  }
  if (body->region.reserved != 0) return Bad("region.reserved", body->region.reserved, "0");
  if (body->requests_max == 0) return Bad("requests_max", body->requests_max, "at least 1");
  if (body->resumed > 1) return Bad("resumed", body->resumed, "0 or 1");
  if (body->eager_bytes_max == 0)
    return Bad("eager_bytes_max", body->eager_bytes_max, "at least 1");
  const uint32_t partitions = body->partitions;
  if (partitions == 0 || partitions > kPartitionsMax || (partitions & (partitions - 1)) != 0) {
    return Bad("partitions", partitions, absl::StrCat("a power of two up to ", kPartitionsMax));
  }
  if (body->wants_hints > 1) return Bad("wants_hints", body->wants_hints, "0 or 1");
  if (body->wants_reports > 1) return Bad("wants_reports", body->wants_reports, "0 or 1");
  return body;
}

absl::StatusOr<ChallengeBody> ParseChallenge(FrameBytes frame) {
  return WholeBody<ChallengeBody>(frame);
}

absl::StatusOr<ResponseBody> ParseResponse(FrameBytes frame) {
  return WholeBody<ResponseBody>(frame);
}

absl::StatusOr<RefusedBody> ParseRefused(FrameBytes frame) {
  absl::StatusOr<RefusedBody> body = WholeBody<RefusedBody>(frame);
  if (!body.ok()) return body;
  if (body->reason == 0 || body->reason > kWireReasonMax)
    return Bad("reason", body->reason, absl::StrCat("1 to ", kWireReasonMax));
  if (body->reserved != 0) return Bad("reserved", body->reserved, "0");
  return body;
}

absl::StatusOr<PutRequest> ParsePut(FrameBytes frame) {
  if (absl::Status status = CheckFixed<PutBody>(frame); !status.ok()) return status;
  const PutBody body = FixedBody<PutBody>(frame);
  if (absl::Status status =
          CheckCondition(body.condition, body.condition_version, /*absent_allowed=*/true);
      !status.ok()) {
    return status;
  }
  if (body.rendezvous > 1) return Bad("rendezvous", body.rendezvous, "0 or 1");
  if (body.reserved != 0) return Bad("reserved", body.reserved, "0");
  if (body.source.reserved != 0) return Bad("source.reserved", body.source.reserved, "0");
  const FrameBytes rest = Rest<PutBody>(frame);
  if (absl::Status status = CheckKey(rest, body.key_length); !status.ok()) return status;
  const FrameBytes value = AfterKey(rest, body.key_length);
  absl::Status status =
      body.rendezvous == 1 ? CheckRendezvous(body, frame, value) : CheckEager(body, value);
  if (!status.ok()) return status;
  return PutRequest{body, KeyOf(rest, body.key_length), value};
}

absl::StatusOr<DeleteRequest> ParseDelete(FrameBytes frame) {
  return ParseConditional<DeleteRequest, DeleteBody>(frame);
}

absl::StatusOr<IncrementRequest> ParseIncrement(FrameBytes frame) {
  return ParseConditional<IncrementRequest, IncrementBody>(frame);
}

absl::StatusOr<AppendRequest> ParseAppend(FrameBytes frame) {
  if (absl::Status status = CheckFixed<AppendBody>(frame); !status.ok()) return status;
  const AppendBody body = FixedBody<AppendBody>(frame);
  const FrameBytes rest = Rest<AppendBody>(frame);
  if (absl::Status status = CheckConditional(body, rest); !status.ok()) return status;
  const FrameBytes value = AfterKey(rest, body.key_length);
  if (absl::Status status = CheckValueFollows(body.value_length, value); !status.ok())
    return status;
  return AppendRequest{body, KeyOf(rest, body.key_length), value};
}

absl::StatusOr<FlushBody> ParseFlush(FrameBytes frame) {
  absl::StatusOr<FlushBody> body = WholeBody<FlushBody>(frame);
  if (!body.ok()) return body;
  if (body->cursor != 0 && body->version_bound == 0)
    return Bad("version_bound", body->version_bound, "what the last reply said");
  return body;
}

absl::StatusOr<ExpireRequest> ParseExpire(FrameBytes frame) {
  return ParseConditional<ExpireRequest, ExpireBody>(frame);
}

absl::StatusOr<TouchRequest> ParseTouch(FrameBytes frame) {
  if (absl::Status status = CheckFixed<TouchBody>(frame); !status.ok()) return status;
  const TouchBody body = FixedBody<TouchBody>(frame);
  if (body.reserved0 != 0) return Bad("reserved0", body.reserved0, "0");
  if (body.reserved1 != 0) return Bad("reserved1", body.reserved1, "0");
  const FrameBytes rest = Rest<TouchBody>(frame);
  if (absl::Status status = CheckKey(rest, body.key_length); !status.ok()) return status;
  if (absl::Status status = CheckNoRest(AfterKey(rest, body.key_length), frame); !status.ok())
    return status;
  return TouchRequest{body, KeyOf(rest, body.key_length)};
}

absl::StatusOr<HintsMessage> ParseHints(FrameBytes frame) {
  if (absl::Status status = CheckFixed<HintsBody>(frame); !status.ok()) return status;
  const HintsBody body = FixedBody<HintsBody>(frame);
  if (body.count == 0 || body.count > kHintsMax)
    return Bad("count", body.count, absl::StrCat("1 to ", kHintsMax));
  if (body.reserved != 0) return Bad("reserved", body.reserved, "0");
  const FrameBytes words = Rest<HintsBody>(frame);
  if (words.size() != body.count * sizeof(uint64_t)) {
    return Bad("count", body.count, absl::StrCat("that of the ", words.size(), " bytes after it"));
  }
  return HintsMessage{body.count, words};
}

absl::StatusOr<ReportBody> ParseReport(FrameBytes frame) { return WholeBody<ReportBody>(frame); }

absl::StatusOr<GetRequest> ParseGet(FrameBytes frame) {
  if (absl::Status status = CheckFixed<GetBody>(frame); !status.ok()) return status;
  const GetBody body = FixedBody<GetBody>(frame);
  if (body.want_value > 1) return Bad("want_value", body.want_value, "0 or 1");
  if (body.reserved0 != 0) return Bad("reserved0", body.reserved0, "0");
  if (body.reserved1 != 0) return Bad("reserved1", body.reserved1, "0");
  const FrameBytes rest = Rest<GetBody>(frame);
  if (absl::Status status = CheckKey(rest, body.key_length); !status.ok()) return status;
  if (absl::Status status = CheckNoRest(AfterKey(rest, body.key_length), frame); !status.ok())
    return status;
  return GetRequest{body, KeyOf(rest, body.key_length)};
}

absl::Status ParseEmpty(FrameBytes frame) {
  if (frame.size() == sizeof(FrameHeader)) return absl::OkStatus();
  return Bad("length", frame.size(), absl::StrCat(sizeof(FrameHeader)));
}

absl::StatusOr<Reply> ParseReply(FrameBytes frame) {
  if (absl::Status status = CheckFixed<ReplyBody>(frame); !status.ok()) return status;
  const ReplyBody body = FixedBody<ReplyBody>(frame);
  const FrameBytes data = Rest<ReplyBody>(frame);
  constexpr uint32_t kStatusMax = static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  if (body.status > kStatusMax)
    return Bad("status", body.status, absl::StrCat("at most ", kStatusMax));
  if (body.data_length != data.size()) {
    return Bad("data_length", body.data_length,
               absl::StrCat("the ", data.size(), " bytes that follow"));
  }
  // A reply has the whole value or none of it.
  if (body.value_length != 0 && body.data_length != 0 && body.value_length != body.data_length) {
    return Bad("value_length", body.value_length, "0, or data_length when there is data");
  }
  if (body.lease_ms != 0 && body.value_length <= body.data_length) {
    return Bad("lease_ms", body.lease_ms, "0 when the value was sent");
  }
  if (body.reason > kWireReasonMax || (body.reason != 0 && body.status == 0)) {
    return Bad("reason", body.reason,
               body.status == 0 ? "0 when status is OK" : absl::StrCat("at most ", kWireReasonMax));
  }
  return Reply{body, data};
}

}  // namespace osprey::rdma
