// The messages of the two ends of a self-test, and their handling of a dishonest end. No RDMA here:
// tests/rdma/selftest_lab_test.cc.

#include "rdma/selftest/selftest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "rdma/errors.h"
#include "rdma/selftest/control.h"
#include "rdma/selftest/endpoint.h"
#include "tests/support/running_time.h"

namespace osprey::rdma::selftest {
namespace {

using ::testing::HasSubstr;

class SelftestControl : public ::testing::Test {
 protected:
  SelftestControl() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ours_.reset(fds[0]);
    theirs_.reset(fds[1]);
  }

  Control Ours(absl::Duration time = absl::Seconds(5)) {
    return Control(std::move(ours_), absl::Now() + time);
  }
  void TheySend(const void* bytes, size_t count) {
    ASSERT_EQ(write(theirs_.get(), bytes, count), static_cast<ssize_t>(count));
  }
  static Message AtStep(uint32_t step) {
    Message message;
    message.step = step;
    return message;
  }

  UniqueFd ours_, theirs_;
};

Message Parameters() {
  Message message;
  message.qpn = 17;
  message.psn = 0xFFFFFF;
  message.bytes = kRemoteBytes;
  message.address = 0x7F0000000000;
  message.mtu = 5;
  return message;
}

TEST(SelftestMessage, HasTheseBytes) {
  Message message;
  message.failed = 1;
  message.step = 2;
  message.qpn = 0x030405;
  message.address = 0x0A0B;
  message.SetText("no");
  const absl::string_view bytes(reinterpret_cast<const char*>(&message), sizeof(message));
  EXPECT_EQ(absl::BytesToHexString(bytes.substr(0, 48)),
            "4f53505253454c46"    // "OSPRSELF"
            "0100010002000000"    // version, failed, step
            "0504030000000000"    // qpn, psn
            "0000000000000000"    // rkey, bytes
            "0b0a000000000000"    // address
            "0000000000000000");  // seed
  EXPECT_EQ(bytes.substr(80, 3), absl::string_view("no\0", 3));
}

TEST(SelftestMessage, TextIsPrintableAndOfItsLengthWhateverCame) {
  Message message;
  message.SetText(std::string(500, 'x'));
  EXPECT_EQ(message.Text(), std::string(kTextBytes, 'x'));
  std::memcpy(message.text, "\x1B[2J\n\xFF", 7);
  EXPECT_EQ(message.Text().substr(0, 6), "?[2J??");
}

TEST(SelftestMessage, WhatIsNoMessageIsRefused) {
  EXPECT_TRUE(Message().Validate().ok());
  Message message;
  message.magic = 0;
  EXPECT_FALSE(message.Validate().ok());
  message = Message();
  message.version = 2;
  EXPECT_THAT(std::string(message.Validate().message()), HasSubstr("version 2"));
  message = Message();
  message.failed = 2;
  EXPECT_FALSE(message.Validate().ok());
  message = Message();
  message.ethernet = 2;
  EXPECT_FALSE(message.Validate().ok());
  message = Message();
  message.reserved[9] = 1;
  EXPECT_FALSE(message.Validate().ok());
}

TEST(SelftestMessage, ParametersOutOfTheirRangeAreRefused) {
  EXPECT_TRUE(Parameters().ValidateParameters(kRemoteBytes).ok());
  const auto refused = [](auto change) {
    Message message = Parameters();
    change(message);
    return !message.ValidateParameters(kRemoteBytes).ok();
  };
  EXPECT_TRUE(refused([](Message& m) { m.qpn = 0; }));
  EXPECT_TRUE(refused([](Message& m) { m.qpn = 1 << 24; }));
  EXPECT_TRUE(refused([](Message& m) { m.psn = 1 << 24; }));
  EXPECT_TRUE(refused([](Message& m) { m.bytes = kRemoteBytes - 1; }));
  EXPECT_TRUE(refused([](Message& m) { m.address = 0; }));
  EXPECT_TRUE(refused([](Message& m) { m.address = UINT64_MAX - kRemoteBytes + 1; }));
  EXPECT_TRUE(refused([](Message& m) { m.mtu = 0; }));
  EXPECT_TRUE(refused([](Message& m) { m.mtu = 6; }));
}

TEST_F(SelftestControl, BothEndsGetTheOthersMessageOfTheSameStep) {
  Control ours = Ours();
  Control theirs(std::move(theirs_), absl::Now() + absl::Seconds(5));
  for (uint32_t step = 1; step <= 3; ++step) {
    std::thread other([&] { EXPECT_TRUE(theirs.Exchange(Parameters()).ok()); });
    const absl::StatusOr<Message> got = ours.Exchange(Message());
    other.join();
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->step, step);
    EXPECT_EQ(got->qpn, 17U);
  }
}

TEST_F(SelftestControl, ForeignProtocolIsDetectedByItsFirstBytes) {
  TheySend("GET / HTTP/1.1\r\n", 16);
  const absl::Status status = Ours().Exchange(Message()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST_F(SelftestControl, AnotherStepIsRefused) {
  const Message message = AtStep(2);
  TheySend(&message, sizeof(message));
  EXPECT_EQ(Ours().Exchange(Message()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SelftestControl, ASilentEndIsLeftInTime) {
  const Message message = AtStep(1);
  TheySend(&message, sizeof(message) - 1);
  const RunningTime time;
  const absl::Status status = Ours(absl::Milliseconds(200)).Exchange(Message()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_LT(time.Passed(), absl::Seconds(3));
}

TEST_F(SelftestControl, AnEndThatGoesIsUnavailableAndNoSignal) {
  theirs_.reset();
  EXPECT_EQ(Ours().Exchange(Message()).status().code(), absl::StatusCode::kUnavailable);
}

TEST(SelftestServer, RefusesAddressesThatNoDeviceHas) {
  for (const char* address : {"127.0.0.1", "localhost:7412", "[::1]:7412"}) {
    const absl::Status status = Server::Listen(address, {}).status();
    EXPECT_EQ(ReasonOf(status), Reason::kNotRdmaAddress) << address << ": " << status;
  }
  for (const char* address : {"0.0.0.0", "", "10.0.0.1:port", "10.0.0.1:70000"})
    EXPECT_EQ(Server::Listen(address, {}).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
}

TEST(SelftestHere, WithoutADeviceItSaysSoInOneStep) {
  if (access("/dev/infiniband/rdma_cm", F_OK) == 0) GTEST_SKIP() << "this machine has a device";
  const Report report = RunHere({});
  ASSERT_EQ(report.size(), 1U);
  EXPECT_EQ(report[0].outcome, Outcome::kFail);
  EXPECT_EQ(report[0].layer, "device");
  EXPECT_THAT(report[0].detail, HasSubstr("no RDMA device"));
  EXPECT_FALSE(Passed(report));
}

}  // namespace
}  // namespace osprey::rdma::selftest
