// A client of a server in a cluster: its READs count only under a lease, from beats in the serving
// record. In virtual time.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/read/scans.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/layout/partitions.h"
#include "index/layout/serving_record.h"
#include "index/writer/serving_record_writer.h"
#include "rdma/lease_time.h"
#include "tests/client/client_engine_fixture.h"

namespace osprey {
namespace {

using client::Scans;

constexpr uint64_t kClusterId = 0xC1;

fake::NetworkOptions Network(bool has_views) {
  fake::NetworkOptions options;
  options.has_views = has_views;
  return options;
}

class ClusterTest : public ClientEngineTest {
 protected:
  explicit ClusterTest(bool has_views = false) : ClientEngineTest(Network(has_views)) {}

  void Start(uint32_t partitions = 1) {
    StartServer(1, partitions);
    server_->tamper_welcome = [](rdma::FrameHeader&, rdma::WelcomeBody& body) {
      body.in_cluster = 1;
      body.data_id = kClusterId;
    };
    record_ = std::make_unique<index::ServingRecordWriter>(server_->region(),
                                                           index::IncarnationOfPartition(1, 0));
    serving_ = {};
    serving_.incarnation = 7;
    serving_.gain_revision = serving_.loss_revision = 1;
    serving_.shards = 1;
    also_polled_ = [this] { BeatIfDue(); };
    StartEngine();
    BecomeReady();
  }
  void TearDown() override { also_polled_ = nullptr; }

  void BeatIfDue() {
    if (!beats_ || now_ < next_beat_) return;
    next_beat_ = now_ + kBeatInterval();
    ++serving_.beat;
    record_->Write(serving_);
  }
  // Nothing of it runs any more. Its memory answers READs.
  void Freeze() {
    beats_ = false;
    server_->answers = false;
  }
  void Store(absl::string_view key, absl::string_view value) {
    ASSERT_TRUE(
        server_->TableOf(key)
            .Put(key, {reinterpret_cast<const std::byte*>(value.data()), value.size()}, {}, now_)
            .status.ok());
  }
  // GETs until one was answered by READs.
  void GainLease() {
    beats_ = true;
    for (const absl::Time end = now_ + absl::Seconds(1); now_ < end;) {
      const uint64_t reads = counters().reads;
      ASSERT_TRUE(Get("planet").ok());
      if (counters().reads > reads && counters().uncovered_reads == refused_) return;
      refused_ = counters().uncovered_reads;
    }
    FAIL() << "no lease";
  }
  const Counters& counters() const { return engine_->counters(); }
  uint64_t gets_by_message() const { return counters().rpc_gets; }

  absl::StatusOr<std::vector<absl::StatusOr<Value>>> Batch(
      const std::vector<absl::string_view>& keys, absl::Duration deadline = absl::Seconds(1)) {
    std::vector<absl::StatusOr<Value>> answers(keys.size(), absl::UnknownError("none yet"));
    size_t unanswered = 0;
    size_t begun = 0;
    while (begun < keys.size()) {
      begun += engine_->StartGets(absl::MakeConstSpan(keys).subspan(begun), &answers[begun],
                                  now_ + deadline, now_, unanswered);
      engine_->AwaitReads(unanswered, now_);
      Step();
    }
    if (!RunUntil([&] { return unanswered == 0; }, deadline + absl::Seconds(1)))
      return absl::UnknownError("not answered");
    return answers;
  }
  absl::Status One(absl::string_view key, std::string* bytes = nullptr) {
    absl::StatusOr<Value> answer = absl::UnknownError("none yet");
    size_t unanswered = 0;
    if (!engine_->GetOne(key, answer, now_ + absl::Seconds(1), now_, unanswered))
      return Batch({key})->front().status();
    EXPECT_TRUE(RunUntil([&] { return unanswered == 0; }, absl::Seconds(2)));
    if (answer.ok() && bytes != nullptr) *bytes = answer->bytes;
    return answer.status();
  }
  absl::Status Exists(absl::string_view key) {
    Outcome<bool> outcome;
    EXPECT_TRUE(engine_->start().Exists(key, now_ + absl::Seconds(1), outcome.Callback()).ok());
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(2)));
    return outcome.status();
  }
  absl::Status Ttl(absl::string_view key) {
    Outcome<absl::Duration> outcome;
    EXPECT_TRUE(engine_->start().Ttl(key, now_ + absl::Seconds(1), outcome.Callback()).ok());
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(2)));
    return outcome.status();
  }
  absl::StatusOr<Scans::Found> Scan(bool count_only = false,
                                    absl::Duration deadline = absl::Seconds(1)) {
    Outcome<Scans::Found> outcome;
    Scans::Request request;
    request.limit = 1000;
    request.values = true;
    request.count_only = count_only;
    request.deadline = now_ + deadline;
    request.done = outcome.Callback();
    EXPECT_TRUE(engine_->start().Scan(std::move(request)).ok());
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, deadline + absl::Seconds(1)));
    return std::move(*outcome.value);
  }

  std::unique_ptr<index::ServingRecordWriter> record_;
  index::ServingState serving_;
  bool beats_ = false;
  absl::Time next_beat_ = absl::InfinitePast();
  uint64_t refused_ = 0;
};

