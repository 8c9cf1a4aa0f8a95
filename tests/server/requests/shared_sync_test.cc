// Requests that share a sync: those of a batch, those that the engine waits for, and plain PUTs of one
// key. The log is a fake one (fake_log.h).

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/server/requests/fake_log.h"
#include "tests/server/requests/logged_server.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;
using rdma::WireCondition;

TEST(SharedSyncTest, ABatchIsCommittedOnce) {
  LoggedServer logged(true);
  std::vector<std::string> frames;
  for (int i = 0; i < 10; ++i)
    frames.push_back(logged.client->PutFrame(logged.Next(), absl::StrCat("key", i), "value"));
  logged.client->Send(logged.client->BatchFrame(frames));
  logged.server->Settle();
  EXPECT_EQ(logged.client->replies(), 10u);
  EXPECT_EQ(logged.log.commits(), 1);
}

// Its turns are not shorter than without the other client, which the engine serves only after a sync.
TEST(SharedSyncTest, AGreedyClientsBatchIsCommittedOnce) {
  LoggedServer logged(true);
  RawClient idle(*logged.server);
  idle.Establish();
  for (int round = 1; round <= 3; ++round) {
    std::vector<std::string> frames;
    for (int i = 0; i < 64; ++i)
      frames.push_back(logged.client->PutFrame(logged.Next(), absl::StrCat("key", i), "value"));
    logged.client->Send(logged.client->BatchFrame(frames));
    logged.server->engine().Poll(logged.server->now());
    EXPECT_EQ(logged.log.commits(), round);
  }
  logged.server->Settle();
  EXPECT_EQ(logged.client->replies(), 3 * 64);
  EXPECT_EQ(logged.server->counters().requests_deferred, 0);
}

// Requests that come while the engine waits share the sync with those that came before, whose frames
// the transport no longer has.
TEST(SharedSyncTest, HalvesOfWhatIsInFlightShareASync) {
  absl::Time time = absl::UnixEpoch();
  std::function<void()> as_it_waits;  // once
  HarnessOptions options;
  options.group_clock = [&] {
    if (const auto call = std::exchange(as_it_waits, nullptr)) call();
    return time;
  };
  LoggedServer logged(true, options);
  const auto send = [&](int count) {
    std::vector<std::string> frames;
    for (int i = 0; i < count; ++i) {
      const uint64_t number = logged.Next();
      const std::string value(100, static_cast<char>('a' + number % 26));
      frames.push_back(logged.client->PutFrame(number, absl::StrCat("key", number), value));
    }
    logged.client->Send(logged.client->BatchFrame(frames));
  };
  // The sync takes time, and the other half comes during it.
  logged.log.on_commit = [&] {
    time += absl::Microseconds(400);
    send(8);
  };
  send(8);
  logged.server->engine().Poll(logged.server->now());
  EXPECT_EQ(logged.log.commits(), 1);
  // Those that were answered follow only while the engine looks at the clock.
  logged.log.on_commit = [&] { time += absl::Microseconds(400); };
  as_it_waits = [&] {
    logged.server->PollClients();
    send(8);
  };
  logged.server->engine().Poll(logged.server->now());
  EXPECT_EQ(logged.log.commits(), 2);
  logged.server->Settle();
  EXPECT_EQ(logged.log.commits(), 2);
  EXPECT_EQ(logged.client->replies(), 24u);
  for (uint64_t i = 1; i <= 24; ++i) {
    EXPECT_EQ(logged.server->Stored(absl::StrCat("key", i)),
              std::string(100, static_cast<char>('a' + i % 26)));
  }
  EXPECT_EQ(logged.log.Difference(*logged.server), "");
}

