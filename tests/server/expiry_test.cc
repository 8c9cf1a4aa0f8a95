// Time to live at the server: PUT with it, EXPIRE, TOUCH, the expiry and server time in replies,
// and the end of expired keys. The table's part is in index/expiry_test.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;
using rdma::Opcode;
using rdma::WireCondition;

constexpr uint64_t kSecondNs = 1000000000;
constexpr uint64_t kExpiryStepNs = 65536;  // expiries are rounded up to it

uint64_t Ns(absl::Time time) { return static_cast<uint64_t>(absl::ToUnixNanos(time)); }

void ExpectExpiry(uint64_t expiry, absl::Time time) {
  EXPECT_GE(expiry, Ns(time));
  EXPECT_LT(expiry, Ns(time) + kExpiryStepNs);
}

template <typename Body>
std::string KeyFrame(const RawClient& client, Opcode opcode, uint64_t sequence, Body body,
                     absl::string_view key) {
  body.key_length = static_cast<uint16_t>(key.size());
  const rdma::Message<Body> message(opcode, client.session(), sequence, body, key.size());
  std::string frame(reinterpret_cast<const char*>(message.bytes().data()), message.bytes().size());
  return absl::StrCat(frame, key);
}

std::string TouchFrame(const RawClient& client, uint64_t sequence, absl::string_view key) {
  return KeyFrame(client, Opcode::kTouch, sequence, rdma::TouchBody(), key);
}

TEST(ServerExpiryTest, PutWithATimeToLiveIsThereUntilThen) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const std::string large = Large(200000);
  ASSERT_EQ(client.Ask(WithTtl(client.PutFrame(1, "small", "value"), 10 * kSecondNs)).code,
            StatusCode::kOk);
  ASSERT_EQ(client.Ask(WithTtl(client.RendezvousFrame(2, "large", large), 10 * kSecondNs)).code,
            StatusCode::kOk);
  const absl::Time end = server.now() + absl::Seconds(10);
  uint64_t sequence = 2;
  for (const char* key : {"small", "large"}) {
    const RawReply reply = client.Ask(client.GetFrame(++sequence, key));
    EXPECT_EQ(reply.code, StatusCode::kOk);
    ExpectExpiry(reply.body.expiry, end);
  }
  server.Advance(absl::Milliseconds(9950));
  for (const char* key : {"small", "large"})
    EXPECT_EQ(client.Ask(client.GetFrame(++sequence, key, false)).code, StatusCode::kOk);
  server.Advance(absl::Milliseconds(100));
  for (const char* key : {"small", "large"})
    EXPECT_EQ(client.Ask(client.GetFrame(++sequence, key)).code, StatusCode::kNotFound);
}

TEST(ServerExpiryTest, ATimeToLiveAsLongAsItGetsIsTaken) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(WithTtl(client.PutFrame(1, "key", "value"), UINT64_MAX)).code,
            StatusCode::kOk);
  server.Advance(absl::Hours(1000), absl::Hours(500));
  EXPECT_EQ(server.Stored("key"), "value");
}

TEST(ServerExpiryTest, ExpireAndPersistReturnVersionAndExpiry) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  uint64_t sequence = 0;
  for (const std::string& value : {std::string("value"), Large(3000)}) {
    const uint64_t version = client.Ask(client.PutFrame(++sequence, "key", value)).body.version;
    const RawReply expire = client.Ask(client.ExpireFrame(++sequence, "key", 5 * kSecondNs));
    EXPECT_EQ(expire.code, StatusCode::kOk);
    EXPECT_EQ(expire.body.version, version);
    ExpectExpiry(expire.body.expiry, server.now() + absl::Seconds(5));
    const RawReply touch = client.Ask(TouchFrame(client, ++sequence, "key"));
    EXPECT_EQ(touch.code, StatusCode::kOk);
    EXPECT_EQ(touch.body.version, version);
    EXPECT_EQ(touch.body.expiry, expire.body.expiry);
    const RawReply wrong = client.Ask(client.ExpireFrame(++sequence, "key", 1, version + 1));
    EXPECT_EQ(wrong.code, StatusCode::kFailedPrecondition);
    EXPECT_EQ(wrong.reason, Reason::kWrongVersion);
    EXPECT_EQ(wrong.body.version, version);
    const RawReply persist = client.Ask(client.ExpireFrame(++sequence, "key", 0, version));
    EXPECT_EQ(persist.code, StatusCode::kOk);
    EXPECT_EQ(persist.body.expiry, 0u);
    server.Advance(absl::Seconds(6));
    EXPECT_EQ(server.Stored("key"), value);
  }
  EXPECT_EQ(client.Ask(client.ExpireFrame(++sequence, "absent", 1)).code, StatusCode::kNotFound);
  EXPECT_EQ(client.Ask(TouchFrame(client, ++sequence, "absent")).code, StatusCode::kNotFound);
  EXPECT_EQ(server.counters().expires, 7u);
  EXPECT_EQ(server.counters().touches, 3u);
}

