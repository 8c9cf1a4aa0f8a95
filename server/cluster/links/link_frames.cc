#include "server/cluster/links/link_frames.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "absl/strings/str_cat.h"
#include "server/cluster/configuration/cluster_keys.h"

namespace osprey {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the structs go out as they lie in memory");
static_assert(kServerIdBytesMax < sizeof(LinkServerName));
static_assert(kLinkFrameBytesMin >= sizeof(LinkHeader) + sizeof(LinkHelloBody));

absl::Status BadField(absl::string_view field, uint64_t value, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("the field ", field, " of a frame is ", value, "; expected ", expected));
}

// The body of a frame that has nothing else.
template <typename Body>
absl::StatusOr<Body> BodyIn(rdma::Bytes frame) {
  constexpr size_t kBytes = sizeof(LinkHeader) + sizeof(Body);
  if (frame.size() != kBytes) return BadField("length", frame.size(), absl::StrCat(kBytes));
  Body body;
  std::memcpy(&body, frame.data() + sizeof(LinkHeader), sizeof(body));
  return body;
}

// A correct ID, and zeros after it.
bool IsServerName(const LinkServerName& name) {
  return IsServerId(ServerOf(name)) &&
         std::all_of(name.text + ServerOf(name).size(), name.text + sizeof(name.text),
                     [](char c) { return c == 0; });
}

}  // namespace

LinkServerName LinkServerNameOf(absl::string_view server) {
  assert(server.size() <= kServerIdBytesMax);
  LinkServerName name;
  std::memcpy(name.text, server.data(), server.size());
  return name;
}

absl::StatusOr<LinkFrame> ParseLinkHeader(rdma::Bytes frame) {
  LinkHeader header;
  if (frame.size() < sizeof(header)) {
    return BadField("length", frame.size(), absl::StrCat("at least ", sizeof(header)));
  }
  std::memcpy(&header, frame.data(), sizeof(header));
  if (header.magic != kLinkMagic) {
    return BadField("magic", header.magic, absl::StrCat(kLinkMagic, ", of a server's link"));
  }
  if (header.type < static_cast<uint8_t>(LinkFrame::kHello) ||
      header.type > static_cast<uint8_t>(LinkFrame::kPong)) {
    return BadField("type", header.type, "1 to 8");
  }
  for (const uint8_t byte : header.reserved)
    if (byte != 0) return BadField("reserved", byte, "0");
  return static_cast<LinkFrame>(header.type);
}

absl::StatusOr<LinkHelloBody> ParseLinkHello(rdma::Bytes frame) {
  absl::StatusOr<LinkHelloBody> hello = BodyIn<LinkHelloBody>(frame);
  if (!hello.ok()) return hello;
  if (hello->version_min == 0 || hello->version_min > hello->version_max)
    return BadField("version_min", hello->version_min, "1 to version_max");
  if (hello->reserved != 0) return BadField("reserved", hello->reserved, "0");
  if (hello->cluster_id == 0) return BadField("cluster_id", 0, "a number that is not 0");
  if (!IsServerName(hello->server))
    return BadField("server", static_cast<uint8_t>(hello->server.text[0]), "the ID of a server");
  if (hello->incarnation == 0) return BadField("incarnation", 0, "a number that is not 0");
  if (hello->expected_incarnation == 0)
    return BadField("expected_incarnation", 0, "a number that is not 0");
  return hello;
}

absl::StatusOr<LinkChallengeBody> ParseLinkChallenge(rdma::Bytes frame) {
  return BodyIn<LinkChallengeBody>(frame);
}

absl::StatusOr<LinkResponseBody> ParseLinkResponse(rdma::Bytes frame) {
  return BodyIn<LinkResponseBody>(frame);
}

absl::StatusOr<LinkWelcomeBody> ParseLinkWelcome(rdma::Bytes frame) {
  absl::StatusOr<LinkWelcomeBody> welcome = BodyIn<LinkWelcomeBody>(frame);
  if (!welcome.ok()) return welcome;
  if (welcome->version < kLinkVersionMin || welcome->version > kLinkVersionMax) {
    return BadField("version", welcome->version,
                    absl::StrCat(kLinkVersionMin, " to ", kLinkVersionMax));
  }
  if (welcome->reserved0 != 0) return BadField("reserved0", welcome->reserved0, "0");
  if (welcome->reserved1 != 0) return BadField("reserved1", welcome->reserved1, "0");
  if (welcome->incarnation == 0) return BadField("incarnation", 0, "a number that is not 0");
  return welcome;
}

absl::StatusOr<LinkRefusedBody> ParseLinkRefused(rdma::Bytes frame) {
  absl::StatusOr<LinkRefusedBody> refused = BodyIn<LinkRefusedBody>(frame);
  if (!refused.ok()) return refused;
  if (refused->reason == 0) return BadField("reason", 0, "a number that is not 0");
  return refused;
}

absl::Status CheckEmptyLinkFrame(rdma::Bytes frame) {
  if (frame.size() == sizeof(LinkHeader)) return absl::OkStatus();
  return BadField("length", frame.size(), absl::StrCat(sizeof(LinkHeader)));
}

}  // namespace osprey
