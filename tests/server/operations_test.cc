// Increment, append, exists, batches, flush, and the reasons of refusals, at the server.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/layout.h"
#include "tests/index/index_test_util.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;
using rdma::Opcode;
using rdma::WireCondition;

// --- Increment -----------------------------------------------------------------------------------

TEST(ServerIncrementTest, AddsToDecimalTextAndReturnsTheSum) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const RawReply first = client.Ask(client.IncrementFrame(1, "n", 5));
  EXPECT_EQ(first.code, StatusCode::kOk);
  EXPECT_EQ(first.data, "5");  // absent counts as 0
  EXPECT_EQ(first.body.value_length, 1);
  EXPECT_EQ(server.Stored("n"), "5");
  const RawReply second = client.Ask(client.IncrementFrame(2, "n", -12));
  EXPECT_EQ(second.data, "-7");
  EXPECT_GT(second.body.version, first.body.version);
  EXPECT_EQ(server.Stored("n"), "-7");
  ASSERT_EQ(client.Ask(client.PutFrame(3, "n", "41")).code, StatusCode::kOk);
  EXPECT_EQ(client.Ask(client.IncrementFrame(4, "n", 1)).data, "42");
  EXPECT_EQ(client.Ask(client.IncrementFrame(5, "n", 0)).data, "42");
}

TEST(ServerIncrementTest, TheEndsOfTheRangeAreReachedAndNotPassed) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  EXPECT_EQ(client.Ask(client.IncrementFrame(1, "n", INT64_MAX)).data, "9223372036854775807");
  const RawReply over = client.Ask(client.IncrementFrame(2, "n", 1));
  EXPECT_EQ(over.code, StatusCode::kOutOfRange);
  EXPECT_EQ(over.reason, Reason::kOverflow);
  EXPECT_NE(over.body.version, 0);
  EXPECT_EQ(server.Stored("n"), "9223372036854775807");
  ASSERT_EQ(client.Ask(client.PutFrame(3, "n", "-9223372036854775808")).code, StatusCode::kOk);
  EXPECT_EQ(client.Ask(client.IncrementFrame(4, "n", -1)).code, StatusCode::kOutOfRange);
  EXPECT_EQ(client.Ask(client.IncrementFrame(5, "n", INT64_MAX)).data, "-1");
}

TEST(ServerIncrementTest, AValueThatIsNoNumberStaysAsItIs) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  uint64_t sequence = 0;
  for (const std::string& text :
       {std::string("abc"), std::string(), std::string("007"), std::string("1\xff"), Large(5000)}) {
    const uint64_t version = client.Ask(client.PutFrame(++sequence, "n", text)).body.version;
    const RawReply reply = client.Ask(client.IncrementFrame(++sequence, "n", 1));
    EXPECT_EQ(reply.code, StatusCode::kFailedPrecondition);
    EXPECT_EQ(reply.reason, Reason::kNotANumber);
    EXPECT_EQ(reply.body.version, version);
    EXPECT_LT(reply.data.size(), 300);
    EXPECT_EQ(server.Stored("n"), text);
  }
}

TEST(ServerIncrementTest, ItsConditionIsChecked) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  EXPECT_EQ(client.Ask(client.IncrementFrame(1, "n", 1, 77)).code, StatusCode::kNotFound);
  const uint64_t version = client.Ask(client.IncrementFrame(2, "n", 1)).body.version;
  const RawReply wrong = client.Ask(client.IncrementFrame(3, "n", 1, version + 1));
  EXPECT_EQ(wrong.code, StatusCode::kFailedPrecondition);
  EXPECT_EQ(wrong.reason, Reason::kWrongVersion);
  EXPECT_EQ(wrong.body.version, version);
  EXPECT_EQ(client.Ask(client.IncrementFrame(4, "n", 1, version)).data, "2");
}

TEST(ServerIncrementTest, OneThatIsRepeatedHasTheSameSumAndIsAppliedOnce) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const RawReply first = client.Ask(client.IncrementFrame(1, "n", 5));
  ASSERT_EQ(client.Ask(client.IncrementFrame(2, "n", 5)).data, "10");
  // Over a new connection of the same session.
  const uint64_t session = client.session();
  server.network().Break(client.id());
  server.Settle();
  client.Establish(session);
  const RawReply again = client.Ask(client.IncrementFrame(1, "n", 5));
  EXPECT_EQ(again.code, StatusCode::kOk);
  EXPECT_EQ(again.data, "5");
  EXPECT_EQ(again.body.version, first.body.version);
  EXPECT_EQ(again.body.value_length, first.body.value_length);
  EXPECT_EQ(server.Stored("n"), "10");
  EXPECT_EQ(server.counters().writes_repeated, 1);
}

