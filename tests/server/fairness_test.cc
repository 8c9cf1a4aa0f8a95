// Fairness: one client's requests, however expensive or many, do not delay the others. Counted in
// turns of the engine, on the fake transport.

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/engine/connection/connection.h"
#include "server/requests/requests.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;

// Keys to flush, written by `client` with the sequences 1 to `keys`.
void Fill(RawClient& client, uint64_t keys) {
  for (uint64_t i = 1; i <= keys; ++i) {
    ASSERT_EQ(client.Ask(client.PutFrame(i, absl::StrCat("key", i), "value")).code,
              StatusCode::kOk);
  }
}

std::string Flushes(RawClient& client, uint64_t first, uint64_t count) {
  std::vector<std::string> frames;
  for (uint64_t i = 0; i < count; ++i) frames.push_back(client.FlushFrame(first + i, {}));
  return client.BatchFrame(frames);
}

uint64_t RepliesOf(RawClient& client) {
  uint64_t count = 0;
  while (client.TakeReply().has_value()) ++count;
  return count;
}

TEST(FairnessTest, ABatchOfFlushesLeavesOthersTheirTurns) {
  ServerHarness server;
  RawClient greedy(server), modest(server);
  greedy.Establish();
  modest.Establish();
  Fill(modest, 2000);
  constexpr uint64_t kFlushes = 100;
  greedy.Send(Flushes(greedy, 1, kFlushes));
  for (uint64_t i = 0; i < 10; ++i) {
    modest.Send(modest.PutFrame(2001 + i, absl::StrCat("mine", i), "value"));
    const uint64_t flushes = server.counters().flushes;
    server.engine().Poll(server.now());
    // Answered at once, while the greedy client's flush progresses in parts, each in its turn.
    EXPECT_LE(server.counters().flushes - flushes, 2) << i;
    EXPECT_EQ(server.counters().puts, 2001 + i);
  }
  EXPECT_LT(server.counters().flushes, 25);
  server.Settle();
  EXPECT_EQ(RepliesOf(modest), 10);
  EXPECT_EQ(RepliesOf(greedy), kFlushes);
  EXPECT_EQ(server.counters().flushes, kFlushes);
  EXPECT_GT(server.counters().requests_deferred, kFlushes - 10);
}

TEST(FairnessTest, RequestsThatWaitAreExecutedInTheirOrder) {
  ServerHarness server;
  RawClient greedy(server), other(server);
  greedy.Establish();
  other.Establish();
  Fill(other, 1000);
  // Requests behind the flushes, in the Batch and in frames after it, wait for them.
  std::vector<std::string> frames;
  for (uint64_t i = 1; i <= 5; ++i) frames.push_back(greedy.FlushFrame(i, {}));
  frames.push_back(greedy.AppendFrame(6, "order", "a"));
  greedy.Send(greedy.BatchFrame(frames));
  greedy.Send(greedy.AppendFrame(7, "order", "b"));
  greedy.Send(greedy.FlushFrame(8, {}));
  greedy.Send(greedy.AppendFrame(9, "order", "c"));
  greedy.Send(greedy.GetFrame(10, "order"));
  server.Settle();
  for (uint64_t i = 1; i <= 10; ++i) {
    const std::optional<RawReply> reply = greedy.TakeReply();
    ASSERT_TRUE(reply.has_value()) << i;
    EXPECT_EQ(reply->sequence, i);
    EXPECT_EQ(reply->code, StatusCode::kOk);
    if (i == 10) {
      EXPECT_TRUE(reply->data == "abc" || reply->data == "c") << reply->data;
    }
  }
}

