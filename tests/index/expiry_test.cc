// Time to live: when a key counts as absent, for the server and for readers. The argument is in
// index/README.md (R8).

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/test_hooks.h"
#include "index/reader/lookup.h"
#include "index/writer/table.h"
#include "tests/index/expiry_fixture.h"
#include "tests/index/index_test_util.h"

namespace osprey::index {
namespace {

// --- The server's answers ------------------------------------------------------------------------

TEST(ExpiryTest, KeyIsThereUntilItsTimeAndNotFromThenOn) {
  ExpiryFixture f;
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
  ExpiryFixture f;
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
  ExpiryFixture f;
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
  ExpiryFixture f;
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
  ExpiryFixture f;
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
  EXPECT_TRUE(absl::IsNotFound(f.Expire("absent", kTenSeconds).status));
  EXPECT_EQ(f.Expire("", kTenSeconds).status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(ExpiryTest, ExpireOfALongValueStoresAHandfulOfWords) {
  struct Counter : StoreObserver {
    void BeforeStore() override { ++stores; }
    int stores = 0;
  } counter;
  ExpiryFixture f(8 << 20);
  f.Put("key", std::string(4 << 20, 'v'));
  store_observer = &counter;
  EXPECT_TRUE(f.Expire("key", kTenSeconds).status.ok());
  EXPECT_TRUE(f.Expire("key", Lifetime::Forever()).status.ok());
  store_observer = nullptr;
  EXPECT_LE(counter.stores, 50);  // twice: a line, and the item's header
}

TEST(ExpiryTest, KeysInChainsExpireAsOthersDo) {
  ExpiryFixture f;
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

TEST(ExpiryTest, ReaderDecidesExpiryOnlyWithinItsClockError) {
  constexpr uint64_t kErrorNs = 1000000;
  ExpiryFixture f;
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

TEST(ExpiryTest, ReaderWithoutServerTimeAsksTheServer) {
  ExpiryFixture f;
  f.Put("key", "value", kTenSeconds);
  DirectoryCache map(kTestIncarnation, f.memory.size());
  FillMap(map, f.memory.data());
  EXPECT_EQ(Get(map, f.memory.data(), "key").kind, Lookup::Kind::kAskServer);
}

TEST(ExpiryTest, WhatTheServerSaidToBeThereIsAHitWhateverTheTime) {
  ExpiryFixture f;
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
  ExpiryFixture f;
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

TEST(ExpiryTest, WithExpiryIgnoredItWouldStay) {
  ExpiryFixture f;
  f.Put("key", "value", kTenSeconds);
  f.Pass(absl::Seconds(11));
  active_mutant = Mutant::kExpiryIgnored;
  EXPECT_TRUE(f.Has("key"));
  active_mutant = Mutant::kNone;
  EXPECT_FALSE(f.Has("key"));
}

// --- The second look -----------------------------------------------------------------------------
//
// The clock passes the expiry just before the Nth store of a write that extends a life. A reader at
// that moment with the exact time may find the key absent. Then the write must fail, or the key
// would come back.

struct LateExpiry : StoreObserver {
  void BeforeStore() override {
    if (stores++ != at) return;
    f->now_ns = expiry_ns;
    store_observer = nullptr;
    found_absent = f->Read("key").kind == Lookup::Kind::kMiss;
    store_observer = this;
  }
  ExpiryFixture* f;
  uint64_t expiry_ns;
  int at;
  int stores = 0;
  bool found_absent = false;
};

using Write = std::function<WriteResult(ExpiryFixture&, uint64_t version)>;

// The number of keys that came back after being found absent, over all N.
int Returns(size_t old_bytes, const Write& write) {
  int returns = 0;
  for (int at = 0;; ++at) {
    ExpiryFixture f;
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
       [](ExpiryFixture& f, uint64_t version) {
         return f.Put("key", "b", {}, VersionIs(version));
       }},
      {"put in place", 200,
       [](ExpiryFixture& f, uint64_t version) {
         return f.Put("key", std::string(201, 'b'), Lifetime::For(absl::Seconds(20)),
                      VersionIs(version));
       }},
      {"put a new item", 200,
       [](ExpiryFixture& f, uint64_t version) {
         return f.Put("key", std::string(500, 'b'), {}, VersionIs(version));
       }},
      {"publish", 200,
       [](ExpiryFixture& f, uint64_t version) {
         return f.PutLong("key", std::string(300, 'b'), Lifetime::For(absl::Seconds(20)),
                          VersionIs(version));
       }},
      {"expire", 5,
       [](ExpiryFixture& f, uint64_t) {
         return f.Expire("key", Lifetime::For(absl::Seconds(20)));
       }},
      {"persist", 3000,
       [](ExpiryFixture& f, uint64_t) { return f.Expire("key", Lifetime::Forever()); }},
  };
}

TEST(ExpiryTest, KeyThatAReaderFoundExpiredDoesNotComeBack) {
  for (const Prolonging& each : ProlongingWrites())
    EXPECT_EQ(Returns(each.old_bytes, each.write), 0) << each.name;
}

TEST(ExpiryTest, WithoutTheSecondLookItWould) {
  active_mutant = Mutant::kNoSecondLook;
  for (const Prolonging& each : ProlongingWrites())
    EXPECT_GT(Returns(each.old_bytes, each.write), 0) << each.name;
  active_mutant = Mutant::kNone;
}

// --- In two steps: a log makes the write durable between the decision and the instant.

using Kind = Table::Intent::Kind;

WriteResult WriteInTwoSteps(ExpiryFixture& f, Kind kind, absl::string_view value,
                            const Lifetime& lifetime, const Condition& condition) {
  const HashedKey key{"key", HashKey("key", kTestSeed)};
  Reservation reservation;
  if (kind == Kind::kPublish) {
    reservation = *f.table->Reserve(key.key, value.size(), f.Now());
    std::memcpy(reservation.value().data(), value.data(), value.size());
  }
  const Table::Forecast forecast = f.table->Foresee(key, condition, lifetime, f.Now());
  if (forecast.refusal.has_value()) return *forecast.refusal;
  if (!forecast.present) return {absl::NotFoundError("expired")};
  const absl::optional<WriteResult> refusal =
      f.table->Prepare(key, {kind, BytesOf(value), condition}, forecast, f.Now());
  if (refusal.has_value()) return *refusal;
  const uint64_t expiry_ns = forecast.expiry_ns;
  switch (kind) {
    case Kind::kPut:
      return f.table->ApplyPut(key, BytesOf(value), f.table->NextVersion(), expiry_ns, f.Now());
    case Kind::kPublish:
      return f.table->ApplyPublish(std::move(reservation), f.table->NextVersion(), expiry_ns,
                                   f.Now());
    case Kind::kExpire:
      break;
  }
  return f.table->ApplyExpire(key, forecast.present_version, expiry_ns, f.Now());
}

std::vector<Prolonging> ProlongingInTwoSteps() {
  const auto write = [](Kind kind, size_t bytes, const Lifetime& lifetime) {
    return [=](ExpiryFixture& f, uint64_t version) {
      return WriteInTwoSteps(f, kind, std::string(bytes, 'b'), lifetime,
                             kind == Kind::kExpire ? Condition() : VersionIs(version));
    };
  };
  const Lifetime longer = Lifetime::For(absl::Seconds(20));
  return {{"put inline", 200, write(Kind::kPut, 1, {})},
          {"put in place", 200, write(Kind::kPut, 201, longer)},
          {"put a new item", 200, write(Kind::kPut, 500, {})},
          {"publish", 200, write(Kind::kPublish, 300, longer)},
          {"expire", 5, write(Kind::kExpire, 0, longer)},
          {"persist", 3000, write(Kind::kExpire, 0, {})}};
}

TEST(ExpiryTest, AnExpiredKeyDoesNotComeBackFromALog) {
  for (const Prolonging& each : ProlongingInTwoSteps())
    EXPECT_EQ(Returns(each.old_bytes, each.write), 0) << each.name;
}

TEST(ExpiryTest, IfItWereHiddenLaterItWould) {
  active_mutant = Mutant::kDecidedUnhidden;
  for (const Prolonging& each : ProlongingInTwoSteps()) {
    // The others have an item, or a line, and thousands of stores for it.
    if (!absl::StartsWith(each.name, "expire") && !absl::StartsWith(each.name, "persist")) continue;
    EXPECT_GT(Returns(each.old_bytes, each.write), 0) << each.name;
  }
  active_mutant = Mutant::kNone;
}

}  // namespace
}  // namespace osprey::index
