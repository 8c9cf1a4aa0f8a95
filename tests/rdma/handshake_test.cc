#include "rdma/handshake.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "rdma/errors.h"

namespace osprey::rdma {
namespace {

// The fixed wire format of a handshake: both ends may be of different builds.
constexpr std::array<unsigned char, 24> kGolden = {
    'O',  'S',  'P', 'R',  // magic
    10,   0,               // version
    24,   0,               // length
    0,    0,               // reason
    32,   0,               // receive credits
    0x00, 0x20, 0,   0,    // longest frame: 8192
    128,  0,    0,   0,    // READs in flight
    0xAF, 0,    0,   1,    // affinity
};

ConnectData Offer() {
  ConnectData data;
  data.receive_credits = 32;
  data.frame_bytes_max = 8192;
  data.reads_in_flight_max = 128;
  data.affinity = 0x010000AF;
  return data;
}

Bytes BytesOf(const ConnectData& data) {
  return {reinterpret_cast<const std::byte*>(&data), sizeof(data)};
}

TEST(HandshakeTest, ConnectDataHasItsGoldenBytes) {
  const ConnectData data = Offer();
  EXPECT_EQ(std::memcmp(&data, kGolden.data(), sizeof(data)), 0);
}

TEST(HandshakeTest, GoldenBytesParseToTheirFields) {
  const Bytes bytes(reinterpret_cast<const std::byte*>(kGolden.data()), kGolden.size());
  const absl::StatusOr<ConnectData> data = ParseConnectData(bytes);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->receive_credits, 32);
  EXPECT_EQ(data->frame_bytes_max, 8192u);
  EXPECT_EQ(data->reads_in_flight_max, 128u);
  EXPECT_EQ(data->reason, 0);
}

TEST(HandshakeTest, PaddingAndWhatALaterSideAppendsAreIgnored) {
  std::array<std::byte, 56> padded{};  // as rdma_cm delivers it
  std::memcpy(padded.data(), kGolden.data(), kGolden.size());
  EXPECT_TRUE(ParseConnectData(Bytes(padded)).ok());
  padded[6] = std::byte{40};
  padded[30] = std::byte{7};
  EXPECT_TRUE(ParseConnectData(Bytes(padded)).ok());
}

TEST(HandshakeTest, EveryTruncationIsRefused) {
  const ConnectData data = Offer();
  for (size_t length = 0; length < sizeof(data); ++length) {
    const absl::StatusOr<ConnectData> parsed = ParseConnectData(BytesOf(data).subspan(0, length));
    EXPECT_EQ(ReasonOf(parsed.status()), Reason::kNotOsprey) << length;
  }
}

TEST(HandshakeTest, ForeignProtocolDiffersFromAnotherVersion) {
  ConnectData stranger = Offer();
  stranger.magic ^= 1;
  stranger.version = kProtocolVersion + 1;
  EXPECT_EQ(ReasonOf(ParseConnectData(BytesOf(stranger)).status()), Reason::kNotOsprey);

  ConnectData later = Offer();
  later.version = kProtocolVersion + 1;
  later.length = 8;  // with another version, no byte after the version is read
  const absl::Status status = ParseConnectData(BytesOf(later)).status();
  EXPECT_EQ(ReasonOf(status), Reason::kVersionMismatch);
  EXPECT_NE(status.message().find("version 10 and its peer version 11"), absl::string_view::npos)
      << status;
  EXPECT_TRUE(ParseConnectData(BytesOf(Offer()), kProtocolVersion).ok());
  EXPECT_EQ(ReasonOf(ParseConnectData(BytesOf(Offer()), kProtocolVersion + 1).status()),
            Reason::kVersionMismatch);
}

TEST(HandshakeTest, TheVersionBeforeIsServedAndNoneBeforeThat) {
  ConnectData data = Offer();
  const auto parsed = [&](uint16_t version) {
    data.version = version;
    return ParseConnectData(BytesOf(data), kProtocolVersion, OldestServed(kProtocolVersion));
  };
  EXPECT_TRUE(parsed(kProtocolVersion).ok());
  ASSERT_TRUE(parsed(kProtocolVersion - 1).ok());
  EXPECT_EQ(parsed(kProtocolVersion - 1)->version, kProtocolVersion - 1);
  EXPECT_EQ(ReasonOf(parsed(kProtocolVersion - 2).status()), Reason::kVersionMismatch);
  EXPECT_EQ(ReasonOf(parsed(kProtocolVersion + 1).status()), Reason::kVersionMismatch);
}

TEST(HandshakeTest, AnAnswerHasTheVersionThatWasOffered) {
  ConnectData data = Offer();
  const auto parsed = [&](uint16_t version, RejectReason reason, uint16_t offered) {
    data.version = version;
    data.reason = static_cast<uint16_t>(reason);
    return ParseAnswer(BytesOf(data), offered, kProtocolVersion);
  };
  constexpr uint16_t kBefore = kProtocolVersion - 1;
  EXPECT_TRUE(parsed(kProtocolVersion, RejectReason::kNone, kProtocolVersion).ok());
  EXPECT_TRUE(parsed(kBefore, RejectReason::kNone, kBefore).ok());
  EXPECT_EQ(ReasonOf(parsed(kBefore, RejectReason::kNone, kProtocolVersion).status()),
            Reason::kVersionMismatch);
  EXPECT_EQ(ReasonOf(parsed(kBefore, RejectReason::kVersionMismatch, kProtocolVersion).status()),
            Reason::kVersionMismatch);
  // Its server has not read the request.
  EXPECT_TRUE(parsed(kBefore, RejectReason::kTooManyConnections, kProtocolVersion).ok());
}

TEST(HandshakeTest, TheVersionBeforeIsOfferedOnceToEachServer) {
  VersionOffer offer;
  EXPECT_EQ(offer.version(), 0);
  absl::Status why = VersionMismatchError(kProtocolVersion, 3);
  EXPECT_TRUE(offer.Repeats(why));
  EXPECT_EQ(offer.version(), kProtocolVersion - 1);
  why = VersionMismatchError(kProtocolVersion - 1, 3);
  EXPECT_FALSE(offer.Repeats(why));
  EXPECT_EQ(why, VersionMismatchError(kProtocolVersion, 3)) << "this program's version";
  EXPECT_EQ(offer.version(), 0);
  why = RefusedError("shm:///x");
  EXPECT_FALSE(offer.Repeats(why));
  EXPECT_EQ(why, RefusedError("shm:///x"));
}

TEST(HandshakeTest, ValuesThatCannotBeAreRefused) {
  ConnectData longer = Offer();
  longer.length = 25;
  ConnectData shorter = Offer();
  shorter.length = 23;
  ConnectData one_credit = Offer();
  one_credit.receive_credits = 1;
  ConnectData no_frame = Offer();
  no_frame.frame_bytes_max = 0;
  for (const ConnectData& data : {longer, shorter, one_credit, no_frame}) {
    EXPECT_EQ(ReasonOf(ParseConnectData(BytesOf(data)).status()), Reason::kNotOsprey);
  }
}

TEST(HandshakeTest, ARejectionNeedsNoLimitsAndKeepsItsReason) {
  ConnectData rejection;
  rejection.reason = static_cast<uint16_t>(RejectReason::kTooManyConnections);
  const absl::StatusOr<ConnectData> parsed = ParseConnectData(BytesOf(rejection));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(ReasonOf(RejectionError(*parsed, "shm:///x")), Reason::kRefused);
  rejection.reason = static_cast<uint16_t>(RejectReason::kShuttingDown);
  EXPECT_EQ(ReasonOf(RejectionError(rejection, "shm:///x")), Reason::kShuttingDown);
  rejection.reason = static_cast<uint16_t>(RejectReason::kNotServing);
  EXPECT_EQ(ReasonOf(RejectionError(rejection, "shm:///x")), Reason::kNotServing);
  for (const RejectReason reason :
       {RejectReason::kTooManyFromSource, RejectReason::kTooManyUnauthenticated,
        RejectReason::kSourceHoldsDescriptors}) {
    rejection.reason = static_cast<uint16_t>(reason);
    EXPECT_EQ(ReasonOf(RejectionError(rejection, "shm:///x")), Reason::kRefused);
  }
  rejection.reason = 77;
  EXPECT_EQ(ReasonOf(RejectionError(rejection, "shm:///x")), Reason::kNotOsprey);
}

}  // namespace
}  // namespace osprey::rdma
