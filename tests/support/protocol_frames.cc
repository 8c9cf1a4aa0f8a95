#include "tests/support/protocol_frames.h"

#include <sodium.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gtest/gtest.h"
#include "rdma/reasons.h"
#include "rdma/wire/batch.h"
#include "tests/support/parse_request.h"

namespace osprey::rdma {

std::string Join(std::vector<FrameBytes> pieces) {
  std::string frame;
  for (FrameBytes piece : pieces) {
    frame.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return frame;
}

FrameBytes AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string FromHex(absl::string_view hex) {
  std::string bytes(hex.size() / 2, '\0');
  size_t length = 0;
  const int error = sodium_hex2bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(),
                                   hex.data(), hex.size(), " \n", &length, nullptr);
  assert(error == 0);
  bytes.resize(length);
  return bytes;
}

std::string WithByte(std::string frame, size_t at, uint8_t value) {
  frame[at] = static_cast<char>(value);
  return frame;
}

std::string WithLength(std::string frame) {
  const uint32_t length = static_cast<uint32_t>(frame.size());
  std::memcpy(frame.data() + offsetof(FrameHeader, length), &length, sizeof(length));
  return frame;
}

// --- Bodies --------------------------------------------------------------------------------------

HelloBody AnyHello() {
  HelloBody body;
  body.resume_session = 0xA1;
  body.resume_incarnation = 0xA2;
  body.liveness = {0x7F0000001000, 8, 0xA3, 0};
  body.resume_data_id = 0xA4;
  body.shard = 5;
  body.shards = 8;
  return body;
}

ChallengeBody AnyChallenge() {
  ChallengeBody body;
  for (size_t i = 0; i < kNonceBytes; ++i) body.server_nonce[i] = static_cast<uint8_t>(1 + i);
  return body;
}

ResponseBody AnyResponse() {
  ResponseBody body;
  for (size_t i = 0; i < kNonceBytes; ++i) body.client_nonce[i] = static_cast<uint8_t>(0x40 + i);
  for (size_t i = 0; i < kMacBytes; ++i) body.mac[i] = static_cast<uint8_t>(0x80 + i);
  return body;
}

RefusedBody AnyRefused() {
  RefusedBody body;
  body.reason = WireNumberOf(Reason::kWrongShard);
  body.shard = 3;
  body.shards = 4;
  return body;
}

WelcomeBody AnyWelcome() {
  WelcomeBody body;
  body.incarnation = 0xB1;
  body.region = {0x7F0000002000, 0x20000000, 0xB2, 0};
  body.requests_max = 30;
  body.resumed = 1;
  body.value_bytes_max = 1 << 20;
  body.eager_bytes_max = 8112;
  body.partitions = 4;
  body.server_time = 0xB3;
  body.wants_hints = 1;
  body.wants_reports = 1;
  body.in_cluster = 1;
  body.data_id = 0xB4;
  body.shards = 16;
  body.shard = 9;
  for (size_t i = 0; i < kMacBytes; ++i) body.proof[i] = static_cast<uint8_t>(0xC0 + i);
  return body;
}

PutBody EagerPut(absl::string_view key, absl::string_view value) {
  PutBody body;
  body.condition = static_cast<uint8_t>(WireCondition::kVersionIs);
  body.condition_version = 0xC1;
  body.key_length = static_cast<uint16_t>(key.size());
  body.value_length = value.size();
  body.ttl_ns = 0xC4;
  return body;
}

PutBody RendezvousPut(absl::string_view key) {
  PutBody body;
  body.condition = static_cast<uint8_t>(WireCondition::kAbsent);
  body.rendezvous = 1;
  body.key_length = static_cast<uint16_t>(key.size());
  body.value_length = 0x10000;
  body.source = {0x7F0000003000, 0x10000, 0xC2, 0};
  body.value_hash = 0xC3;
  body.ttl_ns = 0xC5;
  return body;
}

DeleteBody AnyDelete() {
  DeleteBody body;
  body.condition = static_cast<uint8_t>(WireCondition::kVersionIs);
  body.key_length = 3;
  body.condition_version = 0xD1;
  return body;
}

GetBody AnyGet() {
  GetBody body;
  body.key_length = 3;
  return body;
}

IncrementBody AnyIncrement() {
  IncrementBody body;
  body.condition = static_cast<uint8_t>(WireCondition::kVersionIs);
  body.key_length = 3;
  body.by = -2;
  body.condition_version = 0xD2;
  return body;
}

AppendBody AnyAppend() {
  AppendBody body;
  body.condition = static_cast<uint8_t>(WireCondition::kVersionIs);
  body.key_length = 3;
  body.value_length = 5;
  body.condition_version = 0xD3;
  return body;
}

FlushBody AnyFlush() {
  FlushBody body;
  body.cursor = 0xD4;
  body.version_bound = 0xD5;
  return body;
}

ExpireBody AnyExpire() {
  ExpireBody body;
  body.condition = static_cast<uint8_t>(WireCondition::kVersionIs);
  body.key_length = 3;
  body.ttl_ns = 0xD6;
  body.condition_version = 0xD7;
  return body;
}

TouchBody AnyTouch() {
  TouchBody body;
  body.key_length = 3;
  return body;
}

HintsBody AnyHints() {
  HintsBody body;
  body.count = 2;
  return body;
}

ReportBody AnyReport() {
  ReportBody body;
  body.read_bytes = 0xF1;
  body.latency_ns = 0xF2;
  body.hits = 0xF3;
  body.misses = 0xF4;
  body.failures = 0xF5;
  body.reads = 0xF6;
  body.torn = 0xF7;
  body.rpc_gets = 0xF8;
  for (uint32_t i = 0; i < kLatencyBuckets; ++i) body.latencies[i] = i + 1;
  return body;
}

ReplyBody AnyReply() {
  ReplyBody body;
  body.version = 0xE1;
  body.slot = 0xE2;
  body.data_length = 5;
  body.value_length = 5;
  body.server_time = 0xE3;
  body.expiry = 0xE4;
  return body;
}

namespace {

// The reason for which a write was refused.
ReplyBody AnyRefusal() {
  ReplyBody body;
  body.status = static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition);
  body.version = 0xE1;
  body.data_length = 3;
  body.reason = WireNumberOf(Reason::kWrongVersion);
  return body;
}

}  // namespace

