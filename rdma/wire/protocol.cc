#include "rdma/wire/protocol.h"

#include <cassert>

#include "absl/strings/str_cat.h"

namespace osprey::rdma {
namespace {

constexpr uint64_t kLivenessBytes = 8;

// The error of one wrong field. Every refusal of this file is made here, so that each names its
// field and its value.
[[gnu::cold, gnu::noinline]] absl::Status Bad(absl::string_view field, uint64_t value,
                                              absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("malformed frame: ", field, " is ", value, ", expected ", expected));
}

// The checks of headers and requests come in two forms, of the same code. Each frame passes the
// first. It is short, since it makes no texts.
struct IsCorrect {
  using Result = bool;
  static bool Ok() { return true; }
  static bool IsOk(bool result) { return result; }
  template <typename... Expected>
  static bool Bad(absl::string_view, uint64_t, const Expected&...) {
    return false;
  }
};
// The second one makes the error of a frame that failed.
struct Explain {
  using Result = absl::Status;
  static absl::Status Ok() { return absl::OkStatus(); }
  static bool IsOk(const absl::Status& result) { return result.ok(); }
  template <typename... Expected>
  static absl::Status Bad(absl::string_view field, uint64_t value, const Expected&... expected) {
    return rdma::Bad(field, value, absl::StrCat(expected...));
  }
};

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

template <typename Form>
typename Form::Result CheckAddressing(const FrameHeader& header) {
  const Addressing addressing = AddressingOf(header.opcode);
  if (addressing == Addressing::kUnknownOpcode)
    return Form::Bad("opcode", header.opcode, "one of this version");
  const bool with_session = addressing != Addressing::kNone;
  const bool with_sequence = addressing == Addressing::kRequest;
  if ((header.session != 0) != with_session)
    return Form::Bad("session", header.session, with_session ? "one that was given" : "0");
  if ((header.sequence != 0) != with_sequence)
    return Form::Bad("sequence", header.sequence, with_sequence ? "at least 1" : "0");
  return Form::Ok();
}

template <typename Form>
typename Form::Result CheckHeaderIn(FrameBytes frame) {
  if (frame.size() < sizeof(FrameHeader))
    return Form::Bad("length", frame.size(), "at least ", sizeof(FrameHeader));
  const FrameHeader header = HeaderOf(frame);
  if (header.magic != kFrameMagic) return Form::Bad("magic", header.magic, kFrameMagic);
  if (header.flags != 0) return Form::Bad("flags", header.flags, "0");
  if (header.length != frame.size())
    return Form::Bad("length", header.length, "the ", frame.size(), " bytes of the frame");
  return CheckAddressing<Form>(header);
}

template <typename Form, typename Body>
typename Form::Result CheckFixed(FrameBytes frame) {
  constexpr size_t kBytes = sizeof(FrameHeader) + sizeof(Body);
  if (frame.size() >= kBytes) return Form::Ok();
  return Form::Bad("length", frame.size(), "at least ", kBytes);
}

template <typename Form>
typename Form::Result CheckNoRest(FrameBytes rest, FrameBytes frame) {
  if (rest.empty()) return Form::Ok();
  return Form::Bad("length", frame.size(), frame.size() - rest.size());
}

// The key stands at the start of `rest`.
template <typename Form>
typename Form::Result CheckKey(FrameBytes rest, uint16_t key_length) {
  if (key_length == 0 || key_length > kKeyBytesMax)
    return Form::Bad("key_length", key_length, "1 to ", kKeyBytesMax);
  if (key_length > rest.size()) {
    return Form::Bad("key_length", key_length, "at most the ", rest.size(), " bytes that follow");
  }
  return Form::Ok();
}

template <typename Form>
typename Form::Result CheckCondition(uint8_t condition, uint64_t condition_version,
                                     bool absent_allowed) {
  if (condition > static_cast<uint8_t>(WireCondition::kVersionIs) ||
      (condition == static_cast<uint8_t>(WireCondition::kAbsent) && !absent_allowed))
    return Form::Bad("condition", condition, absent_allowed ? "0 to 2" : "0 or 2");
  if (condition != static_cast<uint8_t>(WireCondition::kVersionIs) && condition_version != 0)
    return Form::Bad("condition_version", condition_version, "0 without a condition on it");
  return Form::Ok();
}

template <typename Form>
typename Form::Result CheckValueFollows(uint64_t value_length, FrameBytes value) {
  if (value_length == value.size()) return Form::Ok();
  return Form::Bad("value_length", value_length, "the ", value.size(), " bytes after the key");
}

template <typename Form>
typename Form::Result CheckEager(const PutBody& body, FrameBytes value) {
  if (auto result = CheckValueFollows<Form>(body.value_length, value); !Form::IsOk(result))
    return result;
  constexpr absl::string_view kZero = "0 without a rendezvous";
  if (body.source.address != 0) return Form::Bad("source.address", body.source.address, kZero);
  if (body.source.length != 0) return Form::Bad("source.length", body.source.length, kZero);
  if (body.source.key != 0) return Form::Bad("source.key", body.source.key, kZero);
  if (body.value_hash != 0) return Form::Bad("value_hash", body.value_hash, kZero);
  return Form::Ok();
}

template <typename Form>
typename Form::Result CheckRendezvous(const PutBody& body, FrameBytes frame, FrameBytes value) {
  if (body.value_length == 0)
    return Form::Bad("value_length", body.value_length, "at least 1 in a rendezvous");
  if (body.source.length != body.value_length)
    return Form::Bad("source.length", body.source.length, "value_length, ", body.value_length);
  if (body.source.address > UINT64_MAX - body.source.length) {
    return Form::Bad("source.address", body.source.address,
                     "one with source.length bytes after it");
  }
  return CheckNoRest<Form>(value, frame);
}

template <typename Form>
typename Form::Result CheckPut(FrameBytes frame) {
  if (auto result = CheckFixed<Form, PutBody>(frame); !Form::IsOk(result)) return result;
  const PutBody body = BodyOf<PutBody>(frame);
  if (auto result = CheckCondition<Form>(body.condition, body.condition_version,
                                         /*absent_allowed=*/true);
      !Form::IsOk(result))
    return result;
  if (body.rendezvous > 1) return Form::Bad("rendezvous", body.rendezvous, "0 or 1");
  if (body.reserved != 0) return Form::Bad("reserved", body.reserved, "0");
  if (body.source.reserved != 0) return Form::Bad("source.reserved", body.source.reserved, "0");
  const FrameBytes rest = AfterBody<PutBody>(frame);
  if (auto result = CheckKey<Form>(rest, body.key_length); !Form::IsOk(result)) return result;
  const FrameBytes value = AfterKey(rest, body.key_length);
  return body.rendezvous == 1 ? CheckRendezvous<Form>(body, frame, value)
                              : CheckEager<Form>(body, value);
}

// Any other request on a key. A condition is one on the version, and only Append has a value.
template <typename Form, typename Body>
typename Form::Result CheckOther(FrameBytes frame) {
  if (auto result = CheckFixed<Form, Body>(frame); !Form::IsOk(result)) return result;
  const Body body = BodyOf<Body>(frame);
  if constexpr (requires { body.want_value; }) {
    if (body.want_value > 1) return Form::Bad("want_value", body.want_value, "0 or 1");
  }
  if constexpr (requires { body.condition; }) {
    if (auto result = CheckCondition<Form>(body.condition, body.condition_version,
                                           /*absent_allowed=*/false);
        !Form::IsOk(result))
      return result;
  }
  if (body.reserved0 != 0) return Form::Bad("reserved0", body.reserved0, "0");
  if (body.reserved1 != 0) return Form::Bad("reserved1", body.reserved1, "0");
  const FrameBytes rest = AfterBody<Body>(frame);
  if (auto result = CheckKey<Form>(rest, body.key_length); !Form::IsOk(result)) return result;
  const FrameBytes value = AfterKey(rest, body.key_length);
  if constexpr (requires { body.value_length; })
    return CheckValueFollows<Form>(body.value_length, value);
  return CheckNoRest<Form>(value, frame);
}

template <typename Form>
typename Form::Result CheckKeyedIn(Opcode opcode, FrameBytes frame) {
  switch (opcode) {
    case Opcode::kPut:
      return CheckPut<Form>(frame);
    case Opcode::kDelete:
      return CheckOther<Form, DeleteBody>(frame);
    case Opcode::kIncrement:
      return CheckOther<Form, IncrementBody>(frame);
    case Opcode::kAppend:
      return CheckOther<Form, AppendBody>(frame);
    case Opcode::kGet:
      return CheckOther<Form, GetBody>(frame);
    case Opcode::kExpire:
      return CheckOther<Form, ExpireBody>(frame);
    case Opcode::kTouch:
      return CheckOther<Form, TouchBody>(frame);
    default:
      assert(false && "no request on a key");
      return Form::Ok();
  }
}

[[gnu::cold, gnu::noinline]] absl::Status ErrorOfHeader(FrameBytes frame) {
  return CheckHeaderIn<Explain>(frame);
}
[[gnu::cold, gnu::noinline]] absl::Status ErrorOfKeyed(Opcode opcode, FrameBytes frame) {
  return CheckKeyedIn<Explain>(opcode, frame);
}

// Parses a message that consists of its body.
template <typename Body>
absl::StatusOr<Body> WholeBody(FrameBytes frame) {
  if (absl::Status status = CheckFixed<Explain, Body>(frame); !status.ok()) return status;
  if (absl::Status status = CheckNoRest<Explain>(AfterBody<Body>(frame), frame); !status.ok())
    return status;
  return BodyOf<Body>(frame);
}

// The request in a frame that CheckKeyed accepted.
template <typename Request, typename Body>
absl::StatusOr<Request> ParseKeyed(Opcode opcode, FrameBytes frame) {
  if (absl::Status status = CheckKeyed(opcode, frame); !status.ok()) return status;
  Request request;
  request.body = BodyOf<Body>(frame);
  const FrameBytes rest = AfterBody<Body>(frame);
  request.key = KeyOf(rest, request.body.key_length);
  if constexpr (requires { request.value; }) request.value = AfterKey(rest, request.key.size());
  return request;
}

}  // namespace

