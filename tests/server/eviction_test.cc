// A server that evicts: hints from clients, full memory, and values that wait for space.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/access_hint.h"
#include "index/layout/partitions.h"
#include "server/engine/engine.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;

HarnessOptions Evicting(uint32_t partitions = 1) {
  HarnessOptions options;
  options.region_bytes = 4 << 20;
  options.value_bytes_max = 4 << 20;
  options.partitions = partitions;
  options.evict = true;
  return options;
}

// Puts keys `prefix`0, 1, … of 1000 B until `count` were put or one was refused; returns the number
// put.
uint64_t Fill(RawClient& client, uint64_t& sequence, const std::string& prefix, uint64_t count) {
  const std::string value(1000, 'v');
  for (uint64_t i = 0; i < count; ++i) {
    const RawReply reply = client.Ask(client.PutFrame(++sequence, absl::StrCat(prefix, i), value));
    if (reply.code != StatusCode::kOk) return i;
  }
  return count;
}

uint64_t HintOf(ServerHarness& server, const std::string& key) {
  const uint32_t partition = server.tables().PartitionOf(key);
  const absl::StatusOr<index::Table::View> view = server.tables().Lock(partition)->Find(key);
  if (!view.ok()) return 0;
  const index::Slot slot = index::Slot::Unpack(view->slot);
  return index::AccessHint{index::WordKind::kSlot, slot.fingerprint, partition, slot.offset}.Pack();
}

TEST(ServerEvictionTest, WelcomeRequestsHintsOnlyFromAnEvictingServer) {
  ServerHarness keeps, evicts(Evicting());
  RawClient of_keeps(keeps), of_evicts(evicts);
  of_keeps.Establish();
  of_evicts.Establish();
  EXPECT_EQ(of_keeps.welcome().wants_hints, 0u);
  EXPECT_EQ(of_evicts.welcome().wants_hints, 1u);
}

TEST(ServerEvictionTest, AFullServerRefusesPutsAndKeepsEverything) {
  HarnessOptions options = Evicting();
  options.evict = false;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  uint64_t sequence = 0;
  const uint64_t stored = Fill(client, sequence, "key", 100000);
  ASSERT_LT(stored, 10000u);
  for (uint64_t i = 0; i < stored; ++i) ASSERT_TRUE(server.Stored(absl::StrCat("key", i)));
}

TEST(ServerEvictionTest, AServerThatEvictsTakesEveryPut) {
  ServerHarness server(Evicting());
  RawClient client(server);
  client.Establish();
  uint64_t sequence = 0;
  EXPECT_EQ(Fill(client, sequence, "key", 20000), 20000u);
  const index::Table::Stats stats = server.table().stats();
  EXPECT_EQ(stats.keys + stats.evictions, 20000u);
  EXPECT_GT(stats.keys, 2500u);
  EXPECT_TRUE(server.Stored("key19999"));
  const RawReply text = client.Ask(client.EmptyFrame(rdma::Opcode::kStats, ++sequence));
  EXPECT_NE(text.data.find("evict=clock\n"), std::string::npos);
  EXPECT_NE(text.data.find(absl::StrCat("\nevictions=", stats.evictions, "\n")), std::string::npos);
}

TEST(ServerEvictionTest, KeysOfWhichHintsComeStay) {
  ServerHarness server(Evicting(4));
  RawClient client(server);
  client.Establish();
  uint64_t sequence = 0;
  Fill(client, sequence, "hot", 200);
  uint64_t hot = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<uint64_t> hints;
    for (int i = 0; i < 200; ++i) hints.push_back(HintOf(server, absl::StrCat("hot", i)));
    // Alone, and beside a request.
    client.Send(client.HintsFrame(hints));
    client.Send(client.BatchFrame(
        {client.PutFrame(++sequence, "other", "value"), client.HintsFrame({hints[0]})}));
    server.Settle();
    ASSERT_TRUE(client.TakeReply().has_value());
    ASSERT_FALSE(client.TakeReply().has_value()) << "hints are not answered";
    ASSERT_EQ(Fill(client, sequence, absl::StrCat("cold", round, "#"), 200), 200u);
  }
  for (int i = 0; i < 200; ++i) hot += server.Stored(absl::StrCat("hot", i)).has_value();
  EXPECT_GT(hot, 195u);
  EXPECT_EQ(server.tables().stats().hints, 20100u);
  EXPECT_EQ(server.counters().hint_frames, 200u);
  EXPECT_EQ(server.counters().puts, 20300u);
  EXPECT_EQ(server.counters().answers[0], server.counters().puts);
}

TEST(ServerEvictionTest, AGetByMessageIsAUse) {
  ServerHarness server(Evicting());
  RawClient client(server);
  client.Establish();
  uint64_t sequence = 0;
  Fill(client, sequence, "hot", 1);
  for (int round = 0; round < 100; ++round) {
    ASSERT_EQ(client.Ask(client.GetFrame(++sequence, "hot0")).code, StatusCode::kOk) << round;
    ASSERT_EQ(Fill(client, sequence, absl::StrCat("cold", round, "#"), 200), 200u);
  }
}

