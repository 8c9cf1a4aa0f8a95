// Keys that expire, at a client. It uses READs if its bounds of the server's clock suffice, else
// messages. The test controls both clocks. Time (now_) is the client's; the server's is ahead of
// it, behind it, or runs at another speed.

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/common/server_clock.h"
#include "client/read/scans.h"
#include "client/reasons.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/client_engine_fixture.h"
#include "tests/support/volume.h"

namespace osprey {
namespace {

using client::ServerClock;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kTtl = absl::Seconds(3);
// The estimate's error after a few round trips of 100 us, and steps of the expiry.
constexpr absl::Duration kNearly = absl::Milliseconds(5);

class ClientExpiryTest : public ClientEngineTest {
 protected:
  void Start(absl::Duration server_ahead) {
    // The table's clock never goes back, whatever the test's steps.
    server_clock_ = [this, server_ahead] { return now_ + server_ahead; };
    StartServer();
    StartEngine();
    BecomeReady();
  }
  static WriteOptions For(absl::Duration ttl) {
    WriteOptions options;
    options.ttl = ttl;
    return options;
  }
  absl::StatusOr<uint64_t> Expire(absl::string_view key, absl::Duration ttl,
                                  const WriteOptions& options = {}) {
    Outcome<uint64_t> outcome;
    const absl::Status status =
        engine_->start().Expire(key, ttl, options, now_ + absl::Seconds(1), outcome.Callback());
    if (!status.ok()) return status;
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(2)));
    return *outcome.value;
  }
  absl::StatusOr<uint64_t> Touch(absl::string_view key) {
    Outcome<uint64_t> outcome;
    const absl::Status status =
        engine_->start().Touch(key, now_ + absl::Seconds(1), outcome.Callback());
    if (!status.ok()) return status;
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(2)));
    return *outcome.value;
  }
  absl::StatusOr<absl::Duration> Ttl(absl::string_view key) {
    Outcome<absl::Duration> outcome;
    const absl::Status status =
        engine_->start().Ttl(key, now_ + absl::Seconds(1), outcome.Callback());
    if (!status.ok()) return status;
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(2)));
    return *outcome.value;
  }
  absl::StatusOr<client::Scans::Found> Scan(bool count_only = false, bool values = false) {
    Outcome<client::Scans::Found> outcome;
    client::Scans::Request request;
    request.limit = UINT64_MAX;
    request.count_only = count_only;
    request.values = values;
    request.deadline = now_ + absl::Seconds(5);
    request.done = outcome.Callback();
    const absl::Status status = engine_->start().Scan(std::move(request));
    if (!status.ok()) return status;
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(6)));
    return std::move(*outcome.value);
  }
  uint64_t messages() const { return engine_->counters().messages; }
  uint64_t rpc_gets() const { return engine_->counters().rpc_gets; }
};

// --- Reading -------------------------------------------------------------------------------------

TEST_F(ClientExpiryTest, AKeyLivesForItsTimeWhateverTheClientsClockSays) {
  for (const absl::Duration ahead : {-absl::Hours(1), absl::ZeroDuration(), absl::Hours(1)}) {
    SCOPED_TRACE(absl::FormatDuration(ahead));
    Start(ahead);
    ASSERT_TRUE(Put("planet", "saturn", For(kTtl)).ok());
    const absl::Time put_at = now_;
    const uint64_t before = messages();
    EXPECT_EQ(Get("planet")->bytes, "saturn");
    RunFor(put_at + kTtl - kNearly - now_);
    const absl::StatusOr<Value> nearly = Get("planet");
    ASSERT_TRUE(nearly.ok()) << nearly.status();
    EXPECT_GT(nearly->ttl, absl::ZeroDuration());
    EXPECT_LT(nearly->ttl, 2 * kNearly);
    RunFor(put_at + kTtl + kNearly - now_);
    EXPECT_TRUE(absl::IsNotFound(Get("planet").status()));
    EXPECT_EQ(messages(), before) << "READs are enough";
    CloseEngine();
    KillServer();
  }
}