TEST(ServerIncrementTest, ARefusalIsRememberedWithItsReason) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(client.PutFrame(1, "n", "text")).code, StatusCode::kOk);
  const RawReply first = client.Ask(client.IncrementFrame(2, "n", 5));
  ASSERT_EQ(client.Ask(client.PutFrame(3, "n", "1")).code, StatusCode::kOk);
  const RawReply again = client.Ask(client.IncrementFrame(2, "n", 5));
  EXPECT_EQ(again.code, StatusCode::kFailedPrecondition);
  EXPECT_EQ(again.reason, Reason::kNotANumber);
  EXPECT_EQ(again.body.version, first.body.version);
  EXPECT_FALSE(again.data.empty());
  EXPECT_EQ(server.Stored("n"), "1");
}

// --- Append --------------------------------------------------------------------------------------

TEST(ServerAppendTest, WritesBehindWhatIsThere) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const RawReply first = client.Ask(client.AppendFrame(1, "log", "one"));
  EXPECT_EQ(first.code, StatusCode::kOk);
  EXPECT_EQ(first.body.value_length, 3);
  EXPECT_EQ(first.data, "");
  const RawReply second = client.Ask(client.AppendFrame(2, "log", ", two"));
  EXPECT_EQ(second.body.value_length, 8);
  EXPECT_GT(second.body.version, first.body.version);
  EXPECT_EQ(server.Stored("log"), "one, two");
  const RawReply nothing = client.Ask(client.AppendFrame(3, "log", ""));
  EXPECT_EQ(nothing.body.value_length, 8);
  EXPECT_EQ(server.Stored("log"), "one, two");
}

TEST(ServerAppendTest, AValueGrowsThroughAllItsForms) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  std::string value;
  for (uint64_t i = 1; i <= 60; ++i) {  // inline, chunks of slabs, pages
    const std::string piece = Large(i * 13, static_cast<char>('a' + i % 20));
    value += piece;
    const RawReply reply = client.Ask(client.AppendFrame(i, "log", piece));
    ASSERT_EQ(reply.code, StatusCode::kOk);
    ASSERT_EQ(reply.body.value_length, value.size());
    ASSERT_EQ(server.Stored("log"), value);
  }
}

TEST(ServerAppendTest, ItsConditionIsChecked) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  EXPECT_EQ(client.Ask(client.AppendFrame(1, "log", "x", 77)).code, StatusCode::kNotFound);
  const uint64_t version = client.Ask(client.AppendFrame(2, "log", "a")).body.version;
  const RawReply wrong = client.Ask(client.AppendFrame(3, "log", "b", version + 1));
  EXPECT_EQ(wrong.code, StatusCode::kFailedPrecondition);
  EXPECT_EQ(wrong.reason, Reason::kWrongVersion);
  EXPECT_EQ(client.Ask(client.AppendFrame(4, "log", "b", version)).body.value_length, 2);
  EXPECT_EQ(server.Stored("log"), "ab");
}

TEST(ServerAppendTest, OneThatIsRepeatedIsAppliedOnce) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const RawReply first = client.Ask(client.AppendFrame(1, "log", "one"));
  ASSERT_EQ(client.Ask(client.AppendFrame(2, "log", "two")).code, StatusCode::kOk);
  const RawReply again = client.Ask(client.AppendFrame(1, "log", "one"));
  EXPECT_EQ(again.body.version, first.body.version);
  EXPECT_EQ(again.body.value_length, 3);
  EXPECT_EQ(server.Stored("log"), "onetwo");
}

