// Expired keys: scans leave them out, sweeps end them, and their memory is reused. All of it
// against a model.

#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/reader/lookup.h"
#include "index/reader/scan.h"
#include "index/writer/table.h"
#include "tests/index/expiry_fixture.h"
#include "tests/index/index_test_util.h"

namespace osprey::index {
namespace {

// --- Scans ---------------------------------------------------------------------------------------

struct ScanResult {
  Scan::Kind kind;
  std::map<std::string, uint64_t> expiries;  // of the keys found
  uint64_t count;
};

ScanResult RunScan(const ExpiryFixture& f, bool count_only, uint64_t error_ns = 0) {
  DirectoryCache map(kTestIncarnation, f.memory.size());
  FillMap(map, f.memory.data());
  ScanOptions options;
  options.count_only = count_only;
  Scan scan(map, {}, options);
  Scan::Step step = scan.Start();
  while (step.kind == Scan::Kind::kRead) {
    std::vector<std::byte> bytes;
    for (const ReadSpan& span : step.reads) {
      const std::byte* const from = f.memory.data() + span.offset;
      bytes.insert(bytes.end(), from, from + span.length);
    }
    step = scan.Resume(bytes, {f.now_ns - error_ns, f.now_ns + error_ns});
  }
  ScanResult result{step.kind, {}, scan.count()};
  for (const ScanEntry& entry : scan.entries()) result.expiries[entry.key] = entry.expiry_ns;
  return result;
}

TEST(SweepTest, ScansAndCountsLeaveOutWhatHasExpired) {
  ExpiryFixture f(16 << 20);
  std::set<std::string> forever;
  for (int i = 0; i < 6000; ++i) {
    const std::string key = absl::StrCat("key", i);
    const std::string value(i % 7 == 0 ? 1500 : i % 60, 'v');
    const bool expires = i % 3 == 0;
    ASSERT_TRUE(f.Put(key, value, expires ? kTenSeconds : Lifetime()).status.ok());
    while (f.table->GrowStep(f.Now())) {
    }
    if (!expires) forever.insert(key);
  }
  ScanResult all = RunScan(f, false);
  EXPECT_EQ(all.kind, Scan::Kind::kDone);
  EXPECT_EQ(all.expiries.size(), 6000u);
  for (const auto& [key, expiry_ns] : all.expiries)
    ASSERT_EQ(expiry_ns == 0, forever.count(key) == 1) << key;
  EXPECT_EQ(RunScan(f, true).count, 6000u);
  f.Pass(absl::Seconds(11));
  all = RunScan(f, false);
  EXPECT_EQ(all.expiries.size(), forever.size());
  for (const auto& [key, expiry_ns] : all.expiries) ASSERT_EQ(forever.count(key), 1u) << key;
  EXPECT_EQ(RunScan(f, true).count, forever.size());
  f.Sweep();
  EXPECT_EQ(f.table->stats().keys, forever.size());
  EXPECT_EQ(RunScan(f, true).count, forever.size());
}

TEST(SweepTest, ScanRepeatsReadsOfDoubtfulExpiriesWithinABound) {
  ExpiryFixture f;
  const WriteResult put = f.Put("key", "value", kTenSeconds);
  f.now_ns = put.expiry_ns;
  for (const bool count_only : {false, true}) {
    EXPECT_EQ(RunScan(f, count_only, kSecondNs).kind, Scan::Kind::kGiveUp);
    EXPECT_EQ(RunScan(f, count_only, 0).kind, Scan::Kind::kDone);
  }
}

// --- Sweeping ------------------------------------------------------------------------------------

TEST(SweepTest, SweepsEndWhatHasExpiredInBoundedSteps) {
  ExpiryFixture f(64 << 20);
  constexpr uint64_t kKeys = 30000;
  for (uint64_t i = 0; i < kKeys; ++i) {
    const Lifetime lifetime = i % 2 == 0 ? kTenSeconds : Lifetime::For(absl::Seconds(100));
    ASSERT_TRUE(f.Put(absl::StrCat("key", i), std::string(i % 80, 'v'), lifetime).status.ok());
    while (f.table->GrowStep(f.Now())) {
    }
  }
  ASSERT_GT(f.table->stats().segments, 4u);
  EXPECT_FALSE(f.table->SweepStep(f.Now())) << "nothing has expired yet";
  EXPECT_GE(f.table->next_sweep(), f.Now() + absl::Seconds(9));
  EXPECT_LE(f.table->next_sweep(), f.Now() + absl::Seconds(11));
  f.Pass(absl::Seconds(11));
  uint64_t before = 0;
  int steps = 0;
  for (bool more = true; more; ++steps) {
    more = f.table->SweepStep(f.Now());
    const uint64_t ended = f.table->stats().expiries - before;
    ASSERT_LE(ended, kSweepKeysMax);
    before += ended;
    ASSERT_LT(steps, 10000);
  }
  EXPECT_EQ(f.table->stats().expiries, kKeys / 2);
  EXPECT_EQ(f.table->stats().keys, kKeys / 2);
  EXPECT_EQ(f.table->stats().expiring_keys, kKeys / 2);
  EXPECT_GE(f.table->next_sweep(), f.Now() + absl::Seconds(85)) << "nothing to do until then";
  f.Pass(absl::Seconds(90));
  f.Sweep();
  EXPECT_EQ(f.table->stats().keys, 0u);
  EXPECT_EQ(f.table->next_sweep(), absl::InfiniteFuture());
}

TEST(SweepTest, SweepsOfAPeriodAreBoundedAndNoneIsMadeTwiceInIt) {
  ExpiryFixture f(512 << 20);
  for (uint64_t i = 0; i < 400000; ++i) {
    ASSERT_TRUE(f.Put(absl::StrCat("key", i), "value", kTenSeconds).status.ok());
    while (f.table->GrowStep(f.Now())) {
    }
  }
  ASSERT_GT(f.table->stats().segments, 80u);
  f.Pass(absl::Seconds(11));
  f.Sweep();
  const uint64_t ended = f.table->stats().expiries;
  EXPECT_GT(ended, 50000u);
  EXPECT_LT(ended, 399000u);
  EXPECT_FALSE(f.table->SweepStep(f.Now()));
  EXPECT_GT(f.table->next_sweep(), f.Now());
  EXPECT_LE(f.table->next_sweep(), f.Now() + kSweepPeriod());
  for (int period = 0; period < 20; ++period) {
    f.Pass(kSweepPeriod());
    f.Sweep();
  }
  EXPECT_EQ(f.table->stats().keys, 0u);
}

TEST(SweepTest, WriteWithoutSpaceReclaimsExpiredKeys) {
  ExpiryFixture f(1 << 20);
  const std::string value(3000, 'v');
  int keys = 0;
  while (f.Put(absl::StrCat("key", keys), value, kTenSeconds).status.ok()) ++keys;
  ASSERT_GT(keys, 100);
  EXPECT_EQ(f.Put("late", value).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(f.table->stats().keys, static_cast<uint64_t>(keys)) << "everything stays";
  f.Pass(absl::Seconds(11));
  for (int i = 0; i < keys; ++i)
    ASSERT_TRUE(f.Put(absl::StrCat("late", i), value).status.ok()) << i;
  EXPECT_TRUE(f.PutLong("late", value, {}).status.ok() || f.table->stats().expiring_keys == 0);
}

// --- Against a model -----------------------------------------------------------------------------

struct ModelKey {
  std::string value;
  uint64_t version = 0;
  uint64_t expiry_ns = 0;
};

class Model {
 public:
  explicit Model(uint64_t seed) : random_(seed), f_(4 << 20) {}

  void Run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      f_.now_ns += random_() % 3 * 20 * 1000000;
      for (auto it = model_.begin(); it != model_.end();) {
        const bool ends = it->second.expiry_ns != 0 && f_.now_ns >= it->second.expiry_ns;
        it = ends ? model_.erase(it) : std::next(it);
      }
      Operate();
      if (random_() % 4 == 0) f_.table->GrowStep(f_.Now());
      if (random_() % 4 == 0) f_.table->CompactStep(f_.Now());
      if (random_() % 8 == 0) f_.table->SweepStep(f_.Now());
      if (i % 500 == 0) CheckAll();
    }
    EXPECT_GT(f_.table->stats().expiries, static_cast<uint64_t>(operations) / 50);
  }

