#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cluster/links/link_frames.h"
#include "server/cluster/links/message_assembly.h"
#include "server/cluster/links/message_queue.h"
#include "tests/support/split_mix64.h"

namespace osprey {
namespace {

using testing::HasSubstr;

rdma::Bytes BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string NextFrame(MessageQueue& queue, size_t bytes_max) {
  std::string frame;
  for (const rdma::Bytes piece : queue.NextFrame(bytes_max))
    frame.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  EXPECT_LE(frame.size(), bytes_max);
  return frame;
}

std::string DataFrame(const PieceHeader& piece, absl::string_view bytes) {
  return LinkFrameOf(LinkFrame::kData, piece) + std::string(bytes);
}

// Frames from the queue into the assembly, until the queue is empty.
std::vector<std::pair<uint8_t, std::string>> Carry(MessageQueue& queue, size_t frame_bytes_max,
                                                   int* frames = nullptr) {
  std::vector<std::pair<uint8_t, std::string>> messages;
  MessageAssembly assembly;
  while (!queue.empty()) {
    const std::string frame = NextFrame(queue, frame_bytes_max);
    EXPECT_EQ(NextFrame(queue, frame_bytes_max), frame);
    queue.Sent();
    if (frames != nullptr) ++*frames;
    EXPECT_TRUE(assembly
                    .Take(BytesOf(frame),
                          [&](uint8_t kind, std::string body) {
                            messages.emplace_back(kind, std::move(body));
                          })
                    .ok());
  }
  return messages;
}

absl::Status TakeError(const std::vector<std::string>& frames) {
  MessageAssembly assembly;
  absl::Status status;
  for (const std::string& frame : frames) {
    EXPECT_TRUE(status.ok()) << status;
    status = assembly.Take(BytesOf(frame), [](uint8_t, std::string) {});
  }
  return status;
}

TEST(LinkMessagesTest, SmallMessagesShareAFrame) {
  MessageQueue queue(1 << 20);
  for (uint8_t i = 0; i < 100; ++i) ASSERT_TRUE(queue.Push(i, std::string(i, 'x')).ok());
  int frames = 0;
  const auto messages = Carry(queue, 16 << 10, &frames);
  EXPECT_EQ(frames, 1);
  ASSERT_EQ(messages.size(), 100u);
  for (uint8_t i = 0; i < 100; ++i) {
    EXPECT_EQ(messages[i].first, i);
    EXPECT_EQ(messages[i].second, std::string(i, 'x'));
  }
}

TEST(LinkMessagesTest, AFrameHasABoundedNumberOfPieces) {
  MessageQueue queue(1 << 20);
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(queue.Push(static_cast<uint8_t>(i), "").ok());
  int frames = 0;
  const auto messages = Carry(queue, 16 << 10, &frames);
  EXPECT_EQ(frames, 3) << "128 pieces each";
  ASSERT_EQ(messages.size(), 300u);
  for (size_t i = 0; i < 300; ++i) EXPECT_EQ(messages[i].first, static_cast<uint8_t>(i));
}

TEST(LinkMessagesTest, MessagesOfAnyLengthArriveWholeAndInOrder) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SplitMix64 random(seed);
    MessageQueue queue(64 << 20);
    std::vector<std::string> sent;
    for (int i = 0; i < 60; ++i) {
      std::string body(random.Below(random.Chance(20) ? 100000 : 700), '\0');
      for (char& c : body) c = static_cast<char>(random.Next());
      sent.push_back(body);
      ASSERT_TRUE(queue.Push(static_cast<uint8_t>(i), body).ok());
    }
    const auto messages = Carry(queue, kLinkFrameBytesMin + random.Below(20000));
    ASSERT_EQ(messages.size(), sent.size()) << "seed " << seed;
    for (size_t i = 0; i < sent.size(); ++i) {
      ASSERT_EQ(messages[i].first, i) << "seed " << seed;
      ASSERT_EQ(messages[i].second, sent[i]) << "seed " << seed;
    }
  }
}

