// A client whose server is killed and started again, with the data and sessions of its data
// directory or without. Both are the ones that ship; the restart copies what a data directory keeps.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/common/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/engine.h"
#include "server/requests/tables.h"
#include "tests/client/client_engine_fixture.h"

namespace osprey {
namespace {

using client::ScanPlace;
using client::Scans;

constexpr uint64_t kDataId = 0xDA7A;

// One incarnation of a server. In the order of dependency.
struct Life {
  std::unique_ptr<rdma::Domain> domain;
  std::unique_ptr<rdma::Memory> region, scratch;
  std::unique_ptr<server::Tables> tables;
  std::unique_ptr<server::Engine> engine;
};

enum class Keeps { kAll, kKeysAlone, kNothing };

class ClientRestartTest : public ClientEngineTest {
 protected:
  static constexpr uint32_t kPartitions = 4;
  static constexpr size_t kRegionBytes = 16 << 20;

  void SetUp() override {
    uris_ = absl::StrCat(kUri, ",second:7411");
    life_ = NewLife(kDataId);
    Listen();
    also_polled_ = [this] {
      if (life_.engine != nullptr) life_.engine->Poll(now_);
    };
    StartEngine();
    BecomeReady();
  }
  void TearDown() override {
    CloseEngine();
    also_polled_ = nullptr;
  }

  Life NewLife(uint64_t data_id) {
    Life life;
    life.domain = network_.NewDomain("server");
    life.region = life.domain->Allocate(kRegionBytes, rdma::Access::kRemoteRead).value();
    life.scratch = life.domain->Allocate(server::kLivenessBytes, rdma::Access::kLocal).value();
    index::TableOptions table_options;
    table_options.incarnation = ++incarnation_;
    table_options.hash_seed = 5;
    table_options.clock = [this] { return is_loading_ ? absl::UnixEpoch() : now_; };
    life.tables = server::Tables::Create({life.region->data(), life.region->size()}, kPartitions,
                                         table_options)
                      .value();
    std::vector<server::EnginePort> ports;
    ports.push_back({life.domain->NewTransport({}).value(), life.region.get(), life.scratch.get()});
    server::EngineOptions options;
    options.incarnation = incarnation_;
    options.data_id = data_id;
    options.random = [this] { return ++random_; };
    life.engine = std::make_unique<server::Engine>(*life.tables, std::move(ports), options, now_);
    return life;
  }
  void Listen() { ASSERT_TRUE(life_.engine->Listen(0, address_).ok()); }
  // The next server listens at the other address of the client.
  void Move() { address_ = address_ == kUri ? "rdma://second:7411" : kUri; }

  // As kill -9, and a start that takes `loading`.
  void Restart(Keeps keeps = Keeps::kAll, uint64_t data_id = kDataId,
               absl::Duration loading = absl::Milliseconds(20)) {
    repeated_ += life_.engine->counters().writes_repeated;
    const std::vector<server::SessionImage> images = life_.engine->SessionImages();
    life_.engine.reset();
    RunFor(loading);
    Life next = NewLife(data_id);
    if (keeps != Keeps::kNothing) Copy(*life_.tables, *next.tables);
    if (keeps == Keeps::kAll) next.engine->RestoreSessions(images, now_);
    life_ = std::move(next);
    Listen();
  }
  void Copy(server::Tables& from, server::Tables& to) {
    is_loading_ = true;
    for (const std::string& key : keys_) {
      const uint32_t partition = from.PartitionOf(key);
      const absl::StatusOr<index::Table::View> view = from.Lock(partition)->Find(key);
      if (!view.ok()) continue;
      const server::LockedTable table = to.Lock(partition);
      const index::WriteResult result =
          table->Restore(key, view->value, view->version, view->expiry_ns, now_);
      ASSERT_TRUE(result.status.ok()) << result.status;
      while (table->GrowStep(now_)) {
      }
    }
    is_loading_ = false;
  }

  void StoreMany(int keys) {
    for (int i = 0; i < keys; ++i) {
      const std::string key = absl::StrCat("key", i);
      keys_.insert(key);
      const std::string value(i % 100 == 0 ? 3000 : i % 70, 'v');
      const server::LockedTable table = life_.tables->Lock(life_.tables->PartitionOf(key));
      ASSERT_TRUE(
          table
              ->Put(key, {reinterpret_cast<const std::byte*>(value.data()), value.size()}, {}, now_)
              .status.ok());
      while (table->GrowStep(now_)) {
      }
    }
  }
  uint64_t KeysLeft() {
    uint64_t keys = 0;
    for (uint32_t i = 0; i < kPartitions; ++i) keys += life_.tables->Lock(i)->stats().keys;
    return keys;
  }

