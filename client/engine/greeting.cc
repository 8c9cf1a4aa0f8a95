#include "client/engine/greeting.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/common/errors.h"
#include "index/layout/layout.h"
#include "index/layout/partitions.h"
#include "rdma/errors.h"

namespace osprey::client {
namespace {

// The least size of a partition: a header, one directory page and one segment.
constexpr uint64_t kPartitionBytesMin =
    index::kDirectoryOffset + index::kDirectoryPageBytes + index::kUnitBytes;

}  // namespace

absl::Status BadServer(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the server does not keep to the protocol: ", what));
}

absl::Status Greeting::SayHello(rdma::ConnectionId id, absl::string_view uri,
                                const rdma::ConnectionLimits& limits, absl::Time now) {
  id_ = id;
  uri_ = std::string(uri);
  frame_bytes_max_ = limits.frame_bytes_max;
  terms_.asked_at = now;
  if (frame_bytes_max_ < kPutFixedBytes + rdma::kKeyBytesMax) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the server takes frames of ", frame_bytes_max_, " bytes at most; the longest key needs ",
        kPutFixedBytes + rdma::kKeyBytesMax));
  }
  // A server that has not proved yet that it has the key must not READ anything.
  absl::StatusOr<rdma::RemoteMemory> liveness = options_.key == nullptr
                                                    ? transport_.Expose(id_, liveness_)
                                                    : transport_.Announce(id_, liveness_);
  if (!liveness.ok()) return liveness.status();
  hello_ = rdma::HelloBody();
  hello_.resume_session = session_.id();
  hello_.resume_incarnation = session_.incarnation();
  hello_.resume_data_id = session_.data_id();
  hello_.shard = options_.shard;
  hello_.shards = shards();
  hello_.liveness.address = liveness->address;
  hello_.liveness.length = liveness->length;
  hello_.liveness.key = liveness->key;
  nonces_.reset();
  elsewhere_.reset();
  const rdma::Message<rdma::HelloBody> hello(rdma::Opcode::kHello, 0, 0, hello_, 0);
  return transport_.Send(id_, {hello.bytes()});
}

absl::StatusOr<bool> Greeting::Take(rdma::Bytes frame) {
  absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  if (!header.ok()) return BadServer(header.status().message());
  absl::Status status;
  switch (static_cast<rdma::Opcode>(header->opcode)) {
    case rdma::Opcode::kChallenge:
      status = TakeChallenge(frame);
      if (!status.ok()) return status;
      return false;
    case rdma::Opcode::kWelcome:
      status = TakeWelcome(*header, frame);
      if (!status.ok()) return status;
      return true;
    case rdma::Opcode::kRefused:
      return TakeRefused(frame);
    case rdma::Opcode::kDisconnectNotice:
      return TakeElsewhere(*header, frame);
    default:
      return BadServer(absl::StrCat("opcode ", header->opcode, " instead of Welcome"));
  }
}

absl::Status Greeting::TakeChallenge(rdma::Bytes frame) {
  absl::StatusOr<rdma::ChallengeBody> challenge = rdma::ParseChallenge(frame);
  if (!challenge.ok()) return BadServer(challenge.status().message());
  if (nonces_.has_value()) return BadServer("it challenges twice");
  if (options_.key == nullptr) return AuthenticationRequiredError(uri_);
  nonces_.emplace();
  nonces_->client = options_.nonce();
  std::memcpy(nonces_->server.data(), challenge->server_nonce, nonces_->server.size());
  const rdma::Proof proof = rdma::ClientProof(*options_.key, *nonces_, rdma::BodyBytes(hello_));
  rdma::ResponseBody body;
  std::memcpy(body.client_nonce, nonces_->client.data(), nonces_->client.size());
  std::memcpy(body.mac, proof.data(), proof.size());
  const rdma::Message<rdma::ResponseBody> response(rdma::Opcode::kResponse, 0, 0, body, 0);
  return transport_.Send(id_, {response.bytes()});
}

absl::Status Greeting::TakeRefused(rdma::Bytes frame) const {
  absl::StatusOr<rdma::RefusedBody> refused = rdma::ParseRefused(frame);
  if (!refused.ok()) return BadServer(refused.status().message());
  switch (ReasonOfWire(refused->reason)) {
    case Reason::kAuthenticationFailed:
      return AuthenticationFailedError(uri_);
    case Reason::kAuthenticationRequired:
      return AuthenticationRequiredError(uri_);
    case Reason::kWrongShard:
      return rdma::WrongShardError(uri_, options_.shard, shards(), refused->shard, refused->shards);
    default:
      return BadServer(absl::StrCat("it refuses us for the reason ", refused->reason));
  }
}