TEST(SharedSyncTest, PlainPutsOfAKeyShareASync) {
  LoggedServer logged(true);
  RawClient& client = *logged.client;
  RawClient other(*logged.server);
  other.Establish();
  client.Send(client.BatchFrame({client.PutFrame(1, "key", "aaa"), client.PutFrame(2, "key", "bbb"),
                                 client.PutFrame(3, "new", "ccc")}));
  other.Send(other.PutFrame(1, "key", "ddd"));
  logged.log.on_commit = [&] { EXPECT_EQ(logged.server->Stored("key"), std::nullopt); };
  logged.server->Settle();
  EXPECT_EQ(logged.log.commits(), 1);
  std::vector<uint64_t> versions(4);
  while (const std::optional<RawReply> reply = client.TakeReply()) {
    EXPECT_EQ(reply->code, StatusCode::kOk);
    versions[reply->sequence] = reply->body.version;
  }
  const std::optional<RawReply> last = other.TakeReply();
  ASSERT_TRUE(last.has_value());
  EXPECT_LT(versions[1], versions[2]);
  EXPECT_LT(versions[2], last->body.version);
  for (const uint64_t sequence : {1, 2}) {
    EXPECT_EQ(logged.log.ResultOf(client.session(), sequence).version, versions[sequence]);
    // It is remembered.
    EXPECT_EQ(logged.Ask(client.PutFrame(sequence, "key", "aaa")).body.version, versions[sequence]);
  }
  EXPECT_EQ(logged.server->Stored("key"), "ddd");
  EXPECT_EQ(logged.log.changes().size(), 4u);
  EXPECT_EQ(logged.log.Difference(*logged.server), "");
}

TEST(SharedSyncTest, OnlyPlainPutsOfOneLengthReplaceEachOther) {
  const auto commits_of = [](const std::function<std::string(RawClient&)>& first,
                             const std::function<std::string(RawClient&)>& second) {
    LoggedServer logged(true);
    EXPECT_EQ(logged.Ask(logged.client->PutFrame(1, "key", "100")).code, StatusCode::kOk);
    const int commits = logged.log.commits();
    logged.client->Send(logged.client->BatchFrame({first(*logged.client), second(*logged.client)}));
    logged.server->Settle();
    EXPECT_EQ(logged.client->replies(), 2u);
    EXPECT_EQ(logged.log.Difference(*logged.server), "");
    return logged.log.commits() - commits;
  };
  const auto put = [](uint64_t sequence, const std::string& value) {
    return [=](RawClient& client) { return client.PutFrame(sequence, "key", value); };
  };
  EXPECT_EQ(commits_of(put(2, "200"), put(3, "300")), 1);
  const std::function<std::string(RawClient&)> others[] = {
      put(3, "3000"),
      put(3, ""),
      [](RawClient& c) { return WithTtl(c.PutFrame(3, "key", "300"), kSecondNs); },
      [](RawClient& c) { return c.PutIfFrame(3, "key", "300", WireCondition::kVersionIs, 1); },
      [](RawClient& c) { return c.IncrementFrame(3, "key", 1); },
      [](RawClient& c) { return c.AppendFrame(3, "key", ""); },
      [](RawClient& c) { return c.ExpireFrame(3, "key", kSecondNs); },
      [](RawClient& c) { return c.DeleteFrame(3, "key"); },
  };
  for (const auto& other : others) {
    const auto first = [&](RawClient& client) {
      std::string frame = other(client);
      reinterpret_cast<rdma::FrameHeader*>(frame.data())->sequence = 2;
      return frame;
    };
    const bool is_refused = &other == &others[3];
    EXPECT_EQ(commits_of(put(2, "200"), other), is_refused ? 1 : 2) << &other - others;
    EXPECT_EQ(commits_of(first, put(3, "300")), is_refused ? 1 : 2) << &other - others;
  }
}

// It is neither applied nor logged twice.
TEST(SharedSyncTest, ARepeatedPutReplacesNone) {
  LoggedServer logged(true);
  RawClient& client = *logged.client;
  client.Send(client.BatchFrame({client.PutFrame(1, "key", "aaa"), client.PutFrame(2, "key", "bbb"),
                                 client.PutFrame(1, "key", "aaa")}));
  logged.server->Settle();
  EXPECT_EQ(logged.log.commits(), 1);
  EXPECT_EQ(logged.log.changes().size(), 2u);
  EXPECT_EQ(logged.server->counters().writes_repeated, 1);
  EXPECT_EQ(logged.server->Stored("key"), "bbb");
  EXPECT_EQ(logged.log.Difference(*logged.server), "");
}

// --- Values that are READ ------------------------------------------------------------------------

constexpr size_t kReadBytes = 20000;

