#include "rdma/verbs/frame.h"

#include <bit>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace osprey::rdma {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the struct goes out as it lies in memory");

absl::Status Invalid(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed message from the peer: ", what));
}

}  // namespace

absl::StatusOr<FrameEnvelope> ParseEnvelope(Bytes received, uint32_t frame_bytes_max) {
  FrameEnvelope envelope;
  if (received.size() < sizeof(envelope)) {
    return Invalid(absl::StrCat(received.size(), " bytes, less than an envelope"));
  }
  std::memcpy(&envelope, received.data(), sizeof(envelope));
  if (envelope.reserved != 0) return Invalid("a reserved byte of the envelope is not 0");
  if (envelope.length != received.size() - sizeof(envelope)) {
    return Invalid(absl::StrCat("the envelope announces ", envelope.length, " bytes and ",
                                received.size() - sizeof(envelope), " came"));
  }
  switch (envelope.flags) {
    case 0:
      if (envelope.length == 0) return Invalid("an empty frame");
      if (envelope.length > frame_bytes_max) {
        return Invalid(
            absl::StrCat("a frame of ", envelope.length, " bytes, above ", frame_bytes_max));
      }
      return envelope;
    case kEnvelopeCreditsOnly:
      if (envelope.credits == 0) return Invalid("a credits-only message without credits");
      break;
    case kEnvelopeDisconnectNotice:
      break;
    default:
      return Invalid(absl::StrCat("unknown envelope flags ", envelope.flags));
  }
  if (envelope.length != 0) return Invalid("a control message with a frame");
  return envelope;
}

}  // namespace osprey::rdma
