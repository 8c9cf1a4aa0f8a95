// Exactly once: the connection breaks at every step of the exchange, on either side. Every write is
// applied once, and answered so. A real client and a real server in one process, over shared memory
// here, over verbs in the lab.

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/engine/engine.h"
#include "gtest/gtest.h"
#include "index/writer/table.h"
#include "rdma/open_domain.h"
#include "server/engine/engine.h"
#include "server/requests/tables.h"
#include "tests/support/subprocess.h"
#include "tests/support/transports/breaking_transport.h"

namespace osprey {
namespace {

// Long relative to breaking and reconnecting, which over verbs sometimes takes the kernel seconds.
const absl::Duration kWriteDeadline = InLab() ? absl::Seconds(120) : absl::Seconds(20);
// The bound of a turn of client and server. The kernel has waits of up to 69 s; an overloaded
// machine takes a good part of a second.
constexpr absl::Duration kTurnMax = absl::Seconds(10);
constexpr size_t kRegionBytes = 32 << 20;
constexpr uint64_t kIncarnation = 0xABCDEF;

class ExactlyOnceTest : public ::testing::Test {
 protected:
  void SetUp() override { StartServer(); }

  void TearDown() override {
    CloseClient();
    server_.reset();
  }

  void StartServer() {
    const std::string listen = NewListenAddress();
    server_domain_ = rdma::OpenDomain(listen).value();
    region_ = server_domain_->Allocate(kRegionBytes, rdma::Access::kRemoteRead).value();
    scratch_ = server_domain_->Allocate(server::kLivenessBytes, rdma::Access::kLocal).value();
    index::TableOptions table_options;
    table_options.incarnation = kIncarnation;
    table_options.hash_seed = 42;
    tables_ = server::Tables::Create({region_->data(), region_->size()}, 1, table_options).value();
    server::EngineOptions options;
    options.incarnation = kIncarnation;
    options.random = [this] { return random_(); };
    std::vector<server::EnginePort> ports(1);
    ports[0] = {NewBreakingTransport(server_domain_->NewTransport({}).value(), breaker_),
                region_.get(), scratch_.get()};
    server_ = std::make_unique<server::Engine>(*tables_, std::move(ports), options, absl::Now());
    uri_ = server_->Listen(0, listen).value();
    client_domain_ = rdma::OpenDomain(uri_).value();
  }

  void StartClient() {
    client::EngineOptions options;
    options.connection.uri = uri_;
    options.connection.backoff_first = absl::Microseconds(100);
    options.connection.backoff_last = absl::Milliseconds(10);
    options.connection.seed = random_();
    client_ = client::ClientEngine::Create(
                  *client_domain_,
                  NewBreakingTransport(client_domain_->NewTransport({}).value(), breaker_), options)
                  .value();
  }

  void CloseClient() {
    if (client_ == nullptr) return;
    client_->Close();
    RunUntil([&] { return client_->closed(); });
    EXPECT_TRUE(client_->closed());
    client_.reset();
  }

  template <typename Predicate>
  void RunUntil(Predicate is_done) {
    const absl::Time end = absl::Now() + 2 * kWriteDeadline;
    absl::Time now = absl::Now();
    while (!is_done() && now < end) {
      const absl::Time before = now;
      client_->Poll(now);
      server_->Poll(now);
      now = absl::Now();
      longest_turn_ = std::max(longest_turn_, now - before);
    }
  }

  // An operation's answer, whenever it comes.
  template <typename T>
  struct Answer {
    std::optional<absl::StatusOr<T>> value;
    auto Callback() {
      return [this](absl::StatusOr<T> answer) {
        EXPECT_FALSE(value.has_value()) << "answered twice";
        value = std::move(answer);
      };
    }
  };
  // Runs until the operation ends.
  template <typename T, typename Start>
  absl::StatusOr<T> Do(Start start) {
    Answer<T> answer;
    const absl::Status started = start(absl::Now() + kWriteDeadline, answer.Callback());
    if (!started.ok()) return started;
    RunUntil([&] { return answer.value.has_value(); });
    return answer.value.has_value() ? *answer.value : absl::UnknownError("never answered");
  }

  absl::StatusOr<uint64_t> PutAbsent(absl::string_view key, absl::string_view value) {
    return Do<uint64_t>([&](absl::Time deadline, auto done) {
      WriteOptions options;
      options.if_absent = true;
      return client_->start().Put(key, value, options, deadline, std::move(done));
    });
  }
  absl::StatusOr<uint64_t> DeleteIf(absl::string_view key, uint64_t version) {
    return Do<uint64_t>([&](absl::Time deadline, auto done) {
      WriteOptions options;
      options.if_version = version;
      return client_->start().Delete(key, options, deadline, std::move(done));
    });
  }
  absl::StatusOr<Number> Increment(absl::string_view key, int64_t by) {
    return Do<Number>([&](absl::Time deadline, auto done) {
      return client_->start().Increment(key, by, {}, deadline, std::move(done));
    });
  }
  absl::StatusOr<uint64_t> Append(absl::string_view key, absl::string_view value) {
    return Do<uint64_t>([&](absl::Time deadline, auto done) {
      return client_->start().Append(key, value, {}, deadline, std::move(done));
    });
  }
  // The number of deleted keys.
  absl::StatusOr<uint64_t> Flush() {
    return Do<uint64_t>([&](absl::Time deadline, auto done) {
      return client_->start().Flush(deadline, std::move(done));
    });
  }
  // By message or READ, as the client chooses.
  absl::StatusOr<Value> Get(absl::string_view key) {
    return Do<Value>([&](absl::Time deadline, auto done) {
      return client_->start().Get(key, true, deadline, std::move(done));
    });
  }
  // Many at once: they share frames.
  void IncrementTogether(absl::string_view key, int times) {
    std::deque<Answer<Number>> answers;
    for (int i = 0; i < times; ++i) {
      ASSERT_TRUE(client_->start()
                      .Increment(key, 1, {}, absl::Now() + kWriteDeadline,
                                 answers.emplace_back().Callback())
                      .ok());
    }
    RunUntil([&] { return client_->in_flight() == 0; });
    int64_t sum = 0, expected = 0;
    for (const Answer<Number>& answer : answers) {
      ASSERT_TRUE(answer.value.has_value());
      ASSERT_TRUE(answer.value->ok()) << answer.value->status();
      sum += (*answer.value)->value;
      expected += ++expected_together_;
    }
    EXPECT_EQ(sum, expected);  // each number once, so no answer was mixed up
  }