TEST(ServerAppendTest, AValueDoesNotGrowBeyondItsBound) {
  HarnessOptions options;
  options.value_bytes_max = 2000;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(client.AppendFrame(1, "log", std::string(1500, 'x'))).code, StatusCode::kOk);
  const RawReply reply = client.Ask(client.AppendFrame(2, "log", std::string(501, 'y')));
  EXPECT_EQ(reply.code, StatusCode::kInvalidArgument);
  EXPECT_EQ(reply.reason, Reason::kValueTooLong);
  EXPECT_NE(reply.data.find("2000"), std::string::npos);
  EXPECT_EQ(server.Stored("log"), std::string(1500, 'x'));
  EXPECT_EQ(client.Ask(client.AppendFrame(3, "log", std::string(500, 'y'))).code, StatusCode::kOk);
}

// --- Exists --------------------------------------------------------------------------------------

TEST(ServerExistsTest, ReturnsLengthAndVersionAndSendsAndLeasesNothing) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const uint64_t small = client.Ask(client.PutFrame(1, "small", "value")).body.version;
  ASSERT_EQ(client.Ask(client.RendezvousFrame(2, "large", Large(100000))).code, StatusCode::kOk);
  const RawReply one = client.Ask(client.GetFrame(3, "small", /*want_value=*/false));
  EXPECT_EQ(one.code, StatusCode::kOk);
  EXPECT_EQ(one.data, "");
  EXPECT_EQ(one.body.value_length, 5);
  EXPECT_EQ(one.body.version, small);
  const RawReply other = client.Ask(client.GetFrame(4, "large", /*want_value=*/false));
  EXPECT_EQ(other.body.value_length, 100000);
  EXPECT_EQ(other.body.lease_ms, 0);
  EXPECT_EQ(client.Ask(client.GetFrame(5, "none", /*want_value=*/false)).code,
            StatusCode::kNotFound);
}

// --- Batches -------------------------------------------------------------------------------------

TEST(ServerBatchTest, ItsRequestsAreExecutedInOrderAndAnsweredInOneFrame) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  client.Send(client.BatchFrame({
      client.PutFrame(1, "key", "one"),
      client.GetFrame(2, "key"),
      client.IncrementFrame(3, "n", 3),
      client.AppendFrame(4, "key", "!"),
      client.GetFrame(5, "key"),
      client.DeleteFrame(6, "key"),
      client.GetFrame(7, "key"),
      client.EmptyFrame(Opcode::kPing, 8),
  }));
  server.Settle();
  EXPECT_EQ(client.reply_frames(), 1);
  ASSERT_EQ(client.replies(), 8);
  const std::vector<std::string> data = {"", "one", "3", "", "one!", "", "no such key", ""};
  for (uint64_t i = 1; i <= 8; ++i) {
    const RawReply reply = *client.TakeReply();
    EXPECT_EQ(reply.sequence, i);
    EXPECT_EQ(reply.code, i == 7 ? StatusCode::kNotFound : StatusCode::kOk) << i;
    EXPECT_EQ(reply.data, data[i - 1]) << i;
  }
  EXPECT_EQ(server.counters().batches, 1);
  EXPECT_EQ(server.counters().batched_requests, 8);
  EXPECT_EQ(server.counters().reply_batches, 1);
}

TEST(ServerBatchTest, RepliesThatDoNotFitOneFrameLeaveInSeveral) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const std::string value = Large(3000);
  ASSERT_EQ(client.Ask(client.PutFrame(1, "key", value)).code, StatusCode::kOk);
  std::vector<std::string> gets;
  for (uint64_t i = 2; i < 9; ++i) gets.push_back(client.GetFrame(i, "key"));
  const size_t frames_before = client.reply_frames();
  client.Send(client.BatchFrame(gets));
  server.Settle();
  EXPECT_EQ(client.reply_frames() - frames_before, 4);  // 2 + 2 + 2 + 1
  ASSERT_EQ(client.replies(), 7);
  for (uint64_t i = 2; i < 9; ++i) {
    const RawReply reply = *client.TakeReply();
    EXPECT_EQ(reply.sequence, i);
    EXPECT_EQ(reply.data, value);
  }
}

TEST(ServerBatchTest, ARendezvousInItIsAnsweredWhenItsValueHasCome) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const std::string rendezvous = client.RendezvousFrame(1, "large", Large(50000));
  client.Send(client.BatchFrame({rendezvous, client.PutFrame(2, "small", "value")}));
  server.Settle();
  ASSERT_EQ(client.replies(), 2);
  EXPECT_EQ(client.TakeReply()->sequence, 2);
  EXPECT_EQ(client.TakeReply()->sequence, 1);
  EXPECT_EQ(server.Stored("large"), Large(50000));
}