TEST_F(ClientExpiryTest, GetAndTtlReturnTheRemainingTime) {
  Start(absl::Minutes(5));
  ASSERT_TRUE(Put("planet", "saturn", For(absl::Seconds(9))).ok());
  ASSERT_TRUE(Put("star", "sun").ok());
  RunFor(absl::Seconds(2));
  for (const absl::Duration left : {Get("planet")->ttl, *Ttl("planet")}) {
    EXPECT_GT(left, absl::Seconds(7) - kNearly);
    EXPECT_LE(left, absl::Seconds(7));
  }
  EXPECT_EQ(Get("star")->ttl, absl::InfiniteDuration());
  EXPECT_EQ(*Ttl("star"), absl::InfiniteDuration());
  EXPECT_TRUE(absl::IsNotFound(Ttl("moon").status()));
  EXPECT_EQ(rpc_gets(), 0u);
}

TEST_F(ClientExpiryTest, LongValuesExpireAsShortOnesDo) {
  Start(-absl::Minutes(5));
  for (const size_t bytes : {size_t{3000}, size_t{400} << 10}) {
    const std::string value(bytes, 'v');
    ASSERT_TRUE(Put("planet", value, For(kTtl)).ok());
    const absl::Time put_at = now_;
    const absl::StatusOr<Value> got = Get("planet");
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->bytes, value);
    EXPECT_GT(got->ttl, kTtl - absl::Milliseconds(100));
    EXPECT_LE(got->ttl, kTtl);
    RunFor(put_at + kTtl + kNearly - now_);
    EXPECT_TRUE(absl::IsNotFound(Get("planet").status())) << bytes;
  }
}

TEST_F(ClientExpiryTest, WhenInDoubtItAsksTheServer) {
  Start(absl::Hours(1));
  ASSERT_TRUE(Put("planet", "saturn", For(kTtl)).ok());
  const absl::Time put_at = now_;
  RunFor(absl::Seconds(2));
  // Nothing was sent for two seconds, so the estimate is 2 ms wide on either side. The client's
  // answer must then be true at the server.
  bool was_found = true;
  for (absl::Time at = put_at + kTtl - absl::Milliseconds(6); now_ < put_at + kTtl + kNearly;
       at += absl::Microseconds(500)) {
    if (now_ < at) RunFor(at - now_, absl::Microseconds(100));
    const bool there_before = server_->table().Find("planet").ok();
    const bool found = Get("planet").ok();
    const bool there_after = server_->table().Find("planet").ok();
    EXPECT_TRUE(found == there_before || found == there_after);
    EXPECT_TRUE(was_found || !found) << "it came back";
    was_found = found;
  }
  EXPECT_FALSE(was_found);
  EXPECT_GT(rpc_gets(), 0u);
  EXPECT_LT(rpc_gets(), 6u) << "the answer told the time, too";
}

TEST_F(ClientExpiryTest, AnOldEstimateIsNotUsedAndTheServersAnswerIsANewOne) {
  Start(absl::Hours(1));
  ASSERT_TRUE(Put("planet", "saturn", For(absl::Hours(1))).ok());
  RunFor(ServerClock::kAgeMax() + absl::Seconds(1), absl::Milliseconds(100));
  EXPECT_EQ(Get("planet")->bytes, "saturn");
  EXPECT_EQ(rpc_gets(), 1u);
  EXPECT_EQ(Get("planet")->bytes, "saturn");
  EXPECT_EQ(rpc_gets(), 1u);
}

TEST_F(ClientExpiryTest, ClientReadingExpiringKeysPingsPeriodically) {
  Start(absl::Hours(1));
  ASSERT_TRUE(Put("planet", "saturn", For(absl::Hours(1))).ok());
  const uint64_t before = messages();
  for (int i = 0; i < 600; ++i) {
    EXPECT_EQ(Get("planet")->bytes, "saturn");
    RunFor(absl::Milliseconds(100));
  }
  EXPECT_EQ(rpc_gets(), 0u);
  EXPECT_GE(messages() - before, 8u);
  EXPECT_LE(messages() - before, 13u) << "one in five seconds";
}

TEST_F(ClientExpiryTest, ClientReadingPersistentKeysSendsNoPing) {
  Start(absl::Hours(1));
  ASSERT_TRUE(Put("planet", "saturn").ok());
  const uint64_t before = messages();
  for (int i = 0; i < 600; ++i) {
    EXPECT_EQ(Get("planet")->bytes, "saturn");
    RunFor(absl::Milliseconds(100));
  }
  EXPECT_EQ(messages(), before);
}