TEST(ServerEvictionTest, HintsMaySayAnything) {
  ServerHarness server(Evicting(2));
  RawClient client(server);
  client.Establish();
  uint64_t sequence = 0;
  Fill(client, sequence, "key", 1000);
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    std::vector<uint64_t> hints;
    for (uint32_t k = 0; k < rdma::kHintsMax; ++k) {
      hints.push_back(random() % 2 == 0 ? random()
                                        : HintOf(server, absl::StrCat("key", random() % 1000)) ^
                                              uint64_t{1} << random() % 64);
    }
    client.Send(client.HintsFrame(hints));
    server.Settle();
  }
  EXPECT_FALSE(client.disconnected());
  EXPECT_EQ(Fill(client, sequence, "key", 10000), 10000u);
}

TEST(ServerEvictionTest, MalformedHintsEndTheirConnection) {
  for (int wrong = 0; wrong < 3; ++wrong) {
    ServerHarness server(Evicting());
    RawClient client(server), other(server);
    client.Establish();
    other.Establish();
    std::string frame = client.HintsFrame({1, 2, 3}, wrong == 0 ? 7 : 0);
    const size_t count_at = sizeof(rdma::FrameHeader);
    if (wrong == 1) frame[count_at] = 2;
    if (wrong == 2) frame[count_at + 4] = 1;  // reserved
    client.Send(frame);
    server.Settle();
    EXPECT_TRUE(client.disconnected()) << wrong;
    EXPECT_EQ(server.closed(CloseReason::kMalformed), 1u);
    EXPECT_EQ(other.Ask(other.PutFrame(1, "key", "value")).code, StatusCode::kOk);
  }
}

TEST(ServerEvictionTest, AServerThatDoesNotEvictTakesNoNoticeOfHints) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  client.Send(client.HintsFrame({1, 2, 3}));
  EXPECT_EQ(client.Ask(client.PutFrame(1, "key", "value")).code, StatusCode::kOk);
  EXPECT_EQ(server.table().stats().hints, 0u);
}

// --- Long values -----------------------------------------------------------------

TEST(ServerEvictionTest, LargeWriteWaitingForSpaceBlocksNoOtherClient) {
  ServerHarness server(Evicting());
  RawClient client(server), other(server);
  client.Establish();
  other.Establish();
  uint64_t sequence = 0;
  const std::string small(16, 'v');
  for (int i = 0; i < 60000; ++i) {
    other.Send(other.PutFrame(++sequence, absl::StrCat("key-with-a-long-name-", i), small));
    if (i % 16 == 0) server.Settle();
  }
  server.Settle();
  while (other.TakeReply().has_value()) {
  }
  ASSERT_GT(server.table().stats().evictions, 0u);
  client.Send(client.RendezvousFrame(1, "long", Large(2500000)));
  uint64_t answered = 0;
  for (int turn = 0; turn < 10000 && !client.replies(); ++turn) {
    if (turn % 2 == 0) other.Send(other.PutFrame(++sequence, absl::StrCat("key", turn), small));
    server.Turn();
    answered += other.TakeReply().has_value();
  }
  const std::optional<RawReply> reply = client.TakeReply();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->code, StatusCode::kOk) << reply->data;
  EXPECT_TRUE(server.Stored("long") == Large(2500000));
  EXPECT_GT(answered, 2u);
}

TEST(ServerEvictionTest, ValueThatCanNeverFitIsRefusedAtOnce) {
  ServerHarness server(Evicting());
  RawClient client(server);
  client.Establish();
  EXPECT_EQ(client.Ask(client.RendezvousFrame(1, "long", Large(4 << 20))).code,
            StatusCode::kResourceExhausted);
}

TEST(ServerEvictionTest, AValueThatLeasesKeepOutIsRefusedInTheEnd) {
  ServerHarness server(Evicting());
  RawClient client(server), reader(server);
  client.Establish();
  reader.Establish();
  ASSERT_EQ(client.Ask(client.RendezvousFrame(1, "first", Large(3 << 20))).code, StatusCode::kOk);
  uint64_t sequence = 0;
  reader.Ask(reader.GetFrame(++sequence, "first"));  // a lease of 2 s, and renewed below
  client.Send(client.RendezvousFrame(2, "second", Large(3 << 20)));
  for (int i = 0; i < 80 && client.replies() == 0; ++i) {
    reader.Send(reader.GetFrame(++sequence, "first"));
    server.Advance(absl::Milliseconds(100));
  }
  const std::optional<RawReply> reply = client.TakeReply();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->code, StatusCode::kResourceExhausted);
  EXPECT_EQ(reply->reason, Reason::kServerFull);
  EXPECT_TRUE(server.Stored("first") == Large(3 << 20));
}

TEST(ServerEvictionTest, AClientThatLeavesWhileItsValueWaitsLeavesNothingBehind) {
  ServerHarness server(Evicting());
  RawClient reader(server);
  reader.Establish();
  {
    RawClient client(server);
    client.Establish();
    ASSERT_EQ(client.Ask(client.RendezvousFrame(1, "first", Large(3 << 20))).code, StatusCode::kOk);
    reader.Ask(reader.GetFrame(1, "first"));
    client.Send(client.RendezvousFrame(2, "second", Large(3 << 20)));
    for (int i = 0; i < 10; ++i) server.Turn();
    EXPECT_EQ(client.replies(), 0u);
    client.transport().Disconnect(client.id());
    server.Settle();
  }
  EXPECT_EQ(server.engine().connections(), 1u);
  server.Settle();  // settles: no request waits for space any more
  EXPECT_EQ(server.Stored("second"), std::nullopt);
}

}  // namespace
}  // namespace osprey::server