TEST(ServerBatchTest, OneThatIsRepeatedIsAppliedOnce) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const std::string batch =
      client.BatchFrame({client.IncrementFrame(1, "n", 1), client.IncrementFrame(2, "n", 1),
                         client.AppendFrame(3, "log", "x")});
  client.Send(batch);
  server.engine().Poll(server.now());  // done, and the replies are on their way
  server.network().Break(client.id());
  server.Settle();
  ASSERT_EQ(client.replies(), 0);
  client.Establish(client.session());
  ASSERT_EQ(client.welcome().resumed, 1);
  client.Send(batch);
  server.Settle();
  ASSERT_EQ(client.replies(), 3);
  EXPECT_EQ(client.TakeReply()->data, "1");
  EXPECT_EQ(client.TakeReply()->data, "2");
  EXPECT_EQ(client.TakeReply()->body.value_length, 1);
  EXPECT_EQ(server.Stored("n"), "2");
  EXPECT_EQ(server.Stored("log"), "x");
}

TEST(ServerBatchTest, AMalformedOneEndsThatConnectionAndNoOther) {
  ServerHarness server;
  RawClient good(server);
  good.Establish();
  int closed = 0;
  const auto expect_closed = [&](auto make_frames, const char* what) {
    RawClient bad(server);
    bad.Establish();
    bad.Send(bad.BatchFrame(make_frames(bad)));
    server.Settle();
    EXPECT_TRUE(bad.disconnected()) << what;
    EXPECT_EQ(server.closed(CloseReason::kMalformed), ++closed) << what;
    EXPECT_FALSE(good.disconnected()) << what;
  };
  using Frames = std::vector<std::string>;
  expect_closed([](RawClient&) { return Frames{}; }, "empty");
  expect_closed([](RawClient&) { return Frames{"x"}; }, "no frame");
  expect_closed([](RawClient& c) { return Frames{c.BatchFrame({c.GetFrame(1, "key")})}; },
                "nested");
  expect_closed([](RawClient& c) { return Frames{c.EmptyFrame(Opcode::kDisconnectNotice, 0)}; },
                "disconnect notice");
  expect_closed([](RawClient& c) { return Frames{c.EmptyFrame(Opcode::kReply, 1)}; }, "a reply");
  expect_closed([](RawClient& c) { return Frames{c.GetFrame(1, "")}; }, "an empty key");
  expect_closed([&](RawClient&) { return Frames{good.GetFrame(1, "key")}; }, "another's session");
  // Requests before the malformed one have been executed, as if each had come alone.
  expect_closed(
      [](RawClient& c) {
        return Frames{c.PutFrame(1, "key", "value"), c.GetFrame(2, ""), c.DeleteFrame(3, "key")};
      },
      "the second");
  EXPECT_EQ(server.Stored("key"), "value");
  EXPECT_EQ(good.Ask(good.GetFrame(1, "key")).data, "value");
}

TEST(ServerBatchTest, MoreRequestsThanMayBeUnansweredEndTheConnection) {
  ServerHarness server;
  RawClient client(server, {.receive_credits = 2});
  client.Establish();
  client.set_asleep(true);
  uint64_t sequence = 0;
  const auto batch = [&](size_t count) {
    std::vector<std::string> pings;
    while (pings.size() < count) pings.push_back(client.EmptyFrame(Opcode::kPing, ++sequence));
    return client.BatchFrame(pings);
  };
  // Two frames are sent, with as many replies as fit one (it has 8 KiB); more wait.
  for (int i = 0; i < 3; ++i) client.Send(batch(100));
  server.Settle();
  EXPECT_EQ(server.closed(CloseReason::kBlocked), 0);
  client.Send(batch(100));
  server.Settle();
  EXPECT_EQ(server.closed(CloseReason::kBlocked), 1);
}

// --- Flush ---------------------------------------------------------------------------------------

// Repeats until the cursor is 0; returns the number of deleted keys.
uint64_t Flush(RawClient& client, uint64_t& sequence) {
  uint64_t deleted = 0;
  rdma::FlushBody body;
  for (int parts = 0; parts < 1000; ++parts) {
    const RawReply reply = client.Ask(client.FlushFrame(++sequence, body));
    EXPECT_EQ(reply.code, StatusCode::kOk);
    EXPECT_LE(reply.body.value_length, kFlushKeysPerRequest);
    EXPECT_TRUE(body.version_bound == 0 || reply.body.version == body.version_bound);
    deleted += reply.body.value_length;
    if (reply.body.slot == 0) return deleted;
    body.cursor = reply.body.slot;
    body.version_bound = reply.body.version;
  }
  ADD_FAILURE() << "it does not end";
  return deleted;
}