// A stray answer must not count as the answer to a request, before a break or after it.
TEST_F(ClientExpiryTest, TheQuestionForTheTimeMayBeLostWithTheConnection) {
  Start(absl::Hours(1));
  server_->resumes = true;
  ASSERT_TRUE(Put("planet", "saturn", For(absl::Hours(1))).ok());
  for (int round = 0; round < 3; ++round) {
    server_->answers = false;
    RunFor(ServerClock::kAgeMax() / 2 + absl::Seconds(1), absl::Milliseconds(100));
    Outcome<Value> get;
    ASSERT_TRUE(StartGet("planet", get).ok());
    ASSERT_TRUE(RunUntil([&] { return get.done(); }));
    EXPECT_TRUE(get.status().ok());
    ASSERT_TRUE(RunUntil([&] { return server_->waiting() == 1; }));
    network_.Break(server_->connection());
    server_->answers = true;
    RunFor(absl::Milliseconds(100));
    EXPECT_TRUE(Put("star", "sun").ok());
    EXPECT_EQ(Get("planet")->bytes, "saturn");
  }
}

TEST_F(ClientExpiryTest, TheNextServersClockIsAnother) {
  Start(absl::Hours(1));
  ASSERT_TRUE(Put("planet", "saturn", For(absl::Hours(1))).ok());
  KillServer();
  server_clock_ = [this] { return now_ - absl::Hours(1); };
  StartServer(/*incarnation=*/2);
  ASSERT_TRUE(Put("planet", "mars", For(kTtl), absl::Seconds(10)).ok());
  EXPECT_EQ(Get("planet")->bytes, "mars");
  RunFor(kTtl + kNearly);
  EXPECT_TRUE(absl::IsNotFound(Get("planet").status()));
  EXPECT_EQ(rpc_gets(), 0u);
}

// Both are welcomed so slowly that the bounds of one's clock would suffice for the other's as well.
TEST_F(ClientExpiryTest, NothingIsConcludedFromAServersClockForTheNext) {
  const auto slowly = [this](rdma::FrameHeader&, rdma::WelcomeBody&) {
    now_ += absl::Milliseconds(400);
  };
  server_clock_ = [this] { return now_; };
  StartServer();
  server_->tamper_welcome = slowly;
  StartEngine();
  BecomeReady();
  KillServer();
  server_clock_ = [this] { return now_ + absl::Milliseconds(200); };
  StartServer(/*incarnation=*/2);
  server_->tamper_welcome = slowly;
  ASSERT_TRUE(
      RunUntil([&] { return engine_->connection().times_ready() == 2; }, absl::Seconds(10)));
  const absl::Duration ttl = absl::Seconds(10);
  const index::WriteResult put =
      server_->table().Put("planet", {}, {}, server_->ServerTime(), index::Lifetime::For(ttl));
  ASSERT_TRUE(put.status.ok()) << put.status;
  const absl::StatusOr<Value> value = Get("planet");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(rpc_gets(), 0u);
  EXPECT_LE(value->ttl, ttl);
}

// --- Within a READ -------------------------------------------------------------------------------

// The process is stopped within Poll, just before its READ is executed. The time passed to Poll
// says nothing about the item that it finds then.
TEST_F(ClientExpiryTest, AKeyThatExpiredWhileTheClientWasStoppedIsNotFound) {
  clock_ = [this] { return now_; };
  Start(absl::Hours(1));
  ASSERT_TRUE(Put("planet", "saturn", For(kTtl)).ok());
  network_.before_reads = [this](rdma::ConnectionId) {
    now_ += kTtl + kNearly;
    network_.before_reads = nullptr;
  };
  EXPECT_TRUE(absl::IsNotFound(Get("planet", absl::Seconds(10)).status()));
}