class MappedClusterTest : public ClusterTest {
 protected:
  MappedClusterTest() : ClusterTest(/*has_views=*/true) {}
};

TEST_F(ClusterTest, WithoutBeatsAllGetsGoByMessage) {
  Start();
  Store("planet", "saturn");
  Store("moon", std::string(600, 'm'));
  for (int i = 0; i < 20; ++i) {
    RunFor(absl::Milliseconds(30));
    EXPECT_EQ(Get("planet")->bytes, "saturn");
    EXPECT_EQ(Get("moon")->bytes, std::string(600, 'm'));
    EXPECT_TRUE(absl::IsNotFound(Get("star").status()));
    const auto batch = Batch({"planet", "star"});
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ((*batch)[0]->bytes, "saturn");
    EXPECT_TRUE(absl::IsNotFound((*batch)[1].status()));
    EXPECT_TRUE(One("planet").ok());
  }
  EXPECT_EQ(counters().reads, 0u);
  EXPECT_EQ(gets_by_message(), 120u);
  EXPECT_EQ(counters().unleased_gets, 120u);
  EXPECT_EQ(counters().gets, 120u);
  EXPECT_EQ(counters().leases, 0u);
  EXPECT_GE(counters().lease_reads, 10u);
  EXPECT_LE(counters().lease_reads, 20u) << "at most one in a beat's time";
}

TEST_F(ClusterTest, BeatsLetGetsBeReadAgain) {
  Start();
  Store("planet", "saturn");
  Store("moon", std::string(600, 'm'));
  const absl::Time begin = now_;
  GainLease();
  EXPECT_GE(now_ - begin, kBeatInterval()) << "one beat more is not enough";
  EXPECT_LE(now_ - begin, 5 * kBeatInterval());
  const Counters before = counters();
  for (int i = 0; i < 200; ++i) {
    RunFor(absl::Milliseconds(5));
    EXPECT_EQ(Get("planet")->bytes, "saturn");
    EXPECT_EQ(Get("moon")->bytes, std::string(600, 'm'));
    EXPECT_TRUE(absl::IsNotFound(Get("star").status()));
    EXPECT_TRUE(One("moon").ok());
    const auto batch = Batch({"planet", "star"});
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ((*batch)[0]->bytes, "saturn");
    EXPECT_TRUE(absl::IsNotFound((*batch)[1].status()));
  }
  EXPECT_EQ(gets_by_message(), before.rpc_gets);
  EXPECT_EQ(counters().uncovered_reads, before.uncovered_reads);
  EXPECT_EQ(counters().leases, 1u);
  EXPECT_GE(counters().reads - before.reads, 1200u);
  EXPECT_LE(counters().lease_reads - before.lease_reads, 30u) << "of 1 s";
}

