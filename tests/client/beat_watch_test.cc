// A client leaves a server of a cluster that stands still: its memory answers READs, and it does not. In
// virtual time.

#include <cstdint>
#include <memory>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "index/layout/partitions.h"
#include "index/layout/serving_record.h"
#include "index/writer/serving_record_writer.h"
#include "tests/client/client_engine_fixture.h"

namespace osprey {
namespace {

using client::ServerConnection;

class BeatWatchTest : public ClientEngineTest {
 protected:
  void SetUp() override {
    StartServer();
    server_->tamper_welcome = [](rdma::FrameHeader&, rdma::WelcomeBody& body) {
      body.in_cluster = 1;
    };
    record_ = std::make_unique<index::ServingRecordWriter>(server_->region(),
                                                           index::IncarnationOfPartition(1, 0));
    serving_.incarnation = 7;
    serving_.shards = 1;
    also_polled_ = [this] {
      if (!beats_) return;
      ++serving_.beat;
      record_->Write(serving_);
    };
    StartEngine();
    BecomeReady();
  }
  void TearDown() override { also_polled_ = nullptr; }
  uint64_t connects() const { return engine_->counters().connects; }

  std::unique_ptr<index::ServingRecordWriter> record_;
  index::ServingState serving_;
  bool beats_ = true;
};

TEST_F(BeatWatchTest, AServerThatBeatsIsNotLeft) {
  RunFor(absl::Seconds(20));
  EXPECT_EQ(connects(), 1u);
  EXPECT_TRUE(engine_->connection().ready());
}

TEST_F(BeatWatchTest, AServerWithoutABeatIsLeftThoughItsMemoryAnswers) {
  RunFor(absl::Seconds(5));
  beats_ = false;
  server_->answers = false;
  const auto is_lost = [&] { return !engine_->connection().ready(); };
  ASSERT_TRUE(RunUntil(is_lost, 2 * ServerConnection::kQuietMax() + absl::Milliseconds(10)));
  EXPECT_TRUE(absl::StrContains(engine_->connection().last_error().message(), "is stopped"));
}

// READs that are answered all the time do not hide it.
TEST_F(BeatWatchTest, AServerWithoutABeatIsLeftWhileGetsAreUnderWay) {
  RunFor(absl::Seconds(5));
  beats_ = false;
  server_->answers = false;
  for (const absl::Time end = now_ + absl::Seconds(3); connects() == 1 && now_ < end;) {
    Outcome<Value> outcome;
    ASSERT_TRUE(StartGet("planet", outcome, absl::Milliseconds(20)).ok());
    RunUntil([&] { return outcome.done(); });
  }
  EXPECT_EQ(connects(), 2u);  // the server of this test greets even so
}

// A region in which no beat was stored yet, of a server that has just begun.
TEST_F(BeatWatchTest, TheFirstBeatIsAwaited) {
  KillServer();
  beats_ = false;
  ASSERT_TRUE(RunUntil([&] { return !engine_->connection().ready(); }, absl::Seconds(5)));
  StartServer(2);
  server_->tamper_welcome = [](rdma::FrameHeader&, rdma::WelcomeBody& body) {
    body.in_cluster = 1;
  };
  BecomeReady();
  RunFor(absl::Seconds(5));
  EXPECT_EQ(connects(), 2u);
  EXPECT_TRUE(engine_->connection().ready());
}

}  // namespace
}  // namespace osprey