class ServerFlushTest : public testing::TestWithParam<uint32_t> {
 protected:
  static HarnessOptions Options() {
    HarnessOptions options;
    options.partitions = GetParam();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Partitions, ServerFlushTest, testing::Values(1, 4));

TEST_P(ServerFlushTest, EverythingWrittenBeforeIsGoneAndCountedPartByPart) {
  ServerHarness server(Options());
  RawClient client(server);
  client.Establish();
  uint64_t sequence = 0;
  EXPECT_EQ(Flush(client, sequence), 0);
  constexpr uint64_t kKeys = 3000;
  for (uint64_t i = 0; i < kKeys; ++i) {
    const std::string value(i % 200, 'v');
    ASSERT_EQ(client.Ask(client.PutFrame(++sequence, absl::StrCat("key", i), value)).code,
              StatusCode::kOk);
  }
  const uint64_t before = sequence;
  const uint64_t flushes = server.counters().flushes;
  EXPECT_EQ(Flush(client, sequence), kKeys);
  EXPECT_GT(sequence - before, kKeys / kFlushKeysPerRequest);
  EXPECT_EQ(server.counters().flushes, flushes + 1) << "its parts are not counted";
  EXPECT_EQ(server.tables().stats().keys, 0);
  EXPECT_EQ(server.counters().keys_flushed, kKeys);
  EXPECT_EQ(Flush(client, sequence), 0);
}

TEST_P(ServerFlushTest, WhatIsWrittenAfterItBeganStays) {
  ServerHarness server(Options());
  RawClient client(server);
  client.Establish();
  for (uint64_t i = 1; i <= 1000; ++i) {
    client.Ask(client.PutFrame(i, absl::StrCat("key", i), "old"));
  }
  const RawReply first = client.Ask(client.FlushFrame(1001, {}));
  ASSERT_NE(first.body.slot, 0);
  for (uint64_t i = 1; i <= 1000; i += 2) {
    client.Ask(client.PutFrame(1001 + i, absl::StrCat("key", i), "new"));
  }
  rdma::FlushBody body;
  uint64_t sequence = 2001;
  for (body.cursor = first.body.slot; body.cursor != 0;) {
    body.version_bound = first.body.version;
    body.cursor = client.Ask(client.FlushFrame(++sequence, body)).body.slot;
  }
  for (uint64_t i = 1; i <= 1000; ++i) {
    EXPECT_EQ(server.Stored(absl::StrCat("key", i)),
              i % 2 == 1 ? std::optional<std::string>("new") : std::nullopt);
  }
}

TEST_P(ServerFlushTest, ARepeatedPartReturnsTheSameAndDeletesNoMore) {
  ServerHarness server(Options());
  RawClient client(server);
  client.Establish();
  for (uint64_t i = 1; i <= 1000; ++i) {
    client.Ask(client.PutFrame(i, absl::StrCat("key", i), "value"));
  }
  const RawReply first = client.Ask(client.FlushFrame(1001, {}));
  const uint64_t keys = server.tables().stats().keys;
  const RawReply again = client.Ask(client.FlushFrame(1001, {}));
  EXPECT_EQ(again.body.slot, first.body.slot);
  EXPECT_EQ(again.body.version, first.body.version);
  EXPECT_EQ(again.body.value_length, first.body.value_length);
  EXPECT_EQ(server.tables().stats().keys, keys);
}

TEST_P(ServerFlushTest, ACursorOfNoPartitionIsTheEnd) {
  ServerHarness server(Options());
  RawClient client(server);
  client.Establish();
  client.Ask(client.PutFrame(1, "key", "value"));
  const RawReply reply =
      client.Ask(client.FlushFrame(2, {uint64_t{GetParam()} << 56 | 12345, 1000}));
  EXPECT_EQ(reply.code, StatusCode::kOk);
  EXPECT_EQ(reply.body.slot, 0);
  EXPECT_EQ(reply.body.value_length, 0);
}

// --- Reasons -------------------------------------------------------------------------------------

TEST(ServerReasonTest, EachRefusalHasItsOwn) {
  HarnessOptions options;
  options.value_bytes_max = 2000;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  const RawReply ok = client.Ask(client.PutFrame(1, "key", "one"));
  EXPECT_EQ(ok.reason, Reason::kNone);
  EXPECT_EQ(client.Ask(client.PutIfFrame(2, "key", "two", WireCondition::kVersionIs, 77)).reason,
            Reason::kWrongVersion);
  EXPECT_EQ(client.Ask(client.PutIfFrame(3, "key", "two", WireCondition::kAbsent, 0)).reason,
            Reason::kNone);
  EXPECT_EQ(client.Ask(client.PutFrame(4, "key", std::string(2001, 'x'))).reason,
            Reason::kValueTooLong);
  EXPECT_EQ(client.Ask(client.RendezvousFrame(5, "key", std::string(2001, 'x'))).reason,
            Reason::kValueTooLong);
  const std::string changed = client.RendezvousFrame(6, "key", std::string(1000, 'x'));
  client.value_memory()[500] ^= std::byte{1};
  EXPECT_EQ(client.Ask(changed).reason, Reason::kValueChanged);
  ASSERT_EQ(client.Ask(client.PutFrame(6 + kResultsKept, "key", "two")).code, StatusCode::kOk);
  EXPECT_EQ(client.Ask(client.PutFrame(6, "key", "one")).reason, Reason::kForgotten);
  server.engine().Stop(server.now());
  server.Settle();
  EXPECT_EQ(client.Ask(client.PutFrame(500, "key", "three")).reason, Reason::kShuttingDown);
}

TEST(ServerReasonTest, FullChainHasItsOwnReason) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  uint64_t sequence = 0;
  RawReply last;
  last.code = StatusCode::kOk;
  // The harness hashes with the seed of these keys.
  for (const std::string& key : index::KeysOfHome(7, 131, /*same_fingerprint=*/false)) {
    EXPECT_EQ(last.code, StatusCode::kOk) << sequence;
    last = client.Ask(client.PutFrame(++sequence, key, "v"));
  }
  EXPECT_EQ(last.code, StatusCode::kResourceExhausted);
  EXPECT_EQ(last.reason, Reason::kChainFull);
  EXPECT_EQ(last.data, "too many keys share this key's line of the index; nothing was changed");
  EXPECT_EQ(client.Ask(client.PutFrame(++sequence, "another", "v")).code, StatusCode::kOk);
}

