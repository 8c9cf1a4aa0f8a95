#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "rdma/wire/batch.h"
#include "tests/support/protocol_frames.h"

namespace osprey::rdma {
namespace {

std::string Get(absl::string_view key) {
  GetBody body;
  body.key_length = static_cast<uint16_t>(key.size());
  return GetFrame(body, key);
}

// The frames inside, or the error.
absl::StatusOr<std::vector<std::string>> Parse(const std::string& batch) {
  EXPECT_TRUE(ParseHeader(AsBytes(batch)).ok());
  std::vector<FrameBytes> frames;
  if (absl::Status status = ParseBatch(AsBytes(batch), frames); !status.ok()) return status;
  std::vector<std::string> texts;
  for (FrameBytes frame : frames) texts.push_back(Join({frame}));
  return texts;
}

TEST(ProtocolBatchTest, WhatWasAppendedComesOutAgainInOrder) {
  FrameBatch batch(8192);
  EXPECT_TRUE(batch.empty());
  std::vector<std::string> sent;
  for (size_t length : {1, 8, 3, 1000}) {
    sent.push_back(Get(std::string(length, 'k')));
    ASSERT_TRUE(batch.Fits(sent.back().size()));
    // In pieces, as they are sent.
    const FrameBytes bytes = AsBytes(sent.back());
    batch.Append({bytes.first(24), bytes.subspan(24, 8), bytes.subspan(32)});
  }
  EXPECT_EQ(batch.frames(), 4);
  const std::string frame = Join({batch.Finish(kSession)});
  EXPECT_EQ(frame, BatchFrame(sent));
  EXPECT_EQ(Parse(frame).value(), sent);
}

TEST(ProtocolBatchTest, OneFrameTravelsAlone) {
  FrameBatch batch(100);
  for (const std::string& frame : {Get("key"), Get("another")}) {
    batch.Append({AsBytes(frame)});
    EXPECT_EQ(Join({batch.Finish(kSession)}), frame);
    batch.Clear();
    EXPECT_TRUE(batch.empty());
  }
}

TEST(ProtocolBatchTest, NoMoreFitsThanTheFrameTakes) {
  const std::string frame = Get("key");
  FrameBatch batch(sizeof(FrameHeader) + 3 * frame.size());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(batch.Fits(frame.size())) << i;
    batch.Append({AsBytes(frame)});
  }
  EXPECT_FALSE(batch.Fits(frame.size()));
  EXPECT_EQ(batch.Finish(kSession).size(), sizeof(FrameHeader) + 3 * frame.size());
}

TEST(ProtocolBatchTest, AFrameAsLongAsAllowedFitsAloneAndNothingBesideIt) {
  const std::string frame = Get(std::string(100, 'k'));
  FrameBatch batch(frame.size());
  EXPECT_FALSE(batch.Fits(frame.size() + 1));
  ASSERT_TRUE(batch.Fits(frame.size()));
  batch.Append({AsBytes(frame)});
  EXPECT_FALSE(batch.Fits(sizeof(FrameHeader)));
  EXPECT_FALSE(batch.Fits(0));
  EXPECT_EQ(Join({batch.Finish(kSession)}), frame);
}

TEST(ProtocolBatchTest, AtMostSoManyFramesFitAndAreTaken) {
  const std::string ping = EmptyFrame(Opcode::kPing, kSequence);
  FrameBatch batch(1 << 20);
  std::vector<std::string> all;
  while (batch.Fits(ping.size())) {
    batch.Append({AsBytes(ping)});
    all.push_back(ping);
  }
  EXPECT_EQ(all.size(), kBatchFramesMax);
  EXPECT_EQ(Parse(Join({batch.Finish(kSession)}))->size(), kBatchFramesMax);
  all.push_back(ping);
  EXPECT_EQ(Parse(BatchFrame(all)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ProtocolBatchTest, WhatIsNoFrameInsideIsRefused) {
  const std::string get = Get("key");
  const auto refused = [&](const std::vector<std::string>& frames, absl::string_view why) {
    const absl::Status status = Parse(BatchFrame(frames)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_NE(std::string(status.message()).find(std::string(why)), std::string::npos) << status;
  };
  refused({}, "length is 24");
  refused({get, "x"}, "bytes left is 1");
  refused({get, get.substr(0, 23)}, "bytes left is 23");
  refused({get, get.substr(0, 24)}, "length of a frame is 35");
  refused({WithByte(get, 4, 23), get}, "length of a frame is 23");
  refused({WithByte(get, 4, 0), get}, "length of a frame is 0");
  refused({WithByte(get, 7, 255), get}, "length of a frame is");
  refused({get, WithByte(get, 0, 0)}, "magic");
  refused({get, WithByte(get, 3, 1)}, "flags");
  refused({get, WithByte(get, 8, 0)}, "session");
  refused({get, BatchFrame({get})}, "opcode is 32");
  refused({EmptyFrame(Opcode::kDisconnectNotice, 0)}, "opcode is 5");
  refused({HelloFrame()}, "opcode is 1");
  refused({WelcomeFrame()}, "opcode is 2");
}

}  // namespace
}  // namespace osprey::rdma
