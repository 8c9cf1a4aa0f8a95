#include "rdma/wire/protocol.h"

#include "absl/strings/str_cat.h"

namespace osprey::rdma {
namespace {

constexpr uint64_t kLivenessBytes = 8;

// The error of one wrong field. Every refusal of this file is made here, so that each names its
// field and its value.
absl::Status Bad(absl::string_view field, uint64_t value, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("malformed frame: ", field, " is ", value, ", expected ", expected));
}

// The required session and sequence of a frame with this opcode.
enum class Addressing { kNone, kSession, kRequest, kUnknownOpcode };

Addressing AddressingOf(uint8_t opcode) {
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

absl::Status CheckAddressing(const FrameHeader& header) {
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

// Copies the fixed body out (frames have no alignment) and returns the offset of the bytes after
// it.
template <typename Body>
absl::StatusOr<Body> FixedBody(FrameBytes frame) {
  constexpr size_t kBytes = sizeof(FrameHeader) + sizeof(Body);
  if (frame.size() < kBytes) return Bad("length", frame.size(), absl::StrCat("at least ", kBytes));
  Body body;
  std::memcpy(&body, frame.data() + sizeof(FrameHeader), sizeof(Body));
  return body;
}

template <typename Body>
FrameBytes Rest(FrameBytes frame) {
  return frame.subspan(sizeof(FrameHeader) + sizeof(Body));
}

absl::Status CheckNoRest(FrameBytes rest, FrameBytes frame) {
  if (rest.empty()) return absl::OkStatus();
  return Bad("length", frame.size(), absl::StrCat(frame.size() - rest.size()));
}

// Parses a message that consists of its body.
template <typename Body>
absl::StatusOr<Body> WholeBody(FrameBytes frame) {
  absl::StatusOr<Body> body = FixedBody<Body>(frame);
  if (!body.ok()) return body;
  if (absl::Status status = CheckNoRest(Rest<Body>(frame), frame); !status.ok()) return status;
  return body;
}

// The key stands at the start of `rest`.
absl::StatusOr<absl::string_view> Key(FrameBytes rest, uint16_t key_length) {
  if (key_length == 0 || key_length > kKeyBytesMax) {
    return Bad("key_length", key_length, absl::StrCat("1 to ", kKeyBytesMax));
  }
  if (key_length > rest.size()) {
    return Bad("key_length", key_length,
               absl::StrCat("at most the ", rest.size(), " bytes that follow"));
  }
  return absl::string_view(reinterpret_cast<const char*>(rest.data()), key_length);
}

absl::Status CheckCondition(uint8_t condition, uint64_t condition_version, bool absent_allowed) {
  if (condition > static_cast<uint8_t>(WireCondition::kVersionIs) ||
      (condition == static_cast<uint8_t>(WireCondition::kAbsent) && !absent_allowed)) {
    return Bad("condition", condition, absent_allowed ? "0 to 2" : "0 or 2");
  }
  if (condition != static_cast<uint8_t>(WireCondition::kVersionIs) && condition_version != 0) {
    return Bad("condition_version", condition_version, "0 without a condition on it");
  }
  return absl::OkStatus();
}

// The common part of Touch and Get: two reserved fields, and the key at the start of `rest`. Returns
// the key.
template <typename Body>
absl::StatusOr<absl::string_view> KeyOfUnconditional(const Body& body, FrameBytes rest) {
  if (body.reserved0 != 0) return Bad("reserved0", body.reserved0, "0");
  if (body.reserved1 != 0) return Bad("reserved1", body.reserved1, "0");
  return Key(rest, body.key_length);
}

// The common part of Delete, Increment, Append and Expire: a condition on the version, two reserved
// fields, and the key at the start of `rest`. Returns the key.
template <typename Body>
absl::StatusOr<absl::string_view> KeyOfConditional(const Body& body, FrameBytes rest) {
  if (absl::Status status =
          CheckCondition(body.condition, body.condition_version, /*absent_allowed=*/false);
      !status.ok()) {
    return status;
  }
  return KeyOfUnconditional(body, rest);
}

// Of a frame with a body, a key and nothing else. `key_of(body, rest)` checks the body's fields and
// returns the key at the start of `rest`.
template <typename Body, typename KeyOf>
absl::StatusOr<KeyedRequest<Body>> ParseKeyed(FrameBytes frame, KeyOf key_of) {
  absl::StatusOr<Body> body = FixedBody<Body>(frame);
  if (!body.ok()) return body.status();
  const FrameBytes rest = Rest<Body>(frame);
  absl::StatusOr<absl::string_view> key = key_of(*body, rest);
  if (!key.ok()) return key.status();
  if (absl::Status status = CheckNoRest(rest.subspan(key->size()), frame); !status.ok())
    return status;
  return KeyedRequest<Body>{*body, *key};
}

absl::Status CheckValueFollows(uint64_t value_length, FrameBytes value) {
  if (value_length == value.size()) return absl::OkStatus();
  return Bad("value_length", value_length,
             absl::StrCat("the ", value.size(), " bytes after the key"));
}

absl::Status CheckEager(const PutBody& body, FrameBytes value) {
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

absl::StatusOr<FrameHeader> ParseHeader(FrameBytes frame) {
  FrameHeader header;
  if (frame.size() < sizeof(header))
    return Bad("length", frame.size(), absl::StrCat("at least ", sizeof(header)));
  std::memcpy(&header, frame.data(), sizeof(header));
  if (header.magic != kFrameMagic) return Bad("magic", header.magic, absl::StrCat(kFrameMagic));
  if (header.flags != 0) return Bad("flags", header.flags, "0");
  if (header.length != frame.size()) {
    return Bad("length", header.length, absl::StrCat("the ", frame.size(), " bytes of the frame"));
  }
  if (absl::Status status = CheckAddressing(header); !status.ok()) return status;
  return header;
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
  absl::StatusOr<PutBody> body = FixedBody<PutBody>(frame);
  if (!body.ok()) return body.status();
  if (absl::Status status =
          CheckCondition(body->condition, body->condition_version, /*absent_allowed=*/true);
      !status.ok()) {
    return status;
  }
  if (body->rendezvous > 1) return Bad("rendezvous", body->rendezvous, "0 or 1");
  if (body->reserved != 0) return Bad("reserved", body->reserved, "0");
  if (body->source.reserved != 0) return Bad("source.reserved", body->source.reserved, "0");
  const FrameBytes rest = Rest<PutBody>(frame);
  absl::StatusOr<absl::string_view> key = Key(rest, body->key_length);
  if (!key.ok()) return key.status();
  const FrameBytes value = rest.subspan(key->size());
  absl::Status status =
      body->rendezvous == 1 ? CheckRendezvous(*body, frame, value) : CheckEager(*body, value);
  if (!status.ok()) return status;
  return PutRequest{*body, *key, value};
}

absl::StatusOr<DeleteRequest> ParseDelete(FrameBytes frame) {
  return ParseKeyed<DeleteBody>(frame, KeyOfConditional<DeleteBody>);
}

absl::StatusOr<IncrementRequest> ParseIncrement(FrameBytes frame) {
  return ParseKeyed<IncrementBody>(frame, KeyOfConditional<IncrementBody>);
}

absl::StatusOr<AppendRequest> ParseAppend(FrameBytes frame) {
  absl::StatusOr<AppendBody> body = FixedBody<AppendBody>(frame);
  if (!body.ok()) return body.status();
  absl::StatusOr<absl::string_view> key = KeyOfConditional(*body, Rest<AppendBody>(frame));
  if (!key.ok()) return key.status();
  const FrameBytes value = Rest<AppendBody>(frame).subspan(key->size());
  if (absl::Status status = CheckValueFollows(body->value_length, value); !status.ok())
    return status;
  return AppendRequest{*body, *key, value};
}

absl::StatusOr<FlushBody> ParseFlush(FrameBytes frame) {
  absl::StatusOr<FlushBody> body = WholeBody<FlushBody>(frame);
  if (!body.ok()) return body;
  if (body->cursor != 0 && body->version_bound == 0)
    return Bad("version_bound", body->version_bound, "what the last reply said");
  return body;
}

absl::StatusOr<ExpireRequest> ParseExpire(FrameBytes frame) {
  return ParseKeyed<ExpireBody>(frame, KeyOfConditional<ExpireBody>);
}

absl::StatusOr<TouchRequest> ParseTouch(FrameBytes frame) {
  return ParseKeyed<TouchBody>(frame, KeyOfUnconditional<TouchBody>);
}

absl::StatusOr<HintsMessage> ParseHints(FrameBytes frame) {
  absl::StatusOr<HintsBody> body = FixedBody<HintsBody>(frame);
  if (!body.ok()) return body.status();
  if (body->count == 0 || body->count > kHintsMax)
    return Bad("count", body->count, absl::StrCat("1 to ", kHintsMax));
  if (body->reserved != 0) return Bad("reserved", body->reserved, "0");
  const FrameBytes words = Rest<HintsBody>(frame);
  if (words.size() != body->count * sizeof(uint64_t)) {
    return Bad("count", body->count, absl::StrCat("that of the ", words.size(), " bytes after it"));
  }
  return HintsMessage{body->count, words};
}

absl::StatusOr<ReportBody> ParseReport(FrameBytes frame) { return WholeBody<ReportBody>(frame); }

absl::StatusOr<GetRequest> ParseGet(FrameBytes frame) {
  return ParseKeyed<GetBody>(frame, [](const GetBody& body, FrameBytes rest) {
    if (body.want_value > 1)
      return absl::StatusOr<absl::string_view>(Bad("want_value", body.want_value, "0 or 1"));
    return KeyOfUnconditional(body, rest);
  });
}

absl::Status ParseEmpty(FrameBytes frame) {
  if (frame.size() == sizeof(FrameHeader)) return absl::OkStatus();
  return Bad("length", frame.size(), absl::StrCat(sizeof(FrameHeader)));
}

absl::StatusOr<Reply> ParseReply(FrameBytes frame) {
  absl::StatusOr<ReplyBody> body = FixedBody<ReplyBody>(frame);
  if (!body.ok()) return body.status();
  const FrameBytes data = Rest<ReplyBody>(frame);
  constexpr uint32_t kStatusMax = static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  if (body->status > kStatusMax)
    return Bad("status", body->status, absl::StrCat("at most ", kStatusMax));
  if (body->data_length != data.size()) {
    return Bad("data_length", body->data_length,
               absl::StrCat("the ", data.size(), " bytes that follow"));
  }
  // A reply has the whole value or none of it.
  if (body->value_length != 0 && body->data_length != 0 &&
      body->value_length != body->data_length) {
    return Bad("value_length", body->value_length, "0, or data_length when there is data");
  }
  if (body->lease_ms != 0 && body->value_length <= body->data_length) {
    return Bad("lease_ms", body->lease_ms, "0 when the value was sent");
  }
  if (body->reason > kWireReasonMax || (body->reason != 0 && body->status == 0)) {
    return Bad(
        "reason", body->reason,
        body->status == 0 ? "0 when status is OK" : absl::StrCat("at most ", kWireReasonMax));
  }
  return Reply{*body, data};
}

}  // namespace osprey::rdma