 private:
  void Operate() {
    const std::string key = absl::StrCat("key", random_() % 900);
    const auto it = model_.find(key);
    const bool present = it != model_.end();
    Condition condition;
    if (random_() % 3 == 0)
      condition = VersionIs(present && random_() % 4 != 0 ? it->second.version : 1);
    const bool fits = condition.kind == Condition::Kind::kNone ||
                      (present && it->second.version == condition.version);
    Lifetime lifetime;
    if (random_() % 2 == 0) lifetime = Lifetime::For(absl::Milliseconds(1 + random_() % 30000));
    switch (random_() % 5) {
      case 0:
      case 1: {
        if (random_() % 4 == 0) lifetime = Lifetime::Kept();
        const size_t sizes[] = {4, 40, 300, 2000, 9000};
        const std::string value(random_() % sizes[random_() % 5],
                                static_cast<char>('a' + random_() % 26));
        const WriteResult result = random_() % 3 == 0 ? f_.PutLong(key, value, lifetime, condition)
                                                      : f_.Put(key, value, lifetime, condition);
        if (!fits) return ExpectRefused(result, present);
        if (absl::IsResourceExhausted(result.status)) return;
        ASSERT_TRUE(result.status.ok()) << result.status;
        uint64_t expiry_ns = 0;
        if (lifetime.kind == Lifetime::Kind::kKept) expiry_ns = present ? it->second.expiry_ns : 0;
        if (lifetime.kind == Lifetime::Kind::kLimited) expiry_ns = ExpiryOf(lifetime);
        EXPECT_EQ(result.expiry_ns, expiry_ns);
        model_[key] = {value, result.version, expiry_ns};
        return;
      }
      case 2: {
        const WriteResult result = f_.table->Delete(key, condition, f_.Now());
        if (!fits || !present) return ExpectRefused(result, present);
        EXPECT_TRUE(result.status.ok());
        model_.erase(it);
        return;
      }
      case 3:
      case 4: {
        const WriteResult result = f_.Expire(key, lifetime, condition);
        if (!fits || !present) return ExpectRefused(result, present);
        if (absl::IsResourceExhausted(result.status)) return;
        ASSERT_TRUE(result.status.ok()) << result.status;
        EXPECT_EQ(result.version, it->second.version);
        it->second.expiry_ns = lifetime.kind == Lifetime::Kind::kLimited ? ExpiryOf(lifetime) : 0;
        EXPECT_EQ(result.expiry_ns, it->second.expiry_ns);
        return;
      }
    }
  }