  absl::Status StartIncrement(absl::string_view key, Outcome<Number>& outcome) {
    return engine_->start().Increment(key, 1, {}, now_ + absl::Seconds(5), outcome.Callback());
  }
  void StartScan(Outcome<Scans::Found>& outcome, const std::string& cursor, uint64_t limit) {
    Scans::Request request;
    request.from = ScanPlace::Parse(cursor).value();
    request.limit = limit;
    request.deadline = now_ + absl::Seconds(5);
    request.done = outcome.Callback();
    ASSERT_TRUE(engine_->start().Scan(std::move(request)).ok());
  }
  absl::StatusOr<Scans::Found> Page(const std::string& cursor, uint64_t limit) {
    Outcome<Scans::Found> outcome;
    StartScan(outcome, cursor, limit);
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }, absl::Seconds(6)));
    return std::move(*outcome.value);
  }
  uint64_t repeated() const { return repeated_ + life_.engine->counters().writes_repeated; }

  std::set<std::string> keys_;  // that a restart copies
  Life life_;
  std::string address_ = kUri;
  bool is_loading_ = false;
  uint64_t incarnation_ = 70;
  uint64_t random_ = 1000;
  uint64_t repeated_ = 0;  // by earlier lives
};

TEST_F(ClientRestartTest, AWriteIsAppliedOnceWhereverTheServerIsKilled) {
  keys_ = {"visits", "planet"};
  int64_t visits = 0;
  uint64_t unanswered = 0;
  for (const size_t bytes : {size_t{10}, size_t{100000}}) {
    for (const bool lose_frames : {false, true}) {
      for (int rounds = 0; rounds < 20; ++rounds) {
        const bool moves = rounds >= 10;
        SCOPED_TRACE(absl::StrCat(bytes, " bytes, killed after ", rounds % 10,
                                  " rounds, frames lost: ", lose_frames,
                                  ", at the other address: ", moves));
        if (moves) Move();
        const std::string value(bytes, static_cast<char>('a' + rounds));
        Outcome<Number> increment;
        Outcome<uint64_t> put;
        ASSERT_TRUE(StartIncrement("visits", increment).ok());
        ASSERT_TRUE(StartPut("planet", value, put, absl::Seconds(5)).ok());
        for (int i = 0; i < rounds % 10; ++i) Step();
        unanswered += put.done() ? 0 : 1;
        network_.Break(id(), lose_frames);
        Restart();
        ASSERT_TRUE(RunUntil([&] { return increment.done() && put.done(); }, absl::Seconds(5)));
        ASSERT_TRUE(increment.status().ok()) << increment.status();
        ASSERT_TRUE(put.status().ok()) << put.status();
        EXPECT_EQ(increment.value->value().value, ++visits);
        const absl::StatusOr<Value> planet = Get("planet", absl::Seconds(5));
        ASSERT_TRUE(planet.ok()) << planet.status();
        EXPECT_EQ(planet->bytes, value);
        EXPECT_EQ(planet->version, put.value->value());
        EXPECT_EQ(Get("visits")->bytes, absl::StrCat(visits));
      }
    }
  }
  // Void unless some writes had been applied before the end, and some had not.
  EXPECT_GE(unanswered, 16u);
  EXPECT_GE(repeated(), 8u);
  EXPECT_LT(repeated(), 2 * unanswered);
  EXPECT_EQ(life_.engine->counters().sessions_refused, 0u);
}

TEST_F(ClientRestartTest, ABatchInFlightIsAppliedOnce) {
  keys_ = {"visits"};
  constexpr int kTogether = 50;
  std::set<int64_t> expected;
  for (int rounds = 0; rounds < 8; ++rounds) {
    SCOPED_TRACE(rounds);
    std::deque<Outcome<Number>> increments;
    for (int i = 0; i < kTogether; ++i)
      ASSERT_TRUE(StartIncrement("visits", increments.emplace_back()).ok());
    for (int i = 0; i < rounds; ++i) Step();
    network_.Break(id(), /*lose_frames=*/rounds % 2 == 1);
    Restart();
    ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }, absl::Seconds(5)));
    std::set<int64_t> numbers;
    for (const Outcome<Number>& increment : increments) {
      ASSERT_TRUE(increment.status().ok()) << increment.status();
      EXPECT_TRUE(numbers.insert(increment.value->value().value).second);
    }
    EXPECT_EQ(*numbers.begin(), rounds * kTogether + 1);
    EXPECT_EQ(*numbers.rbegin(), (rounds + 1) * kTogether);
  }
  EXPECT_GE(repeated(), uint64_t{kTogether});
}