absl::Status CheckHeader(FrameBytes frame) {
  return CheckHeaderIn<IsCorrect>(frame) ? absl::OkStatus() : ErrorOfHeader(frame);
}

absl::StatusOr<FrameHeader> ParseHeader(FrameBytes frame) {
  if (!CheckHeaderIn<IsCorrect>(frame)) return ErrorOfHeader(frame);
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

absl::Status CheckKeyed(Opcode opcode, FrameBytes frame) {
  return CheckKeyedIn<IsCorrect>(opcode, frame) ? absl::OkStatus() : ErrorOfKeyed(opcode, frame);
}

absl::StatusOr<PutRequest> ParsePut(FrameBytes frame) {
  return ParseKeyed<PutRequest, PutBody>(Opcode::kPut, frame);
}

absl::StatusOr<DeleteRequest> ParseDelete(FrameBytes frame) {
  return ParseKeyed<DeleteRequest, DeleteBody>(Opcode::kDelete, frame);
}

absl::StatusOr<GetRequest> ParseGet(FrameBytes frame) {
  return ParseKeyed<GetRequest, GetBody>(Opcode::kGet, frame);
}

absl::StatusOr<IncrementRequest> ParseIncrement(FrameBytes frame) {
  return ParseKeyed<IncrementRequest, IncrementBody>(Opcode::kIncrement, frame);
}

absl::StatusOr<AppendRequest> ParseAppend(FrameBytes frame) {
  return ParseKeyed<AppendRequest, AppendBody>(Opcode::kAppend, frame);
}

absl::StatusOr<ExpireRequest> ParseExpire(FrameBytes frame) {
  return ParseKeyed<ExpireRequest, ExpireBody>(Opcode::kExpire, frame);
}

absl::StatusOr<TouchRequest> ParseTouch(FrameBytes frame) {
  return ParseKeyed<TouchRequest, TouchBody>(Opcode::kTouch, frame);
}

absl::StatusOr<FlushBody> ParseFlush(FrameBytes frame) {
  absl::StatusOr<FlushBody> body = WholeBody<FlushBody>(frame);
  if (!body.ok()) return body;
  if (body->cursor != 0 && body->version_bound == 0)
    return Bad("version_bound", body->version_bound, "what the last reply said");
  return body;
}

absl::StatusOr<HintsMessage> ParseHints(FrameBytes frame) {
  if (absl::Status status = CheckFixed<Explain, HintsBody>(frame); !status.ok()) return status;
  const HintsBody body = BodyOf<HintsBody>(frame);
  if (body.count == 0 || body.count > kHintsMax)
    return Bad("count", body.count, absl::StrCat("1 to ", kHintsMax));
  if (body.reserved != 0) return Bad("reserved", body.reserved, "0");
  const FrameBytes words = AfterBody<HintsBody>(frame);
  if (words.size() != body.count * sizeof(uint64_t)) {
    return Bad("count", body.count, absl::StrCat("that of the ", words.size(), " bytes after it"));
  }
  return HintsMessage{body.count, words};
}

absl::StatusOr<ReportBody> ParseReport(FrameBytes frame) { return WholeBody<ReportBody>(frame); }

absl::Status ParseEmpty(FrameBytes frame) {
  if (frame.size() == sizeof(FrameHeader)) return absl::OkStatus();
  return Bad("length", frame.size(), absl::StrCat(sizeof(FrameHeader)));
}

absl::StatusOr<Reply> ParseReply(FrameBytes frame) {
  if (absl::Status status = CheckFixed<Explain, ReplyBody>(frame); !status.ok()) return status;
  const ReplyBody body = BodyOf<ReplyBody>(frame);
  const FrameBytes data = AfterBody<ReplyBody>(frame);
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