// More requests than fit into a turn, of keys in several partitions: batched requests, waiting
// ones, and those behind them.
TEST(FairnessTest, RequestsOfAKeyKeepTheirOrderWhenGatheredAndDeferred) {
  HarnessOptions options;
  options.partitions = 8;
  ServerHarness server(options);
  RawClient client(server), other(server);
  client.Establish();
  other.Establish();
  std::vector<std::string> expected(16);
  uint64_t sequence = 0;
  const auto append = [&] {
    const size_t key = ++sequence * 7 % expected.size();
    const std::string piece = absl::StrCat(sequence, " ");
    expected[key] += piece;
    return client.AppendFrame(sequence, absl::StrCat("key", key), piece);
  };
  for (int round = 0; round < 3; ++round) {
    std::vector<std::string> frames;
    for (int i = 0; i < 60; ++i) frames.push_back(append());
    client.Send(client.BatchFrame(frames));
    client.Send(append());
    // Not a batched request: it divides the batch, and uses up the turn.
    if (round > 0) client.Send(client.FlushFrame(++sequence, {uint64_t{7} << 56, 1}));
    client.Send(append());
    other.Send(other.PutFrame(round + 1, "mine", "value"));
    server.Turn();
  }
  server.Settle();
  EXPECT_GT(server.counters().requests_deferred, 0);
  EXPECT_EQ(server.counters().appends, 3 * 62);
  for (size_t key = 0; key < expected.size(); ++key)
    EXPECT_EQ(server.Stored(absl::StrCat("key", key)), expected[key]) << key;
  EXPECT_EQ(RepliesOf(client), sequence);
  EXPECT_EQ(RepliesOf(other), 3);
}

// Some prove to be expensive when they are executed. The rest of the batch then waits, in its
// order.
TEST(FairnessTest, WhatWasGatheredWaitsWhenOthersTurnOutExpensive) {
  HarnessOptions options;
  options.region_bytes = 1 << 20;
  options.evict = true;
  ServerHarness server(options);
  RawClient client(server), other(server);
  other.Establish();
  for (uint64_t i = 1; server.table().evictions() == 0; ++i) {
    ASSERT_LT(i, 20000);
    other.Ask(other.PutFrame(i, absl::StrCat("cold", i), std::string(60, 'v')));
  }
  client.Establish();
  // Each evicts some dozens of others.
  constexpr uint64_t kExpensive = 25;
  uint64_t sequence = 0;
  while (sequence < kExpensive) {
    ++sequence;
    client.Send(client.PutFrame(sequence, absl::StrCat("dear", sequence), Large(7000)));
  }
  std::string expected;
  for (const int appends : {78, 20}) {
    std::vector<std::string> frames;
    for (int i = 0; i < appends; ++i) {
      const std::string piece(1, static_cast<char>('a' + ++sequence % 26));
      expected += piece;
      frames.push_back(client.AppendFrame(sequence, "order", piece));
    }
    client.Send(client.BatchFrame(frames));
  }
  client.Send(client.EmptyFrame(Opcode::kPing, ++sequence));  // not on a key
  const uint64_t evictions = server.table().evictions();
  server.engine().Poll(server.now());
  EXPECT_GT(server.table().evictions() - evictions, 100);
  EXPECT_GT(server.counters().requests_deferred, 50);
  server.Settle();
  EXPECT_FALSE(client.disconnected());
  EXPECT_EQ(server.Stored("order"), expected);
  uint64_t last = 0;
  while (const std::optional<RawReply> reply = client.TakeReply()) last = reply->sequence;
  EXPECT_EQ(last, sequence);
}

// Other pollers may need the table.
TEST(FairnessTest, ATableIsHeldForFewerExpensiveRequestsThanSmallOnes) {
  ServerHarness server;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(server));
    clients.back()->Establish();
  }
  // Each hold is marked as awaited, once: a PUT with a time to live reads the clock.
  index::Table& table = server.table();
  int holds = 0;
  server.set_clock([&] {
    constexpr uint32_t kHeld = 1, kAwaited = 2;
    uint32_t held = kHeld;
    holds += table.lock_word().compare_exchange_strong(held, kAwaited);
    return server.now();
  });
  uint64_t sequence = 0;
  const auto put = [&](RawClient& client, size_t value_bytes) {
    std::string frame = client.PutFrame(sequence, "key", std::string(value_bytes, 'v'));
    const uint64_t ttl_ns = uint64_t{1} << 40;
    std::memcpy(frame.data() + sizeof(rdma::FrameHeader) + offsetof(rdma::PutBody, ttl_ns), &ttl_ns,
                sizeof(ttl_ns));
    client.Send(frame);
  };
  const auto holds_of = [&](size_t value_bytes) {
    for (int i = 0; i < 20; ++i) {
      ++sequence;
      for (const auto& client : clients) put(*client, value_bytes);
    }
    const uint64_t before = server.counters().puts;
    holds = 0;
    server.engine().Poll(server.now());
    EXPECT_EQ(server.counters().puts, before + 60);
    const int held = holds;
    server.Settle();
    return held;
  };
  EXPECT_EQ(holds_of(10), 1);
  EXPECT_EQ(holds_of(8000), 2);  // each of them costs two
  server.set_clock(nullptr);
}