TEST_F(ClusterTest, ATraceShowsTheLeaseOrThatThereIsNone) {
  Start();
  Store("planet", "saturn");
  std::vector<TraceStep> steps;
  ASSERT_TRUE(Trace("planet", steps).ok());
  EXPECT_EQ(steps[0].detail, "none: READs would not count");
  EXPECT_EQ(steps[1].what, "message");
  EXPECT_THAT(steps.back().detail, testing::EndsWith(", by message"));
  GainLease();
  steps.clear();
  ASSERT_TRUE(Trace("planet", steps).ok());
  EXPECT_THAT(steps[1].detail, testing::MatchesRegex("age=[0-9.]+[um]s ends_in=[0-9.]+ms"));
}

TEST_F(ClusterTest, OutsideAClusterNothingIsAsked) {
  Start();
  CloseEngine();
  server_->tamper_welcome = nullptr;
  StartEngine();
  BecomeReady();
  Store("planet", "saturn");
  EXPECT_EQ(Get("planet")->bytes, "saturn");
  EXPECT_TRUE(One("planet").ok());
  EXPECT_EQ(counters().lease_reads, 0u);
  EXPECT_EQ(gets_by_message(), 0u);
}

// Each path to an answer, from a frozen server whose memory still answers READs.
TEST_F(ClusterTest, AFrozenServerAnswersNothingAfterTheLease) {
  Start();
  const std::string long_value(300000, 'l');
  Store("planet", "saturn");
  Store("moon", std::string(600, 'm'));
  Store("long", long_value);
  const std::vector<std::pair<const char*, std::function<absl::Status()>>> paths = {
      {"GET, inline", [&] { return Get("planet").status(); }},
      {"GET, item", [&] { return Get("moon").status(); }},
      {"GET, long", [&] { return Get("long").status(); }},
      {"GET, absent", [&] { return Get("star").status(); }},
      {"one GET, inline", [&] { return One("planet"); }},
      {"one GET, item", [&] { return One("moon"); }},
      {"one GET, absent", [&] { return One("star"); }},
      {"batch",
       [&] {
         return Batch({"planet", "moon"})->front().status();
       }},
      {"batch, item",
       [&] {
         return Batch({"planet", "moon"})->back().status();
       }},
      {"batch, long",
       [&] {
         return Batch({"planet", "long"})->back().status();
       }},
      {"batch, absent",
       [&] {
         return Batch({"planet", "star"})->back().status();
       }},
      {"EXISTS", [&] { return Exists("moon"); }},
      {"EXISTS, absent", [&] { return Exists("star"); }},
      {"TTL", [&] { return Ttl("moon"); }},
      {"SCAN", [&] { return Scan().status(); }},
      {"COUNT", [&] { return Scan(/*count_only=*/true).status(); }},
  };
  for (const auto& [name, get] : paths) {
    SCOPED_TRACE(name);
    server_->answers = true;
    GainLease();
    const bool finds_nothing = absl::StrContains(name, "absent");
    const absl::Status before = get();
    EXPECT_TRUE(before.ok() ||
                (finds_nothing && !absl::StrContains(name, "EXISTS") && absl::IsNotFound(before)))
        << before;
    Freeze();
    RunFor(kReaderLease());
    const absl::Status after = get();
    EXPECT_EQ(ReasonOf(after), Reason::kDeadline) << after;
  }
}

TEST_F(MappedClusterTest, AFrozenServerAnswersNothingAfterTheLease) {
  Start();
  Store("planet", "saturn");
  GainLease();
  ASSERT_TRUE(Batch({"planet"})->front().ok());
  const uint64_t messages = gets_by_message();
  ASSERT_TRUE(One("planet").ok());
  EXPECT_EQ(gets_by_message(), messages);
  Freeze();
  // Within the lease it may.
  absl::Time last = now_;
  for (const absl::Time end = now_ + absl::Seconds(2); now_ < end;) {
    const absl::Time begin = now_;
    if (Batch({"planet"}, absl::Milliseconds(20))->front().ok()) last = begin;
  }
  EXPECT_LE(last, next_beat_ - kBeatInterval() + kReaderLease());
  EXPECT_EQ(ReasonOf(Batch({"planet"}, absl::Milliseconds(20))->front().status()),
            Reason::kDeadline);
}