// --- Frames --------------------------------------------------------------------------------------

std::string HelloFrame(const HelloBody& body) {
  return Join({Message<HelloBody>(Opcode::kHello, 0, 0, body, 0).bytes()});
}

std::string ChallengeFrame(const ChallengeBody& body) {
  return Join({Message<ChallengeBody>(Opcode::kChallenge, 0, 0, body, 0).bytes()});
}

std::string ResponseFrame(const ResponseBody& body) {
  return Join({Message<ResponseBody>(Opcode::kResponse, 0, 0, body, 0).bytes()});
}

std::string RefusedFrame(const RefusedBody& body) {
  return Join({Message<RefusedBody>(Opcode::kRefused, 0, 0, body, 0).bytes()});
}

std::string WelcomeFrame(const WelcomeBody& body) {
  return Join({Message<WelcomeBody>(Opcode::kWelcome, kSession, 0, body, 0).bytes()});
}

std::string ElsewhereFrame(absl::string_view servers) {
  ElsewhereBody body;
  body.servers_length = static_cast<uint32_t>(servers.size());
  for (size_t i = 0; i < kMacBytes; ++i) body.proof[i] = static_cast<uint8_t>(0xC0 + i);
  const Message<ElsewhereBody> message(Opcode::kDisconnectNotice, kSession, 0, body,
                                       servers.size());
  return Join({message.bytes(), AsBytes(servers)});
}