TEST(ServerExpiryTest, ARepeatedExpireReturnsTheSameExpiry) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(client.PutFrame(1, "key", "value")).code, StatusCode::kOk);
  const RawReply first = client.Ask(client.ExpireFrame(2, "key", 5 * kSecondNs));
  server.Advance(absl::Seconds(2));
  const uint64_t session = client.session();
  server.network().Break(client.id());
  server.Settle();
  client.Establish(session);
  const RawReply again = client.Ask(client.ExpireFrame(2, "key", 5 * kSecondNs));
  EXPECT_EQ(again.code, StatusCode::kOk);
  EXPECT_EQ(again.body.version, first.body.version);
  EXPECT_EQ(again.body.expiry, first.body.expiry);
  EXPECT_EQ(server.counters().writes_repeated, 1u);
  EXPECT_EQ(client.Ask(client.GetFrame(3, "key")).body.expiry, first.body.expiry);
}

TEST(ServerExpiryTest, IncrementAndAppendKeepTheTtlAndRestartAfterExpiry) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(WithTtl(client.PutFrame(1, "n", "5"), 5 * kSecondNs)).code, StatusCode::kOk);
  ASSERT_EQ(client.Ask(WithTtl(client.PutFrame(2, "s", "a"), 5 * kSecondNs)).code, StatusCode::kOk);
  const uint64_t expiry = client.Ask(client.GetFrame(3, "n")).body.expiry;
  server.Advance(absl::Seconds(3));
  EXPECT_EQ(client.Ask(client.IncrementFrame(4, "n", 1)).data, "6");
  EXPECT_EQ(client.Ask(client.AppendFrame(5, "s", "b")).body.value_length, 2u);
  EXPECT_EQ(client.Ask(client.GetFrame(6, "n")).body.expiry, expiry);
  EXPECT_EQ(client.Ask(client.GetFrame(7, "s")).body.expiry, expiry);
  server.Advance(absl::Seconds(3));
  EXPECT_EQ(client.Ask(client.IncrementFrame(8, "n", 1)).data, "1");
  EXPECT_EQ(client.Ask(client.AppendFrame(9, "s", "b")).body.value_length, 1u);
  EXPECT_EQ(client.Ask(client.GetFrame(10, "n")).body.expiry, 0u);
  EXPECT_EQ(client.Ask(client.GetFrame(11, "s")).body.expiry, 0u);
}

// The clock passes the expiry at its Nth read. The write finds the key, or does not, and never
// fails for that.
TEST(ServerExpiryTest, IncrementAndAppendOfAKeyThatExpiresMeanwhileAreDone) {
  int old_ones = 0;
  int new_ones = 0;
  for (int look = 0; look < 12; ++look) {
    ServerHarness server;
    RawClient client(server);
    client.Establish();
    ASSERT_EQ(client.Ask(WithTtl(client.PutFrame(1, "n", "5"), kSecondNs)).code, StatusCode::kOk);
    ASSERT_EQ(client.Ask(WithTtl(client.PutFrame(2, "s", "aaaaa"), kSecondNs)).code,
              StatusCode::kOk);
    const absl::Time start = server.now();
    int looks = 0;
    server.set_clock(
        [&] { return start + (looks++ < look ? absl::ZeroDuration() : absl::Seconds(2)); });
    const RawReply increment = client.Ask(client.IncrementFrame(3, "n", 1));
    const absl::string_view sum = increment.data;
    EXPECT_TRUE(sum == "6" || sum == "1") << sum;
    looks = 0;
    const RawReply append = client.Ask(client.AppendFrame(4, "s", "b"));
    EXPECT_EQ(append.code, StatusCode::kOk);
    EXPECT_TRUE(append.body.value_length == 6 || append.body.value_length == 1);
    ++(sum == "6" ? old_ones : new_ones);
  }
  EXPECT_GT(old_ones, 0);
  EXPECT_GT(new_ones, 1);  // also between two clock reads of the write
}

