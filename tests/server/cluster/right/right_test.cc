#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cluster/right/peer_watch.h"
#include "server/cluster/right/serving_right.h"
#include "tests/server/cluster/right/model_store.h"

namespace osprey {
namespace {

constexpr char kKey[] = "/osprey/test/servers/a";

RightOptions Options(uint64_t incarnation) { return {kKey, {incarnation, {"rdma://a"}, 0}}; }

absl::Time At(int64_t ms) { return absl::UnixEpoch() + absl::Milliseconds(ms); }

absl::Status Renew(ModelStore& store, ServingRight& right, absl::Time sent) {
  return right.TakeAnswer(store.Execute(right.NextRequest()), sent);
}

TEST(ServingRightTest, LastsByItsOwnClockFromTheSendingOfARenewal) {
  ModelStore store;
  ServingRight right(Options(1));
  EXPECT_EQ(right.until(), absl::InfinitePast());
  ASSERT_TRUE(Renew(store, right, At(1000)).ok());
  EXPECT_EQ(right.until(), At(3700));
  ASSERT_TRUE(Renew(store, right, At(2000)).ok());
  EXPECT_EQ(right.until(), At(4700));
  const std::vector<StoredKey> keys = store.Range({kKey}).keys;
  ASSERT_EQ(keys.size(), 1u);
  EXPECT_EQ(keys[0].create_revision, right.create_revision());
  EXPECT_EQ(keys[0].version, 2);
  EXPECT_EQ(DecodeServerRecord(keys[0].value)->counter, 1u);
}

TEST(ServingRightTest, AnAnswerThatIsMissingChangesNothing) {
  ModelStore store;
  ServingRight right(Options(1));
  ASSERT_TRUE(Renew(store, right, At(0)).ok());
  for (const TransactionOutcome outcome :
       {TransactionOutcome::kUnknown, TransactionOutcome::kNotApplied}) {
    TransactionResult result;
    result.outcome = outcome;
    result.status = absl::UnavailableError("test");
    (void)right.NextRequest();
    EXPECT_TRUE(right.TakeAnswer(result, At(2000)).ok());
    EXPECT_EQ(right.until(), At(2700));
  }
}

// The key is there, and was created at a time that is not known: only a renewal gives the right.
TEST(ServingRightTest, ACreationWithoutAnAnswerIsAdopted) {
  ModelStore store;
  ServingRight right(Options(1));
  (void)store.Execute(right.NextRequest());
  EXPECT_TRUE(right.TakeAnswer({}, At(0)).ok());
  ASSERT_TRUE(Renew(store, right, At(1000)).ok());
  EXPECT_EQ(right.create_revision(), store.Range({kKey}).keys[0].create_revision);
  EXPECT_EQ(right.until(), absl::InfinitePast());
  ASSERT_TRUE(Renew(store, right, At(2000)).ok());
  EXPECT_EQ(right.until(), At(4700));
}

TEST(ServingRightTest, AnotherIncarnationsKeyIsNoneOfItsOwn) {
  ModelStore store;
  ServingRight before(Options(1));
  ASSERT_TRUE(Renew(store, before, At(0)).ok());
  ServingRight right(Options(2));
  EXPECT_EQ(Renew(store, right, At(1000)).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(right.until(), absl::InfinitePast());
  EXPECT_FALSE(right.lost());
  ASSERT_TRUE(Renew(store, before, At(1000)).ok());
}

TEST(ServingRightTest, EndsWithItsKey) {
  ModelStore store;
  ServingRight right(Options(1));
  ASSERT_TRUE(Renew(store, right, At(0)).ok());
  PeerWatch watch(kKey, absl::Seconds(3));
  watch.Saw(store.Range({kKey}).keys, At(0));
  EXPECT_EQ(store.Execute(watch.Removal()).outcome, TransactionOutcome::kApplied);
  EXPECT_EQ(Renew(store, right, At(1000)).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(right.lost());
  EXPECT_EQ(right.until(), absl::InfinitePast());
  // Even if the key is there again: it is of another incarnation.
  ServingRight next(Options(2));
  ASSERT_TRUE(Renew(store, next, At(2000)).ok());
  EXPECT_NE(next.create_revision(), right.create_revision());
}

TEST(ServingRightTest, ReleaseDeletesTheKeyThatThisServerCreated) {
  ModelStore store;
  ServingRight right(Options(1));
  ASSERT_TRUE(Renew(store, right, At(0)).ok());
  const Transaction late_renewal = right.NextRequest();
  const std::optional<Transaction> release = right.Release();
  ASSERT_TRUE(release.has_value());
  EXPECT_EQ(right.until(), absl::InfinitePast());
  EXPECT_EQ(store.Execute(*release).outcome, TransactionOutcome::kApplied);
  EXPECT_TRUE(store.Range({kKey}).keys.empty());
  EXPECT_EQ(store.Execute(late_renewal).outcome, TransactionOutcome::kRefused);
  // Sent once more, it does no harm to the next server of that name.
  ServingRight next(Options(2));
  ASSERT_TRUE(Renew(store, next, At(1000)).ok());
  EXPECT_EQ(store.Execute(*release).outcome, TransactionOutcome::kRefused);
  EXPECT_FALSE(store.Range({kKey}).keys.empty());
}

TEST(ServingRightTest, WithoutAKeyThereIsNothingToRelease) {
  EXPECT_FALSE(ServingRight(Options(1)).Release().has_value());
}

TEST(ServingRightTest, MalformedAnswersAreErrors) {
  ServingRight right(Options(1));
  TransactionResult refused;
  refused.outcome = TransactionOutcome::kRefused;
  EXPECT_EQ(right.TakeAnswer(refused, At(0)).code(), absl::StatusCode::kDataLoss);
  refused.results.resize(1);
  EXPECT_EQ(right.TakeAnswer(refused, At(0)).code(), absl::StatusCode::kDataLoss);
  refused.results[0].keys.resize(1);
  refused.results[0].keys[0].value = "garbage";
  EXPECT_EQ(right.TakeAnswer(refused, At(0)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(right.until(), absl::InfinitePast());
}

TEST(PeerWatchTest, TheRightHasEndedOnceOneRevisionStayedForTheTtl) {
  ModelStore store;
  ServingRight right(Options(1));
  PeerWatch watch(kKey, absl::Seconds(3));
  watch.Saw(store.Range({kKey}).keys, At(0));
  EXPECT_FALSE(watch.is_there());
  EXPECT_FALSE(watch.HasEnded(At(100000)));
  ASSERT_TRUE(Renew(store, right, At(0)).ok());
  watch.Saw(store.Range({kKey}).keys, At(1000));
  EXPECT_EQ(watch.create_revision(), right.create_revision());
  watch.Saw(store.Range({kKey}).keys, At(2000));
  EXPECT_FALSE(watch.HasEnded(At(4299)));
  EXPECT_TRUE(watch.HasEnded(At(4300)));
  ASSERT_TRUE(Renew(store, right, At(4000)).ok());
  EXPECT_EQ(store.Execute(watch.Removal()).outcome, TransactionOutcome::kRefused);
  EXPECT_FALSE(watch.HasEnded(At(4300))) << "a read comes first";
  watch.Saw(store.Range({kKey}).keys, At(4300));
  EXPECT_FALSE(watch.HasEnded(At(7599)));
  EXPECT_TRUE(watch.HasEnded(At(7600)));
  EXPECT_EQ(store.Execute(watch.Removal()).outcome, TransactionOutcome::kApplied);
  watch.Saw(store.Range({kKey}).keys, At(7600));
  EXPECT_FALSE(watch.is_there());
}

// After a gap in the reads: the server may have been unable to renew as well.
TEST(PeerWatchTest, AfterARestartTheTimeBeginsWithTheNextRead) {
  ModelStore store;
  ServingRight right(Options(1));
  ASSERT_TRUE(Renew(store, right, At(0)).ok());
  PeerWatch watch(kKey, absl::Seconds(3));
  watch.Saw(store.Range({kKey}).keys, At(0));
  watch.Restart();
  EXPECT_FALSE(watch.HasEnded(At(100000)));
  watch.Saw(store.Range({kKey}).keys, At(10000));
  EXPECT_EQ(watch.create_revision(), right.create_revision());
  EXPECT_FALSE(watch.HasEnded(At(13299)));
  EXPECT_TRUE(watch.HasEnded(At(13300)));
}

}  // namespace
}  // namespace osprey