std::string PutFrame(const PutBody& body, absl::string_view payload) {
  return RequestFrame(Opcode::kPut, body, payload);
}

std::string DeleteFrame(const DeleteBody& body, absl::string_view payload) {
  return RequestFrame(Opcode::kDelete, body, payload);
}

std::string GetFrame(const GetBody& body, absl::string_view payload) {
  return RequestFrame(Opcode::kGet, body, payload);
}

std::string IncrementFrame(const IncrementBody& body, absl::string_view payload) {
  return RequestFrame(Opcode::kIncrement, body, payload);
}

std::string AppendFrame(const AppendBody& body, absl::string_view payload) {
  return RequestFrame(Opcode::kAppend, body, payload);
}

std::string FlushFrame(const FlushBody& body) { return RequestFrame(Opcode::kFlush, body, ""); }

std::string ExpireFrame(const ExpireBody& body, absl::string_view payload) {
  return RequestFrame(Opcode::kExpire, body, payload);
}

std::string TouchFrame(const TouchBody& body, absl::string_view payload) {
  return RequestFrame(Opcode::kTouch, body, payload);
}

std::string HintsFrame(const HintsBody& body, const std::vector<uint64_t>& words) {
  const FrameBytes payload{reinterpret_cast<const std::byte*>(words.data()),
                           words.size() * sizeof(uint64_t)};
  const Message<HintsBody> hints(Opcode::kHints, kSession, 0, body, payload.size());
  return Join({hints.bytes(), payload});
}

std::string ReportFrame(const ReportBody& body) {
  return Join({Message<ReportBody>(Opcode::kReport, kSession, 0, body, 0).bytes()});
}

std::string ReplyFrame(const ReplyBody& body, absl::string_view payload) {
  return RequestFrame(Opcode::kReply, body, payload);
}

std::string EmptyFrame(Opcode opcode, uint64_t sequence) {
  return Join({EmptyMessage(opcode, kSession, sequence).bytes()});
}

std::string BatchFrame(const std::vector<std::string>& frames) {
  std::string batch = EmptyFrame(Opcode::kBatch, 0);
  for (const std::string& frame : frames) batch += frame;
  return WithLength(batch);
}

// --- Parsing -------------------------------------------------------------------------------------

namespace {

// Touches all bytes that must lie within the frame.
void Touch(absl::string_view key) { const std::string copy(key); }
void Touch(FrameBytes bytes) { const std::vector<std::byte> copy(bytes.begin(), bytes.end()); }

template <typename Body>
absl::Status ParseKeyed(FrameBytes frame) {
  const absl::StatusOr<RequestParts<Body>> request = ParseRequest<Body>(frame);
  if (request.ok()) Touch(request->key), Touch(request->value);
  return request.status();
}

absl::Status ParseFrame(FrameBytes frame);

absl::Status ParseEachOf(FrameBytes frame) {
  std::vector<FrameBytes> frames;
  absl::Status status = ParseBatch(frame, frames);
  for (size_t i = 0; i < frames.size() && status.ok(); ++i) status = ParseFrame(frames[i]);
  return status;
}

absl::Status ParseFrame(FrameBytes frame) {
  const absl::StatusOr<FrameHeader> header = ParseHeader(frame);
  if (!header.ok()) return header.status();
  switch (static_cast<Opcode>(header->opcode)) {
    case Opcode::kHello:
      return ParseHello(frame).status();
    case Opcode::kChallenge:
      return ParseChallenge(frame).status();
    case Opcode::kResponse:
      return ParseResponse(frame).status();
    case Opcode::kRefused:
      return ParseRefused(frame).status();
    case Opcode::kWelcome:
      return ParseWelcome(frame).status();
    case Opcode::kPut:
      return ParseKeyed<PutBody>(frame);
    case Opcode::kDelete:
      return ParseKeyed<DeleteBody>(frame);
    case Opcode::kGet:
      return ParseKeyed<GetBody>(frame);
    case Opcode::kIncrement:
      return ParseKeyed<IncrementBody>(frame);
    case Opcode::kAppend:
      return ParseKeyed<AppendBody>(frame);
    case Opcode::kFlush:
      return ParseFlush(frame).status();
    case Opcode::kExpire:
      return ParseKeyed<ExpireBody>(frame);
    case Opcode::kTouch:
      return ParseKeyed<TouchBody>(frame);
    case Opcode::kHints: {
      const absl::StatusOr<HintsMessage> hints = ParseHints(frame);
      if (hints.ok()) Touch(hints->words);
      return hints.status();
    }
    case Opcode::kReport:
      return ParseReport(frame).status();
    case Opcode::kBatch:
      return ParseEachOf(frame);
    case Opcode::kReply: {
      const absl::StatusOr<Reply> reply = ParseReply(frame);
      if (reply.ok()) Touch(reply->data);
      return reply.status();
    }
    case Opcode::kDisconnectNotice: {
      const absl::StatusOr<Elsewhere> elsewhere = ParseElsewhere(frame);
      if (elsewhere.ok()) Touch(AsBytes(elsewhere->servers));
      return elsewhere.status();
    }
    case Opcode::kPing:
    case Opcode::kStats:
    case Opcode::kServers:
      return ParseEmpty(frame);
  }
  ADD_FAILURE() << "ParseHeader let opcode " << int{header->opcode} << " through";
  return absl::InternalError("opcode");
}

}  // namespace

