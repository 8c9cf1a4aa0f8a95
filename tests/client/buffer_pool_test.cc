// Registered memory in powers of two, cut from slabs.

#include "client/common/buffer_pool.h"

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/transports/fake_transport.h"

namespace osprey::client {
namespace {

class BufferPoolTest : public ::testing::Test {
 protected:
  fake::Network network_;
  std::unique_ptr<rdma::Domain> domain_ = network_.NewDomain("client");
};

TEST_F(BufferPoolTest, RoundsUpToPowersOfTwoFromAKibibyte) {
  BufferPool pool(*domain_, rdma::Access::kLocal, 64 << 20);
  EXPECT_EQ(pool.Take(1).size(), 1024u);
  EXPECT_EQ(pool.Take(1024).size(), 1024u);
  EXPECT_EQ(pool.Take(1025).size(), 2048u);
  EXPECT_EQ(pool.Take(1 << 20).size(), 1u << 20);
  EXPECT_EQ(pool.Take((1 << 20) + 1).size(), 2u << 20);
}

TEST_F(BufferPoolTest, HalvesThatAreFreeTogetherServeLargeOnesAgain) {
  BufferPool pool(*domain_, rdma::Access::kLocal, 1 << 20);
  std::vector<Buffer> small;
  while (true) {
    Buffer buffer = pool.Take(1024);
    if (!buffer.valid()) break;
    small.push_back(std::move(buffer));
  }
  EXPECT_EQ(small.size(), 1024u);
  EXPECT_FALSE(pool.Take(1 << 20).valid());
  small.clear();
  EXPECT_TRUE(pool.Take(1 << 20).valid());
  EXPECT_EQ(pool.registered_bytes(), 1u << 20);
}

TEST_F(BufferPoolTest, SaysWhatItsBoundIsAndWhatCanNeverFit) {
  BufferPool pool(*domain_, rdma::Access::kLocal, 4 << 20);
  EXPECT_TRUE(pool.CanEverHold(4 << 20));
  EXPECT_FALSE(pool.CanEverHold((4 << 20) + 1));
  Buffer one = pool.Take(2 << 20);
  Buffer two = pool.Take(2 << 20);
  EXPECT_FALSE(pool.Take(1).valid());
  EXPECT_TRUE(absl::IsResourceExhausted(pool.error())) << pool.error();
  EXPECT_TRUE(pool.CanEverHold(2 << 20));
  one.Reset();
  EXPECT_TRUE(pool.Take(1).valid());
}

// As a process that may pin no more (RLIMIT_MEMLOCK).
class StingyDomain final : public rdma::Domain {
 public:
  StingyDomain(rdma::Domain& domain, size_t bytes_max) : domain_(domain), left_(bytes_max) {}
  absl::StatusOr<std::unique_ptr<rdma::Memory>> Allocate(size_t bytes,
                                                         rdma::Access access) override {
    ++asked;
    if (bytes > left_) return absl::ResourceExhaustedError("ulimit -l");
    left_ -= bytes;
    return domain_.Allocate(bytes, access);
  }
  absl::StatusOr<std::unique_ptr<rdma::Memory>> Register(rdma::HostMemory&, rdma::Access) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<rdma::Memory>> RegisterSpan(std::byte*, size_t,
                                                             rdma::Access) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<rdma::Transport>> NewTransport(
      const rdma::TransportOptions& options) override {
    return domain_.NewTransport(options);
  }
  std::string Describe() const override { return domain_.Describe(); }

  void allow(size_t bytes) { left_ = bytes; }
  int asked = 0;

 private:
  rdma::Domain& domain_;
  size_t left_;
};

TEST_F(BufferPoolTest, ABufferThatTheSystemRefusesDoesNotCostThoseThatItWouldAllow) {
  StingyDomain stingy(*domain_, 8 << 20);
  BufferPool pool(stingy, rdma::Access::kLocal, 64 << 20);
  Buffer first = pool.Take(1 << 20);
  ASSERT_TRUE(first.valid());
  EXPECT_FALSE(pool.Take(16 << 20).valid());
  EXPECT_EQ(pool.error().message(), "ulimit -l");
  EXPECT_FALSE(pool.CanEverHold(16 << 20));
  Buffer second = pool.Take(4 << 20);
  EXPECT_TRUE(second.valid()) << pool.error();
  // It requests as much again only at times.
  const int asked = stingy.asked;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(pool.Take(16 << 20).valid());
  EXPECT_LE(stingy.asked, asked + 10);
}

TEST_F(BufferPoolTest, WhatTheSystemRefusedOnceItIsAskedForAgain) {
  StingyDomain stingy(*domain_, 0);
  BufferPool pool(stingy, rdma::Access::kLocal, 64 << 20);
  EXPECT_FALSE(pool.Take(100).valid());
  stingy.allow(8 << 20);
  EXPECT_FALSE(pool.Take(100).valid());
  EXPECT_TRUE(pool.Take(100).valid()) << pool.error();
  EXPECT_TRUE(pool.CanEverHold(4 << 20));
}

TEST_F(BufferPoolTest, FewSlabsHoldAll) {
  BufferPool pool(*domain_, rdma::Access::kLocal, 64 << 20);
  std::vector<Buffer> taken;
  while (true) {
    Buffer buffer = pool.Take(64 << 10);
    if (!buffer.valid()) break;
    taken.push_back(std::move(buffer));
  }
  EXPECT_EQ(taken.size(), 1024u);
  EXPECT_LE(pool.slabs(), 8u);
}

TEST_F(BufferPoolTest, BuffersNeverOverlapInARandomLife) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  BufferPool pool(*domain_, rdma::Access::kLocal, 8 << 20);
  std::vector<Buffer> taken;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0) {
      Buffer buffer = pool.Take(uint64_t{1} << (random() % 19));
      if (!buffer.valid()) continue;
      ASSERT_GE(buffer.data(), buffer.memory().data());
      ASSERT_LE(buffer.data() + buffer.size(), buffer.memory().data() + buffer.memory().size());
      taken.push_back(std::move(buffer));
    } else if (!taken.empty()) {
      std::swap(taken[random() % taken.size()], taken.back());
      taken.pop_back();
    }
    if (i % 500 != 0) continue;
    std::map<std::byte*, uint64_t> spans;
    uint64_t total = 0;
    for (const Buffer& buffer : taken) {
      total += buffer.size();
      ASSERT_TRUE(spans.emplace(buffer.data(), buffer.size()).second);
    }
    for (auto it = spans.begin(); it != spans.end() && std::next(it) != spans.end(); ++it) {
      ASSERT_LE(it->first + it->second, std::next(it)->first);
    }
    ASSERT_EQ(pool.taken_bytes(), total);
  }
  taken.clear();
  // All slabs are whole again.
  const uint64_t registered = pool.registered_bytes();
  for (uint64_t bytes = 0; bytes < registered; bytes += 1 << 20)
    taken.push_back(pool.Take(1 << 20));
  for (const Buffer& buffer : taken) EXPECT_TRUE(buffer.valid());
  EXPECT_EQ(pool.registered_bytes(), registered);
  taken.clear();
}

}  // namespace
}  // namespace osprey::client
