#include "server/engine/connection/reply_queue.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "rdma/wire/protocol.h"

namespace osprey::server {
namespace {

constexpr size_t kHeader = sizeof(rdma::FrameHeader);

// A reply that is `bytes` long.
std::string Frame(uint64_t sequence, size_t bytes = kHeader) {
  rdma::EmptyMessage message(sequence == 0 ? rdma::Opcode::kDisconnectNotice : rdma::Opcode::kReply,
                             7, sequence);
  message.header.length = static_cast<uint32_t>(bytes);
  std::string frame(reinterpret_cast<const char*>(message.bytes().data()), kHeader);
  frame.resize(bytes, static_cast<char>('a' + sequence % 26));
  return frame;
}

void Append(ReplyQueue& reply_queue, const std::string& frame) {
  const rdma::FrameBytes bytes(reinterpret_cast<const std::byte*>(frame.data()), frame.size());
  reply_queue.Append({bytes.first(kHeader), bytes.subspan(kHeader)});
}

// The next frame to be sent.
std::string Leave(ReplyQueue& reply_queue, size_t bytes_max, size_t count) {
  const ReplyQueue::Slice slice = reply_queue.Next(bytes_max);
  EXPECT_EQ(slice.count, count);
  const std::string bytes(reinterpret_cast<const char*>(slice.bytes.data()), slice.bytes.size());
  reply_queue.Drop(slice);
  return bytes;
}

TEST(ReplyQueueTest, FramesLeaveInOrderAsManyAtOnceAsFit) {
  ReplyQueue reply_queue;
  EXPECT_TRUE(reply_queue.empty());
  for (uint64_t i = 1; i <= 5; ++i) Append(reply_queue, Frame(i, 100));
  EXPECT_EQ(reply_queue.frames(), 5);
  EXPECT_EQ(Leave(reply_queue, kHeader + 200, 2), Frame(1, 100) + Frame(2, 100));
  EXPECT_EQ(Leave(reply_queue, kHeader + 199, 1), Frame(3, 100));
  EXPECT_EQ(Leave(reply_queue, 8192, 2), Frame(4, 100) + Frame(5, 100));
  EXPECT_TRUE(reply_queue.empty());
}

TEST(ReplyQueueTest, AFrameAsLongAsAllowedLeavesAlone) {
  ReplyQueue reply_queue;
  Append(reply_queue, Frame(1, 100));
  Append(reply_queue, Frame(2, 30));
  EXPECT_EQ(Leave(reply_queue, 100, 1), Frame(1, 100));
  EXPECT_EQ(Leave(reply_queue, 100, 1), Frame(2, 30));
}

TEST(ReplyQueueTest, ADisconnectNoticeLeavesAlone) {
  ReplyQueue reply_queue;
  for (uint64_t sequence : {1, 2, 0, 3}) Append(reply_queue, Frame(sequence));
  EXPECT_EQ(Leave(reply_queue, 8192, 2), Frame(1) + Frame(2));
  EXPECT_EQ(Leave(reply_queue, 8192, 1), Frame(0));
  EXPECT_EQ(Leave(reply_queue, 8192, 1), Frame(3));
}

TEST(ReplyQueueTest, NoMoreFramesLeaveAtOnceThanABatchHolds) {
  ReplyQueue reply_queue;
  for (uint64_t i = 1; i <= rdma::kBatchFramesMax + 1; ++i) Append(reply_queue, Frame(i));
  Leave(reply_queue, 1 << 20, rdma::kBatchFramesMax);
  Leave(reply_queue, 1 << 20, 1);
}

// Used long enough that sent bytes are moved out.
TEST(ReplyQueueTest, NothingIsLostHoweverLongItIsNeverEmpty) {
  ReplyQueue reply_queue;
  Append(reply_queue, Frame(1, 5000));
  for (uint64_t i = 1; i <= 1000; ++i) {
    Append(reply_queue, Frame(i + 1, 5000));
    ASSERT_EQ(Leave(reply_queue, 5000, 1), Frame(i, 5000));
  }
  EXPECT_EQ(reply_queue.frames(), 1);
}

}  // namespace
}  // namespace osprey::server
