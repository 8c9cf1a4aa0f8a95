#include "rdma/handshake.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "rdma/errors.h"

namespace osprey::rdma {

static_assert(std::endian::native == std::endian::little,
              "the struct goes out as it lies in memory");

absl::StatusOr<ConnectData> ParseConnectData(Bytes bytes, uint16_t version, uint16_t oldest) {
  ConnectData data;
  // Magic, version and length stand first in every version. The other fields have our layout only
  // if these match.
  constexpr size_t kPrefixBytes = offsetof(ConnectData, reason);
  if (bytes.size() < kPrefixBytes) {
    return NotOspreyError(absl::StrCat("its connect data has ", bytes.size(), " bytes"));
  }
  std::memcpy(static_cast<void*>(&data), bytes.data(), kPrefixBytes);
  if (data.magic != kHandshakeMagic) {
    return NotOspreyError(absl::StrCat("its connect data begins with 0x", absl::Hex(data.magic)));
  }
  if (data.version > version || data.version < oldest)
    return VersionMismatchError(version, data.version);
  if (data.length < sizeof(ConnectData) || data.length > bytes.size()) {
    return NotOspreyError(
        absl::StrCat("its connect data claims ", data.length, " of ", bytes.size(), " bytes"));
  }
  std::memcpy(&data, bytes.data(), sizeof(data));
  const bool rejection = data.reason != static_cast<uint16_t>(RejectReason::kNone);
  if (!rejection && (data.receive_credits < kReceiveCreditsMin || data.frame_bytes_max == 0)) {
    return NotOspreyError(absl::StrCat("it offers ", data.receive_credits,
                                       " credits for frames of ", data.frame_bytes_max, " bytes"));
  }
  return data;
}

absl::Status RejectionError(const ConnectData& rejection, absl::string_view uri) {
  switch (static_cast<RejectReason>(rejection.reason)) {
    case RejectReason::kTooManyConnections:
      return RefusedError(uri);
    case RejectReason::kTooManyFromSource:
      return SourceRefusedError(uri);
    case RejectReason::kTooManyUnauthenticated:
      return UnauthenticatedRefusedError(uri);
    case RejectReason::kSourceHoldsDescriptors:
      return DescriptorsRefusedError(uri);
    case RejectReason::kShuttingDown:
      return ShuttingDownError(uri);
    case RejectReason::kNotServing:
      return NotServingError(uri);
    case RejectReason::kNone:
    case RejectReason::kVersionMismatch:
      break;
  }
  // Every reason of our version is listed above. A version mismatch shows in the version, not here.
  return NotOspreyError(
      absl::StrCat("it rejects connections for the unknown reason ", rejection.reason));
}

absl::StatusOr<ConnectData> ParseAnswer(Bytes bytes, uint16_t offered, uint16_t newest) {
  absl::StatusOr<ConnectData> data = ParseConnectData(bytes, newest, OldestServed(newest));
  if (!data.ok() || data->version == offered) return data;
  const auto reason = static_cast<RejectReason>(data->reason);
  if (reason == RejectReason::kNone || reason == RejectReason::kVersionMismatch)
    return VersionMismatchError(offered, data->version);
  return data;
}

bool VersionOffer::Repeats(absl::Status& why) {
  const bool is_refusal = ReasonOf(why) == Reason::kVersionMismatch;
  if (is_refusal && version_ == 0) {
    refusal_ = why;
    version_ = OldestServed(kProtocolVersion);
    return true;
  }
  if (is_refusal) why = refusal_;
  version_ = 0;
  return false;
}

}  // namespace osprey::rdma
