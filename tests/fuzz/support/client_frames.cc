#include "tests/fuzz/support/client_frames.h"

#include <xxhash.h>

#include "rdma/handshake.h"
#include "tests/fuzz/support/frame_bytes.h"
#include "tests/support/parse_request.h"

namespace osprey::client {
namespace {

constexpr uint64_t kRegionSizes[] = {48 << 10, 1 << 20, 16 << 20, uint64_t{1} << 30};
constexpr uint32_t kPartitions[] = {1, 1, 2, 4, 64};
constexpr uint64_t kIncarnation = 77;

}  // namespace

using rdma::Opcode;

WriteOptions AnyOptions(fuzz::Input& input, bool put) {
  WriteOptions options;
  options.if_absent = put && input.OneIn(8);
  if (input.OneIn(8)) options.if_version = input.Number();
  if (put && input.OneIn(8))
    options.ttl = absl::Nanoseconds(static_cast<int64_t>(input.Number() >> 1));
  return options;
}

std::string AnyValue(fuzz::Input& input) {
  constexpr size_t kSizes[] = {0, 1, 40, 4000, 8100, 9000, 100 << 10};
  return std::string(kSizes[input.Choice(7)], 'v');
}

fuzz::RegionShape AnyShape(fuzz::Input& input) {
  fuzz::RegionShape shape;
  shape.region_bytes = kRegionSizes[input.Choice(4)];
  shape.partitions = kPartitions[input.Choice(5)];
  if (shape.region_bytes / shape.partitions < kRegionSizes[0]) shape.partitions = 1;
  shape.incarnation = kIncarnation + (input.OneIn(4) ? 1 : 0);
  shape.hash_seed = 5;
  return shape;
}

rdma::ConnectionLimits AnyLimits(fuzz::Input& input) {
  constexpr uint32_t kFrameBytes[] = {8192, 8192, 4184, 4183, 1, 16384};
  constexpr uint32_t kReadBytes[] = {1 << 20, 4096, 64 << 10, 4096 + 64};
  constexpr uint16_t kReads[] = {128, 16, 4, 1};
  constexpr uint16_t kCredits[] = {32, 8, 1, 2};
  rdma::ConnectionLimits limits;
  limits.frame_bytes_max = kFrameBytes[input.Choice(6)];
  limits.read_bytes_max = kReadBytes[input.Choice(4)];
  limits.reads_in_flight_max = kReads[input.Choice(4)];
  limits.read_depth = 16;
  limits.send_credits_max = kCredits[input.Choice(4)];
  limits.version = rdma::kProtocolVersion;
  return limits;
}

void LieInWelcome(fuzz::Input& input, rdma::WelcomeBody& body, uint64_t& session) {
  switch (input.Choice(13)) {
    case 0:
      body.incarnation = input.Number();
      break;
    case 1:
      body.region.length = input.Number();
      break;
    case 2:
      body.region.address = input.Number();
      break;
    case 3:
      body.requests_max = static_cast<uint32_t>(input.Number());
      break;
    case 4:
      body.resumed = input.Byte();
      break;
    case 5:
      body.value_bytes_max = input.Number();
      break;
    case 6:
      body.eager_bytes_max = static_cast<uint32_t>(input.Number());
      break;
    case 7:
      body.partitions = static_cast<uint32_t>(input.Number());
      break;
    case 8:
      session = input.Number();
      break;
    case 9:
      body.data_id = input.Number();
      break;
    case 10:
      body.shards = static_cast<uint32_t>(input.Number());
      break;
    case 11:
      body.shard = static_cast<uint32_t>(input.Number());
      break;
    case 12:
      // The client takes leases on what it READs, and asks for the servers.
      body.in_cluster = 1;
      break;
  }
  // What it lies about must not cost more memory than this process has: a directory may be a
  // thousandth of the region.
  if (body.region.length > uint64_t{1} << 36) body.region.length = uint64_t{1} << 36;
}

std::pair<rdma::ReplyBody, std::string> AnyReply(fuzz::Input& input, fuzz::HostileRegion& region,
                                                 Opcode request) {
  rdma::ReplyBody body;
  std::string data;
  constexpr absl::StatusCode kCodes[] = {
      absl::StatusCode::kOk,          absl::StatusCode::kOk,
      absl::StatusCode::kOk,          absl::StatusCode::kNotFound,
      absl::StatusCode::kUnavailable, absl::StatusCode::kUnknown,
      absl::StatusCode::kInternal,    absl::StatusCode::kFailedPrecondition};
  body.status = static_cast<uint32_t>(kCodes[input.Choice(8)]);
  body.version = input.Number();
  body.slot = input.Flag() ? region.AnySlot() : input.Number();
  if (request == Opcode::kGet) {
    body.value_length = input.Flag() ? input.Number() : input.Byte();
    if (input.Flag()) data = input.Text(200), body.value_length = data.size();
    if (input.OneIn(4)) body.expiry = input.Number();
  } else if (request == Opcode::kIncrement) {
    data = input.Flag() ? "-12" : input.Text(30);
  } else if (input.OneIn(4)) {
    data = input.Text(200);
  }
  if (body.value_length > data.size()) body.lease_ms = input.Byte();
  if (body.status != 0) body.reason = input.Byte() % (kWireReasonMax + 1);
  return {body, data};
}

void MustBeRequest(Opcode opcode, rdma::FrameBytes frame) {
  switch (opcode) {
    case Opcode::kPut:
      OSPREY_MUST(rdma::ParseRequest<rdma::PutBody>(frame).ok(), "the client's Put");
      return;
    case Opcode::kDelete:
      OSPREY_MUST(rdma::ParseRequest<rdma::DeleteBody>(frame).ok(), "the client's Delete");
      return;
    case Opcode::kGet:
      OSPREY_MUST(rdma::ParseRequest<rdma::GetBody>(frame).ok(), "the client's Get");
      return;
    case Opcode::kIncrement:
      OSPREY_MUST(rdma::ParseRequest<rdma::IncrementBody>(frame).ok(), "the client's Increment");
      return;
    case Opcode::kAppend:
      OSPREY_MUST(rdma::ParseRequest<rdma::AppendBody>(frame).ok(), "the client's Append");
      return;
    case Opcode::kFlush:
      OSPREY_MUST(rdma::ParseFlush(frame).ok(), "the client's Flush");
      return;
    case Opcode::kExpire:
      OSPREY_MUST(rdma::ParseRequest<rdma::ExpireBody>(frame).ok(), "the client's Expire");
      return;
    case Opcode::kTouch:
      OSPREY_MUST(rdma::ParseRequest<rdma::TouchBody>(frame).ok(), "the client's Touch");
      return;
    case Opcode::kPing:
    case Opcode::kStats:
    case Opcode::kServers:
      OSPREY_MUST(rdma::ParseEmpty(frame).ok(), "the client's Ping");
      return;
    default:
      OSPREY_MUST(false, "the client sends what only servers send");
  }
}

Scans::Request AnyScan(fuzz::Input& input, const ScanPlace& last) {
  Scans::Request request;
  if (input.OneIn(4)) {
    const absl::StatusOr<ScanPlace> from = ScanPlace::Parse(input.Text(27));
    if (from.ok()) request.from = *from;
  }
  if (input.OneIn(4)) request.from = last;
  if (request.from.at_end()) request.from = ScanPlace();
  if (!input.Flag()) request.prefix = std::string(1, 'a');
  request.limit = 1 + input.UpTo(2000);
  request.values = input.Flag();
  request.count_only = !request.values && input.Flag();
  return request;
}

std::string ChallengeFrame(fuzz::Input& input, rdma::Nonces& nonces) {
  rdma::ChallengeBody body;
  body.server_nonce[0] = input.Byte();
  std::memcpy(nonces.server.data(), body.server_nonce, nonces.server.size());
  nonces.client = {std::byte{7}};
  return fuzz::Joined(
      {rdma::Message<rdma::ChallengeBody>(Opcode::kChallenge, 0, 0, body, 0).bytes()});
}

void Prove(fuzz::Input& input, const rdma::AuthKey::Pointer& key, const rdma::Nonces& nonces,
           uint64_t session, rdma::WelcomeBody& body) {
  if (key == nullptr || input.OneIn(16)) return;
  const rdma::Proof proof = rdma::ServerProof(*key, nonces, session, rdma::BodyBytes(body));
  std::memcpy(body.proof, proof.data(), proof.size());
}

std::string RefusedFrame(uint8_t reason) {
  rdma::RefusedBody body;
  body.reason = reason;
  return fuzz::Joined({rdma::Message<rdma::RefusedBody>(Opcode::kRefused, 0, 0, body, 0).bytes()});
}

std::string DisconnectNoticeFrame(uint64_t session) {
  return fuzz::Joined({rdma::EmptyMessage(Opcode::kDisconnectNotice, session, 0).bytes()});
}

std::string ElsewhereFrame(fuzz::Input& input, const rdma::AuthKey::Pointer& key,
                           const rdma::Nonces& nonces) {
  const uint64_t cluster = 1 + input.Byte() % 2;
  std::string servers = input.Text(80);
  if (input.Flag()) servers = "rdma://10.0.0.1:7411\nrdma://10.0.0.2:7411\n";
  rdma::ElsewhereBody body;
  body.servers_length = static_cast<uint32_t>(servers.size());
  if (key != nullptr && !input.OneIn(16)) {
    const rdma::Proof proof = rdma::ServersProof(*key, nonces, cluster, servers);
    std::memcpy(body.proof, proof.data(), proof.size());
  }
  const rdma::Message<rdma::ElsewhereBody> notice(Opcode::kDisconnectNotice, cluster, 0, body,
                                                  servers.size());
  return fuzz::Joined({notice.bytes()}) + servers;
}

void MustStandStill(rdma::FrameBytes frame, const fuzz::HostileTransport& wire) {
  const auto put = rdma::ParseRequest<rdma::PutBody>(frame).value();
  if (put.body.rendezvous == 0) return;
  const rdma::WireMemory& source = put.body.source;
  const std::byte* bytes = wire.Exposed(source.address, source.length, source.key);
  OSPREY_MUST(bytes != nullptr, "a value is not where the client said");
  OSPREY_MUST(XXH3_64bits(bytes, source.length) == put.body.value_hash,
              "a value changed before it was answered");
}

}  // namespace osprey::client