TEST(ServerExpiryTest, LongAppendCreatesAKeyIfTheOldOneExpiresMeanwhile) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(WithTtl(client.RendezvousFrame(1, "key", Large(900000)), kSecondNs)).code,
            StatusCode::kOk);
  // It expires when all has been copied: at the last clock read, that of Publish.
  int looks = 0;
  int publish_look = -1;
  for (int at = 0; publish_look != at && at < 40; ++at) {
    SCOPED_TRACE(at);
    const absl::Time start = server.now();
    const uint64_t sequence = 2 + 2 * static_cast<uint64_t>(at);
    ASSERT_EQ(
        client.Ask(WithTtl(client.RendezvousFrame(sequence, "key", Large(900000)), kSecondNs)).code,
        StatusCode::kOk);
    looks = 0;
    server.set_clock(
        [&, at] { return start + (looks++ < at ? absl::ZeroDuration() : absl::Seconds(2)); });
    const RawReply reply = client.Ask(client.AppendFrame(sequence + 1, "key", "tail"));
    ASSERT_EQ(reply.code, StatusCode::kOk);
    ASSERT_TRUE(reply.body.value_length == 4 || reply.body.value_length == 900004);
    if (reply.body.value_length == 900004) publish_look = at + 1;
    server.set_clock(nullptr);
    server.Advance(absl::Seconds(3));
  }
  EXPECT_GT(publish_look, 3) << "the value was copied in steps, and looked for in each";
}

// Another client may have received 'not found' after the turn began and before this request was
// sent. So the turn's time is too old.
TEST(ServerExpiryTest, ServerReadsTheClockAfterReceivingTheRequest) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  EXPECT_EQ(client.welcome().server_time, Ns(server.now()));
  ASSERT_EQ(client.Ask(WithTtl(client.PutFrame(1, "key", "value"), 10 * kSecondNs)).code,
            StatusCode::kOk);
  EXPECT_EQ(client.Ask(client.EmptyFrame(Opcode::kPing, 2)).body.server_time, Ns(server.now()));
  const absl::Time later = server.now() + absl::Seconds(11);
  server.set_clock([later] { return later; });
  const RawReply put = client.Ask(client.PutIfFrame(3, "key", "other", WireCondition::kAbsent, 0));
  EXPECT_EQ(put.code, StatusCode::kOk);
  EXPECT_EQ(put.body.server_time, Ns(later));
}

// A turn polls one transport after the other. A client may send to the second one after it has
// received the first one's replies.
TEST(ServerExpiryTest, RepliesHaveATimeReadAfterTheirTransportsPoll) {
  HarnessOptions options;
  options.two_ports = true;
  ServerHarness server(options);
  RawClient first(server);
  first.Establish();
  RawClient second(server);
  second.Connect(0, kSecondUri);
  server.Settle();
  second.Hello();
  server.Settle();
  ASSERT_TRUE(second.welcomed());
  const absl::Time before = server.now();
  const absl::Time after = before + absl::Seconds(1);
  absl::Time clock = before;
  server.set_clock([&] { return clock; });
  // The poll in which the second transport executes the READ of a value.
  server.network().before_reads = [&](rdma::ConnectionId) { clock = after; };
  const std::string put = second.RendezvousFrame(1, "key", Large(100));
  second.Send(put);
  server.engine().Poll(server.now());
  ASSERT_EQ(clock, before);
  first.Send(first.EmptyFrame(Opcode::kPing, 1));
  second.Send(second.EmptyFrame(Opcode::kPing, 2));
  server.engine().Poll(server.now());
  ASSERT_EQ(clock, after);
  server.Settle();
  EXPECT_EQ(first.TakeReply()->body.server_time, Ns(before));
  ASSERT_EQ(second.replies(), 2u);
  EXPECT_EQ(second.TakeReply()->body.server_time, Ns(after));
  EXPECT_EQ(second.TakeReply()->body.server_time, Ns(after));
  clock += absl::Seconds(1);
  EXPECT_EQ(second.Ask(put).body.server_time, Ns(clock)) << "an answer from memory";
}

// Sleeps until each timer, for so long. Returns the number of timers.
int WakesIn(ServerHarness& server, absl::Duration duration, size_t pollers = 1) {
  const absl::Time end = server.now() + duration;
  int wakes = 0;
  for (; server.now() < end; ++wakes) {
    absl::Time next = end;
    for (size_t i = 0; i < pollers; ++i) next = std::min(next, server.engine(i).next_timer());
    server.Advance(std::max(next - server.now(), absl::Milliseconds(1)), absl::Hours(1));
  }
  return wakes;
}

