// Time to live: when a key counts as absent, for the server and for readers, and what becomes of
// its memory. The argument is in index/README.md (R8).

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/lookup.h"
#include "index/scan.h"
#include "index/table.h"
#include "index/test_hooks.h"
#include "tests/index_test_util.h"

namespace osprey::index {
namespace {

constexpr uint64_t kStartNs = uint64_t{1763765432} * 1000000000;
constexpr uint64_t kSecondNs = 1000000000;

constexpr Condition kNone = {};
constexpr Condition kAbsent = {Condition::Kind::kAbsent, 0};
constexpr Condition VersionIs(uint64_t version) { return {Condition::Kind::kVersionIs, version}; }

struct Fixture {
  explicit Fixture(uint64_t bytes = 2 << 20) : memory(bytes) {
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.clock = [this] { return Now(); };
    table = *Table::Create(memory.span(), options);
  }
  absl::Time Now() const { return absl::FromUnixNanos(static_cast<int64_t>(now_ns)); }
  void Pass(absl::Duration time) {
    now_ns += static_cast<uint64_t>(absl::ToInt64Nanoseconds(time));
  }
  WriteResult Put(absl::string_view key, absl::string_view value, Lifetime lifetime = {},
                  Condition condition = {}) {
    return table->Put(key, BytesOf(value), condition, Now(), lifetime);
  }
  WriteResult PutLong(absl::string_view key, absl::string_view value, Lifetime lifetime,
                      Condition condition = {}) {
    absl::StatusOr<Reservation> reservation = table->Reserve(key, value.size(), Now());
    if (!reservation.ok()) return {reservation.status()};
    std::memcpy(reservation->value().data(), value.data(), value.size());
    return table->Publish(*std::move(reservation), condition, Now(), lifetime);
  }
  WriteResult Expire(absl::string_view key, Lifetime lifetime, Condition condition = {}) {
    return table->Expire(key, condition, lifetime, Now());
  }
  bool Has(absl::string_view key) const { return table->Find(key).ok(); }
  // By a reader whose clock is right to within `error_ns`.
  GetResult Read(absl::string_view key, uint64_t error_ns = 0, uint64_t hint = 0,
                 const LookupOptions& options = {}) {
    RegionMap map(kTestIncarnation, memory.size());
    FillMap(map, memory.data());
    return Get(map, memory.data(), key, hint, options, {now_ns - error_ns, now_ns + error_ns});
  }
  // All steps that are due, as an engine would.
  void Sweep() {
    for (int i = 0; i < 100000 && table->SweepStep(Now()); ++i) {
    }
  }