absl::Status ParseAny(absl::string_view text) {
  // A copy of the exact length on the heap, so that AddressSanitizer detects any access beyond it.
  const std::vector<std::byte> copy(AsBytes(text).begin(), AsBytes(text).end());
  return ParseFrame(FrameBytes(copy));
}

// The header {magic, opcode, flags, length, session, sequence}, then the body field by field.
std::vector<Named> EveryMessage() {
  return {
      {"Hello", HelloFrame(),
       "4f56 01 00 50000000 0000000000000000 0000000000000000"
       "a100000000000000 a200000000000000"
       "00100000007f0000 0800000000000000 a3000000 00000000 a400000000000000"
       "05000000 08000000"},
      {"Welcome", WelcomeFrame(),
       "4f56 02 00 90000000 8877665544332211 0000000000000000"
       "b100000000000000 00200000007f0000 0000002000000000 b2000000 00000000"
       "1e000000 01000000 0000100000000000 b01f0000 04000000"
       "b300000000000000 01000000 0100 0100 b400000000000000"
       "10000000 09000000"
       "c0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedf"},
      {"Put", PutFrame(EagerPut("key", "value"), "keyvalue"),
       "4f56 10 00 60000000 8877665544332211 0807060504030201"
       "02 00 0300 00000000 0500000000000000 c100000000000000"
       "0000000000000000 0000000000000000 00000000 00000000 0000000000000000"
       "c400000000000000"
       "6b6579 76616c7565"},
      {"Put by rendezvous", PutFrame(RendezvousPut("key"), "key"),
       "4f56 10 00 5b000000 8877665544332211 0807060504030201"
       "01 01 0300 00000000 0000010000000000 0000000000000000"
       "00300000007f0000 0000010000000000 c2000000 00000000 c300000000000000"
       "c500000000000000"
       "6b6579"},
      {"Delete", DeleteFrame(AnyDelete(), "key"),
       "4f56 11 00 2b000000 8877665544332211 0807060504030201"
       "02 00 0300 00000000 d100000000000000 6b6579"},
      {"Get", GetFrame(AnyGet(), "key"),
       "4f56 12 00 23000000 8877665544332211 0807060504030201"
       "0300 01 00 00000000 6b6579"},
      {"Ping", EmptyFrame(Opcode::kPing, kSequence),
       "4f56 13 00 18000000 8877665544332211 0807060504030201"},
      {"Stats", EmptyFrame(Opcode::kStats, kSequence),
       "4f56 14 00 18000000 8877665544332211 0807060504030201"},
      {"Servers", EmptyFrame(Opcode::kServers, kSequence),
       "4f56 1a 00 18000000 8877665544332211 0807060504030201"},
      {"DisconnectNotice", EmptyFrame(Opcode::kDisconnectNotice, 0),
       "4f56 05 00 18000000 8877665544332211 0000000000000000"},
      {"Reply", ReplyFrame(AnyReply(), "value"),
       "4f56 40 00 55000000 8877665544332211 0807060504030201"
       "00000000 05000000 e100000000000000 e200000000000000 0500000000000000 00000000 00000000"
       "e300000000000000 e400000000000000"
       "76616c7565"},
      {"Increment", IncrementFrame(AnyIncrement(), "key"),
       "4f56 15 00 33000000 8877665544332211 0807060504030201"
       "02 00 0300 00000000 feffffffffffffff d200000000000000 6b6579"},
      {"Append", AppendFrame(AnyAppend(), "keyvalue"),
       "4f56 16 00 38000000 8877665544332211 0807060504030201"
       "02 00 0300 00000000 0500000000000000 d300000000000000 6b6579 76616c7565"},
      {"Flush", FlushFrame(AnyFlush()),
       "4f56 17 00 28000000 8877665544332211 0807060504030201"
       "d400000000000000 d500000000000000"},
      {"Reply that refuses", ReplyFrame(AnyRefusal(), "why"),
       "4f56 40 00 53000000 8877665544332211 0807060504030201"
       "09000000 03000000 e100000000000000 0000000000000000 0000000000000000 00000000 02000000"
       "0000000000000000 0000000000000000"
       "776879"},
      {"Challenge", ChallengeFrame(),
       "4f56 03 00 38000000 0000000000000000 0000000000000000"
       "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"},
      {"Response", ResponseFrame(),
       "4f56 04 00 58000000 0000000000000000 0000000000000000"
       "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f"
       "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"},
      {"Refused", RefusedFrame(),
       "4f56 06 00 20000000 0000000000000000 0000000000000000 0f000000 0300 0400"},
      {"Expire", ExpireFrame(AnyExpire(), "key"),
       "4f56 18 00 33000000 8877665544332211 0807060504030201"
       "02 00 0300 00000000 d600000000000000 d700000000000000 6b6579"},
      {"Touch", TouchFrame(AnyTouch(), "key"),
       "4f56 19 00 23000000 8877665544332211 0807060504030201"
       "0300 0000 00000000 6b6579"},
      {"Hints", HintsFrame(AnyHints(), {0xD8, 0xD9}),
       "4f56 21 00 30000000 8877665544332211 0000000000000000"
       "02000000 00000000 d800000000000000 d900000000000000"},
      {"Report", ReportFrame(AnyReport()),
       "4f56 22 00 a0000000 8877665544332211 0000000000000000"
       "f100000000000000 f200000000000000 f3000000 f4000000 f5000000 f6000000 f7000000 f8000000"
       "0100000002000000030000000400000005000000060000000700000008000000"
       "090000000a0000000b0000000c0000000d0000000e0000000f00000010000000"
       "1100000012000000130000001400000015000000160000001700000018000000"},
      {"Batch", BatchFrame({GetFrame(AnyGet(), "key"), FlushFrame(AnyFlush())}),
       "4f56 20 00 63000000 8877665544332211 0000000000000000"
       "4f56 12 00 23000000 8877665544332211 0807060504030201"
       "0300 01 00 00000000 6b6579"
       "4f56 17 00 28000000 8877665544332211 0807060504030201"
       "d400000000000000 d500000000000000"},
      {"DisconnectNotice with servers", ElsewhereFrame("rdma://"),
       "4f56 05 00 47000000 8877665544332211 0000000000000000"
       "07000000 00000000"
       "c0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedf"
       "72646d613a2f2f"},
  };
}

}  // namespace osprey::rdma
