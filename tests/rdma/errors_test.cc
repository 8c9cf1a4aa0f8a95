#include "rdma/errors.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace osprey::rdma {
namespace {

struct ErrorCase {
  absl::Status status;
  Reason reason;
  absl::StatusCode code;
  std::string thing;  // the thing that the message must name
  std::string fix;    // the command or change that helps
};

std::vector<ErrorCase> Cases() {
  using Code = absl::StatusCode;
  return {
      {NoDeviceError(), Reason::kNoDevice, Code::kFailedPrecondition, "no RDMA device",
       "rdma link add"},
      {NotRdmaAddressError("127.0.0.1", {"10.0.0.7", "fd00::7"}), Reason::kNotRdmaAddress,
       Code::kInvalidArgument, "127.0.0.1 does not belong", "10.0.0.7, fd00::7"},
      {NotRdmaAddressError("1.2.3.4", {}), Reason::kNotRdmaAddress, Code::kInvalidArgument,
       "1.2.3.4", "ip address add"},
      {MemlockTooLowError(4u << 20, 8192), Reason::kMemlockTooLow, Code::kResourceExhausted,
       "8192 bytes", "ulimit -l 4096"},
      {NoListenerError("shm:///x"), Reason::kNoListener, Code::kUnavailable, "shm:///x",
       "start kvserver"},
      {RefusedError("shm:///x"), Reason::kRefused, Code::kResourceExhausted, "shm:///x",
       "raise kvserver --connections-max"},
      {ShuttingDownError("shm:///x"), Reason::kShuttingDown, Code::kUnavailable, "shm:///x",
       "connect again"},
      {NotServingError("shm:///x"), Reason::kNotServing, Code::kUnavailable, "shm:///x",
       "the cluster's other servers"},
      {WrongShardError("shm:///x", 2, 4, 3, 8), Reason::kWrongShard, Code::kInvalidArgument,
       "shard 3 of 8, not shard 2 of 4", "the cluster's shard 0"},
      {WrongShardError("shm:///x", 2, 0, 0, 1), Reason::kWrongShard, Code::kInvalidArgument,
       "shard 0 of 1, not shard 2;", "the cluster's shard 0"},
      {ForkedError(), Reason::kForked, Code::kFailedPrecondition, "forked from one", "spawn"},
      {UnreachableError("rdma://h:1", "no route"), Reason::kUnreachable, Code::kUnavailable,
       "rdma://h:1: no route", "check the address"},
      {VersionMismatchError(1, 2), Reason::kVersionMismatch, Code::kFailedPrecondition, "version 1",
       "install the same release"},
      {NotOspreyError("it said hello"), Reason::kNotOsprey, Code::kInvalidArgument, "it said hello",
       "correct the address"},
      {TimeoutError("connecting", "rdma://h:1"), Reason::kConnectTimeout, Code::kDeadlineExceeded,
       "rdma://h:1 in time while connecting", "allow more time"},
      {PeerGoneError("the peer died"), Reason::kPeerGone, Code::kUnavailable, "the peer died",
       "connect again"},
      {BrokeRulesError("it sent nonsense"), Reason::kPeerGone, Code::kUnavailable,
       "it sent nonsense", "install the same release"},
      {TooManyExposedError(16), Reason::kNone, Code::kResourceExhausted, "takes 16 memories",
       "withdraw another"},
      {AddressInUseError("shm:///x"), Reason::kNone, Code::kAlreadyExists, "shm:///x",
       "stop that one"},
  };
}

TEST(RdmaErrorsTest, ErrorsCarryCodeReasonObjectAndFix) {
  std::set<Reason> seen;
  for (const ErrorCase& c : Cases()) {
    EXPECT_EQ(ReasonOf(c.status), c.reason) << c.status;
    EXPECT_EQ(c.status.code(), c.code) << c.status;
    const std::string message(c.status.message());
    EXPECT_NE(message.find(c.thing), std::string::npos) << message;
    EXPECT_NE(message.find(c.fix), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    seen.insert(c.reason);
  }
  // All of a transport, without those of authentication.
  for (const ReasonRow& row : ReasonRows()) {
    const bool is_of_authentication =
        row.reason >= Reason::kAuthenticationFailed && row.reason <= Reason::kServerUnproven;
    if (row.reason >= Reason::kNoDevice && !is_of_authentication) {
      EXPECT_TRUE(seen.count(row.reason)) << row.text;
    }
  }
}

TEST(RdmaErrorsTest, ErrorsOfOneReasonAreDistinguished) {
  EXPECT_TRUE(BrokeRules(BrokeRulesError("it sent nonsense")));
  EXPECT_FALSE(BrokeRules(PeerGoneError("the peer died")));
  EXPECT_FALSE(BrokeRules(TooManyExposedError(16)));
  EXPECT_TRUE(IsTooManyExposed(TooManyExposedError(16)));
  EXPECT_FALSE(IsTooManyExposed(MemlockTooLowError(1, 1)));
}

TEST(RdmaErrorsTest, EachReasonIsFoundByItsNumbers) {
  for (const ReasonRow& row : ReasonRows()) {
    EXPECT_EQ(WireNumberOf(row.reason), row.wire) << row.c_name;
    if (row.wire != 0) {
      EXPECT_EQ(ReasonOfWire(row.wire), row.reason) << row.c_name;
    }
    EXPECT_EQ(TextOf(row.reason), row.text) << row.c_name;
    if (row.reason == Reason::kNone) continue;
    const absl::Status status = MakeError(row.reason, "why");
    EXPECT_EQ(status.code(), row.code) << row.c_name;
    EXPECT_EQ(ReasonOf(status), row.reason) << row.c_name;
  }
  EXPECT_EQ(ReasonOfWire(0), Reason::kNone);
  EXPECT_EQ(ReasonOfWire(kWireReasonMax + 1), Reason::kNone);
  EXPECT_EQ(ReasonOf(absl::NotFoundError("")), Reason::kAbsent);
  EXPECT_EQ(ReasonOf(absl::AlreadyExistsError("")), Reason::kPresent);
}

TEST(RdmaErrorsTest, TheReasonSurvivesANewMessage) {
  const absl::Status inner = RefusedError("shm:///x");
  absl::Status outer(inner.code(), "connect failed");
  inner.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { outer.SetPayload(url, payload); });
  EXPECT_EQ(ReasonOf(outer), Reason::kRefused);
}

TEST(RdmaErrorsTest, OtherStatusesHaveNoReason) {
  EXPECT_EQ(ReasonOf(absl::OkStatus()), Reason::kNone);
  EXPECT_EQ(ReasonOf(absl::UnavailableError("gone")), Reason::kNone);
  absl::Status forged = absl::UnavailableError("gone");
  forged.SetPayload("osprey/Reason", absl::Cord("99"));
  EXPECT_EQ(ReasonOf(forged), Reason::kNone);
  forged.SetPayload("osprey/Reason", absl::Cord("x"));
  EXPECT_EQ(ReasonOf(forged), Reason::kNone);
}

}  // namespace
}  // namespace osprey::rdma