// A malformed request ends the connection; earlier requests have been executed.
TEST(FairnessTest, WhatWasGatheredBeforeAMalformedRequestIsExecuted) {
  ServerHarness server;
  RawClient client(server), other(server);
  client.Establish();
  other.Establish();
  other.Send(other.PutFrame(1, "other", "value"));
  client.Send(client.PutFrame(1, "before", "value"));
  client.Send(client.PutFrame(2, "", "value"));
  client.Send(client.PutFrame(3, "after", "value"));
  server.Settle();
  EXPECT_TRUE(client.disconnected());
  EXPECT_EQ(server.Stored("before"), "value");
  EXPECT_EQ(server.Stored("after"), std::nullopt);
  EXPECT_EQ(server.Stored("other"), "value");
  EXPECT_EQ(RepliesOf(other), 1);
}

TEST(FairnessTest, ManyGreedyClientsHaveTheirTurnsOneAfterTheOther) {
  HarnessOptions options;
  options.connections_max = 16;
  ServerHarness server(options);
  std::vector<std::unique_ptr<RawClient>> greedy;
  for (int i = 0; i < 10; ++i) {
    greedy.push_back(std::make_unique<RawClient>(server));
    greedy.back()->Establish();
  }
  RawClient modest(server);
  modest.Establish();
  Fill(modest, 500);
  for (const auto& client : greedy) client->Send(Flushes(*client, 1, 20));
  server.engine().Poll(server.now());  // one part each, and one in turn
  EXPECT_LE(server.counters().flushes, 12);
  for (uint64_t turn = 0; turn < 50; ++turn) {
    modest.Send(modest.PutFrame(501 + turn, "mine", "value"));
    const uint64_t flushes = server.counters().flushes;
    server.engine().Poll(server.now());
    modest.transport();
    EXPECT_LE(server.counters().flushes - flushes, 1);
    EXPECT_EQ(server.counters().puts, 501 + turn);
    if (turn % 8 == 7) server.Turn();  // credits come back
  }
  // No client is ahead by more than a part or two.
  uint64_t least = 1000, most = 0;
  for (const auto& client : greedy) {
    (void)client;
    least = std::min<uint64_t>(least, client->replies());
    most = std::max<uint64_t>(most, client->replies());
  }
  EXPECT_LE(most - least, 3);
  server.Settle();
  for (const auto& client : greedy) EXPECT_EQ(RepliesOf(*client), 20);
}

TEST(FairnessTest, SmallWritesInFullBatchesNeedNotWait) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  std::vector<std::string> frames;
  for (uint64_t i = 1; i <= kRequestsMax; ++i)
    frames.push_back(client.PutFrame(i, absl::StrCat("k", i), "v"));
  client.Send(client.BatchFrame(std::vector<std::string>(frames.begin(), frames.begin() + 64)));
  client.Send(client.BatchFrame(std::vector<std::string>(frames.begin() + 64, frames.end())));
  server.engine().Poll(server.now());
  EXPECT_EQ(server.counters().puts, kRequestsMax);
  EXPECT_EQ(server.counters().requests_deferred, 0);
}

// As many PUTs as a client may have unanswered, in as many frames as needed.
void SendFull(RawClient& client, uint64_t first) {
  std::vector<std::string> frames;
  for (uint64_t i = 0; i < kRequestsMax; ++i)
    frames.push_back(client.PutFrame(first + i, absl::StrCat("k", i), "v"));
  const auto middle = frames.begin() + kRequestsMax / 2;
  client.Send(client.BatchFrame(std::vector<std::string>(frames.begin(), middle)));
  client.Send(client.BatchFrame(std::vector<std::string>(middle, frames.end())));
}