// Its READs were posted under the lease, and land after it.
TEST_F(ClusterTest, ReadsThatLandLateDoNotCount) {
  Start();
  Store("planet", "saturn");
  Store("moon", std::string(600, 'm'));
  Store("long", std::string(300000, 'l'));
  GainLease();
  const uint64_t refused = counters().uncovered_reads;
  network_.HoldReads(id(), true);
  Outcome<Value> planet, long_value;
  absl::StatusOr<Value> moon = absl::UnknownError("none yet");
  size_t unanswered = 0;
  ASSERT_TRUE(StartGet("planet", planet).ok());
  ASSERT_TRUE(StartGet("long", long_value).ok());
  const absl::string_view key = "moon";
  ASSERT_EQ(engine_->StartGets({&key, 1}, &moon, now_ + absl::Seconds(1), now_, unanswered), 1u);
  RunFor(kReaderLease());
  const uint64_t messages = gets_by_message();
  network_.HoldReads(id(), false);
  ASSERT_TRUE(RunUntil([&] { return planet.done() && long_value.done() && unanswered == 0; }));
  EXPECT_EQ(planet.value->value().bytes, "saturn");
  EXPECT_EQ(long_value.value->value().bytes, std::string(300000, 'l'));
  EXPECT_EQ(moon->bytes, std::string(600, 'm'));
  EXPECT_EQ(counters().uncovered_reads, refused + 3);
  EXPECT_EQ(gets_by_message(), messages + 3);
}

TEST_F(ClusterTest, AfterALossGetsGoByMessageUntilTheShardIsServedAgain) {
  Start();
  Store("planet", "saturn");
  GainLease();
  ++serving_.loss_revision;
  serving_.shards = 0;
  record_->Write(serving_);
  // The client sees it by the next READ of the record.
  RunFor(kBeatInterval());
  EXPECT_TRUE(Get("planet").ok());
  uint64_t messages = gets_by_message();
  for (int i = 0; i < 100; ++i) {
    RunFor(absl::Milliseconds(5));
    EXPECT_EQ(Get("planet")->bytes, "saturn");
  }
  EXPECT_EQ(gets_by_message(), messages + 100);
  ++serving_.gain_revision;
  serving_.shards = 1;
  GainLease();
  messages = gets_by_message();
  for (int i = 0; i < 100; ++i) {
    RunFor(absl::Milliseconds(5));
    EXPECT_EQ(Get("planet")->bytes, "saturn");
  }
  EXPECT_EQ(gets_by_message(), messages);
}

// The server's memory has come to hold another shard, whose beats are as good.
TEST_F(ClusterTest, TheRegionOfAnotherShardIsNotRead) {
  Start(/*partitions=*/2);
  Store("planet", "saturn");
  Store("moon", "titan");
  GainLease();
  uint64_t messages = gets_by_message();
  EXPECT_TRUE(Get("planet").ok());
  EXPECT_EQ(gets_by_message(), messages);
  ++serving_.loss_revision;
  ++serving_.gain_revision;
  serving_.shards = 2;  // shard 1; the connection is of shard 0
  RunFor(absl::Seconds(1));
  messages = gets_by_message();
  for (int i = 0; i < 50; ++i) {
    RunFor(absl::Milliseconds(5));
    EXPECT_EQ(Get("planet")->bytes, "saturn");
    EXPECT_EQ(Get("moon")->bytes, "titan");
  }
  EXPECT_EQ(gets_by_message(), messages + 100);
  EXPECT_EQ(ReasonOf(Scan().status()), Reason::kDeadline);
}

// The server names item and version by message, and the client READs it there.
TEST_F(ClusterTest, LongValuesNeedNoLease) {
  Start();
  for (const size_t bytes : {size_t{2000}, size_t{100000}, size_t{700000}}) {
    SCOPED_TRACE(bytes);
    Store("long", std::string(bytes, 'l'));
    const absl::StatusOr<Value> got = Get("long");
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->bytes, std::string(bytes, 'l'));
    EXPECT_EQ(Batch({"long"})->front()->bytes, std::string(bytes, 'l'));
  }
  EXPECT_EQ(counters().uncovered_reads, 0u);
  EXPECT_EQ(counters().leases, 0u);
}