// A READ posted before the key's expiry may have been executed before it, when the key was present.
// The key's life may have been extended since.
TEST_F(ClientExpiryTest, AReadPostedBeforeTheKeyExpiredSaysNothingOfItsAbsence) {
  bool fetched = false;
  clock_ = [&] {
    // The item was fetched, and its bytes are under way longer than it had to live. Meanwhile its
    // life is extended.
    if (std::exchange(fetched, false)) {
      now_ += absl::Milliseconds(100);
      const index::WriteResult longer = server_->table().Expire(
          "planet", {}, index::Lifetime::For(absl::Hours(1)), server_->ServerTime());
      EXPECT_TRUE(longer.status.ok()) << longer.status;
      now_ += absl::Milliseconds(200);
    }
    return now_;
  };
  Start(absl::Hours(1));
  ASSERT_TRUE(Put("planet", "saturn", For(kTtl)).ok());
  RunFor(kTtl - absl::Milliseconds(200));
  network_.before_reads = [&](rdma::ConnectionId) {
    fetched = true;
    network_.before_reads = nullptr;
  };
  const absl::StatusOr<Value> value = Get("planet", absl::Seconds(10));
  EXPECT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(rpc_gets(), 1u);
}

// --- Any speed, any moment -----------------------------------------------------------------------

// One client, whose clock is off and runs at another speed, puts and reads. The reference is the
// server's clock.
TEST_F(ClientExpiryTest, WhateverItsClockAClientSaysWhatWasSoDuringItsCall) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto up_to = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(0, most)(random);
  };
  for (const int64_t gain_ppm : {-900, -10, 10, 900}) {
    const absl::Time begin = now_;
    const absl::Duration ahead = absl::Seconds(up_to(7200)) - absl::Hours(1);
    server_clock_ = [this, begin, ahead, gain_ppm] {
      return now_ + ahead + (now_ - begin) * gain_ppm / 1000000;
    };
    StartServer();
    StartEngine();
    BecomeReady();
    int hits = 0, misses = 0;
    for (int i = 0; i < 100 / kVolumeParts; ++i) {
      const absl::Duration ttl = absl::Microseconds(1 + up_to(i % 2 == 0 ? 20000 : 4000000));
      ASSERT_TRUE(Put("planet", "saturn", For(ttl)).ok());
      const absl::Time expiry = absl::FromUnixNanos(static_cast<int64_t>(
          server_->table().Find("planet").ok() ? server_->table().Find("planet")->expiry_ns : 0));
      for (int look = 0; look < 3; ++look) {
        RunFor(ttl / 2 - absl::Milliseconds(1) + absl::Microseconds(up_to(2000)),
               absl::Microseconds(200));
        const absl::Time called = server_->ServerTime();
        const absl::StatusOr<Value> value = Get("planet");
        const absl::Time returned = server_->ServerTime();
        ASSERT_TRUE(value.ok() || absl::IsNotFound(value.status())) << value.status();
        if (value.ok()) {
          EXPECT_LT(called, expiry);
          EXPECT_LE(value->ttl, expiry - called);
        } else {
          EXPECT_GE(returned, expiry);
        }
        ++(value.ok() ? hits : misses);
      }
    }
    EXPECT_GT(hits, 30 / kVolumeParts);
    EXPECT_GT(misses, 30 / kVolumeParts);
    EXPECT_LT(rpc_gets(), 150u / kVolumeParts) << "half of the GETs at most: most are sure";
    CloseEngine();
    KillServer();
  }
}

// --- Scans ---------------------------------------------------------------------------------------

TEST_F(ClientExpiryTest, AScanFindsWhatLivesAndNothingElse) {
  Start(absl::Hours(1));
  for (int i = 0; i < 100; ++i) {
    const absl::Duration ttl = i % 4 == 0   ? absl::ZeroDuration()
                               : i % 4 == 1 ? absl::Hours(1)
                                            : kTtl;
    ASSERT_TRUE(Put(absl::StrCat("key", i), "value", For(ttl)).ok());
  }
  const uint64_t before = messages();
  EXPECT_EQ(Scan()->count, 100u);
  EXPECT_EQ(Scan(/*count_only=*/true)->count, 100u);
  RunFor(kTtl + kNearly);
  EXPECT_EQ(Scan()->count, 50u);
  EXPECT_EQ(Scan(/*count_only=*/true)->count, 50u);
  EXPECT_EQ(Scan(/*count_only=*/false, /*values=*/true)->entries.size(), 50u);
  EXPECT_EQ(messages(), before);
}

