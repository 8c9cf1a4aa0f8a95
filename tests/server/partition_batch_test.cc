// Requests that wait for each other.

#include "server/engine/connection/partition_batch.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace osprey::server {
namespace {

// Connections reduced to addresses.
Connection* const kOne = reinterpret_cast<Connection*>(64);
Connection* const kOther = reinterpret_cast<Connection*>(128);

void Add(PartitionBatch& gather, uint64_t sequence, uint32_t partition,
         Connection* connection = kOne) {
  PartitionBatch::Request& request = gather.Place();
  request.connection = connection;
  request.sequence = sequence;
  gather.Add(partition);
}

std::vector<uint64_t> SequencesOf(PartitionBatch& gather, uint32_t partition) {
  std::vector<uint64_t> sequences;
  for (const PartitionBatch::Request* request = gather.First(partition); request != nullptr;
       request = gather.Next(*request)) {
    sequences.push_back(request->sequence);
  }
  return sequences;
}

TEST(PartitionBatchTest, RequestsOfAPartitionStayInTheirOrder) {
  PartitionBatch gather;
  EXPECT_TRUE(gather.empty());
  EXPECT_EQ(gather.partitions(), 0u);
  EXPECT_EQ(gather.First(5), nullptr);
  Add(gather, 1, 5);
  Add(gather, 2, 63);
  Add(gather, 3, 5, kOther);
  Add(gather, 4, 0);
  Add(gather, 5, 5);
  EXPECT_EQ(gather.partitions(), uint64_t{1} << 63 | uint64_t{1} << 5 | 1);
  EXPECT_EQ(SequencesOf(gather, 5), (std::vector<uint64_t>{1, 3, 5}));
  EXPECT_EQ(SequencesOf(gather, 63), (std::vector<uint64_t>{2}));
  EXPECT_EQ(SequencesOf(gather, 0), (std::vector<uint64_t>{4}));
  EXPECT_TRUE(SequencesOf(gather, 1).empty());
  EXPECT_EQ(gather.Next(*gather.First(5))->connection, kOther);
}

TEST(PartitionBatchTest, NothingIsLeftAfterClear) {
  PartitionBatch gather;
  Add(gather, 1, 5);
  gather.AddConnection(*kOne);
  gather.Clear();
  EXPECT_TRUE(gather.empty());
  EXPECT_TRUE(gather.connections().empty());
  EXPECT_TRUE(SequencesOf(gather, 5).empty());
  Add(gather, 2, 5);
  EXPECT_EQ(SequencesOf(gather, 5), (std::vector<uint64_t>{2}));
}

TEST(PartitionBatchTest, ItIsFullWhenItSaysSo) {
  PartitionBatch gather;
  for (size_t i = 0; i < kBatchedMax; ++i) {
    ASSERT_FALSE(gather.full());
    Add(gather, i + 1, i % 3);
  }
  EXPECT_TRUE(gather.full());
  EXPECT_EQ(SequencesOf(gather, 0).size(), (kBatchedMax + 2) / 3);
}

}  // namespace
}  // namespace osprey::server