TEST(LinkMessagesTest, TheQueueIsBoundedButForOneLongMessage) {
  MessageQueue queue(1000);
  EXPECT_EQ(queue.room(), kLinkMessageBytesMax);
  EXPECT_EQ(queue.Push(1, std::string(kLinkMessageBytesMax + 1, 'x')).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(queue.Push(1, std::string(kLinkMessageBytesMax, 'x')).ok());
  EXPECT_EQ(queue.room(), 0u);
  EXPECT_EQ(queue.Push(1, "").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Carry(queue, 16 << 10).size(), 1u);
  ASSERT_TRUE(queue.Push(1, std::string(100, 'x')).ok());
  const uint64_t room = queue.room();
  EXPECT_EQ(queue.Push(1, std::string(room + 1, 'x')).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(queue.Push(1, std::string(room, 'x')).ok());
  EXPECT_EQ(queue.room(), 0u);
}

// As after the end of a link, in the middle of a message.
TEST(LinkMessagesTest, AClearedQueueIsAsANewOne) {
  MessageQueue cleared(2000), fresh(2000);
  ASSERT_TRUE(cleared.Push(1, std::string(900, 'x')).ok());
  (void)NextFrame(cleared, kLinkFrameBytesMin);
  cleared.Sent();
  ASSERT_FALSE(cleared.empty());
  cleared.Clear();
  EXPECT_TRUE(cleared.empty());
  for (MessageQueue* queue : {&cleared, &fresh}) ASSERT_TRUE(queue->Push(2, "abc").ok());
  EXPECT_EQ(cleared.room(), fresh.room());
  EXPECT_EQ(NextFrame(cleared, kLinkFrameBytesMin), NextFrame(fresh, kLinkFrameBytesMin));
}

TEST(LinkMessagesTest, EmptyMessagesAreBoundedToo) {
  MessageQueue queue(1000);
  int taken = 0;
  while (taken < 1000 && queue.Push(1, "").ok()) ++taken;
  EXPECT_GT(taken, 5);
  EXPECT_LT(taken, 100);
  EXPECT_EQ(Carry(queue, 16 << 10).size(), static_cast<size_t>(taken));
}

TEST(LinkMessagesTest, ADataFrameHasTheseBytes) {
  MessageQueue queue(1000);
  ASSERT_TRUE(queue.Push(7, "abc").ok());
  EXPECT_EQ(absl::BytesToHexString(NextFrame(queue, 1000)),
            "4f4c4e4b06000000"
            "03000000000000000300000007000000"
            "616263");
}

TEST(LinkMessagesTest, AHelloHasTheseBytes) {
  LinkHelloBody hello;
  hello.cluster_id = 0x0807060504030201;
  hello.server = LinkServerNameOf("node-1");
  hello.incarnation = 0x1817161514131211;
  hello.expected_incarnation = 0x2827262524232221;
  const std::string frame = LinkFrameOf(LinkFrame::kHello, hello);
  EXPECT_EQ(absl::BytesToHexString(frame),
            "4f4c4e4b01000000"
            "0100010000000000"
            "0102030405060708" +
                absl::BytesToHexString("node-1") + std::string(116, '0') +
                "1112131415161718"
                "2122232425262728");
  EXPECT_EQ(ParseLinkHeader(BytesOf(frame)).value(), LinkFrame::kHello);
  EXPECT_EQ(ServerOf(ParseLinkHello(BytesOf(frame))->server), "node-1");
}

TEST(LinkMessagesTest, AWrongFieldOfAHelloIsNamed) {
  LinkHelloBody right;
  right.cluster_id = right.incarnation = right.expected_incarnation = 1;
  right.server = LinkServerNameOf("a");
  const auto error = [&](void (*change)(LinkHelloBody&)) {
    LinkHelloBody hello = right;
    change(hello);
    return std::string(
        ParseLinkHello(BytesOf(LinkFrameOf(LinkFrame::kHello, hello))).status().message());
  };
  EXPECT_EQ(error([](LinkHelloBody&) {}), "");
  EXPECT_THAT(error([](LinkHelloBody& h) { h.version_min = 0; }),
              HasSubstr("field version_min of a frame is 0;"));
  EXPECT_THAT(error([](LinkHelloBody& h) { h.version_min = 2; }),
              HasSubstr("field version_min of a frame is 2;"));
  EXPECT_THAT(error([](LinkHelloBody& h) { h.reserved = 3; }),
              HasSubstr("field reserved of a frame is 3;"));
  EXPECT_THAT(error([](LinkHelloBody& h) { h.cluster_id = 0; }),
              HasSubstr("field cluster_id of a frame is 0;"));
  EXPECT_THAT(error([](LinkHelloBody& h) { h.incarnation = 0; }),
              HasSubstr("field incarnation of a frame is 0;"));
  EXPECT_THAT(error([](LinkHelloBody& h) { h.expected_incarnation = 0; }),
              HasSubstr("field expected_incarnation of a frame is 0;"));
  EXPECT_THAT(error([](LinkHelloBody& h) { h.server.text[0] = '\n'; }),
              HasSubstr("field server of a frame is 10;"));
  EXPECT_THAT(error([](LinkHelloBody& h) { h.server.text[5] = 'a'; }), HasSubstr("server"));
  EXPECT_THAT(error([](LinkHelloBody& h) { std::memset(h.server.text, 'a', 64); }),
              HasSubstr("server"));
}

TEST(LinkMessagesTest, AWrongHeaderIsNamed) {
  const auto error = [](std::string frame) {
    return std::string(ParseLinkHeader(BytesOf(frame)).status().message());
  };
  const std::string right = LinkFrameOf(LinkFrame::kPing);
  EXPECT_EQ(error(right), "");
  EXPECT_THAT(error(right.substr(1)), HasSubstr("field length of a frame is 7;"));
  EXPECT_THAT(error("x" + right.substr(1)), HasSubstr("magic"));
  for (const char type : {'\0', '\x9', '\xff'}) {
    std::string wrong = right;
    wrong[4] = type;
    EXPECT_THAT(error(wrong), HasSubstr("type"));
  }
  std::string wrong = right;
  wrong[7] = 1;
  EXPECT_THAT(error(wrong), HasSubstr("field reserved of a frame is 1;"));
}

TEST(LinkMessagesTest, AWrongPieceIsNamed) {
  const auto error = [](const std::vector<std::string>& frames) {
    return std::string(TakeError(frames).message());
  };
  EXPECT_EQ(error({DataFrame({3, 3, 1, {}}, "abc")}), "");
  EXPECT_EQ(error({DataFrame({0, 0, 1, {}}, "")}), "");
  EXPECT_EQ(error({DataFrame({3, 2, 1, {}}, "ab"), DataFrame({3, 1, 1, {}}, "c")}), "");
  EXPECT_THAT(error({LinkFrameOf(LinkFrame::kData)}), HasSubstr("no piece"));
  EXPECT_THAT(error({LinkFrameOf(LinkFrame::kData) + "abc"}), HasSubstr("length of a piece is 3"));
  EXPECT_THAT(error({DataFrame({uint64_t{1} << 63, 3, 1, {}}, "abc")}),
              HasSubstr("message_bytes of a piece is 9223372036854775808"));
  EXPECT_THAT(error({DataFrame({kLinkMessageBytesMax + 1, 3, 1, {}}, "abc")}),
              HasSubstr("message_bytes"));
  EXPECT_THAT(error({DataFrame({3, 0xffffffff, 1, {}}, "abc")}),
              HasSubstr("piece_bytes of a piece is 4294967295"));
  EXPECT_THAT(error({DataFrame({8, 4, 1, {}}, "abc")}), HasSubstr("bytes that follow"));
  EXPECT_THAT(error({DataFrame({2, 3, 1, {}}, "abc")}), HasSubstr("what the message lacks, 2"));
  EXPECT_THAT(error({DataFrame({8, 0, 1, {}}, "")}), HasSubstr("a part of what"));
  EXPECT_THAT(error({DataFrame({3, 3, 1, {1, 0, 0}}, "abc")}), HasSubstr("reserved"));
  const std::string first = DataFrame({3, 2, 1, {}}, "ab");
  EXPECT_THAT(error({first, DataFrame({4, 1, 1, {}}, "c")}), HasSubstr("under way, 3"));
  EXPECT_THAT(error({first, DataFrame({3, 1, 2, {}}, "c")}), HasSubstr("under way, 1"));
  EXPECT_THAT(error({first, DataFrame({3, 0, 1, {}}, "")}), HasSubstr("lacks, 1"));
  EXPECT_THAT(error({first, DataFrame({3, 2, 1, {}}, "cd")}), HasSubstr("lacks, 1"));
}

}  // namespace
}  // namespace osprey
