// Frames that no correct peer sends.

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/protocol_frames.h"

namespace osprey::rdma {
namespace {

// A frame of any opcode that ends early or late, with its real length in the header.
TEST(ProtocolHostileTest, AFrameOfAnotherLengthThanItsContentsIsRefused) {
  for (const Named& message : EveryMessage()) {
    for (int delta = -static_cast<int>(message.frame.size() - sizeof(FrameHeader)); delta <= 9;
         ++delta) {
      if (delta == 0) continue;
      std::string frame = message.frame;
      frame.resize(message.frame.size() + delta);
      frame = WithLength(frame);
      // A Batch that ends where one of its frames ends is whole.
      if (message.name == "Batch" && frame == BatchFrame({GetFrame(AnyGet(), "key")})) continue;
      // Without its body it is the one of a server that is about to end.
      if (message.name == "DisconnectNotice with servers" && frame.size() == sizeof(FrameHeader))
        continue;
      EXPECT_FALSE(ParseAny(frame).ok()) << message.name << " with " << delta << " bytes";
    }
  }
}

TEST(ProtocolHostileTest, EveryBitOfReservedBytesIsChecked) {
  // Byte ranges of the golden frames that are reserved: {message, first, last}.
  struct Range {
    size_t message, first, last;
  };
  const std::vector<Named> messages = EveryMessage();
  for (const Range& range : {Range{0, 60, 63},
                             {1, 52, 55},
                             {1, 93, 93},
                             {1, 95, 95},
                             {2, 28, 31},
                             {2, 68, 71},
                             {4, 25, 25},
                             {4, 28, 31},
                             {5, 27, 31},
                             {10, 25, 25},
                             {10, 28, 31},
                             {11, 25, 25},
                             {11, 28, 31},
                             {messages.size() - 1, 28, 31}}) {
    for (size_t at = range.first; at <= range.last; ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        const std::string frame =
            WithByte(messages[range.message].frame, at, static_cast<uint8_t>(1 << bit));
        EXPECT_FALSE(ParseAny(frame).ok()) << messages[range.message].name << " byte " << at;
      }
    }
  }
}

uint64_t Seed() {
  const char* given = std::getenv("OSPREY_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device()();
  std::cerr << "seed (OSPREY_SEED): " << seed << "\n";
  return seed;
}

TEST(ProtocolHostileTest, EveryTruncationIsRefused) {
  for (const Named& message : EveryMessage()) {
    for (size_t length = 0; length < message.frame.size(); ++length) {
      EXPECT_FALSE(ParseAny(message.frame.substr(0, length)).ok()) << message.name << " " << length;
    }
  }
}

// Under asan and ubsan: nothing is read beyond the frame, and what is accepted lies within it.
TEST(ProtocolHostileTest, RandomChangesNeverLeadOutOfTheFrame) {
  std::mt19937_64 random(Seed());
  const std::vector<Named> messages = EveryMessage();
  int accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string frame = messages[random() % messages.size()].frame;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      // Small numbers and all ones provoke length errors.
      const uint8_t bytes[] = {0, 1, 255, static_cast<uint8_t>(random()), 127, 128};
      frame[random() % frame.size()] = static_cast<char>(bytes[random() % 6]);
    }
    if (random() % 4 == 0) frame.resize(random() % (2 * frame.size()));
    if (random() % 2 == 0 && frame.size() >= sizeof(FrameHeader)) frame = WithLength(frame);
    accepted += ParseAny(frame).ok() ? 1 : 0;
  }
  // Some changes (of a session, a key's byte) leave a frame valid. Otherwise this would test the
  // header alone.
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 199000);
}

TEST(ProtocolHostileTest, RandomBytesAreRefused) {
  std::mt19937_64 random(Seed());
  for (int round = 0; round < 100000; ++round) {
    std::string frame(random() % 200, '\0');
    for (char& byte : frame) byte = static_cast<char>(random());
    EXPECT_FALSE(ParseAny(frame).ok());
  }
}

}  // namespace
}  // namespace osprey::rdma