// The error says why this server does not serve the client.
absl::Status Greeting::TakeElsewhere(const rdma::FrameHeader& header, rdma::Bytes frame) {
  absl::StatusOr<rdma::Elsewhere> told = rdma::ParseElsewhere(frame);
  if (!told.ok()) return BadServer(told.status().message());
  if (told->servers.empty()) return rdma::ShuttingDownError(uri_);
  if (options_.key != nullptr) {
    if (!nonces_.has_value()) return ServerHasNoKeyError(uri_);
    rdma::Proof claimed;
    std::memcpy(claimed.data(), told->body.proof, claimed.size());
    const rdma::Proof right =
        rdma::ServersProof(*options_.key, *nonces_, header.session, told->servers);
    if (!rdma::SameProof(claimed, right)) return ServerUnprovenError(uri_);
  }
  elsewhere_ = ClusterServers{header.session, std::string(told->servers)};
  return rdma::NotServingError(uri_);
}

absl::Status Greeting::CheckProof(const rdma::FrameHeader& header, rdma::WelcomeBody body) const {
  if (options_.key == nullptr) return absl::OkStatus();
  if (!nonces_.has_value()) return ServerHasNoKeyError(uri_);
  rdma::Proof claimed;
  std::memcpy(claimed.data(), body.proof, claimed.size());
  std::memset(body.proof, 0, sizeof(body.proof));
  const rdma::Proof right =
      rdma::ServerProof(*options_.key, *nonces_, header.session, rdma::BodyBytes(body));
  return rdma::SameProof(claimed, right) ? absl::OkStatus() : ServerUnprovenError(uri_);
}

absl::Status Greeting::TakeWelcome(const rdma::FrameHeader& header, rdma::Bytes frame) {
  absl::StatusOr<rdma::WelcomeBody> body = rdma::ParseWelcome(frame);
  if (!body.ok()) return BadServer(body.status().message());
  // The proof is checked before any other field is used.
  if (absl::Status status = CheckProof(header, *body); !status.ok()) return status;
  // Exposes the announced memory, which the server READs from now on.
  if (options_.key != nullptr) {
    absl::StatusOr<rdma::RemoteMemory> liveness = transport_.Expose(id_, liveness_);
    if (!liveness.ok()) return liveness.status();
  }
  return CheckTerms(header, *body);
}

absl::Status Greeting::CheckTerms(const rdma::FrameHeader& header, const rdma::WelcomeBody& body) {
  if (header.session == 0) return BadServer("Welcome names no session");
  if (body.shard != options_.shard || (shards() != 0 && body.shards != shards()))
    return rdma::WrongShardError(uri_, options_.shard, shards(), body.shard, body.shards);
  if (body.incarnation == 0) return BadServer("Welcome names no incarnation");
  if (!index::IsPartitionCount(body.partitions))
    return BadServer(absl::StrCat(body.partitions, " partitions"));
  const uint64_t partition_bytes =
      index::SpanOfPartition(body.region.length, body.partitions, 0).bytes;
  if (partition_bytes < kPartitionBytesMin || body.region.length > index::kRegionBytesMax) {
    return BadServer(absl::StrCat("a region of ", body.region.length, " bytes with ",
                                  body.partitions, " partitions"));
  }
  if (body.requests_max == 0) return BadServer("no request is allowed");
  if (body.value_bytes_max == 0 || body.value_bytes_max > index::kValueBytesMax) {
    return BadServer(absl::StrCat("values of ", body.value_bytes_max, " bytes"));
  }
  const bool may_resume = header.session == session_.id() && body.data_id == session_.data_id() &&
                          (body.data_id != 0 || body.incarnation == session_.incarnation());
  if (body.resumed != 0 && !may_resume)
    return BadServer("it resumes a session that was never ours");
  terms_.session = header.session;
  terms_.incarnation = body.incarnation;
  terms_.data_id = body.data_id;
  terms_.resumed = body.resumed != 0;
  terms_.partitions = body.partitions;
  terms_.shards = body.shards;
  terms_.wants_hints = body.wants_hints != 0;
  terms_.wants_reports = body.wants_reports != 0;
  terms_.in_cluster = body.in_cluster != 0;
  terms_.region = {body.region.address, body.region.length, body.region.key};
  terms_.requests_max = std::min(body.requests_max, kRequestsMax);
  terms_.value_bytes_max = body.value_bytes_max;
  terms_.server_time = absl::FromUnixNanos(static_cast<int64_t>(body.server_time));
  terms_.eager_bytes_max =
      std::min<uint64_t>(body.eager_bytes_max, frame_bytes_max_ - kPutFixedBytes);
  return absl::OkStatus();
}

}  // namespace osprey::client
