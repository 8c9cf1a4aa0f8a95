// The checks of headers and of requests on a key. The parsers of this folder use them, and callers
// that read the fields of a correct frame in place:
//
//   if (!CheckRequest<IsCorrect, PutBody>(frame)) return ErrorOfKeyed(Opcode::kPut, frame);
//   const RequestParts<PutBody> put = PartsOf<PutBody>(frame);
//
// Each check is written once and compiled in two forms. Every frame passes the first, which is
// short, since it makes no texts. Pure functions of bytes.

#ifndef OSPREY_RDMA_WIRE_CHECKS_H_
#define OSPREY_RDMA_WIRE_CHECKS_H_

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "rdma/wire/protocol.h"
#include "rdma/wire/wire.h"

namespace osprey::rdma {

// The error of one wrong field. Every refusal of a frame is made here, so that each names its field
// and its value.
[[gnu::cold]] absl::Status BadField(absl::string_view field, uint64_t value,
                                    absl::string_view expected);

// Whether a frame is correct.
struct IsCorrect {
  using Result = bool;
  static bool Ok() { return true; }
  static bool IsOk(bool result) { return result; }
  template <typename... Expected>
  static bool Bad(absl::string_view, uint64_t, const Expected&...) {
    return false;
  }
};
// The error of a frame that is not.
struct Explain {
  using Result = absl::Status;
  static absl::Status Ok() { return absl::OkStatus(); }
  static bool IsOk(const absl::Status& result) { return result.ok(); }
  template <typename... Expected>
  static absl::Status Bad(absl::string_view field, uint64_t value, const Expected&... expected) {
    return BadField(field, value, absl::StrCat(expected...));
  }
};

// The required session and sequence of a frame with this opcode.
enum class Addressing { kNone, kOfSession, kOfRequest, kUnknownOpcode };

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
      return Addressing::kOfSession;
    case Opcode::kPut:
    case Opcode::kDelete:
    case Opcode::kGet:
    case Opcode::kPing:
    case Opcode::kStats:
    case Opcode::kServers:
    case Opcode::kIncrement:
    case Opcode::kAppend:
    case Opcode::kFlush:
    case Opcode::kExpire:
    case Opcode::kTouch:
    case Opcode::kReply:
      return Addressing::kOfRequest;
  }
  return Addressing::kUnknownOpcode;
}

inline constexpr std::array<Addressing, 256> kAddressings = [] {
  std::array<Addressing, 256> all{};
  for (size_t opcode = 0; opcode < all.size(); ++opcode)
    all[opcode] = AddressingOf(static_cast<uint8_t>(opcode));
  return all;
}();

template <typename Form>
inline typename Form::Result CheckAddressing(const FrameHeader& header) {
  const Addressing addressing = kAddressings[header.opcode];
  if (addressing == Addressing::kUnknownOpcode)
    return Form::Bad("opcode", header.opcode, "one of this version");
  const bool with_session = addressing != Addressing::kNone;
  const bool with_sequence = addressing == Addressing::kOfRequest;
  if ((header.session != 0) != with_session)
    return Form::Bad("session", header.session, with_session ? "one that was given" : "0");
  if ((header.sequence != 0) != with_sequence)
    return Form::Bad("sequence", header.sequence, with_sequence ? "at least 1" : "0");
  return Form::Ok();
}

template <typename Form>
[[gnu::always_inline]] inline typename Form::Result CheckHeaderIn(FrameBytes frame) {
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

// A Put. In line where it is checked, since it is the most frequent request.
template <typename Form, std::same_as<PutBody> Body>
[[gnu::always_inline]] inline typename Form::Result CheckRequest(FrameBytes frame) {
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
typename Form::Result CheckRequest(FrameBytes frame) {
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

// Why a request on a key, of this opcode, is not correct; OK if it is.
[[gnu::cold]] absl::Status ErrorOfKeyed(Opcode opcode, FrameBytes frame);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_WIRE_CHECKS_H_