TEST(FairnessTest, GreedyClientGetsAShorterQuantumBesideOthers) {
  ServerHarness server;
  RawClient greedy(server), modest(server);
  greedy.Establish();
  modest.Establish();
  SendFull(greedy, 1);  // which marks it as greedy
  server.engine().Poll(server.now());
  EXPECT_EQ(server.counters().puts, kRequestsMax);

  SendFull(greedy, 1 + kRequestsMax);
  for (uint64_t turn = 1; turn <= 2; ++turn) {
    const uint64_t puts = server.counters().puts;
    modest.Send(modest.PutFrame(turn, "mine", "value"));
    server.engine().Poll(server.now());
    EXPECT_EQ(server.counters().puts - puts, kTurnCostBesideOthersMax + 1) << turn;
  }
  EXPECT_EQ(server.counters().requests_deferred, kRequestsMax - kTurnCostBesideOthersMax);
  server.Settle();
  EXPECT_EQ(RepliesOf(modest), 2);
  EXPECT_EQ(RepliesOf(greedy), 2 * kRequestsMax);
}

TEST(FairnessTest, WhenSeveralSendMuchNoneHasShorterTurns) {
  ServerHarness server;
  RawClient one(server), two(server), modest(server);
  for (RawClient* client : {&one, &two, &modest}) client->Establish();
  for (uint64_t i = 0; i < 5; ++i) {
    SendFull(one, 1 + i * kRequestsMax);
    SendFull(two, 1 + i * kRequestsMax);
    server.engine().Poll(server.now());
    EXPECT_EQ(server.counters().puts, 2 * (i + 1) * kRequestsMax);
  }
  EXPECT_EQ(server.counters().requests_deferred, 0);
}

TEST(FairnessTest, AFloodOfHintsLeavesOthersTheirTurns) {
  HarnessOptions options;
  options.evict = true;
  ServerHarness server(options);
  RawClient greedy(server), modest(server);
  greedy.Establish();
  modest.Establish();
  const std::vector<uint64_t> hints(rdma::kHintsMax, uint64_t{1} << 62 | 12345);
  for (int i = 0; i < 20; ++i) greedy.Send(greedy.HintsFrame(hints));
  for (uint64_t i = 1; i <= 4; ++i) {
    modest.Send(modest.PutFrame(i, absl::StrCat("mine", i), "value"));
    const uint64_t taken = server.table().stats().hints;
    server.engine().Poll(server.now());
    // Its share on arrival, and in its turn.
    EXPECT_LE(server.table().stats().hints - taken, 8 * rdma::kHintsMax) << i;
    EXPECT_EQ(server.counters().puts, i);
  }
  server.Settle();
  EXPECT_EQ(server.table().stats().hints, 20 * rdma::kHintsMax);
  EXPECT_FALSE(greedy.disconnected());
}

TEST(FairnessTest, EvictionForOneClientIsNotChargedToAnother) {
  HarnessOptions options;
  options.evict = true;
  ServerHarness server(options);
  RawClient greedy(server), modest(server);
  greedy.Establish();
  modest.Establish();
  uint64_t sequence = 0;
  const auto batch = [&](absl::string_view name, int writes) {
    std::vector<std::string> frames;
    for (int i = 0; i < writes; ++i) {
      ++sequence;
      frames.push_back(modest.PutFrame(sequence, absl::StrCat(name, sequence), Large(100)));
    }
    return modest.BatchFrame(frames);
  };
  for (int i = 0; i < 10000 && server.table().stats().evictions == 0; ++i) {
    modest.Send(batch("fill", 20));
    server.Settle();
  }
  ASSERT_GT(server.table().stats().evictions, 0);
  ASSERT_EQ(server.counters().requests_deferred, 0);
  greedy.Send(greedy.RendezvousFrame(1, "large", Large(1 << 20)));
  for (int turn = 0; turn < 5; ++turn) {
    // Few, since each evicts keys, and turns are shorter beside a greedy client.
    modest.Send(batch("mine", 4));
    server.Turn();
  }
  EXPECT_EQ(server.counters().requests_deferred, 0);
  server.Settle();
  EXPECT_TRUE(server.Stored("large") == Large(1 << 20));
}

TEST(FairnessTest, ClientAboveTheRequestLimitIsDisconnected) {
  ServerHarness server;
  RawClient hostile(server), modest(server);
  hostile.Establish();
  modest.Establish();
  Fill(modest, 500);
  for (uint64_t i = 0; i < 3; ++i) hostile.Send(Flushes(hostile, 1 + i * 120, 120));
  server.Settle();
  EXPECT_TRUE(hostile.disconnected());
  EXPECT_EQ(server.closed(CloseReason::kMalformed), 1);
  EXPECT_EQ(modest.Ask(modest.PutFrame(501, "key", "value")).code, StatusCode::kOk);
}

