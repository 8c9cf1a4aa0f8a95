// The envelope of the verbs transport: its bytes, refused envelopes, and the bound on control
// frames. Needs no device.

#include "rdma/verbs/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace osprey::rdma {
namespace {

constexpr uint32_t kFrameBytesMax = 1000;

std::vector<std::byte> Message(const FrameEnvelope& envelope, size_t frame_bytes) {
  std::vector<std::byte> message(sizeof(envelope) + frame_bytes, std::byte{0x5a});
  std::memcpy(message.data(), &envelope, sizeof(envelope));
  return message;
}

TEST(VerbsFrame, TheEnvelopeHasItsGoldenBytes) {
  const FrameEnvelope envelope = {.credits = 0x0102, .flags = 0, .reserved = 0, .length = 0x03};
  const std::vector<std::byte> message = Message(envelope, 3);
  const std::vector<uint8_t> golden = {0x02, 0x01, 0x00, 0x00, 0x03, 0, 0, 0, 0x5a, 0x5a, 0x5a};
  ASSERT_EQ(message.size(), golden.size());
  EXPECT_EQ(std::memcmp(message.data(), golden.data(), golden.size()), 0);

  const absl::StatusOr<FrameEnvelope> parsed = ParseEnvelope(message, kFrameBytesMax);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->credits, 0x0102);
  EXPECT_EQ(parsed->length, 3u);
}

TEST(VerbsFrame, ControlMessagesAreTakenAsTheyAreSent) {
  const FrameEnvelope credits = {
      .credits = 7, .flags = kEnvelopeCreditsOnly, .reserved = 0, .length = 0};
  EXPECT_TRUE(ParseEnvelope(Message(credits, 0), kFrameBytesMax).ok());
  const FrameEnvelope disconnect_notice = {
      .credits = 0, .flags = kEnvelopeDisconnectNotice, .reserved = 0, .length = 0};
  EXPECT_TRUE(ParseEnvelope(Message(disconnect_notice, 0), kFrameBytesMax).ok());
  const FrameEnvelope longest = {.credits = 0, .flags = 0, .reserved = 0, .length = kFrameBytesMax};
  EXPECT_TRUE(ParseEnvelope(Message(longest, kFrameBytesMax), kFrameBytesMax).ok());
}

TEST(VerbsFrame, WhatCannotBeIsRefusedAndTheRefusalNamesTheField) {
  struct Case {
    FrameEnvelope envelope;
    size_t frame_bytes;
    const char* named;
  };
  const Case cases[] = {
      {{0, 0, 0, 5}, 4, "announces 5 bytes and 4 came"},
      {{0, 0, 0, 4}, 5, "announces 4 bytes and 5 came"},
      {{0, 0, 0, 0xffffffff}, 8, "announces"},
      {{0, 0, 0, 0}, 0, "empty frame"},
      {{0, 0, 0, kFrameBytesMax + 1}, kFrameBytesMax + 1, "above 1000"},
      {{0, 4, 0, 4}, 4, "unknown envelope flags 4"},
      {{1, kEnvelopeCreditsOnly | kEnvelopeDisconnectNotice, 0, 0}, 0, "unknown envelope flags 3"},
      {{0, kEnvelopeCreditsOnly, 0, 0}, 0, "without credits"},
      {{1, kEnvelopeCreditsOnly, 0, 2}, 2, "control message with a frame"},
      {{0, kEnvelopeDisconnectNotice, 0, 2}, 2, "control message with a frame"},
      {{0, 0, 1, 4}, 4, "reserved"},
  };
  for (const Case& c : cases) {
    const absl::StatusOr<FrameEnvelope> parsed =
        ParseEnvelope(Message(c.envelope, c.frame_bytes), kFrameBytesMax);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << c.named;
    EXPECT_NE(parsed.status().message().find(c.named), absl::string_view::npos) << parsed.status();
  }
}

TEST(VerbsFrame, EveryMessageShorterThanAnEnvelopeIsRefused) {
  const std::vector<std::byte> message = Message({.credits = 1, .flags = kEnvelopeCreditsOnly}, 0);
  for (size_t bytes = 0; bytes < sizeof(FrameEnvelope); bytes++) {
    EXPECT_FALSE(ParseEnvelope(Bytes(message.data(), bytes), kFrameBytesMax).ok()) << bytes;
  }
}

// Two sides in any interleaving of sending, receiving and releasing. The receives that
// rdma/verbs/frame.h derives suffice, and neither side is stuck without a credit.
class CreditModel {
 public:
  explicit CreditModel(uint32_t receive_credits) : credits_(receive_credits) {
    for (End& end : ends_) {
      end.credits = receive_credits;
      end.posted = receive_credits + kControlReceives - 1;
    }
  }

  // False when a message found no receive.
  bool Step(std::mt19937& random) {
    End& end = ends_[random() % 2];
    switch (random() % 3) {
      case 0:
        return end.credits == 0 || SendData(end);
      case 1:
        return TakeIn(end);
      default:
        return Release(end, 1 + random() % 4);
    }
  }
  // Both sides take all frames; true if all credits are usable or below the threshold.
  bool Settles() {
    for (int i = 0; i < 10000; i++) {
      for (End& end : ends_) {
        if (!TakeIn(end) || !Release(end, 4)) return false;
      }
    }
    for (const End& end : ends_) {
      if (end.credits == 0) return false;
    }
    return true;
  }

 private:
  struct Sent {
    bool data;
    uint32_t credits;
  };
  struct End {
    uint32_t credits = 0;
    uint32_t posted = 0;  // receives, without that of the disconnect notice
    uint32_t owed = 0;
    uint32_t held = 0;          // frames not released
    std::vector<Sent> arrived;  // in receives, not taken in
  };
  End& Other(const End& end) { return &end == &ends_[0] ? ends_[1] : ends_[0]; }

  bool Deliver(End& from, Sent sent) {
    End& to = Other(from);
    if (to.posted == 0) return false;  // RNR
    to.posted--;
    to.arrived.push_back(sent);
    return true;
  }
  bool SendData(End& end) {
    end.credits--;
    const uint32_t owed = std::exchange(end.owed, 0);
    return Deliver(end, {true, owed});
  }
  bool TakeIn(End& end) {
    if (end.arrived.empty()) return true;
    const Sent sent = end.arrived.front();
    end.arrived.erase(end.arrived.begin());
    if (sent.data) {
      end.held++;
    } else {
      end.posted++;
    }
    end.credits += sent.credits;
    return end.credits <= credits_;
  }
  bool Release(End& end, uint32_t frames) {
    for (; frames > 0 && end.held > 0; frames--) {
      end.held--;
      end.posted++;
      if (++end.owed >= CreditsOwedMax(credits_) &&
          !Deliver(end, {false, std::exchange(end.owed, 0)}))
        return false;
    }
    return true;
  }

  const uint32_t credits_;
  End ends_[2];
};

TEST(VerbsFrame, TheReserveOfReceivesSufficesInAnyInterleaving) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const uint32_t credits : {2u, 3u, 5u, 8u, 32u, 255u}) {
    for (int run = 0; run < 20; run++) {
      CreditModel model(credits);
      for (int step = 0; step < 20000; step++) {
        ASSERT_TRUE(model.Step(random))
            << "credits " << credits << ", run " << run << ", step " << step;
      }
      ASSERT_TRUE(model.Settles()) << "credits " << credits << ", run " << run;
    }
  }
}

}  // namespace
}  // namespace osprey::rdma