TEST(ServerPutTimeTest, PutsOfATurnTakeUntilTheirAnswers) {
  HarnessOptions options;
  options.times_puts = true;
  ServerHarness server(options);
  server.set_clock([&] { return server.now() + absl::Microseconds(5); });
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(client.PutFrame(1, "key", "value")).code, StatusCode::kOk);
  client.Send(client.BatchFrame({client.PutFrame(2, "a", "value"), client.DeleteFrame(3, "key"),
                                 client.PutIfFrame(4, "a", "x", WireCondition::kAbsent, 0)}));
  server.Settle();
  ASSERT_EQ(client.replies(), 3u);
  EXPECT_EQ(server.counters().put_latency_ns, 3 * 5000u);
  EXPECT_EQ(server.counters().put_latencies[rdma::LatencyBucketOf(5000)], 3u);
}

TEST(ServerPutTimeTest, PutsAreNotTimedUnlessAsked) {
  ServerHarness server;
  server.set_clock([&] { return server.now() + absl::Microseconds(5); });
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(client.PutFrame(1, "key", "value")).code, StatusCode::kOk);
  ASSERT_EQ(client.Ask(client.RendezvousFrame(2, "key", Large(50000))).code, StatusCode::kOk);
  EXPECT_EQ(server.counters().put_latency_ns, 0u);
}

TEST(ServerReasonTest, ExhaustedVersionsHaveTheirOwnReason) {
  HarnessOptions options;
  options.cas_version = index::kCasVersionMax - 10;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  const RawReply reply = client.Ask(client.PutFrame(1, "key", "value"));
  EXPECT_EQ(reply.code, StatusCode::kResourceExhausted);
  EXPECT_EQ(reply.reason, Reason::kVersionsUsedUp);
}

}  // namespace
}  // namespace osprey::server