TEST_F(ClientRestartTest, RequestsWaitWhileTheServerLoads) {
  keys_ = {"planet"};
  Outcome<uint64_t> put;
  Outcome<Value> get;
  ASSERT_TRUE(StartPut("planet", "saturn", put, absl::Seconds(20)).ok());
  Step();
  ASSERT_FALSE(put.done());
  ASSERT_TRUE(StartGet("planet", get, absl::Seconds(20)).ok());
  Restart(Keeps::kAll, kDataId, /*loading=*/absl::Seconds(8));
  ASSERT_TRUE(RunUntil([&] { return put.done() && get.done(); }, absl::Seconds(5)));
  EXPECT_TRUE(put.status().ok()) << put.status();
  EXPECT_EQ(Get("planet")->bytes, "saturn");
}

TEST_F(ClientRestartTest, AScanGoesOnAcrossTheRestart) {
  StoreMany(5000);
  for (const int rounds : {0, 1, 5, 20}) {
    SCOPED_TRACE(rounds);
    Outcome<Scans::Found> all;
    StartScan(all, "", UINT64_MAX);
    for (int i = 0; i < rounds; ++i) Step();
    ASSERT_FALSE(all.done());
    Restart();
    ASSERT_TRUE(RunUntil([&] { return all.done(); }, absl::Seconds(6)));
    ASSERT_TRUE(all.status().ok()) << all.status();
    std::multiset<std::string> found;
    for (const index::ScanEntry& entry : all.value->value().entries) found.insert(entry.key);
    EXPECT_EQ(found, std::multiset<std::string>(keys_.begin(), keys_.end()));
  }
}

TEST_F(ClientRestartTest, ACursorIsValidAfterTheRestart) {
  StoreMany(3000);
  std::multiset<std::string> found;
  std::string cursor;
  int pages = 0;
  do {
    const absl::StatusOr<Scans::Found> page = Page(cursor, 700);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const index::ScanEntry& entry : page->entries) found.insert(entry.key);
    cursor = page->next.Text();
    // Also where the server has forgotten the sessions.
    Restart(++pages % 2 == 0 ? Keeps::kAll : Keeps::kKeysAlone);
  } while (!cursor.empty());
  EXPECT_GE(pages, 4);
  EXPECT_EQ(found, std::multiset<std::string>(keys_.begin(), keys_.end()));
}

TEST_F(ClientRestartTest, AFlushGoesOnAcrossTheRestart) {
  StoreMany(3000);
  Outcome<uint64_t> flush;
  ASSERT_TRUE(engine_->start().Flush(now_ + absl::Seconds(20), flush.Callback()).ok());
  ASSERT_TRUE(RunUntil([&] { return KeysLeft() < 2000; }));
  ASSERT_FALSE(flush.done());
  network_.Break(id(), /*lose_frames=*/true);  // so that a part is answered from memory
  Restart();
  ASSERT_GT(KeysLeft(), 1000u);
  ASSERT_TRUE(RunUntil([&] { return flush.done(); }, absl::Seconds(5)));
  ASSERT_TRUE(flush.status().ok()) << flush.status();
  EXPECT_EQ(flush.value->value(), keys_.size());
  EXPECT_EQ(KeysLeft(), 0u);
  EXPECT_EQ(repeated(), 1u);
}

// The part that the ending server refuses is sent again.
TEST_F(ClientRestartTest, AFlushGoesOnAfterAnOrderlyStop) {
  StoreMany(3000);
  Outcome<uint64_t> flush;
  ASSERT_TRUE(engine_->start().Flush(now_ + absl::Seconds(20), flush.Callback()).ok());
  ASSERT_TRUE(RunUntil([&] { return KeysLeft() < 2000; }));
  life_.engine->Stop(now_);
  ASSERT_TRUE(RunUntil([&] { return life_.engine->done(); }, absl::Seconds(5)));
  Restart();
  ASSERT_GT(KeysLeft(), 1000u);
  ASSERT_TRUE(RunUntil([&] { return flush.done(); }, absl::Seconds(5)));
  ASSERT_TRUE(flush.status().ok()) << flush.status();
  EXPECT_EQ(flush.value->value(), keys_.size());
  EXPECT_EQ(KeysLeft(), 0u);
}