  // Every kind of write; each fails or leaves a trace if it is applied twice. Keys start with
  // `name`.
  void Exchange(const std::string& name) {
    const std::string key = name + "/key", number = name + "/number", log = name + "/log";
    const std::string large(20000, 'l');
    const absl::StatusOr<uint64_t> put = PutAbsent(key, "eager");
    ASSERT_TRUE(put.ok()) << put.status();
    const absl::StatusOr<uint64_t> by_rendezvous = PutAbsent(name + "/large", large);
    ASSERT_TRUE(by_rendezvous.ok()) << by_rendezvous.status();
    const absl::StatusOr<Number> first = Increment(number, 5);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->value, 5);
    expected_together_ = 5;
    IncrementTogether(number, 6);
    const absl::StatusOr<uint64_t> appended = Append(log, "once;");
    ASSERT_TRUE(appended.ok()) << appended.status();
    // After a value so long that the server copies it in steps.
    const absl::StatusOr<uint64_t> tail = Append(name + "/large", "tail;");
    ASSERT_TRUE(tail.ok()) << tail.status();
    const absl::StatusOr<uint64_t> deleted = DeleteIf(key, *put);
    ASSERT_TRUE(deleted.ok()) << deleted.status();

    EXPECT_TRUE(absl::IsNotFound(Get(key).status()));
    EXPECT_EQ(Get(name + "/large")->bytes, large + "tail;");
    EXPECT_EQ(Get(number)->bytes, "11");
    const absl::StatusOr<Value> logged = Get(log);
    EXPECT_EQ(logged->bytes, "once;");
    EXPECT_EQ(logged->version, *appended);

    // A part that was repeated counts its keys once.
    const absl::StatusOr<uint64_t> flushed = Flush();
    ASSERT_TRUE(flushed.ok()) << flushed.status();
    EXPECT_EQ(*flushed, 3u);
    EXPECT_TRUE(absl::IsNotFound(Get(log).status()));
  }

  std::mt19937_64 random_{1};
  Breaker breaker_;
  std::unique_ptr<rdma::Domain> server_domain_, client_domain_;
  std::unique_ptr<rdma::Memory> region_, scratch_;
  std::unique_ptr<server::Tables> tables_;
  std::unique_ptr<server::Engine> server_;
  std::string uri_;
  std::unique_ptr<client::ClientEngine> client_;
  int64_t expected_together_ = 0;
  absl::Duration longest_turn_;  // of both engines together
};

TEST_F(ExactlyOnceTest, EveryWriteIsAppliedOnceWhereverTheConnectionBreaks) {
  for (const Breaker::When when : {Breaker::When::kBefore, Breaker::When::kAfter}) {
    int steps = 0;
    for (bool broke = true; broke; CloseClient()) {
      breaker_ = {};
      breaker_.when = when;
      breaker_.break_at = ++steps;
      SCOPED_TRACE(absl::StrCat("broken ", when == Breaker::When::kBefore ? "before" : "after",
                                " step ", steps));
      StartClient();
      Exchange(absl::StrCat(static_cast<int>(when), "/", steps));
      if (HasFatalFailure()) return;
      broke = breaker_.broke;
      breaker_.break_at = 0;
      // One break costs one connection: no answer makes the client leave the next one too.
      EXPECT_LE(client_->counters().connects, 2u);
    }
    EXPECT_GE(steps, 40);  // fewer would not be a full exchange
    RecordProperty("steps", steps);
  }
  // Void unless some repeated writes had been applied, and some had not.
  EXPECT_GE(server_->counters().writes_repeated, 10u);
  EXPECT_GE(server_->counters().sessions_resumed, 40u);
  EXPECT_EQ(server_->counters().writes_forgotten, 0u);
}

TEST_F(ExactlyOnceTest, EveryWriteIsAppliedOnceWhenConnectionsBreakAgainAndAgain) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::minstd_rand random(seed);
  // Over verbs a round takes a second on a busy machine.
  const int rounds = InLab() ? 20 : 100;
  for (int round = 0; round < rounds; ++round) {
    StartClient();
    breaker_ = {};
    breaker_.when = random() % 2 == 0 ? Breaker::When::kBefore : Breaker::When::kAfter;
    breaker_.break_at = static_cast<int>(1 + random() % 12);
    breaker_.again = [&] { return static_cast<int>(10 + random() % 12); };
    Exchange(absl::StrCat("again/", round));
    if (HasFatalFailure()) return;
    breaker_ = {};
    CloseClient();
  }
  EXPECT_GE(server_->counters().writes_repeated, static_cast<uint64_t>(rounds / 2));
  // A client with failing reconnects must not block other clients.
  EXPECT_LT(longest_turn_, kTurnMax);
  RecordProperty("longest_turn_ms", static_cast<int>(absl::ToInt64Milliseconds(longest_turn_)));
}

}  // namespace
}  // namespace osprey