  uint64_t now_ns = kStartNs;
  RegionMemory memory;
  std::unique_ptr<Table> table;
};

const Lifetime kTenSeconds = Lifetime::For(absl::Seconds(10));

// --- The server's answers ------------------------------------------------------------------------

TEST(ExpiryTest, KeyIsThereUntilItsTimeAndNotFromThenOn) {
  Fixture f;
  for (const size_t bytes : {5, 200, 100000}) {
    const std::string value(bytes, 'v');
    const WriteResult put = f.Put("key", value, kTenSeconds);
    ASSERT_TRUE(put.status.ok());
    EXPECT_NE(put.slot, 0u) << "what expires is an item";
    EXPECT_GE(put.expiry_ns, f.now_ns + 10 * kSecondNs);
    EXPECT_LT(put.expiry_ns, f.now_ns + 10 * kSecondNs + 65536);
    EXPECT_EQ(f.table->Find("key")->expiry_ns, put.expiry_ns);
    f.now_ns = put.expiry_ns - 1;
    ASSERT_TRUE(f.Has("key"));
    EXPECT_EQ(TextOf(f.table->Find("key")->value), value);
    f.now_ns = put.expiry_ns;
    EXPECT_FALSE(f.Has("key"));
  }
}

TEST(ExpiryTest, WhatHasExpiredCountsAsAbsentForEveryOperation) {
  Fixture f;
  const auto expired = [&] {
    const WriteResult put = f.Put("key", "value", kTenSeconds);
    f.Pass(absl::Seconds(11));
    return put;
  };
  WriteResult old = expired();
  EXPECT_TRUE(absl::IsNotFound(f.Put("key", "new", {}, VersionIs(old.version)).status));
  old = expired();
  EXPECT_TRUE(absl::IsNotFound(f.PutLong("key", "new", {}, VersionIs(old.version)).status));
  expired();
  EXPECT_TRUE(absl::IsNotFound(f.table->Delete("key", kNone, f.Now()).status));
  old = expired();
  EXPECT_TRUE(absl::IsNotFound(f.table->Delete("key", VersionIs(old.version), f.Now()).status));
  expired();
  EXPECT_TRUE(absl::IsNotFound(f.Expire("key", kTenSeconds).status));
  expired();
  EXPECT_TRUE(absl::IsNotFound(f.Expire("key", Lifetime::Forever()).status));
  expired();
  EXPECT_EQ(f.table->FlushStep(0, UINT64_MAX, 100, f.Now())->deleted, 0u);
  EXPECT_EQ(f.table->stats().keys, 0u) << "a flush ends what it meets, but does not count it";
  expired();
  EXPECT_TRUE(f.Put("key", "new", {}, kAbsent).status.ok());
  EXPECT_EQ(f.table->Find("key")->expiry_ns, 0u);
  EXPECT_EQ(f.table->stats().expiries, 8u);
  EXPECT_EQ(f.table->stats().expiring_keys, 0u);
}

TEST(ExpiryTest, PutClearsTheTimeToLiveUnlessItGivesOneOrKeepsIt) {
  Fixture f;
  for (const size_t bytes : {5, 200, 100000}) {
    const std::string value(bytes, 'v');
    const uint64_t expiry = f.Put("key", "value", kTenSeconds).expiry_ns;
    EXPECT_EQ(f.Put("key", value, Lifetime::Kept()).expiry_ns, expiry);
    EXPECT_EQ(f.table->Find("key")->expiry_ns, expiry);
    EXPECT_EQ(f.Put("key", value, Lifetime::For(absl::Seconds(20))).expiry_ns,
              RoundUpToExpiry(f.now_ns + 20 * kSecondNs));
    EXPECT_EQ(f.Put("key", value).expiry_ns, 0u);
    EXPECT_EQ(f.table->Find("key")->expiry_ns, 0u);
    EXPECT_EQ(f.table->stats().expiring_keys, 0u);
    EXPECT_EQ(f.Put("key", value, Lifetime::Kept()).expiry_ns, 0u);
    EXPECT_EQ(f.Put(absl::StrCat("new", bytes), value, Lifetime::Kept()).expiry_ns, 0u);
  }
}

TEST(ExpiryTest, LifetimesOfAnyLengthAreTaken) {
  Fixture f;
  EXPECT_TRUE(f.Put("past", "value", Lifetime::For(-absl::Seconds(1))).status.ok());
  EXPECT_TRUE(f.Put("none", "value", Lifetime::For(absl::ZeroDuration())).status.ok());
  EXPECT_TRUE(f.Put("ever", "value", Lifetime::For(absl::InfiniteDuration())).status.ok());
  f.Pass(absl::Milliseconds(1));
  EXPECT_FALSE(f.Has("past"));
  EXPECT_FALSE(f.Has("none"));
  f.Pass(absl::Hours(24 * 365 * 100));
  EXPECT_TRUE(f.Has("ever"));
}

TEST(ExpiryTest, ExpireChangesNeitherValueNorVersionInWhateverForm) {
  Fixture f;
  for (const size_t bytes : {5, 200, 1500, 100000}) {
    const std::string value(bytes, 'v');
    const WriteResult put = f.Put("key", value);
    const auto check = [&](const WriteResult& result, uint64_t expiry_ns) {
      ASSERT_TRUE(result.status.ok()) << result.status;
      EXPECT_EQ(result.version, put.version);
      EXPECT_EQ(result.expiry_ns, expiry_ns);
      const absl::StatusOr<Table::View> view = f.table->Find("key");
      ASSERT_TRUE(view.ok());
      EXPECT_EQ(TextOf(view->value), value);
      EXPECT_EQ(view->version, put.version);
      EXPECT_EQ(view->expiry_ns, expiry_ns);
      EXPECT_EQ(view->slot, result.slot);
      EXPECT_EQ(Slot::Unpack(view->slot).has_expiry, expiry_ns != 0 && view->slot != 0);
      const GetResult got = f.Read("key");
      EXPECT_EQ(got.kind, Lookup::Kind::kHit);
      EXPECT_EQ(got.value, value);
      EXPECT_EQ(got.version, put.version);
      EXPECT_EQ(got.expiry_ns, expiry_ns);
      EXPECT_EQ(f.table->stats().expiring_keys, expiry_ns != 0 ? 1u : 0u);
      EXPECT_EQ(f.table->stats().value_bytes, bytes);
    };
    check(f.Expire("key", kTenSeconds), RoundUpToExpiry(f.now_ns + 10 * kSecondNs));
    check(f.Expire("key", Lifetime::For(absl::Seconds(5)), VersionIs(put.version)),
          RoundUpToExpiry(f.now_ns + 5 * kSecondNs));
    EXPECT_EQ(f.Expire("key", kTenSeconds, VersionIs(1 + put.version)).status.code(),
              absl::StatusCode::kFailedPrecondition);
    check(f.Expire("key", Lifetime::Forever()), 0);
    check(f.Expire("key", Lifetime::Forever()), 0);
  }
  EXPECT_TRUE(absl::IsNotFound(f.Expire("nobody", kTenSeconds).status));
  EXPECT_EQ(f.Expire("", kTenSeconds).status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(ExpiryTest, ExpireOfALongValueStoresAHandfulOfWords) {
  struct Counter : StoreObserver {
    void BeforeStore() override { ++stores; }
    int stores = 0;
  } counter;
  Fixture f(8 << 20);
  f.Put("key", std::string(4 << 20, 'v'));
  store_observer = &counter;
  EXPECT_TRUE(f.Expire("key", kTenSeconds).status.ok());
  EXPECT_TRUE(f.Expire("key", Lifetime::Forever()).status.ok());
  store_observer = nullptr;
  EXPECT_LE(counter.stores, 50);  // twice: a line, and the item's header
}

TEST(ExpiryTest, KeysInChainsExpireAsOthersDo) {
  Fixture f;
  const std::vector<std::string> keys = KeysOfHome(7, 60, false);
  for (const std::string& key : keys) ASSERT_TRUE(f.Put(key, std::string(60, 'v')).status.ok());
  ASSERT_GT(f.table->stats().overflow_lines, 0u);
  for (const std::string& key : keys) ASSERT_TRUE(f.Expire(key, kTenSeconds).status.ok());
  for (const std::string& key : keys) EXPECT_EQ(f.Read(key).kind, Lookup::Kind::kHit);
  f.Pass(absl::Seconds(11));
  for (const std::string& key : keys) EXPECT_EQ(f.Read(key).kind, Lookup::Kind::kMiss);
  f.Sweep();
  EXPECT_EQ(f.table->stats().keys, 0u);
  EXPECT_EQ(f.table->stats().overflow_lines, 0u);
}

// --- Readers -------------------------------------------------------------------------------------

TEST(ExpiryTest, ReaderBelievesOnlyWhatItsBoundsOfTheServersTimeAllow) {
  constexpr uint64_t kErrorNs = 1000000;
  Fixture f;
  for (const size_t bytes : {5, 200, 100000}) {
    f.now_ns = kStartNs;
    const std::string value(bytes, 'v');
    const WriteResult put = f.Put("key", value, kTenSeconds);
    for (const uint64_t hint : {uint64_t{0}, put.slot}) {
      f.now_ns = put.expiry_ns - kErrorNs - 1;
      const GetResult alive = f.Read("key", kErrorNs, hint);
      EXPECT_EQ(alive.kind, Lookup::Kind::kHit);
      EXPECT_EQ(alive.value, value);
      EXPECT_EQ(alive.expiry_ns, put.expiry_ns);
      f.now_ns = put.expiry_ns - kErrorNs;
      EXPECT_EQ(f.Read("key", kErrorNs, hint).kind, Lookup::Kind::kAskServer);
      f.now_ns = put.expiry_ns + kErrorNs - 1;
      EXPECT_EQ(f.Read("key", kErrorNs, hint).kind, Lookup::Kind::kAskServer);
      f.now_ns = put.expiry_ns + kErrorNs;
      const GetResult expired = f.Read("key", kErrorNs, hint);
      EXPECT_EQ(expired.kind, Lookup::Kind::kMiss);
      EXPECT_EQ(expired.counters.reads, hint != 0 ? 1u : 2u);
    }
  }
}

TEST(ExpiryTest, ReaderWhoKnowsNoTimeAsksTheServer) {
  Fixture f;
  f.Put("key", "value", kTenSeconds);
  RegionMap map(kTestIncarnation, f.memory.size());
  FillMap(map, f.memory.data());
  EXPECT_EQ(Get(map, f.memory.data(), "key").kind, Lookup::Kind::kAskServer);
}

TEST(ExpiryTest, WhatTheServerSaidToBeThereIsAHitWhateverTheTime) {
  Fixture f;
  LookupOptions options;
  const WriteResult put = f.Put("key", std::string(100000, 'v'), kTenSeconds);
  for (const uint64_t whole_max : {kLookupReadBytesMax, uint64_t{0}}) {
    options.whole_read_bytes_max = whole_max;
    f.now_ns = put.expiry_ns;
    options.present_version = put.version;
    EXPECT_EQ(f.Read("key", kSecondNs, put.slot, options).kind, Lookup::Kind::kHit);
    options.present_version = put.version + 1;
    EXPECT_EQ(f.Read("key", kSecondNs, put.slot, options).kind, Lookup::Kind::kAskServer);
  }
}

TEST(ExpiryTest, LongValueIsReadInPiecesWhileItIsSurelyAlive) {
  Fixture f;
  LookupOptions options;
  options.whole_read_bytes_max = 100;
  const WriteResult put = f.Put("key", std::string(3000, 'v'), kTenSeconds);
  const GetResult alive = f.Read("key", 0, 0, options);
  EXPECT_EQ(alive.kind, Lookup::Kind::kHit);
  EXPECT_EQ(alive.value, std::string(3000, 'v'));
  EXPECT_EQ(alive.expiry_ns, put.expiry_ns);
  f.now_ns = put.expiry_ns;
  EXPECT_EQ(f.Read("key", 0, 0, options).kind, Lookup::Kind::kAskServer)
      << "without the value there is no checksum";
}

// --- Scans ---------------------------------------------------------------------------------------

struct ScanResult {
  Scan::Kind kind;
  std::map<std::string, uint64_t> expiries;  // of the keys found
  uint64_t count;
};

ScanResult RunScan(const Fixture& f, bool count_only, uint64_t error_ns = 0) {
  RegionMap map(kTestIncarnation, f.memory.size());
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

TEST(ExpiryTest, ScansAndCountsLeaveOutWhatHasExpired) {
  Fixture f(16 << 20);
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

TEST(ExpiryTest, ScanReadsAgainWhatMayOrMayNotHaveExpiredAndGivesUpWhenThatIsEndless) {
  Fixture f;
  const WriteResult put = f.Put("key", "value", kTenSeconds);
  f.now_ns = put.expiry_ns;
  for (const bool count_only : {false, true}) {
    EXPECT_EQ(RunScan(f, count_only, kSecondNs).kind, Scan::Kind::kGiveUp);
    EXPECT_EQ(RunScan(f, count_only, 0).kind, Scan::Kind::kDone);
  }
}

// --- The second look -----------------------------------------------------------------------------
//
// The clock passes the expiry just before the Nth store of a write that prolongs a life. A reader
// who looks at that moment, and knows the time exactly, may find the key absent: then the write
// must fail, or the key would come back.

struct LateExpiry : StoreObserver {
  void BeforeStore() override {
    if (stores++ != at) return;
    f->now_ns = expiry_ns;
    store_observer = nullptr;
    found_absent = f->Read("key").kind == Lookup::Kind::kMiss;
    store_observer = this;
  }
  Fixture* f;
  uint64_t expiry_ns;
  int at;
  int stores = 0;
  bool found_absent = false;
};

using Write = std::function<WriteResult(Fixture&, uint64_t version)>;

// How often a key came back that had been found absent, over all N.
int Returns(size_t old_bytes, const Write& write) {
  int returns = 0;
  for (int at = 0;; ++at) {
    Fixture f;
    const WriteResult old = f.Put("key", std::string(old_bytes, 'a'), kTenSeconds);
    LateExpiry late;
    late.f = &f;
    late.expiry_ns = old.expiry_ns;
    late.at = at;
    store_observer = &late;
    const WriteResult result = write(f, old.version);
    store_observer = nullptr;
    if (late.stores <= at) return returns;  // the write has no such store
    if (result.status.ok()) {
      EXPECT_TRUE(f.Has("key"));
      returns += late.found_absent ? 1 : 0;
    } else {
      EXPECT_TRUE(absl::IsNotFound(result.status)) << result.status;
      EXPECT_FALSE(f.Has("key"));
      EXPECT_EQ(f.Read("key").kind, Lookup::Kind::kMiss);
      EXPECT_EQ(f.table->stats().keys, 0u);
      EXPECT_EQ(f.table->stats().item_bytes, 0u);
      EXPECT_EQ(f.table->stats().expiries, 1u);
    }
  }
}

struct Prolonging {
  const char* name;
  size_t old_bytes;
  Write write;
};

std::vector<Prolonging> ProlongingWrites() {
  return {
      {"put inline", 200,
       [](Fixture& f, uint64_t version) { return f.Put("key", "b", {}, VersionIs(version)); }},
      {"put in place", 200,
       [](Fixture& f, uint64_t version) {
         return f.Put("key", std::string(201, 'b'), Lifetime::For(absl::Seconds(20)),
                      VersionIs(version));
       }},
      {"put a new item", 200,
       [](Fixture& f, uint64_t version) {
         return f.Put("key", std::string(500, 'b'), {}, VersionIs(version));
       }},
      {"publish", 200,
       [](Fixture& f, uint64_t version) {
         return f.PutLong("key", std::string(300, 'b'), Lifetime::For(absl::Seconds(20)),
                          VersionIs(version));
       }},
      {"expire", 5,
       [](Fixture& f, uint64_t) { return f.Expire("key", Lifetime::For(absl::Seconds(20))); }},
      {"persist", 3000, [](Fixture& f, uint64_t) { return f.Expire("key", Lifetime::Forever()); }},
  };
}

TEST(ExpiryTest, KeyThatAReaderFoundExpiredDoesNotComeBack) {
  for (const Prolonging& each : ProlongingWrites())
    EXPECT_EQ(Returns(each.old_bytes, each.write), 0) << each.name;
}

TEST(ExpiryTest, WithoutTheSecondLookItWould) {
  seeded_bug = SeededBug::kNoSecondLook;
  for (const Prolonging& each : ProlongingWrites())
    EXPECT_GT(Returns(each.old_bytes, each.write), 0) << each.name;
  seeded_bug = SeededBug::kNone;
}

// --- Sweeping ------------------------------------------------------------------------------------

TEST(ExpiryTest, SweepsEndWhatHasExpiredInBoundedSteps) {
  Fixture f(64 << 20);
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

TEST(ExpiryTest, SweepsOfAPeriodAreBoundedAndNoneIsMadeTwiceInIt) {
  Fixture f(512 << 20);
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

TEST(ExpiryTest, ExpiredKeysMakeRoomForAWriteThatFindsNone) {
  Fixture f(1 << 20);
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
    RegionMap map(kTestIncarnation, f_.memory.size());
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
    // What no sweep has ended yet is all that is too much.
    f_.Pass(kSweepPeriod());
  }

  std::mt19937_64 random_;
  Fixture f_;
  std::map<std::string, ModelKey> model_;
};

TEST(ExpiryTest, TableAndReadersAgreeWithAModelWhileKeysExpire) {
  for (uint64_t seed = 1; seed <= 8 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Model(seed).Run(20000);
  }
}

TEST(ExpiryTest, WithExpiryIgnoredTheModelDisagrees) {
  Fixture f;
  f.Put("key", "value", kTenSeconds);
  f.Pass(absl::Seconds(11));
  seeded_bug = SeededBug::kExpiryIgnored;
  EXPECT_TRUE(f.Has("key"));
  seeded_bug = SeededBug::kNone;
  EXPECT_FALSE(f.Has("key"));
}

}  // namespace
}  // namespace osprey::index
