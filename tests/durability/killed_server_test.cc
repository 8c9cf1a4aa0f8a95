// kvserver with --data-dir, killed and restarted at random moments under clients that use it in
// every way. No acknowledged write is lost, and the clients notice only delays.

#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/durability/chunks.h"
#include "tests/durability/durable_history.h"
#include "tests/durability/durable_load.h"
#include "tests/support/split_mix64.h"
#include "tests/support/subprocess.h"
#include "tests/support/volume.h"

namespace osprey {
namespace {

bool IsLong() { return std::getenv("OSPREY_TEST_LONG") != nullptr; }

// Within this time of its start some operation is answered.
constexpr absl::Duration kFirstAnswerMax = absl::Seconds(60);

class KilledServerTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    directory_ = NewTemporaryDirectory();
    listen_ = NewListenAddress();
  }

  // Of a new life; all can change between lives.
  std::vector<std::string> NewFlags() {
    sync_ = random_.Chance(35);
    const char* const checkpoints[] = {"1MiB", "2MiB", "8MiB"};
    return {"--data-dir=" + directory_ + "/data",
            absl::StrCat("--durability=", sync_ ? "sync" : "async"),
            absl::StrCat("--pollers=", 1 + random_.Below(3)),
            absl::StrCat("--checkpoint-log-bytes=", checkpoints[random_.Below(3)])};
  }

  void Start(const std::vector<std::string>& flags) {
    absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(listen_, flags);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    if (!restarts_.empty()) restarts_.back().ready_ns = SteadyNs();
  }

  // A life that is over before it is ready, or just after.
  void KillWhileStarting() {
    std::vector<std::string> args = {
        "timeout",         "--foreground",
        "--signal=KILL",   absl::StrCat(0.005 + 0.001 * static_cast<double>(random_.Below(60))),
        "server/kvserver", "--listen=" + listen_,
        "--memory=64MiB"};
    for (const std::string& flag : NewFlags()) args.push_back(flag);
    const ProgramResult result = RunProgram(args);
    ++restarts_.back().unclean_ends;
    restarts_.back().lost_unacknowledged = true;
    ASSERT_EQ(result.exit_status, 128 + SIGKILL) << result.err;
  }

  void EndLife() {
    const std::string log = server_->Log();
    checkpoints_ += absl::StrContains(log, "checkpoint of ");
    EXPECT_FALSE(absl::StrContains(log, "failed")) << log;
    EXPECT_TRUE(absl::StrContains(log, restarts_.empty() ? "new data directory" : "loaded "))
        << log;
    Restart& restart = restarts_.emplace_back();
    restart.ending_ns = SteadyNs();
    if (random_.Chance(25)) {
      ++clean_ends_;
      EXPECT_EQ(server_->Stop(), 0) << log;
    } else {
      server_.reset();  // SIGKILL
      restart.unclean_ends = 1;
      restart.lost_unacknowledged = !sync_;
    }
    restart.ended_ns = SteadyNs();
  }

  void RunLives(DurableLoad& load, int lives) {
    for (int life = 0; life < lives; ++life) {
      EndLife();
      while (random_.Chance(25)) ASSERT_NO_FATAL_FAILURE(KillWhileStarting());
      const std::vector<std::string> flags = NewFlags();
      ASSERT_NO_FATAL_FAILURE(Start(flags));
      ASSERT_NO_FATAL_FAILURE(AwaitAnswer(load)) << "in life " << life;
      // Some lives are long enough for checkpoints.
      absl::SleepFor(absl::Milliseconds(1 + (life % 4 == 0 ? 1000 : 0) + random_.Below(300)));
    }
  }