// … also if it is overwritten in between: by another message.
TEST_F(ClusterTest, ALongValueThatWasOverwrittenIsAskedForAgain) {
  Start();
  Store("long", std::string(2000, 'a'));
  int writes = 0;
  network_.before_reads = [&](rdma::ConnectionId) {
    if (writes++ < 3) Store("long", std::string(2000, 'b'));
  };
  const absl::StatusOr<Value> got = Get("long");
  network_.before_reads = nullptr;
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->bytes, std::string(2000, 'b'));
  EXPECT_GE(gets_by_message(), 2u);
}

TEST_F(ClusterTest, AScanWaitsForALease) {
  Start();
  for (int i = 0; i < 50; ++i) Store(absl::StrCat("key", i), "value");
  beats_ = true;
  const absl::Time begin = now_;
  const absl::StatusOr<Scans::Found> found = Scan();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->entries.size(), 50u);
  EXPECT_GE(now_ - begin, kBeatInterval());
  EXPECT_LE(now_ - begin, 5 * kBeatInterval());
  EXPECT_EQ(gets_by_message(), 0u);
  EXPECT_EQ(counters().uncovered_reads, 0u);
}

// It sleeps meanwhile, but for the READs of the record.
TEST_F(ClusterTest, AScanThatWaitsNeedsFewPolls) {
  Start();
  Store("planet", "saturn");
  Outcome<Scans::Found> outcome;
  Scans::Request request;
  request.limit = 10;
  request.deadline = now_ + absl::Seconds(2);
  request.done = outcome.Callback();
  ASSERT_TRUE(engine_->start().Scan(std::move(request)).ok());
  int polls = 0;
  const absl::Time begin = now_;
  while (!outcome.done() && ++polls < 1000) {
    Step();  // events that are due
    now_ = std::max(now_, std::min(engine_->NextTimer(), now_ + absl::Milliseconds(10)));
  }
  EXPECT_EQ(ReasonOf(outcome.status()), Reason::kDeadline);
  EXPECT_LE(polls, 300);
  EXPECT_GE(counters().lease_reads, 30u);
  EXPECT_GE(now_ - begin, absl::Seconds(2));
}

TEST_F(ClusterTest, AScansReadsThatLandLateAreMadeAgain) {
  Start();
  Store("planet", "saturn");
  GainLease();
  Outcome<Scans::Found> outcome;
  Scans::Request request;
  request.limit = 10;
  request.deadline = now_ + absl::Seconds(5);
  request.done = outcome.Callback();
  network_.HoldReads(id(), true);
  ASSERT_TRUE(engine_->start().Scan(std::move(request)).ok());
  RunFor(absl::Milliseconds(10));
  beats_ = false;
  RunFor(kReaderLease());
  network_.HoldReads(id(), false);
  RunFor(absl::Milliseconds(100));
  EXPECT_EQ(counters().uncovered_reads, refused_ + 1);
  ASSERT_FALSE(outcome.done());
  beats_ = true;
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(6)));
  ASSERT_TRUE(outcome.status().ok()) << outcome.status();
  EXPECT_EQ(outcome.value->value().count, 1u);
}

// What was READ under a lease counts, the rest waits for the next.
TEST_F(ClusterTest, AScanGoesOnWithTheNextLease) {
  Start();
  for (int i = 0; i < 2000; ++i) {
    Store(absl::StrCat("key", i), std::string(i % 200, 'v'));
    while (server_->table().GrowStep(now_)) {
    }
  }
  Store("planet", "saturn");
  GainLease();
  int chains = 0;
  network_.before_reads = [&](rdma::ConnectionId reader) {
    if (++chains != 10) return;
    beats_ = false;
    network_.HoldReads(reader, true);
  };
  Outcome<Scans::Found> outcome;
  Scans::Request request;
  request.limit = 10000;
  request.deadline = now_ + absl::Seconds(5);
  request.done = outcome.Callback();
  ASSERT_TRUE(engine_->start().Scan(std::move(request)).ok());
  RunFor(absl::Milliseconds(500));
  network_.before_reads = nullptr;
  network_.HoldReads(id(), false);
  RunFor(absl::Milliseconds(100));
  ASSERT_FALSE(outcome.done());
  beats_ = true;
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(6)));
  ASSERT_TRUE(outcome.status().ok()) << outcome.status();
  EXPECT_EQ(outcome.value->value().count, 2001u);
}

