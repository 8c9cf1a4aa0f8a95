// A client's reports to a server that evicts: a sample of its hits, with its requests, and rarely
// without.

#include "client/read/access_sampler.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/access_hint.h"
#include "tests/client/client_engine_fixture.h"

namespace osprey::client {
namespace {

// --- The sampler -------------------------------------------------------------------

TEST(AccessSamplerTest, OneHitInEightIsNoted) {
  AccessSampler sampler(1);
  sampler.set_on(true);
  int noted = 0;
  for (int i = 0; i < 80000; ++i) noted += sampler.Hit();
  EXPECT_NEAR(noted, 10000, 300);
}

TEST(AccessSamplerTest, OffItNotesNothing) {
  AccessSampler sampler(1);
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(sampler.Hit());
}

TEST(AccessSamplerTest, ARhythmOfTheApplicationHidesNoKey) {
  AccessSampler sampler(1);
  sampler.set_on(true);
  std::map<int, int> noted;
  for (int i = 0; i < 80000; ++i) {
    if (sampler.Hit()) ++noted[i % 8];
  }
  for (int key = 0; key < 8; ++key) EXPECT_NEAR(noted[key], 1250, 200) << key;
}

TEST(AccessSamplerTest, WithoutAMessageForLongTheNotesAreAnEvenSampleOfAll) {
  AccessSampler sampler(1);
  sampler.set_on(true);
  constexpr uint64_t kHits = 1000000;
  for (uint64_t i = 0; i < kHits; ++i) {
    if (sampler.Hit()) sampler.Note(i);
  }
  const size_t count = sampler.notes().size();
  EXPECT_LE(count, AccessSampler::kNotesMax);
  EXPECT_GE(count, AccessSampler::kNotesMax / 2 - 20);
  size_t of_first_half = 0;
  for (uint64_t note : sampler.notes()) of_first_half += note < kHits / 2;
  EXPECT_NEAR(static_cast<double>(of_first_half), static_cast<double>(count) / 2,
              static_cast<double>(count) / 8);
  // When messages are sent again, the sample becomes as dense as before.
  for (int i = 0; i < 30; ++i) sampler.Clear();
  int noted = 0;
  for (int i = 0; i < 8000; ++i) noted += sampler.Hit();
  EXPECT_NEAR(noted, 1000, 150);
}

// --- The engine ----------------------------------------------------------------------

class ClientHitsTest : public ClientEngineTest {
 protected:
  void Start(bool wants_hints = true, uint32_t partitions = 1) {
    StartServer(1, partitions);
    server_->tamper_welcome = [wants_hints](rdma::FrameHeader&, rdma::WelcomeBody& body) {
      body.wants_hints = wants_hints ? 1 : 0;
    };
    StartEngine();
    BecomeReady();
  }
  // Half of them inline, half items.
  void Fill(int keys) {
    for (int i = 0; i < keys; ++i) {
      const std::string key = absl::StrCat("key", i);
      const std::string value(i % 2 == 0 ? 4 : 100, 'v');
      ASSERT_TRUE(
          server_->TableOf(key)
              .Put(key, {reinterpret_cast<const std::byte*>(value.data()), value.size()}, {}, now_)
              .status.ok());
    }
  }
  // As the server identifies the key.
  index::AccessHint PlaceOf(const std::string& key, uint32_t partitions) {
    const index::Slot slot = index::Slot::Unpack(server_->TableOf(key).Find(key)->slot);
    uint32_t partition = 0;
    while (&server_->table(partition) != &server_->TableOf(key)) ++partition;
    EXPECT_LT(partition, partitions);
    return {index::WordKind::kSlot, slot.fingerprint, partition, slot.offset};
  }
  std::vector<uint64_t> AllHints() const {
    std::vector<uint64_t> all;
    for (const std::vector<uint64_t>& some : server_->hints)
      all.insert(all.end(), some.begin(), some.end());
    return all;
  }
};

TEST_F(ClientHitsTest, ClientSendsNothingUnlessTheServerRequestsIt) {
  Start(/*wants_hints=*/false);
  Fill(100);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(Get(absl::StrCat("key", i % 100)).ok());
  ASSERT_TRUE(Put("other", "value").ok());
  RunFor(absl::Seconds(3));
  EXPECT_TRUE(server_->hints.empty());
  EXPECT_EQ(engine_->counters().told_hits, 0u);
}

TEST_F(ClientHitsTest, HintsContainTheLocationsOfHits) {
  constexpr uint32_t kPartitions = 4;
  Start(true, kPartitions);
  Fill(100);
  std::set<uint64_t> items;
  for (int i = 1; i < 100; i += 2)
    items.insert(PlaceOf(absl::StrCat("key", i), kPartitions).Pack());
  // Cold the first time, by their slots afterwards.
  for (int i = 0; i < 4000; ++i) ASSERT_TRUE(Get(absl::StrCat("key", i % 100)).ok());
  for (int i = 0; i < 2000; ++i) ASSERT_FALSE(Get(absl::StrCat("absent", i)).ok());
  ASSERT_TRUE(Put("other", "value").ok());
  std::set<uint64_t> told_items;
  size_t of_lines = 0;
  for (uint64_t word : AllHints()) {
    const index::AccessHint hint = index::AccessHint::Unpack(word);
    if (hint.kind == index::WordKind::kInline) {
      EXPECT_EQ(hint.offset % index::kWordBytes, 0u);
      EXPECT_LT(hint.partition, kPartitions);
      ++of_lines;
    } else {
      EXPECT_TRUE(items.count(word)) << std::hex << word;
      told_items.insert(word);
    }
  }
  EXPECT_GT(told_items.size(), 40u);
  EXPECT_GT(of_lines, 100u);
  EXPECT_EQ(engine_->counters().told_hits, AllHints().size());
  // None of it counts as a request.
  EXPECT_EQ(engine_->counters().messages, 1u);
}

// *Else* they wait while requests fill all frames.
TEST_F(ClientHitsTest, HitsGoBeforeRequestsThatFillTheirFrames) {
  Start();
  Fill(100);
  ASSERT_TRUE(Put("first", "value").ok());
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(Get(absl::StrCat("key", i % 100)).ok());
  server_->hints.clear();
  server_->requests_before_hints.clear();
  server_->requests.clear();
  constexpr size_t kPuts = 32;
  const std::string value(1000, 'v');
  std::vector<Outcome<uint64_t>> outcomes(kPuts);
  for (size_t i = 0; i < kPuts; ++i)
    ASSERT_TRUE(StartPut(absl::StrCat("put", i), value, outcomes[i]).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->requests.size() == kPuts; }));
  ASSERT_FALSE(server_->hints.empty());
  EXPECT_EQ(server_->requests_before_hints[0], 0u);
  ASSERT_TRUE(RunUntil([&] { return outcomes.back().done(); }));
}