// Clients of one server, each with a value of its own on its way.
struct LongPuts : LoggedServer {
  explicit LongPuts(int count, const HarnessOptions& options = {}) : LoggedServer(true, options) {
    for (int i = 0; i < count; ++i) {
      clients.push_back(std::make_unique<RawClient>(*server));
      clients.back()->Establish();
    }
  }
  static std::string KeyOf(size_t i) { return absl::StrCat("key", i); }
  static std::string ValueOf(size_t i) { return Large(kReadBytes, static_cast<char>('a' + i)); }
  // Until all values have been requested, and none has arrived.
  void Begin() {
    for (size_t i = 0; i < clients.size(); ++i)
      clients[i]->Send(clients[i]->RendezvousFrame(1, KeyOf(i), ValueOf(i)));
    Turn();
    ASSERT_EQ(server->counters().rendezvous_reads, clients.size());
    ASSERT_EQ(log.commits(), 0);
  }
  void Turn() { server->engine().Poll(server->now()); }
  void ExpectAllStored() {
    for (size_t i = 0; i < clients.size(); ++i) {
      EXPECT_TRUE(server->Stored(KeyOf(i)) == ValueOf(i)) << i;
      const std::optional<RawReply> reply = clients[i]->TakeReply();
      ASSERT_TRUE(reply.has_value()) << i;
      EXPECT_EQ(reply->code, StatusCode::kOk);
      EXPECT_EQ(log.ResultOf(clients[i]->session(), 1).version, reply->body.version);
    }
    EXPECT_EQ(log.Difference(*server), "");
  }

  std::vector<std::unique_ptr<RawClient>> clients;
};

TEST(SharedSyncTest, ValuesThatAreReadShareASync) {
  LongPuts puts(5);
  puts.Begin();
  puts.log.on_commit = [&] {
    EXPECT_EQ(puts.log.pending(), 5u);
    for (size_t i = 0; i < 5; ++i)
      EXPECT_FALSE(puts.server->Stored(LongPuts::KeyOf(i)).has_value());
  };
  puts.Turn();
  EXPECT_EQ(puts.log.commits(), 1);
  puts.server->Settle();
  EXPECT_EQ(puts.log.commits(), 1);
  puts.ExpectAllStored();
}

TEST(SharedSyncTest, ShortWritesShareTheSyncOfLongValues) {
  LongPuts puts(3);
  puts.Begin();
  puts.client->Send(puts.client->PutFrame(1, "short", "value"));
  puts.server->Settle();
  EXPECT_EQ(puts.log.commits(), 1);
  EXPECT_EQ(puts.client->TakeReply()->code, StatusCode::kOk);
  puts.ExpectAllStored();
}

// Which is this engine's own: it does not wait for another one.
TEST(SharedSyncTest, AWriteBehindALongValueOfItsKeyComesAfterIt) {
  LongPuts puts(2);
  puts.Begin();
  RawClient& client = *puts.client;
  client.Send(client.BatchFrame({client.AppendFrame(1, LongPuts::KeyOf(0), "tail"),
                                 client.DeleteFrame(2, LongPuts::KeyOf(1)),
                                 client.PutFrame(3, "short", "value")}));
  puts.server->Settle();
  EXPECT_TRUE(puts.server->Stored(LongPuts::KeyOf(0)) == LongPuts::ValueOf(0) + "tail");
  EXPECT_FALSE(puts.server->Stored(LongPuts::KeyOf(1)).has_value());
  EXPECT_EQ(client.replies(), 3u);
  EXPECT_EQ(puts.log.Difference(*puts.server), "");
}

TEST(SharedSyncTest, AFlushBehindLongValuesComesAfterThem) {
  LongPuts puts(3);
  puts.Begin();
  const RawReply reply = puts.Ask(puts.client->FlushFrame(1, {}));
  EXPECT_EQ(reply.code, StatusCode::kOk);
  puts.server->Settle();
  EXPECT_EQ(puts.log.pending(), 0u);
  for (const auto& client : puts.clients) EXPECT_EQ(client->replies(), 1u);
  EXPECT_EQ(puts.log.Difference(*puts.server), "");
}

// The first value is decided, the second one waits for that, and the flush publishes both.
TEST(SharedSyncTest, AFlushBehindTwoValuesOfAKeyIsLogged) {
  HarnessOptions options;
  options.network.read_batches_per_poll = 2;  // both land in the turn of the flush, before it
  LongPuts puts(2, options);
  RawClient& client = *puts.clients[0];
  RawClient& other = *puts.clients[1];  // served after it
  // Both are in the client's memory, which has one place for values.
  for (const uint64_t sequence : {1, 2})
    client.Send(client.RendezvousFrame(sequence, "key", LongPuts::ValueOf(0)));
  puts.Turn();
  ASSERT_EQ(puts.server->counters().rendezvous_reads, 2u);
  other.Send(other.FlushFrame(1, {}));
  puts.server->Settle();
  const std::optional<RawReply> flush = other.TakeReply();
  ASSERT_TRUE(flush.has_value());
  const Result logged = puts.log.ResultOf(other.session(), 1);
  EXPECT_NE(logged.version, 0u);
  EXPECT_EQ(logged.version, flush->body.version);
  EXPECT_EQ(logged.slot, flush->body.slot);
  for (const uint64_t sequence : {1, 2}) {
    const std::optional<RawReply> reply = client.TakeReply();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->sequence, sequence);
    EXPECT_EQ(reply->code, StatusCode::kOk);
    EXPECT_EQ(puts.log.ResultOf(client.session(), sequence).version, reply->body.version);
  }
  EXPECT_EQ(puts.log.Difference(*puts.server), "");
}

