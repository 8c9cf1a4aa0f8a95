// A primary that is stopped goes on answering one-sided READs: its memory is there. Its clients READ it
// while a successor takes writes. They never get an old value.

#include <array>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/reasons.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster_processes.h"

namespace osprey {
namespace {

constexpr int kReaders = 3;
constexpr int kRounds = 3;
// Inline, and in items: the value is a number and a filling of so many bytes.
constexpr std::array<size_t, 6> kFillings = {0, 10, 100, 1000, 20'000, 200'000};

std::string KeyOf(size_t key) { return absl::StrCat("key", key); }

// What all keys have at least.
struct Shared {
  std::atomic<int> written{0};
  std::atomic<bool> ended{false};
};

// READs all keys all the time.
class Reader {
 public:
  Reader(Shared& shared, const std::string& uri)
      : shared_(shared), thread_([this, uri] { Run(uri); }) {}

  void Join() { thread_.join(); }
  // Answers that came from a GET which began when so much was written.
  int answers(int written) const { return answers_[written]; }
  const Counters& counters() const { return counters_; }  // after Join
  const std::string& wrong() const { return wrong_; }     // after Join; empty: nothing

 private:
  void Run(const std::string& uri) {
    Options options;
    options.deadline = absl::Seconds(2);
    options.connect_timeout = absl::Seconds(20);
    options.backoff_last = absl::Milliseconds(50);
    options.wait = WaitMode::kEvent;
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri, options);
    if (!client.ok()) {
      wrong_ = client.status().ToString();
      return;
    }
    while (!shared_.ended && wrong_.empty()) {
      // One that waits alone, and several that are under way together.
      const int floor = shared_.written;
      Judge(floor, (*client)->Get(KeyOf(floor % kFillings.size())));
      int in_flight = 0;
      for (size_t key = 0; key < kFillings.size(); ++key) {
        const int now = shared_.written;
        const absl::Status started =
            (*client)->StartGet(KeyOf(key), [this, now, &in_flight](absl::StatusOr<Value> value) {
              --in_flight;
              Judge(now, value);
            });
        if (started.ok()) ++in_flight;
      }
      while (in_flight > 0) (*client)->Wait(absl::Milliseconds(20));
    }
    counters_ = (*client)->counters();
  }

  void Judge(int floor, const absl::StatusOr<Value>& value) {
    if (!value.ok()) {
      if (ReasonOf(value.status()) != Reason::kDeadline && !absl::IsUnavailable(value.status()))
        wrong_ = value.status().ToString();
      return;
    }
    int number = 0;
    const absl::string_view bytes = value->bytes;
    if (!absl::SimpleAtoi(bytes.substr(0, bytes.find(':')), &number)) {
      wrong_ = "a damaged value";
    } else if (number < floor) {
      wrong_ = absl::StrCat("a GET that began after write ", floor, " got the value of ", number);
    }
    ++answers_[floor];
  }

  Shared& shared_;
  std::array<std::atomic<int>, 2 * kRounds + 2> answers_ = {};
  std::string wrong_;
  Counters counters_;
  std::thread thread_;
};

class StoppedPrimaryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Options options;
    options.deadline = kPatience;
    writer_ = *Client::Connect(cluster_.uri(), options);
    ASSERT_NO_FATAL_FAILURE(Write());
    for (int i = 0; i < kReaders; ++i)
      readers_.push_back(std::make_unique<Reader>(shared_, cluster_.uri()));
    sleeper_ = *Client::Connect(cluster_.uri(), options);
    confined_ = std::make_unique<Reader>(shared_, cluster_.uri(*cluster_.Primary()));
  }
  void TearDown() override { End(); }

  // Returns the sum of the readers' counters.
  Counters End() {
    shared_.ended = true;
    Counters all;
    if (confined_ != nullptr) readers_.push_back(std::move(confined_));
    for (const auto& reader : readers_) {
      reader->Join();
      EXPECT_EQ(reader->wrong(), "");
      all.reads += reader->counters().reads;
      all.leases += reader->counters().leases;
      all.uncovered_reads += reader->counters().uncovered_reads;
      all.unleased_gets += reader->counters().unleased_gets;
    }
    readers_.clear();
    return all;
  }

  // All keys get the next value.
  void Write() {
    const int number = shared_.written + 1;
    for (size_t key = 0; key < kFillings.size(); ++key) {
      const std::string value = absl::StrCat(number, ":", std::string(kFillings[key], 'x'));
      const absl::StatusOr<uint64_t> put = writer_->Put(KeyOf(key), value);
      ASSERT_TRUE(put.ok()) << put.status() << cluster_.WhyNot();
    }
    shared_.written = number;
  }

  // One that did nothing since the primary was stopped: it does not know that, and READs are answered.
  void ReadAsleep() {
    for (size_t key = 0; key < kFillings.size(); ++key) {
      const absl::StatusOr<Value> value = sleeper_->Get(KeyOf(key));
      ASSERT_TRUE(value.ok()) << value.status();
      EXPECT_TRUE(absl::StartsWith(value->bytes, absl::StrCat(shared_.written.load(), ":")))
          << "after write " << shared_.written << ": " << value->bytes.substr(0, 10);
    }
  }

  // Each reader has answers to GETs that began after the last write.
  void AwaitReaders() {
    const int written = shared_.written;
    for (const auto& reader : readers_) {
      for (const absl::Time end = absl::Now() + kPatience;
           reader->answers(written) < 200 && absl::Now() < end;)
        absl::SleepFor(absl::Milliseconds(5));
      ASSERT_GE(reader->answers(written), 200) << cluster_.WhyNot();
    }
  }

  ClusterProcesses cluster_;
  Shared shared_;
  std::unique_ptr<Client> writer_;
  std::unique_ptr<Client> sleeper_;
  std::vector<std::unique_ptr<Reader>> readers_;
  std::unique_ptr<Reader> confined_;  // reaches the first primary only
};

TEST_F(StoppedPrimaryTest, ItsClientsReadNothingOld) {
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_NO_FATAL_FAILURE(AwaitReaders());
    absl::SleepFor(absl::Milliseconds(500));  // each has a lease
    ASSERT_NO_FATAL_FAILURE(ReadAsleep());
    const std::optional<size_t> primary = cluster_.Primary();
    ASSERT_TRUE(primary.has_value());
    cluster_.Stop(*primary);
    ASSERT_TRUE(cluster_.AwaitOtherPrimary(*primary, kPatience).has_value()) << cluster_.WhyNot();
    ASSERT_NO_FATAL_FAILURE(Write());
    ASSERT_NO_FATAL_FAILURE(ReadAsleep());
    ASSERT_NO_FATAL_FAILURE(AwaitReaders());
    // It does not know yet that it is the primary no more.
    cluster_.Continue(*primary);
    ASSERT_NO_FATAL_FAILURE(Write());
    ASSERT_NO_FATAL_FAILURE(AwaitReaders());
    ASSERT_TRUE(cluster_.AwaitInSync(cluster_.servers(), kPatience)) << cluster_.WhyNot();
  }
  EXPECT_GE(confined_->answers(1), 1);
  const Counters all = End();
  std::cout << "READs " << all.reads << ", leases " << all.leases << ", READs refused "
            << all.uncovered_reads << ", GETs by message without a lease " << all.unleased_gets
            << "\n";
  // Void otherwise: each client had a lease in each round, and some READ when it had ended.
  EXPECT_GE(all.leases, static_cast<uint64_t>(kReaders * kRounds));
  EXPECT_GE(all.uncovered_reads, 1u);
  EXPECT_GE(all.reads, 1000u);
}

}  // namespace
}  // namespace osprey
