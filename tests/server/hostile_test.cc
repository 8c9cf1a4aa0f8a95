// Frames that no correct client sends, to a whole engine: they harm at most their sender.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;
using rdma::Opcode;

uint64_t Seed() {
  const char* given = std::getenv("OSPREY_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device()();
  std::cerr << "seed (OSPREY_SEED): " << seed << "\n";
  return seed;
}

std::string AnyFrame(RawClient& client, std::mt19937_64& random, uint64_t sequence) {
  const std::string key = absl::StrCat("key", random() % 10);
  switch (random() % 10) {
    case 0:
      return client.PutFrame(sequence, key, Large(random() % 3000));
    case 1:
      return client.RendezvousFrame(sequence, key, Large(1 + random() % 100000));
    case 2:
      return client.DeleteFrame(sequence, key);
    case 3:
      return client.IncrementFrame(sequence, key, static_cast<int64_t>(random()));
    case 4:
      return client.AppendFrame(sequence, key, Large(random() % 3000));
    case 5:
      return client.FlushFrame(sequence, {});
    case 6:
      return client.GetFrame(sequence, key, random() % 2 == 0);
    case 7:
      return client.EmptyFrame(random() % 2 == 0 ? Opcode::kPing : Opcode::kStats, sequence);
    default: {
      std::vector<std::string> frames;
      for (uint64_t i = 1 + random() % 4; i > 0; --i)
        frames.push_back(client.IncrementFrame(sequence + i, key, 1));
      return client.BatchFrame(frames);
    }
  }
}

std::string Changed(std::string frame, std::mt19937_64& random) {
  for (uint64_t changes = random() % 3; changes > 0; --changes) {
    // Small numbers and all ones provoke length errors.
    const uint8_t bytes[] = {0, 1, 255, static_cast<uint8_t>(random()), 127, 128};
    frame[random() % frame.size()] = static_cast<char>(bytes[random() % 6]);
  }
  if (random() % 8 == 0) frame.resize(1 + random() % (2 * frame.size()));
  if (random() % 2 == 0 && frame.size() >= sizeof(rdma::FrameHeader)) {
    const uint32_t length = static_cast<uint32_t>(frame.size());
    std::memcpy(frame.data() + offsetof(rdma::FrameHeader, length), &length, sizeof(length));
  }
  frame.resize(std::min<size_t>(frame.size(), 8192));
  return frame;
}

// As if each frame were executed on arrival.
TEST(ServerHostileTest, WhatCameBeforeAMalformedFrameIsDone) {
  const auto other_session = [](std::string frame) {
    frame[offsetof(rdma::FrameHeader, session)] ^= 1;
    return frame;
  };
  const auto bad_batch = [](std::string frame) {
    frame[sizeof(rdma::FrameHeader)] ^= 1;  // the first frame's magic
    return frame;
  };
  for (int kind = 0; kind < 3; ++kind) {
    SCOPED_TRACE(kind);
    ServerHarness server;
    RawClient client(server);
    client.Establish();
    client.Send(client.PutFrame(1, "before", "value"));
    if (kind == 0)
      client.Send("no frame at all, but as long as one has to be, or longer than that");
    if (kind == 1) client.Send(other_session(client.PutFrame(2, "after", "value")));
    if (kind == 2)
      client.Send(bad_batch(client.BatchFrame({client.PutFrame(2, "after", "value")})));
    server.Settle();
    EXPECT_EQ(server.closed(CloseReason::kMalformed), 1);
    EXPECT_EQ(server.Stored("before"), "value");
    EXPECT_EQ(server.Stored("after"), std::nullopt);
  }
}

// To log and to disconnect takes longer than others may wait for a table.
TEST(ServerHostileTest, DisconnectsHappenOutsideTheTableLock) {
  HarnessOptions options;
  options.partitions = 2;
  ServerHarness server(options);
  int said = 0, held = 0;
  server.set_on_log([&] {
    ++said;
    for (uint32_t i = 0; i < 2; ++i) held += !server.tables().TryLock(i).held();
  });
  RawClient repeats(server);
  repeats.Establish();
  repeats.Ask(repeats.RendezvousFrame(1, "long", Large(20000)));
  // The sequence of a write under way.
  repeats.Send(repeats.AppendFrame(2, "long", "x"));
  repeats.Send(repeats.AppendFrame(2, "long", "x"));
  server.Settle();
  EXPECT_EQ(server.closed(CloseReason::kMalformed), 1);

  // More replies than it may leave unread; at once, and after waiting for turns.
  for (const bool waits : {false, true}) {
    SCOPED_TRACE(waits);
    RawClient sleeper(server);
    sleeper.Establish();
    sleeper.Ask(sleeper.PutFrame(1, "key", std::string(1000, 'v')));
    sleeper.set_asleep(true);
    if (waits) sleeper.Send(sleeper.FlushFrame(2, {uint64_t{1} << 56, 1}));
    for (uint64_t batch = 0; batch < 2; ++batch) {
      std::vector<std::string> gets;
      for (uint64_t i = 0; i < 100; ++i) gets.push_back(sleeper.GetFrame(3 + i, "key"));
      sleeper.Send(sleeper.BatchFrame(gets));
    }
    const uint64_t deferred = server.counters().requests_deferred;
    server.Settle();
    EXPECT_EQ(server.closed(CloseReason::kBlocked), waits ? 2 : 1);
    EXPECT_EQ(server.counters().requests_deferred > deferred, waits);
  }
  EXPECT_EQ(said, 3);
  EXPECT_EQ(held, 0);
}

// Too short for its answer.
TEST(ServerHostileTest, PeerThatAcceptsOnlyTinyFramesIsDisconnected) {
  for (const uint32_t bytes : {1, 72, 100, 127, 128, 200}) {
    for (const bool authenticates : {false, true}) {
      HarnessOptions options;
      if (authenticates) options.key = rdma::AuthKey::FromBytes(std::string(32, 'k')).value();
      ServerHarness server(options);
      rdma::TransportOptions tiny;
      tiny.frame_bytes_max = bytes;
      RawClient hostile(server, tiny), other(server);
      hostile.Connect();
      server.Settle();
      if (bytes >= 72 && !hostile.disconnected()) hostile.Hello();
      server.Settle();
      EXPECT_TRUE(hostile.disconnected()) << bytes;
      EXPECT_EQ(server.closed(CloseReason::kMalformed), 1);
      if (!authenticates) other.Establish();
    }
  }
}

TEST(ServerHostileTest, RandomChangesToFramesHarmTheirSenderAlone) {
  std::mt19937_64 random(Seed());
  ServerHarness server;
  RawClient good(server), bad(server);
  good.Establish();
  bad.Establish();
  uint64_t good_sequence = 0, bad_sequence = 0;
  int executed = 0;
  for (int round = 0; round < 10000; ++round) {
    bad_sequence += 8;
    bad.Send(Changed(AnyFrame(bad, random, bad_sequence), random));
    server.Settle();
    while (bad.TakeReply().has_value()) ++executed;
    const std::string value = absl::StrCat("value", round);
    ASSERT_EQ(good.Ask(good.PutFrame(++good_sequence, "mine", value)).code, StatusCode::kOk);
    ASSERT_EQ(good.Ask(good.GetFrame(++good_sequence, "mine")).data, value);
    ASSERT_FALSE(good.disconnected());
    if (bad.disconnected()) {
      bad_sequence = 0;
      bad.Establish();
    }
  }
  // Both occurred: accepted frames, and frames that ended the connection.
  EXPECT_GT(executed, 1500);
  EXPECT_GT(server.closed(CloseReason::kMalformed), 1500);
}

}  // namespace
}  // namespace osprey::server
