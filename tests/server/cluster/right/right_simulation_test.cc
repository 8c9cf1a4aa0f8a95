// Servers that renew, stop and lapse, and watchers that end their keys, over a store that is late:
// requests and answers are delayed and lost, clocks gain and lose a tenth.
//
// Claim: once a server's key is gone, the server has no right. Each mistake that a rule forbids is
// found by it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "rdma/lease_time.h"
#include "server/cluster/right/peer_watch.h"
#include "server/cluster/right/serving_right.h"
#include "tests/server/cluster/right/drifting_clock.h"
#include "tests/server/cluster/right/model_store.h"
#include "tests/support/split_mix64.h"
#include "tests/support/volume.h"

namespace osprey {
namespace {

enum class Mistake {
  kNone,
  kRightFromAnswer,     // the right counts from the answer of a renewal
  kWatchedFromSending,  // a revision counts as seen when the read was sent
  kRemovalUncompared,   // a key is deleted whatever its revision
  kClocksTrusted,       // no allowance for clocks that differ
};

constexpr char kServerKey[] = "/osprey/test/servers/a";
constexpr absl::Duration kTtl() { return absl::Milliseconds(3000); }

// A request on its way.
struct Call {
  absl::Time sent;
  Transaction transaction;
  bool is_read = false;
  bool executed = false;
  TransactionResult result;
  RangeAnswer read;
};

class World {
 public:
  World(uint64_t seed, Mistake mistake) : random_(seed), mistake_(mistake) { BeginLife(); }

  // False: the claim does not hold.
  bool Step() {
    const absl::Duration time =
        absl::Milliseconds(random_.Chance(2) ? random_.Below(4000) : random_.Below(60));
    server_clock_.Pass(time, random_);
    watcher_clock_.Pass(time, random_);
    if (random_.Chance(1)) server_stopped_ = !server_stopped_;
    ExecuteSome();
    if (!server_stopped_) RunServer();
    RunWatcher();
    return Holds();
  }
  uint64_t lives() const { return lives_; }
  uint64_t renewals() const { return renewals_; }
  uint64_t removals() const { return removals_; }

 private:
  void BeginLife() {
    ++lives_;
    right_.emplace(RightOptions{kServerKey, {lives_, {}, 0}, kTtl()});
  }

  // Calls that wait, and those whose callers do not wait any more: some may still take effect.
  void ExecuteSome() {
    for (std::optional<Call>* call : {&renewal_, &watching_}) {
      if (call->has_value() && !(*call)->executed && random_.Chance(30)) Execute(**call);
    }
    while (!abandoned_.empty() && random_.Chance(5)) {
      Execute(abandoned_.back());
      abandoned_.pop_back();
    }
  }
  void Execute(Call& call) {
    call.executed = true;
    if (call.is_read) {
      call.read = store_.Range({kServerKey});
      return;
    }
    call.result = store_.Execute(call.transaction);
    removals_ += call.result.outcome == TransactionOutcome::kApplied &&
                 call.transaction.operations[0].kind == StoreOperation::Kind::kDelete;
  }
  // The caller stops waiting. False: it goes on.
  bool Abandons(std::optional<Call>& call) {
    if (!random_.Chance(3)) return false;
    if (!call->executed && !call->is_read) abandoned_.push_back(*call);
    call.reset();
    return true;
  }

  void RunServer() {
    if (!renewal_.has_value()) {
      if (random_.Chance(40)) {
        renewal_.emplace();
        renewal_->sent = server_clock_.now();
        renewal_->transaction = right_->NextRequest();
      }
      return;
    }
    const absl::Time sent = renewal_->sent;
    if (Abandons(renewal_)) {
      EXPECT_TRUE(right_->TakeAnswer({}, sent).ok());
    } else if (renewal_->executed && random_.Chance(30)) {
      const absl::Time counted = mistake_ == Mistake::kRightFromAnswer ? server_clock_.now() : sent;
      renewals_ += renewal_->result.outcome == TransactionOutcome::kApplied;
      // After an earlier incarnation's removal that is under way, the key may be another's for a while.
      (void)right_->TakeAnswer(renewal_->result, counted);
      renewal_.reset();
      if (right_->lost()) BeginLife();
    }
  }

  void RunWatcher() {
    if (!watching_.has_value()) {
      watching_.emplace();
      watching_->sent = watcher_clock_.now();
      if (HasEnded()) {
        watching_->transaction = watch_.Removal();
        if (mistake_ == Mistake::kRemovalUncompared) watching_->transaction.compares.clear();
      } else {
        watching_->is_read = true;
      }
      return;
    }
    if (Abandons(watching_)) return;
    if (!watching_->executed || !random_.Chance(30)) return;
    if (watching_->is_read) {
      watch_.Saw(watching_->read.keys,
                 mistake_ == Mistake::kWatchedFromSending ? watching_->sent : watcher_clock_.now());
    }
    watching_.reset();
  }
  bool HasEnded() const {
    // As if the other's clock were this one.
    const absl::Duration trust = mistake_ == Mistake::kClocksTrusted
                                     ? AwaitedFor(kTtl()) - HeldFor(kTtl())
                                     : absl::ZeroDuration();
    return watch_.HasEnded(watcher_clock_.now() + trust);
  }

  bool Holds() const {
    if (right_->create_revision() == 0 || server_clock_.now() >= right_->until()) return true;
    const std::vector<StoredKey> keys = store_.Range({kServerKey}).keys;
    return !keys.empty() && keys[0].create_revision == right_->create_revision();
  }

  SplitMix64 random_;
  const Mistake mistake_;
  ModelStore store_;
  DriftingClock server_clock_, watcher_clock_;
  bool server_stopped_ = false;
  std::optional<ServingRight> right_;
  PeerWatch watch_{kServerKey, kTtl()};
  std::optional<Call> renewal_, watching_;
  std::vector<Call> abandoned_;
  uint64_t lives_ = 0;
  uint64_t renewals_ = 0;
  uint64_t removals_ = 0;
};

constexpr int kSteps = 3000;

TEST(RightSimulationTest, AServerWhoseKeyIsGoneHasNoRight) {
  uint64_t lives = 0, renewals = 0, removals = 0;
  for (uint64_t seed = 1; seed <= 1000 / kLongVolumeParts; ++seed) {
    World world(seed, Mistake::kNone);
    for (int step = 0; step < kSteps; ++step)
      ASSERT_TRUE(world.Step()) << "seed " << seed << ", step " << step;
    lives += world.lives();
    renewals += world.renewals();
    removals += world.removals();
  }
  EXPECT_GT(renewals, 10000u / kLongVolumeParts);
  EXPECT_GT(removals, 2000u / kLongVolumeParts);
  EXPECT_GT(lives, 2000u / kLongVolumeParts);
}

class RightMistakesTest : public testing::TestWithParam<Mistake> {};

TEST_P(RightMistakesTest, IsFound) {
  if (!kSearchesMistakes) GTEST_SKIP() << "searched in the build that ships";
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    World world(seed, GetParam());
    for (int step = 0; step < kSteps; ++step) {
      if (!world.Step()) return;
    }
  }
  ADD_FAILURE() << "no seed has found it";
}

INSTANTIATE_TEST_SUITE_P(Mistakes, RightMistakesTest,
                         testing::Values(Mistake::kRightFromAnswer, Mistake::kWatchedFromSending,
                                         Mistake::kRemovalUncompared, Mistake::kClocksTrusted));

}  // namespace
}  // namespace osprey