  static void AwaitAnswer(const DurableLoad& load) {
    const uint64_t done = load.done();
    const absl::Time until = absl::Now() + kFirstAnswerMax;
    while (load.done() == done) {
      ASSERT_LT(absl::Now(), until) << "nothing is answered";
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  const uint64_t seed_ = std::random_device()();
  SplitMix64 random_{seed_};
  std::string directory_;
  std::string listen_;
  bool sync_ = false;  // this life
  std::unique_ptr<ServerProcess> server_;
  std::vector<Restart> restarts_;
  int checkpoints_ = 0;  // lives that wrote any
  int clean_ends_ = 0;
};

TEST_P(KilledServerTest, NoAcknowledgedWriteIsLost) {
  SCOPED_TRACE(absl::StrCat("seed ", seed_));
  const int lives = IsLong() ? 300 : 20 / kVolumeParts;
  // The first life determines the number of partitions.
  ASSERT_NO_FATAL_FAILURE(
      Start({"--data-dir=" + directory_ + "/data", absl::StrCat("--pollers=", GetParam())}));
  DurableLoadOptions options;
  options.seed = seed_;
  DurableLoad load(listen_, options);
  ASSERT_NO_FATAL_FAILURE(AwaitAnswer(load));
  ASSERT_NO_FATAL_FAILURE(RunLives(load, lives));
  // On a slow machine no life has logged enough by now.
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (checkpoints_ == 0 && absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(20));
    checkpoints_ += absl::StrContains(server_->Log(), "checkpoint of ");
  }
  load.End();
  EXPECT_EQ(server_->Stop(), 0) << server_->Log();

  for (const std::string& error : load.TakeErrors()) ADD_FAILURE() << error;
  const DurableVerdict verdict = JudgeDurable(load.TakeHistories(), restarts_);
  EXPECT_EQ(verdict.wrong, "");
  EXPECT_EQ(verdict.undecided, 0u);
  std::cout << "operations " << verdict.operations << ", unknown " << verdict.unknown
            << ", unapplied " << verdict.unapplied << ", unjudged " << verdict.unjudged
            << ", lives " << lives << ", ended cleanly " << clean_ends_ << ", with checkpoints "
            << checkpoints_ << "\n";
  // Void otherwise.
  EXPECT_GE(verdict.operations, static_cast<uint64_t>(100 * lives));
  EXPECT_LE(verdict.unapplied, verdict.operations / 10);
  EXPECT_GE(checkpoints_, 1);
}

// Writes long values of a key one after the other, and reads them.
class LongWriter {
 public:
  LongWriter(const std::string& uri, const std::string& key, uint64_t seed)
      : key_(key), random_(seed), thread_([this, uri] { Run(uri); }) {}
  ~LongWriter() { thread_.join(); }

  void Stop() { stopped_ = true; }
  int writes() const { return writes_; }

 private:
  void Run(const std::string& uri) {
    Options options;
    options.deadline = absl::Seconds(60);
    const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri, options);
    ASSERT_TRUE(client.ok()) << client.status();
    std::string expected;
    for (int64_t number = 1; !stopped_; ++number) {
      const bool appends = number > 1 && random_.Chance(40);
      // Some cross the length from which values are logged in pieces.
      const std::string chunk =
          Chunk(number,
                appends ? 2000 : (random_.Chance(20) ? 60'000 : 1'000'000) + random_.Below(10'000));
      const absl::Status status =
          appends ? (*client)->Append(key_, chunk).status() : (*client)->Put(key_, chunk).status();
      ASSERT_TRUE(status.ok()) << status;
      expected = absl::StrCat(appends ? expected : "", NameOfChunk(number));
      const absl::StatusOr<Value> value = (*client)->Get(key_);
      ASSERT_TRUE(value.ok()) << value.status();
      ASSERT_EQ(NamesOfChunks(value->bytes).value_or("a torn value"), expected);
      ++writes_;
    }
  }

  const std::string key_;
  SplitMix64 random_;
  std::atomic<bool> stopped_{false};
  std::atomic<int> writes_{0};
  std::thread thread_;
};

// The server is killed while some of a long value is logged.
TEST_P(KilledServerTest, NoAcknowledgedLongValueIsLost) {
  SCOPED_TRACE(absl::StrCat("seed ", seed_));
  const int lives = IsLong() ? 100 : 8 / kVolumeParts;
  const std::string data = "--data-dir=" + directory_ + "/data";
  ASSERT_NO_FATAL_FAILURE(Start({data, absl::StrCat("--pollers=", GetParam())}));
  std::vector<std::unique_ptr<LongWriter>> writers;
  for (int i = 0; i < 3; ++i) {
    writers.push_back(std::make_unique<LongWriter>(server_->uri(), absl::StrCat("long", i),
                                                   seed_ + static_cast<uint64_t>(i)));
  }
  for (int life = 0; life < lives; ++life) {
    for (const std::unique_ptr<LongWriter>& writer : writers) {
      const absl::Time end = absl::Now() + absl::Seconds(60);
      while (writer->writes() <= life && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
      ASSERT_GT(writer->writes(), life);
    }
    absl::SleepFor(absl::Milliseconds(random_.Below(300)));
    server_.reset();  // SIGKILL
    ASSERT_NO_FATAL_FAILURE(
        Start({data, absl::StrCat("--durability=", random_.Chance(50) ? "sync" : "async"),
               absl::StrCat("--pollers=", GetParam()), "--checkpoint-log-bytes=8MiB"}));
  }
  for (const std::unique_ptr<LongWriter>& writer : writers) writer->Stop();
  for (std::unique_ptr<LongWriter>& writer : writers) writer.reset();
  EXPECT_EQ(server_->Stop(), 0) << server_->Log();
}

INSTANTIATE_TEST_SUITE_P(Pollers, KilledServerTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace osprey