TEST_F(ClientRestartTest, WithoutItsSessionAWriteIsUnknown) {
  struct Case {
    const char* name;
    Keeps keeps;
    uint64_t data_id;
  };
  for (const Case& one :
       {Case{"in memory", Keeps::kNothing, 0}, Case{"other data", Keeps::kNothing, kDataId + 1},
        Case{"session forgotten", Keeps::kKeysAlone, kDataId},
        Case{"session without data", Keeps::kAll, 0},
        Case{"session of other data", Keeps::kAll, kDataId + 1}}) {
    SCOPED_TRACE(one.name);
    Restart();  // to kDataId
    BecomeReady();
    StoreMany(300);
    const absl::StatusOr<Scans::Found> page = Page("", 10);
    ASSERT_TRUE(page.ok()) << page.status();
    Outcome<uint64_t> put, unsent;
    ASSERT_TRUE(StartPut("planet", "saturn", put, absl::Seconds(5)).ok());
    Step();
    ASSERT_FALSE(put.done());
    network_.Break(id(), /*lose_frames=*/true);
    Restart(one.keeps, one.data_id);
    ASSERT_TRUE(StartPut("moon", "titan", unsent, absl::Seconds(5)).ok());
    ASSERT_TRUE(RunUntil([&] { return put.done() && unsent.done(); }, absl::Seconds(5)));
    EXPECT_EQ(ReasonOf(put.status()), Reason::kServerGone) << put.status();
    EXPECT_TRUE(MayBeApplied(put.status()));
    EXPECT_TRUE(unsent.status().ok()) << unsent.status();
    const absl::Status next = Page(page->next.Text(), 10).status();
    EXPECT_EQ(ReasonOf(next), one.data_id == kDataId ? Reason::kNone : Reason::kStaleCursor)
        << next;
  }
}

TEST_F(ClientRestartTest, NothingOfTheOldRegionIsUsed) {
  keys_ = {"planet", "moon"};
  ASSERT_TRUE(Put("planet", "saturn").ok());
  ASSERT_EQ(Get("planet")->bytes, "saturn");  // its location is cached
  // The item lies elsewhere in the new region, behind another key's.
  Restart();
  BecomeReady();
  ASSERT_TRUE(Put("moon", std::string(300, 'm')).ok());
  EXPECT_EQ(Get("planet")->bytes, "saturn");
  EXPECT_EQ(Get("moon")->bytes, std::string(300, 'm'));
  EXPECT_EQ(engine_->connection().terms().incarnation, incarnation_);
}

// --- Hostile servers

class HostileRestartTest : public ClientEngineTest {};

TEST_F(HostileRestartTest, AResumptionThatCannotBeIsRefused) {
  struct Case {
    const char* name;
    uint64_t data_id_before;
    uint64_t incarnation;
    uint64_t data_id;
    bool accepted;
  };
  for (const Case& one :
       {Case{"in memory", 0, 2, 0, false}, Case{"data that appears", 0, 2, kDataId, false},
        Case{"data that appears in the same incarnation", 0, 1, kDataId, false},
        Case{"data that disappears", kDataId, 2, 0, false},
        Case{"data that disappears in the same incarnation", kDataId, 1, 0, false},
        Case{"other data", kDataId, 2, kDataId + 1, false},
        Case{"other data in the same incarnation", kDataId, 1, kDataId + 1, false},
        Case{"the same incarnation in memory", 0, 1, 0, true},
        Case{"the same data", kDataId, 2, kDataId, true}}) {
    SCOPED_TRACE(one.name);
    const auto start = [&](uint64_t incarnation, uint64_t data_id, bool resumed) {
      StartServer(incarnation);
      server_->tamper_welcome = [this, data_id, resumed](auto& header, auto& body) {
        body.data_id = data_id;
        if (!resumed) return;
        body.resumed = 1;
        header.session = server_->last_hello.resume_session;
      };
    };
    start(1, one.data_id_before, false);
    StartEngine();
    BecomeReady();
    KillServer();
    start(one.incarnation, one.data_id, true);
    RunFor(absl::Milliseconds(200), absl::Microseconds(100));
    EXPECT_EQ(server_->last_hello.resume_incarnation, 1);
    EXPECT_EQ(server_->last_hello.resume_data_id, one.data_id_before);
    EXPECT_EQ(engine_->connection().ready(), one.accepted);
    if (!one.accepted) {
      EXPECT_THAT(std::string(engine_->connection().last_error().message()),
                  testing::HasSubstr("never ours"));
      EXPECT_GE(server_->hellos, 2);  // it was dropped, and tried again
    } else {
      // The next Hello names the server that has the session now.
      KillServer();
      start(3, one.data_id, false);
      ASSERT_TRUE(RunUntil([&] { return server_->hellos > 0; }, absl::Seconds(5)));
      EXPECT_EQ(server_->last_hello.resume_incarnation, one.incarnation);
      EXPECT_EQ(server_->last_hello.resume_data_id, one.data_id);
    }
    CloseEngine();
    KillServer();
  }
}

TEST_F(HostileRestartTest, AnotherSessionOfTheSameDataIsRefused) {
  StartServer(1);
  server_->tamper_welcome = [](auto&, auto& body) { body.data_id = kDataId; };
  StartEngine();
  BecomeReady();
  KillServer();
  StartServer(2);
  server_->tamper_welcome = [](auto& header, auto& body) {
    body.data_id = kDataId;
    body.resumed = 1;
    header.session ^= 1;
  };
  RunFor(absl::Milliseconds(200), absl::Microseconds(100));
  EXPECT_FALSE(engine_->connection().ready());
}

}  // namespace
}  // namespace osprey
