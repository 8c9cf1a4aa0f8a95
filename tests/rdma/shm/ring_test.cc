#include "rdma/shm/ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace osprey::rdma {
namespace {

using Pushed = RingProducer::Result;
using Popped = RingConsumer::Result;

// A ring in ordinary memory, with both of its ends.
struct Ring {
  explicit Ring(const RingShape& ring_shape)
      : shape(ring_shape),
        memory(static_cast<std::byte*>(std::aligned_alloc(64, ring_shape.bytes())), &std::free),
        producer(memory.get(), shape),
        consumer(memory.get(), shape),
        buffer(shape.frame_bytes_max) {
    std::memset(memory.get(), 0, shape.bytes());
  }
  Pushed Push(const std::string& frame) {
    const Bytes piece(reinterpret_cast<const std::byte*>(frame.data()), frame.size());
    return producer.Push({piece}, static_cast<uint32_t>(frame.size()));
  }
  // The next frame, or "" if there is none.
  std::string Pop() {
    uint32_t length = 0;
    last = consumer.Pop(buffer.data(), &length);
    return last == Popped::kFrame
               ? std::string(reinterpret_cast<const char*>(buffer.data()), length)
               : "";
  }
  std::atomic_ref<uint32_t> word(size_t offset) {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(memory.get() + offset));
  }

  // So that only the check of the counter prevents invented frames of a hostile peer.
  void MakeLengthsPlausible() {
    for (uint32_t i = 0; i < shape.slots; ++i) {
      word(RingShape::kControlBytes + i * shape.slot_bytes()).store(1);
    }
  }

  RingShape shape;
  std::unique_ptr<std::byte, void (*)(void*)> memory;
  RingProducer producer;
  RingConsumer consumer;
  std::vector<std::byte> buffer;
  Popped last = Popped::kEmpty;
};

constexpr size_t kTail = 0;
constexpr size_t kHead = 64;

TEST(ShmRingTest, FramesOfEveryLengthComeOutAsTheyWentInManyTimesRound) {
  Ring ring({3, 100});  // 3 divides no power of two
  for (uint32_t i = 0; i < 1000; ++i) {
    const std::string frame(1 + i % 100, static_cast<char>('a' + i % 26));
    ASSERT_EQ(ring.Push(frame), Pushed::kDone);
    EXPECT_EQ(ring.Pop(), frame);
    EXPECT_FALSE(ring.consumer.Release());
  }
  EXPECT_EQ(ring.Pop(), "");
  EXPECT_EQ(ring.last, Popped::kEmpty);
}

TEST(ShmRingTest, ItTakesAsManyFramesAsItHasSlotsUntilTheyAreReleased) {
  Ring ring({4, 8});
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(ring.producer.Room(), 4u - i);
    ASSERT_EQ(ring.Push(std::to_string(i)), Pushed::kDone);
  }
  EXPECT_EQ(ring.producer.Room(), 0u);
  EXPECT_EQ(ring.Push("x"), Pushed::kFull);
  EXPECT_EQ(ring.Pop(), "0");
  EXPECT_EQ(ring.Push("x"), Pushed::kFull) << "popped but not released";
  EXPECT_TRUE(ring.consumer.Release()) << "the producer waits";
  EXPECT_FALSE(ring.consumer.Release()) << "told once";
  EXPECT_EQ(ring.producer.Room(), 1u);
  EXPECT_EQ(ring.Push("4"), Pushed::kDone);
  for (int i = 1; i < 5; ++i) EXPECT_EQ(ring.Pop(), std::to_string(i));
}

TEST(ShmRingTest, ASleeperIsTakenOnceAndOnlyWhenItSleeps) {
  Ring ring({4, 8});
  ASSERT_EQ(ring.Push("a"), Pushed::kDone);
  EXPECT_FALSE(ring.producer.TakeSleeper());
  EXPECT_FALSE(ring.consumer.Sleep()) << "there is a frame";
  EXPECT_EQ(ring.Pop(), "a");
  ring.consumer.Awake();
  EXPECT_FALSE(ring.producer.TakeSleeper());
  EXPECT_TRUE(ring.consumer.Sleep());
  ASSERT_EQ(ring.Push("b"), Pushed::kDone);
  EXPECT_TRUE(ring.producer.TakeSleeper());
  EXPECT_FALSE(ring.producer.TakeSleeper());
}

TEST(ShmRingTest, FreezeKeepsWhatWasThereAndTakesNothingLater) {
  Ring ring({4, 8});
  ASSERT_EQ(ring.Push("a"), Pushed::kDone);
  ASSERT_EQ(ring.Push("b"), Pushed::kDone);
  ring.consumer.Freeze();
  ASSERT_EQ(ring.Push("c"), Pushed::kDone);
  EXPECT_EQ(ring.Pop(), "a");
  EXPECT_EQ(ring.Pop(), "b");
  EXPECT_EQ(ring.Pop(), "");
  EXPECT_EQ(ring.last, Popped::kEmpty);
}

TEST(ShmRingTest, AHostileTailBreaksTheRing) {
  for (const uint32_t tail : {5u, 1000u, 0x80000000u, 0xffffffffu}) {
    Ring ring({4, 8});
    ring.MakeLengthsPlausible();
    ring.word(kTail).store(tail);
    EXPECT_EQ(ring.Pop(), "");
    EXPECT_EQ(ring.last, Popped::kBroken) << tail;
    EXPECT_FALSE(ring.consumer.Sleep());
  }
}

