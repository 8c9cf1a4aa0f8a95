#include "server/cluster/beat/beat_thread.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "rdma/lease_time.h"
#include "rdma/raw_clock.h"
#include "tests/index/index_test_util.h"

namespace osprey {
namespace {

using index::kTestIncarnation;

absl::Time Now() { return absl::UnixEpoch() + RawClock(); }

// Waits until so many beats were stored, 60 s at most.
void AwaitBeats(const ServingBeat& beat, uint64_t beats) {
  for (const absl::Time end = Now() + absl::Seconds(60); Now() < end;) {
    if (beat.state().beat >= beats) return;
    absl::SleepFor(absl::Milliseconds(1));
  }
  ADD_FAILURE() << "it stored " << beat.state().beat << " beats, not " << beats;
}

TEST(BeatThreadTest, BeatsUntilTheRightIsTooShort) {
  index::RegionMemory memory(1 << 20);
  ServingBeat beat(memory.span(), kTestIncarnation, 1);
  const absl::Time begun = Now();
  std::atomic<bool> has_right{true};
  const auto thread =
      BeatThread::Start({{&beat,
                          [&]() -> ServingBounds {
                            return {has_right ? absl::InfiniteFuture() : absl::InfinitePast()};
                          }}},
                        Now);
  ASSERT_TRUE(thread.ok()) << thread.status();
  AwaitBeats(beat, 5);
  EXPECT_GE(Now() - begun, HeldFor(4 * kBeatInterval())) << "it beats too often";
  has_right = false;
  absl::SleepFor(kBeatInterval());
  const uint64_t beats = beat.state().beat;
  absl::SleepFor(5 * kBeatInterval());
  EXPECT_LE(beat.state().beat, beats + 1) << "one check may have come before";
  has_right = true;
  AwaitBeats(beat, beats + 2);
}

TEST(BeatThreadTest, EndsWithoutAnotherBeat) {
  index::RegionMemory memory(1 << 20);
  ServingBeat beat(memory.span(), kTestIncarnation, 1);
  auto thread =
      BeatThread::Start({{&beat, [] { return ServingBounds{absl::InfiniteFuture()}; }}}, Now);
  ASSERT_TRUE(thread.ok()) << thread.status();
  AwaitBeats(beat, 1);
  thread->reset();
  const uint64_t beats = beat.state().beat;
  absl::SleepFor(3 * kBeatInterval());
  EXPECT_EQ(beat.state().beat, beats);
}

// One thread beats for several regions, each within its own bounds.
TEST(BeatThreadTest, BeatsForEachRegion) {
  index::RegionMemory memory(1 << 20), other_memory(1 << 20), third_memory(1 << 20);
  ServingBeat beat(memory.span(), kTestIncarnation, 1);
  ServingBeat without_right(other_memory.span(), kTestIncarnation, 1);
  ServingBeat third(third_memory.span(), kTestIncarnation, 1);
  const auto always = [] { return ServingBounds{absl::InfiniteFuture()}; };
  const auto never = [] { return ServingBounds{absl::InfinitePast()}; };
  const auto thread =
      BeatThread::Start({{&beat, always}, {&without_right, never}, {&third, always}}, Now);
  ASSERT_TRUE(thread.ok()) << thread.status();
  AwaitBeats(beat, 3);
  AwaitBeats(third, 3);
  EXPECT_EQ(without_right.state().beat, 0u);
}

// Shards come and go while it beats; every READ of the record is torn or one of its states.
TEST(BeatThreadTest, ReadersSeeOneStateOrAreTorn) {
  index::RegionMemory memory(1 << 20);
  ServingBeat beat(memory.span(), kTestIncarnation, 1);
  const auto thread =
      BeatThread::Start({{&beat, [] { return ServingBounds{absl::InfiniteFuture()}; }}}, Now);
  ASSERT_TRUE(thread.ok()) << thread.status();
  std::atomic<bool> stopping{false};
  std::thread changes([&] {
    while (!stopping) {
      beat.Gains(1);
      beat.Loses(1);
    }
  });
  uint64_t whole = 0, last_loss = 0;
  for (const absl::Time end = Now() + absl::Seconds(60); whole < 20000 && Now() < end;) {
    const std::vector<std::byte> copy =
        index::ReadRegion(memory.data(), index::kServingRecordOffset, sizeof(index::ServingRecord));
    const auto state = index::ReadServingRecord(copy, kTestIncarnation);
    if (!state.has_value()) continue;
    ++whole;
    EXPECT_GE(state->loss_revision, last_loss);
    last_loss = state->loss_revision;
    // The constructor's loss is the first.
    EXPECT_EQ(state->shards, state->gain_revision - (state->loss_revision - 1));
  }
  stopping = true;
  changes.join();
  EXPECT_EQ(whole, 20000u);
}

}  // namespace
}  // namespace osprey