// The requests behind it are refused, and the client is asked to leave when it has all answers.
TEST(SharedSyncTest, AStoppingServerAnswersRequestsBehindALongValue) {
  const auto a_put = [](RawClient& c) { return c.PutFrame(2, LongPuts::KeyOf(0), "short"); };
  const auto a_flush = [](RawClient& c) {
    return c.BatchFrame({c.FlushFrame(2, {}), c.EmptyFrame(rdma::Opcode::kPing, 3)});
  };
  for (const std::function<std::string(RawClient&)>& frame :
       {std::function<std::string(RawClient&)>(a_put), {a_flush}}) {
    LongPuts puts(1);
    puts.Begin();
    RawClient& client = *puts.clients[0];
    puts.server->engine().Stop(puts.server->now());
    client.Send(frame(client));
    puts.server->Settle();
    EXPECT_TRUE(client.got_disconnect_notice());
    EXPECT_EQ(client.reply_frames_after_notice(), 0u);
    puts.ExpectAllStored();
    EXPECT_EQ(client.TakeReply()->reason, Reason::kShuttingDown);
  }
}

// The session ends with the notice, and its value is decided before.
TEST(SharedSyncTest, AClientThatLeavesBehindItsValueHasPutIt) {
  LongPuts puts(2);
  puts.Begin();
  puts.clients[0]->Send(puts.clients[0]->EmptyFrame(rdma::Opcode::kDisconnectNotice, 0));
  puts.server->Settle();
  for (size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(puts.server->Stored(LongPuts::KeyOf(i)) == LongPuts::ValueOf(i)) << i;
  EXPECT_EQ(puts.log.changes().size(), 2u);
  EXPECT_EQ(puts.log.pending(), 0u);
  EXPECT_EQ(puts.log.Difference(*puts.server), "");
}

// Its write is in the log, so it is made, and its session remembers that.
TEST(SharedSyncTest, AConnectionThatBreaksBehindItsValueHasPutIt) {
  LongPuts puts(2);
  puts.Begin();
  fake::Network& network = puts.server->network();
  network.before_piece = [&](absl::Span<const std::byte>) {  // its value's only one
    network.before_piece = nullptr;
    network.Break(puts.clients[0]->id());
  };
  const uint64_t& answers = puts.server->counters().answers[static_cast<int>(StatusCode::kOk)];
  const uint64_t before = answers;
  puts.Turn();
  EXPECT_EQ(puts.server->engine().connections(), 2u);
  EXPECT_EQ(answers - before, 1u) << "the other client's";
  EXPECT_TRUE(puts.server->Stored(LongPuts::KeyOf(0)) == LongPuts::ValueOf(0));
  EXPECT_EQ(puts.log.pending(), 0u);
  puts.clients[0]->Establish(puts.clients[0]->session());
  puts.clients[0]->Send(
      puts.clients[0]->RendezvousFrame(1, LongPuts::KeyOf(0), LongPuts::ValueOf(0)));
  puts.server->Settle();
  EXPECT_EQ(puts.log.changes().size(), 2u);
  puts.ExpectAllStored();
}

TEST(SharedSyncTest, AfterAFailedSyncNoLongValueIsPut) {
  LongPuts puts(3);
  puts.Begin();
  puts.log.commit_error = absl::UnavailableError("the disk is gone");
  puts.server->Settle();
  EXPECT_EQ(puts.server->engine().failure().message(), "the disk is gone");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(puts.clients[i]->replies(), 0u);
    EXPECT_FALSE(puts.server->Stored(LongPuts::KeyOf(i)).has_value());
  }
  for (const auto& client : puts.clients) puts.server->network().Break(client->id());
  puts.server->Settle();
}

}  // namespace
}  // namespace osprey::server