TEST_F(ClientHitsTest, HitsGoAlongWithRequestsInTheirFrame) {
  Start();
  Fill(100);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(Get(absl::StrCat("key", i)).ok());
  ASSERT_TRUE(Put("first", "value").ok());
  const int frames = server_->frames;
  const size_t messages = server_->hints.size();
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(Get(absl::StrCat("key", i % 100)).ok());
    ASSERT_TRUE(Put("other", "value").ok());
  }
  EXPECT_EQ(server_->frames, frames + 5);
  EXPECT_EQ(server_->hints.size(), messages + 5);
}

TEST_F(ClientHitsTest, GetsAloneCostAMessageASecond) {
  Start();
  Fill(100);
  const absl::Time begin = now_;
  while (now_ < begin + absl::Seconds(5))
    ASSERT_TRUE(Get(absl::StrCat("key", server_->frames % 100)).ok());
  EXPECT_GE(server_->hints.size(), 5u);
  EXPECT_LE(server_->hints.size(), 6u);
  EXPECT_EQ(server_->frames, static_cast<int>(server_->hints.size()));
  EXPECT_TRUE(server_->requests.empty());
  // An idle client sends nothing.
  const size_t messages = server_->hints.size();
  RunFor(absl::Seconds(1));
  RunFor(absl::Seconds(3));
  EXPECT_LE(server_->hints.size(), messages + 1);
}

TEST_F(ClientHitsTest, HintsOfAnEarlierServerAreNotSentToTheNextOne) {
  Start();
  Fill(100);
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(Get(absl::StrCat("key", i % 100)).ok());
  server_->hints.clear();
  KillServer();
  StartServer(2);
  server_->tamper_welcome = [](rdma::FrameHeader&, rdma::WelcomeBody& body) {
    body.wants_hints = 1;
  };
  RunFor(absl::Seconds(5));
  BecomeReady();
  ASSERT_TRUE(Put("other", "value").ok());
  RunFor(absl::Seconds(2));
  EXPECT_TRUE(AllHints().empty());
}

}  // namespace
}  // namespace osprey::client