TEST_F(ClientExpiryTest, AScanThatNeedsTheTimeAsksForItOnce) {
  Start(absl::Hours(1));
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(Put(absl::StrCat("key", i), "value", For(absl::Hours(i % 2 + 1))).ok());
  RunFor(ServerClock::kAgeMax() + absl::Seconds(1), absl::Milliseconds(100));
  const uint64_t before = messages();
  const absl::StatusOr<client::Scans::Found> found = Scan();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->count, 100u);
  EXPECT_EQ(messages() - before, 1u);
}

// --- Writing -------------------------------------------------------------------------------------

TEST_F(ClientExpiryTest, ATimeToLiveTravelsInNanosecondsAndIsNeverShortened) {
  Start(absl::ZeroDuration());
  ASSERT_TRUE(Put("a", "v").ok());
  ASSERT_TRUE(Put("b", "v", For(absl::InfiniteDuration())).ok());
  ASSERT_TRUE(Put("c", "v", For(absl::Nanoseconds(1) / 4)).ok());
  ASSERT_TRUE(Put("d", "v", For(absl::Milliseconds(1500))).ok());
  ASSERT_TRUE(Put("e", std::string(100000, 'v'), For(kTtlMax())).ok());
  ASSERT_TRUE(Expire("d", absl::Seconds(2)).ok());
  ASSERT_TRUE(Expire("d", absl::InfiniteDuration()).ok());
  EXPECT_THAT(server_->ttls_ns,
              ElementsAre(0, 0, 1, 1500000000, 3155760000000000000, 2000000000, 0));
}

TEST_F(ClientExpiryTest, ATimeToLiveOutOfRangeIsRefusedAndNothingIsSent) {
  Start(absl::ZeroDuration());
  for (const absl::Duration ttl :
       {-absl::Seconds(1), -absl::InfiniteDuration(), kTtlMax() + absl::Nanoseconds(1)}) {
    for (const absl::Status& status :
         {Put("planet", "saturn", For(ttl)).status(), Expire("planet", ttl).status()}) {
      EXPECT_EQ(ReasonOf(status), Reason::kBadTtl) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("not applied"));
      EXPECT_FALSE(MayBeApplied(status));
    }
  }
  EXPECT_EQ(ReasonOf(Expire("planet", absl::ZeroDuration()).status()), Reason::kBadTtl);
  EXPECT_EQ(messages(), 0u);
}

TEST_F(ClientExpiryTest, OnlyAPutTakesATimeToLiveAmongItsOptions) {
  Start(absl::ZeroDuration());
  const WriteOptions options = For(kTtl);
  Outcome<uint64_t> deleted;
  for (const absl::Status& status :
       {engine_->start().Delete("k", options, now_ + kTtl, deleted.Callback()),
        Increment("k", 1, options).status(), Append("k", "v", options).status(),
        Expire("k", kTtl, options).status()}) {
    EXPECT_EQ(ReasonOf(status), Reason::kBadTtl) << status;
  }
  WriteOptions if_absent;
  if_absent.if_absent = true;
  EXPECT_EQ(ReasonOf(Expire("k", kTtl, if_absent).status()), Reason::kBadCondition);
  EXPECT_EQ(messages(), 0u);
}

TEST_F(ClientExpiryTest, ExpireAndTouchLeaveValueAndVersionAndNeedTheKey) {
  Start(absl::ZeroDuration());
  EXPECT_TRUE(absl::IsNotFound(Expire("planet", kTtl).status()));
  EXPECT_TRUE(absl::IsNotFound(Touch("planet").status()));
  const uint64_t version = *Put("planet", "saturn");
  EXPECT_EQ(*Expire("planet", kTtl), version);
  EXPECT_EQ(*Touch("planet"), version);
  EXPECT_EQ(Get("planet")->bytes, "saturn");
  EXPECT_EQ(Get("planet")->version, version);
  WriteOptions wrong;
  wrong.if_version = version + 1;
  EXPECT_TRUE(absl::IsFailedPrecondition(Expire("planet", kTtl, wrong).status()));
  wrong.if_version = version;
  EXPECT_EQ(*Expire("planet", absl::InfiniteDuration(), wrong), version);
  EXPECT_EQ(*Ttl("planet"), absl::InfiniteDuration());
  RunFor(kTtl + kNearly);
  EXPECT_EQ(Get("planet")->bytes, "saturn");
}