TEST_F(ClusterTest, AnIdleClientsLeaseEndsAndIsGainedAgain) {
  Start();
  Store("planet", "saturn");
  GainLease();
  const uint64_t reads = counters().lease_reads;
  RunFor(absl::Seconds(3));
  EXPECT_LE(counters().lease_reads, reads + 1) << "an idle client READs nothing for leases";
  const uint64_t messages = gets_by_message();
  EXPECT_EQ(Get("planet")->bytes, "saturn");
  EXPECT_EQ(gets_by_message(), messages + 1);
  GainLease();
  EXPECT_EQ(counters().leases, 2u);
}

TEST_F(ClusterTest, AnotherConnectionNeedsALeaseOfItsOwn) {
  Start();
  Store("planet", "saturn");
  GainLease();
  network_.Break(id());
  ASSERT_TRUE(RunUntil([&] { return !engine_->connection().ready(); }));
  BecomeReady();
  const uint64_t messages = gets_by_message();
  EXPECT_EQ(Get("planet")->bytes, "saturn");
  EXPECT_EQ(gets_by_message(), messages + 1);
}

// By a clock of its own, which may jump.
TEST_F(ClusterTest, TheLeaseClockDecides) {
  const auto ahead = std::make_shared<absl::Duration>();
  clock_ = [this] { return now_; };
  lease_clock_ = [this, ahead] { return now_ + *ahead; };
  Start();
  Store("planet", "saturn");
  GainLease();
  const uint64_t messages = gets_by_message();
  EXPECT_TRUE(One("planet").ok());
  EXPECT_EQ(gets_by_message(), messages);
  // The guest was paused: only the lease clock has seen it.
  *ahead = absl::Minutes(5);
  beats_ = false;
  EXPECT_TRUE(One("planet").ok());
  EXPECT_EQ(gets_by_message(), messages + 1);
}

// Nothing but its own reading of the clock tells that it is late.
TEST_F(MappedClusterTest, EachCallReadsTheLeaseClock) {
  const auto ahead = std::make_shared<absl::Duration>();
  clock_ = [this] { return now_; };
  lease_clock_ = [this, ahead] { return now_ + *ahead; };
  Start();
  Store("planet", "saturn");
  GainLease();
  const absl::string_view key = "planet";
  const auto answers_at_once = [&] {
    size_t unanswered = 0;
    absl::StatusOr<Value> answer = absl::UnknownError("none yet");
    EXPECT_EQ(engine_->StartGets({&key, 1}, &answer, now_ + absl::Seconds(1), now_, unanswered),
              1u);
    const bool at_once = unanswered == 0;
    EXPECT_TRUE(RunUntil([&] { return unanswered == 0; }, absl::Seconds(2)));
    EXPECT_TRUE(answer.ok()) << answer.status();
    return at_once;
  };
  EXPECT_TRUE(answers_at_once());
  EXPECT_TRUE(answers_at_once());
  *ahead = absl::Minutes(5);
  EXPECT_FALSE(answers_at_once());
}

TEST_F(ClusterTest, ARecordThatIsNoneGivesNoLease) {
  Start();
  Store("planet", "saturn");
  beats_ = true;
  also_polled_ = [this] {
    BeatIfDue();
    // A wrong byte in each of its fields in turn; the checksum tells.
    server_->region()[index::kServingRecordOffset + 8 * (serving_.beat % 7)] ^= std::byte{1};
  };
  for (int i = 0; i < 200; ++i) {
    RunFor(absl::Milliseconds(5), absl::Milliseconds(5));
    EXPECT_EQ(Get("planet")->bytes, "saturn");
  }
  EXPECT_EQ(counters().reads, counters().uncovered_reads);
  EXPECT_LE(counters().leases, 1u);
}

}  // namespace
}  // namespace osprey