TEST(ServerExpiryTest, AnIdleServerEndsWhatHasExpiredAndWakesSeldomForIt) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const int wakes_without = WakesIn(server, absl::Seconds(8));
  // One expires every 10 ms, from 1 s to 9 s.
  constexpr uint64_t kKeys = 800;
  for (uint64_t i = 0; i < kKeys; ++i) {
    ASSERT_EQ(client
                  .Ask(WithTtl(client.PutFrame(1 + i, absl::StrCat("key", i), "value"),
                               kSecondNs + i * kSecondNs / 100))
                  .code,
              StatusCode::kOk);
  }
  EXPECT_LE(WakesIn(server, absl::Seconds(1)), wakes_without / 8 + 2) << "nothing has expired yet";
  int wakes = 0;
  for (uint64_t seconds = 1; seconds <= 8; ++seconds) {
    wakes += WakesIn(server, absl::Seconds(1));
    EXPECT_LE(server.table().stats().keys, kKeys - seconds * 100 + 50) << "of the last half second";
  }
  EXPECT_LE(wakes, wakes_without + 8 * 5);
  WakesIn(server, absl::Seconds(1));
  EXPECT_EQ(server.table().stats().keys, 0u);
  EXPECT_EQ(server.table().stats().expiries, kKeys);
}

// As after a promotion, or with a data directory.
TEST(ServerExpiryTest, AnIdleServerEndsWhatHasExpiredBeforeItBegan) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(WithTtl(client.PutFrame(1, "key", "value"), kSecondNs)).code,
            StatusCode::kOk);
  server.EndEngines();
  server.PassTime(absl::Seconds(2));
  server.BeginEngines();
  server.Advance(absl::Seconds(1));
  EXPECT_EQ(server.table().stats().expiring_keys, 0);
}

TEST(ServerExpiryTest, WhatExpiresInAnotherPollersTableIsSweptAndWakesFewPollers) {
  HarnessOptions options;
  options.pollers = 2;
  options.partitions = 4;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  const int wakes_without = WakesIn(server, absl::Seconds(4), 2);
  constexpr uint64_t kKeys = 400;
  for (uint64_t i = 0; i < kKeys; ++i) {
    ASSERT_EQ(client
                  .Ask(WithTtl(client.PutFrame(1 + i, absl::StrCat("key", i), "value"),
                               kSecondNs + i * kSecondNs / 100))
                  .code,
              StatusCode::kOk);
  }
  WakesIn(server, absl::Seconds(1), 2);
  const int wakes = WakesIn(server, absl::Seconds(4), 2);
  EXPECT_LE(wakes, wakes_without + 4 * 4 * 4 + 4) << "for each table four a second";
  WakesIn(server, absl::Seconds(1), 2);
  EXPECT_EQ(server.tables().stats().keys, 0u);
  EXPECT_EQ(server.tables().stats().expiries, kKeys);
}

TEST(ServerExpiryTest, StatsCountIt) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(WithTtl(client.PutFrame(1, "a", "value"), kSecondNs)).code, StatusCode::kOk);
  ASSERT_EQ(client.Ask(WithTtl(client.PutFrame(2, "b", "value"), 9 * kSecondNs)).code,
            StatusCode::kOk);
  ASSERT_EQ(client.Ask(TouchFrame(client, 3, "a")).code, StatusCode::kOk);
  server.Advance(absl::Seconds(2));
  const std::string stats = client.Ask(client.EmptyFrame(Opcode::kStats, 4)).data;
  for (const char* line : {"\nkeys=1\n", "\nkeys_expiring=1\n", "\nexpiries=1\n",
                           "\nrequests_expire=0\n", "\nrequests_touch=1\n"}) {
    EXPECT_TRUE(absl::StrContains(stats, line)) << line << stats;
  }
}

// --- Dead space

TEST(ServerDeadSpaceTest, AnIdleServerReusesDeadSpaceOnceItsGraceHasEnded) {
  ServerHarness server;
  {
    RawClient client(server);
    client.Establish();
    for (uint64_t i = 1; i <= 20; ++i) {
      const std::string value(i % 2 == 0 ? 2000 : 3000, 'v');
      ASSERT_EQ(client.Ask(client.PutFrame(i, "key", value)).code, StatusCode::kOk);
    }
  }
  server.Settle();
  ASSERT_GT(server.table().stats().quarantine_bytes, 0u);
  const absl::Time written = server.now();
  // As a sleeping server: it polls at its timers alone.
  while (server.table().stats().quarantine_bytes > 0) {
    const absl::Time next = server.engine().next_timer();
    ASSERT_LT(next, written + absl::Seconds(2));
    server.Advance(std::max(next - server.now(), absl::Milliseconds(1)), absl::Hours(1));
  }
  EXPECT_GE(server.now(), written + absl::Milliseconds(900));
}

}  // namespace
}  // namespace osprey::server