TEST_F(ClientExpiryTest, APutForgetsWhatWasSaidOfTheTimeBefore) {
  Start(absl::ZeroDuration());
  ASSERT_TRUE(Put("planet", "saturn", For(kTtl)).ok());
  ASSERT_TRUE(Put("planet", "mars").ok());
  RunFor(kTtl + kNearly);
  EXPECT_EQ(Get("planet")->bytes, "mars");
}

TEST_F(ClientExpiryTest, ReconnectResendsExpireAndReissuesTouch) {
  Start(absl::ZeroDuration());
  ASSERT_TRUE(Put("planet", "saturn").ok());
  server_->resumes = true;
  server_->answers = false;
  server_->requests.clear();
  server_->sequences.clear();
  Outcome<uint64_t> expired, touched;
  const absl::Time deadline = now_ + absl::Seconds(5);
  ASSERT_TRUE(engine_->start().Expire("planet", kTtl, {}, deadline, expired.Callback()).ok());
  ASSERT_TRUE(engine_->start().Touch("planet", deadline, touched.Callback()).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->waiting() == 2; }));
  network_.Break(server_->connection());
  server_->answers = true;
  ASSERT_TRUE(RunUntil([&] { return expired.done() && touched.done(); }, absl::Seconds(4)));
  EXPECT_TRUE(expired.status().ok()) << expired.status();
  EXPECT_TRUE(touched.status().ok()) << touched.status();
  using rdma::Opcode;
  EXPECT_THAT(server_->requests,
              ElementsAre(Opcode::kExpire, Opcode::kTouch, Opcode::kExpire, Opcode::kTouch));
  EXPECT_EQ(server_->sequences[2], server_->sequences[0]);
  EXPECT_NE(server_->sequences[3], server_->sequences[1]);
}

TEST_F(ClientExpiryTest, OfALostExpireItIsSaidThatItMayBeAppliedOfALostTouchNot) {
  Start(absl::ZeroDuration());
  ASSERT_TRUE(Put("planet", "saturn").ok());
  server_->answers = false;
  Outcome<uint64_t> expired, touched;
  ASSERT_TRUE(engine_->start().Expire("planet", kTtl, {}, now_ + kTtl, expired.Callback()).ok());
  ASSERT_TRUE(engine_->start().Touch("planet", now_ + kTtl, touched.Callback()).ok());
  ASSERT_TRUE(RunUntil([&] { return expired.done() && touched.done(); }, 2 * kTtl));
  EXPECT_EQ(ReasonOf(expired.status()), Reason::kDeadline);
  EXPECT_TRUE(MayBeApplied(expired.status()));
  EXPECT_EQ(ReasonOf(touched.status()), Reason::kDeadline);
  EXPECT_FALSE(MayBeApplied(touched.status()));
}

// --- Servers that lie ----------------------------------------------------------------------------

TEST_F(ClientExpiryTest, WhateverTimeAServerNamesNothingBreaks) {
  for (const uint64_t time : {uint64_t{0}, uint64_t{1}, UINT64_MAX / 2, UINT64_MAX}) {
    server_clock_ = nullptr;
    StartServer();
    server_->tamper_welcome = [&](rdma::FrameHeader&, rdma::WelcomeBody& body) {
      body.server_time = time;
    };
    server_->tamper_reply = [&](rdma::FrameHeader&, rdma::ReplyBody& body) {
      body.server_time = UINT64_MAX - time;
      if (body.expiry != 0) body.expiry = time;
    };
    StartEngine();
    BecomeReady();
    EXPECT_TRUE(Put("star", "sun").ok());
    EXPECT_TRUE(Put("planet", "saturn", For(kTtl)).ok());
    EXPECT_EQ(Get("star")->bytes, "sun");
    (void)Get("planet");
    (void)Ttl("planet");
    (void)Scan();
    CloseEngine();
    KillServer();
  }
}

}  // namespace
}  // namespace osprey
