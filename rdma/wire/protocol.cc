#include "rdma/wire/protocol.h"

#include <cassert>

#include "absl/strings/str_cat.h"
#include "rdma/reasons.h"
#include "rdma/wire/checks.h"
#include "rdma/wire/shard.h"

namespace osprey::rdma {

absl::Status BadField(absl::string_view field, uint64_t value, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("malformed frame: ", field, " is ", value, ", expected ", expected));
}

namespace {

constexpr uint64_t kLivenessBytes = 8;

absl::Status Bad(absl::string_view field, uint64_t value, absl::string_view expected) {
  return BadField(field, value, expected);
}

[[gnu::cold, gnu::noinline]] absl::Status ErrorOfHeader(FrameBytes frame) {
  return CheckHeaderIn<Explain>(frame);
}

// Parses a message that consists of its body.
template <typename Body>
absl::StatusOr<Body> WholeBody(FrameBytes frame) {
  if (absl::Status status = CheckFixed<Explain, Body>(frame); !status.ok()) return status;
  if (absl::Status status = CheckNoRest<Explain>(AfterBody<Body>(frame), frame); !status.ok())
    return status;
  return BodyOf<Body>(frame);
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
  if (body->resume_data_id != 0 && body->resume_session == 0)
    return Bad("resume_data_id", body->resume_data_id, "0 if resume_session is");
  if (body->shards != 0 && !IsShardCount(body->shards))
    return Bad("shards", body->shards, absl::StrCat("0, or a power of two up to ", kShardsMax));
  const uint32_t shards = body->shards == 0 ? kShardsMax : body->shards;
  if (body->shard >= shards) return Bad("shard", body->shard, absl::StrCat("below ", shards));
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
  if (body->in_cluster > 1) return Bad("in_cluster", body->in_cluster, "0 or 1");
  if (!IsShardCount(body->shards))
    return Bad("shards", body->shards, absl::StrCat("a power of two up to ", kShardsMax));
  if (body->shard >= body->shards)
    return Bad("shard", body->shard, absl::StrCat("below ", body->shards));
  return body;
}

absl::StatusOr<Elsewhere> ParseElsewhere(FrameBytes frame) {
  if (frame.size() == sizeof(FrameHeader)) return Elsewhere();
  if (absl::Status status = CheckFixed<Explain, ElsewhereBody>(frame); !status.ok()) return status;
  const FrameBytes rest = AfterBody<ElsewhereBody>(frame);
  const auto body = BodyOf<ElsewhereBody>(frame);
  if (body.servers_length != rest.size()) {
    return Bad("servers_length", body.servers_length,
               absl::StrCat("the ", rest.size(), " bytes that follow"));
  }
  if (body.reserved != 0) return Bad("reserved", body.reserved, "0");
  return Elsewhere{body, {reinterpret_cast<const char*>(rest.data()), rest.size()}};
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
  if (ReasonOfWire(body->reason) == Reason::kWrongShard) {
    if (!IsShardCount(body->shards))
      return Bad("shards", body->shards, absl::StrCat("a power of two up to ", kShardsMax));
    if (body->shard >= body->shards)
      return Bad("shard", body->shard, absl::StrCat("below ", body->shards));
    return body;
  }
  if (body->shards != 0) return Bad("shards", body->shards, "0");
  if (body->shard != 0) return Bad("shard", body->shard, "0");
  return body;
}

absl::Status ErrorOfKeyed(Opcode opcode, FrameBytes frame) {
  switch (opcode) {
    case Opcode::kPut:
      return CheckRequest<Explain, PutBody>(frame);
    case Opcode::kDelete:
      return CheckRequest<Explain, DeleteBody>(frame);
    case Opcode::kIncrement:
      return CheckRequest<Explain, IncrementBody>(frame);
    case Opcode::kAppend:
      return CheckRequest<Explain, AppendBody>(frame);
    case Opcode::kGet:
      return CheckRequest<Explain, GetBody>(frame);
    case Opcode::kExpire:
      return CheckRequest<Explain, ExpireBody>(frame);
    default:
      assert(opcode == Opcode::kTouch);
      return CheckRequest<Explain, TouchBody>(frame);
  }
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