  uint64_t ExpiryOf(const Lifetime& lifetime) const {
    return RoundUpToExpiry(f_.now_ns +
                           static_cast<uint64_t>(absl::ToInt64Nanoseconds(lifetime.ttl)));
  }

  static void ExpectRefused(const WriteResult& result, bool present) {
    EXPECT_EQ(result.status.code(),
              present ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kNotFound);
  }

  void CheckAll() {
    DirectoryCache map(kTestIncarnation, f_.memory.size());
    FillMap(map, f_.memory.data());
    uint64_t expiring = 0;
    for (int i = 0; i < 900; ++i) {
      const std::string key = absl::StrCat("key", i);
      const auto it = model_.find(key);
      const absl::StatusOr<Table::View> view = f_.table->Find(key);
      const GetResult got = Get(map, f_.memory.data(), key, 0, {}, {f_.now_ns, f_.now_ns});
      ASSERT_EQ(view.ok(), it != model_.end()) << key;
      ASSERT_EQ(got.kind, view.ok() ? Lookup::Kind::kHit : Lookup::Kind::kMiss) << key;
      if (!view.ok()) continue;
      ASSERT_EQ(TextOf(view->value), it->second.value);
      ASSERT_EQ(got.value, it->second.value);
      ASSERT_EQ(view->version, it->second.version);
      ASSERT_EQ(view->expiry_ns, it->second.expiry_ns);
      ASSERT_EQ(got.expiry_ns, it->second.expiry_ns);
      expiring += it->second.expiry_ns != 0;
    }
    EXPECT_GE(f_.table->stats().expiring_keys, expiring);
    EXPECT_EQ(RunScan(f_, true).count, model_.size());
    EXPECT_EQ(RunScan(f_, false).expiries.size(), model_.size());
    // The only excess is keys that no sweep has ended yet.
    f_.Pass(kSweepPeriod());
  }

  std::mt19937_64 random_;
  ExpiryFixture f_;
  std::map<std::string, ModelKey> model_;
};

TEST(SweepTest, TableAndReadersAgreeWithAModelWhileKeysExpire) {
  for (uint64_t seed = 1; seed <= 8 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Model(seed).Run(20000);
  }
}

}  // namespace
}  // namespace osprey::index