// The client is disconnected during a GET, which holds the table, while a long append has space
// reserved in the same table.
TEST(FairnessTest, DisconnectForUnreadRepliesCancelsWorkInProgress) {
  ServerHarness server;
  RawClient hostile(server), modest(server);
  hostile.Establish();
  modest.Establish();
  ASSERT_EQ(hostile.Ask(hostile.RendezvousFrame(1, "key", Large(900'000))).code, StatusCode::kOk);
  const uint64_t item_bytes = server.table().stats().item_bytes;
  hostile.set_asleep(true);
  for (uint64_t i = 2; i < 40; ++i) {  // until it has no credits for replies
    if (hostile.transport().SendRoom(hostile.id()) < 4) break;
    hostile.Send(hostile.GetFrame(i, "key", false));
    server.engine().Poll(server.now());
  }
  // This turn does one step of the append, and no more.
  hostile.Send(hostile.AppendFrame(40, "key", "more"));
  server.engine().Poll(server.now());
  EXPECT_GT(server.table().stats().item_bytes, item_bytes);
  for (uint64_t first : {100, 200}) {
    std::vector<std::string> gets;
    for (uint64_t i = 0; i < 80; ++i) gets.push_back(hostile.GetFrame(first + i, "key", false));
    hostile.Send(hostile.BatchFrame(gets));
  }
  server.engine().Poll(server.now());
  EXPECT_EQ(server.closed(CloseReason::kBlocked), 1);
  hostile.set_asleep(false);
  server.Settle();
  EXPECT_TRUE(hostile.disconnected());
  EXPECT_EQ(server.table().stats().item_bytes, item_bytes);
  EXPECT_EQ(modest.Ask(modest.PutFrame(1, "key", "value")).code, StatusCode::kOk);
}

// Waiting requests are not applied once the connection is gone. The session continues elsewhere,
// and the client repeats them.
TEST(FairnessTest, WhatWaitsWhenItsConnectionBreaksIsAppliedOnceAllTheSame) {
  ServerHarness server;
  RawClient client(server), again(server);
  client.Establish();
  std::vector<std::string> frames;
  for (uint64_t i = 1; i <= 3; ++i) frames.push_back(client.FlushFrame(i, {}));
  for (uint64_t i = 4; i <= 10; ++i) frames.push_back(client.IncrementFrame(i, "counter", 1));
  const std::string batch = client.BatchFrame(frames);
  client.Send(batch);
  server.engine().Poll(server.now());
  EXPECT_GT(server.counters().requests_deferred, 0);
  EXPECT_EQ(server.counters().increments, 0);
  server.network().Break(client.id());
  server.Settle();
  again.Establish(client.session());
  ASSERT_EQ(again.welcome().resumed, 1);
  EXPECT_FALSE(server.Stored("counter").has_value());
  again.Send(batch);
  server.Settle();
  EXPECT_EQ(RepliesOf(again), 10);
  EXPECT_EQ(server.Stored("counter"), "7");
}

TEST(FairnessTest, AServerThatEndsAnswersWhatWaits) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  client.Send(Flushes(client, 1, 20));
  server.engine().Poll(server.now());
  server.engine().Stop(server.now());
  server.Settle();
  EXPECT_EQ(RepliesOf(client), 20);
  EXPECT_TRUE(client.got_disconnect_notice());
  server.Advance(absl::Seconds(1));
  EXPECT_TRUE(server.engine().done());
}

// All clients may have become silent at once, and each probe takes a READ.
TEST(FairnessTest, ManySilentClientsAreAskedWhetherTheyLiveAFewATurn) {
  constexpr size_t kClients = 100;
  HarnessOptions options;
  options.connections_max = kClients;
  ServerHarness server(options);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<RawClient>(server));
    clients.back()->Establish();
  }
  const absl::Time silent = server.now() + kSilenceMax();
  for (uint64_t asked = 0; asked < kClients; asked = server.counters().liveness_reads) {
    EXPECT_LE(server.engine().next_timer(), silent);
    EXPECT_TRUE(server.engine().Poll(silent));  // there is more to do
    ASSERT_GT(server.counters().liveness_reads, asked);
    ASSERT_LE(server.counters().liveness_reads, asked + kTimersPerTurn);
  }
  EXPECT_GT(server.engine().next_timer(), silent);
}

}  // namespace
}  // namespace osprey::server