TEST(ShmRingTest, ATailThatGoesBackBreaksTheRing) {
  Ring ring({4, 8});
  ASSERT_EQ(ring.Push("a"), Pushed::kDone);
  EXPECT_EQ(ring.Pop(), "a");
  ring.MakeLengthsPlausible();
  ring.word(kTail).store(0);
  EXPECT_EQ(ring.Pop(), "");
  EXPECT_EQ(ring.last, Popped::kBroken);
}

TEST(ShmRingTest, AHostileLengthBreaksTheRingAndCopiesNothing) {
  for (const uint32_t length : {0u, 9u, 0xffffffffu}) {
    Ring ring({4, 8});
    ASSERT_EQ(ring.Push("a"), Pushed::kDone);
    ring.word(RingShape::kControlBytes).store(length);
    ring.buffer.assign(8, std::byte{0x77});
    EXPECT_EQ(ring.Pop(), "");
    EXPECT_EQ(ring.last, Popped::kBroken) << length;
    EXPECT_EQ(ring.buffer[0], std::byte{0x77});
  }
}

TEST(ShmRingTest, AHostileHeadBreaksTheRingAndOverwritesNothing) {
  for (const uint32_t head : {5u, 0x80000000u, 0xffffffffu}) {
    Ring ring({4, 8});
    for (int i = 0; i < 4; ++i) ASSERT_EQ(ring.Push("abcd"), Pushed::kDone);
    ring.word(kHead).store(head);
    EXPECT_EQ(ring.producer.Room(), 0u) << head;
    EXPECT_EQ(ring.Push("zzzz"), Pushed::kBroken) << head;
    EXPECT_EQ(ring.Pop(), "abcd");
  }
}

// The two ends on two threads; each frame carries its number. ThreadSanitizer covers both, since
// here they share the mapping.
TEST(ShmRingTest, ReportedSpaceStaysIfTheConsumerMovesItsHeadBack) {
  Ring ring({4, 16});
  for (int i = 0; i < 4; ++i) ASSERT_EQ(ring.Push("frame"), Pushed::kDone);
  ring.word(kHead).store(2);
  ASSERT_EQ(ring.producer.Room(), 2u);
  ring.word(kHead).store(0);
  EXPECT_EQ(ring.Push("frame"), Pushed::kDone);
  EXPECT_EQ(ring.Push("frame"), Pushed::kDone);
  EXPECT_EQ(ring.Push("frame"), Pushed::kBroken);
}

TEST(ShmRingTest, TwoThreadsPassFramesInOrder) {
  constexpr uint64_t kFrames = 20000;
  Ring ring({5, 64});
  std::thread producer([&] {
    for (uint64_t i = 0; i < kFrames;) {
      const std::vector<uint64_t> frame(1 + i % 8, i);
      const Bytes piece(reinterpret_cast<const std::byte*>(frame.data()),
                        frame.size() * sizeof(uint64_t));
      const Pushed result = ring.producer.Push({piece}, static_cast<uint32_t>(piece.size()));
      ASSERT_NE(result, Pushed::kBroken);
      if (result == Pushed::kDone) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  for (uint64_t i = 0; i < kFrames;) {
    const std::string frame = ring.Pop();
    ASSERT_NE(ring.last, Popped::kBroken);
    if (ring.last == Popped::kEmpty) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(frame.size(), (1 + i % 8) * sizeof(uint64_t));
    for (size_t at = 0; at < frame.size(); at += sizeof(uint64_t)) {
      ASSERT_EQ(std::memcmp(frame.data() + at, &i, sizeof(i)), 0);
    }
    (void)ring.consumer.Release();
    ++i;
  }
  producer.join();
}

// A consumer that sleeps whenever Sleep allows it, on a flag that the producer sets when it takes
// the sleeper. If one wake-up were lost, both would wait until the bound.
TEST(ShmRingTest, NoWakeUpIsLostBetweenTwoThreads) {
  constexpr int kFrames = 20000;
  Ring ring({4, 8});
  std::atomic<bool> awake{false};
  std::atomic<int> taken{0};
  std::thread consumer([&] {
    while (taken.load() < kFrames) {
      if (!ring.Pop().empty()) {
        (void)ring.consumer.Release();
        ++taken;
        continue;
      }
      awake.store(false);
      if (!ring.consumer.Sleep()) continue;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!awake.load()) {
        ASSERT_LT(std::chrono::steady_clock::now(), end) << "slept on after frame " << taken.load();
        std::this_thread::yield();
      }
      ring.consumer.Awake();
    }
  });
  for (int i = 0; i < kFrames;) {
    if (ring.Push("x") != Pushed::kDone) {
      std::this_thread::yield();
      continue;
    }
    ++i;
    if (ring.producer.TakeSleeper()) awake.store(true);
    if (i % 7 == 0) {
      while (taken.load() < i && taken.load() < kFrames)
        std::this_thread::yield();  // so that it does fall asleep
    }
  }
  consumer.join();
  EXPECT_EQ(taken.load(), kFrames);
}

}  // namespace
}  // namespace osprey::rdma
