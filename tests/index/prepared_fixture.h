// Shared by the tests of writes in two steps: a table, and the writes that were decided and not yet made.

#ifndef OSPREY_TESTS_INDEX_PREPARED_FIXTURE_H_
#define OSPREY_TESTS_INDEX_PREPARED_FIXTURE_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/support/split_mix64.h"

namespace osprey::index {

struct Decided {
  using Kind = Table::Intent::Kind;
  Kind kind = Kind::kPut;
  std::string key;
  std::string value;
  uint64_t version = 0;
  uint64_t expiry_ns = 0;
  Reservation reservation;  // kPublish

  HashedKey hashed() const { return {key, HashKey(key, kTestSeed)}; }
};

struct PreparedFixture {
  using Kind = Table::Intent::Kind;

  explicit PreparedFixture(bool evict = false, uint64_t region_bytes = 512 << 10,
                           Changes* changes = nullptr)
      : memory(region_bytes) {
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.evict = evict;
    options.changes = changes;
    options.clock = [this] { return now; };
    table = *Table::Create(memory.span(), options);
  }

  WriteResult Put(absl::string_view key, absl::string_view value, const Lifetime& lifetime = {}) {
    return table->Put(key, BytesOf(value), {}, now, lifetime);
  }
  // Keys of its own, until memory is full.
  void Fill(absl::string_view prefix, size_t value_bytes) {
    for (int i = 0; i < 100000; ++i) {
      if (!Put(absl::StrCat(prefix, i), std::string(value_bytes, 'f')).status.ok()) return;
      Step();
      if (table->evicts() && table->evictions() > evictions + 2000) return;
    }
  }
  // All maintenance that is due, as an engine would.
  void Step() {
    for (int i = 0; i < 20 && table->StepWanted(now); ++i) {
      (void)table->GrowStep(now);
      (void)table->SweepStep(now);
      (void)table->EvictStep(now);
      (void)table->CompactStep(now);
    }
  }
  absl::Status Decide(Kind kind, absl::string_view key, absl::string_view value,
                      const Lifetime& lifetime, const Condition& condition = {}) {
    Decided one;
    one.kind = kind;
    one.key = std::string(key);
    one.value = std::string(value);
    const HashedKey hashed = one.hashed();
    if (kind == Kind::kPublish) {
      absl::StatusOr<Reservation> reservation = table->Reserve(key, value.size(), now);
      if (!reservation.ok()) return reservation.status();
      one.reservation = *std::move(reservation);
      std::memcpy(one.reservation.value().data(), value.data(), value.size());
    }
    while (true) {
      const Table::Forecast forecast = table->Foresee(hashed, condition, lifetime, now);
      if (forecast.refusal.has_value()) return forecast.refusal->status;
      if (!forecast.present && kind == Kind::kExpire) return absl::NotFoundError("absent");
      const absl::optional<WriteResult> refusal =
          table->Prepare(hashed, {kind, BytesOf(one.value), condition}, forecast, now);
      if (refusal.has_value() && absl::IsAborted(refusal->status)) continue;
      if (refusal.has_value()) return refusal->status;
      one.version = kind == Kind::kExpire ? forecast.present_version : table->NextVersion();
      one.expiry_ns = forecast.expiry_ns;
      break;
    }
    decided.push_back(std::move(one));
    return absl::OkStatus();
  }
  WriteResult Apply(Decided& one) {
    switch (one.kind) {
      case Kind::kPut:
        return table->ApplyPut(one.hashed(), BytesOf(one.value), one.version, one.expiry_ns, now);
      case Kind::kPublish:
        return table->ApplyPublish(std::move(one.reservation), one.version, one.expiry_ns, now);
      case Kind::kExpire:
        break;
    }
    return table->ApplyExpire(one.hashed(), one.version, one.expiry_ns, now);
  }
  GetResult Read(absl::string_view key) {
    DirectoryCache map = MapOf(memory);
    const auto now_ns = static_cast<uint64_t>(absl::ToUnixNanos(now));
    return Get(map, memory.data(), key, 0, {}, {now_ns, now_ns});
  }

  absl::Time now = absl::FromUnixSeconds(1763765432);
  RegionMemory memory;
  std::unique_ptr<Table> table;
  uint64_t evictions = 0;
  std::vector<Decided> decided;
};

// Decides random writes of present and absent keys.
struct RandomDecisions {
  using Kind = Table::Intent::Kind;

  RandomDecisions(PreparedFixture& of, uint64_t seed) : f(of), random(seed) {}

  std::string Value() {
    const uint64_t bytes[] = {8, 40, 300, 3000, 20000};
    return std::string(1 + random.Below(bytes[random.Below(5)]), 'v');
  }
  Lifetime SomeLifetime() {
    if (random.Chance(60)) return Lifetime::Forever();
    return Lifetime::For(absl::Milliseconds(1 + random.Below(3000)));
  }
  // Of keys that are present, or not.
  std::string Key() { return absl::StrCat(random.Chance(60) ? "old" : "new", random.Below(60)); }
  void Decide() {
    const std::string key = Key();
    if (keys.contains(key)) return;
    const Kind kind = random.Chance(70)   ? Kind::kPut
                      : random.Chance(50) ? Kind::kPublish
                                          : Kind::kExpire;
    Condition condition;
    if (const auto present = f.table->Find(key); present.ok() && random.Chance(40))
      condition = {Condition::Kind::kVersionIs, present->version};
    const absl::Status status = f.Decide(kind, key, Value(), SomeLifetime(), condition);
    refused += absl::IsResourceExhausted(status);
    if (status.ok()) keys.insert({key, f.decided.size()});
  }

  PreparedFixture& f;
  SplitMix64 random;
  std::map<std::string, size_t> keys;
  uint64_t refused = 0;
};

// Applies it, and checks what the table has then.
inline void ExpectApplied(PreparedFixture& f, Decided& one) {
  const WriteResult result = f.Apply(one);
  ASSERT_TRUE(result.status.ok()) << result.status << " of " << one.key;
  EXPECT_EQ(result.version, one.version);
  const auto now_ns = static_cast<uint64_t>(absl::ToUnixNanos(f.now));
  const absl::StatusOr<Table::View> present = f.table->Find(one.key);
  if (one.expiry_ns != 0 && one.expiry_ns <= now_ns) {
    EXPECT_FALSE(present.ok()) << one.key;
  } else if (one.kind != Table::Intent::Kind::kExpire) {
    ASSERT_TRUE(present.ok()) << one.key;
    EXPECT_EQ(TextOf(present->value), one.value);
    EXPECT_EQ(present->expiry_ns, one.expiry_ns);
    EXPECT_EQ(present->version, one.version);
  }
}

// A key whose pending write extends its life from 10 s to 60 s.
struct HiddenKey : PreparedFixture {
  HiddenKey() {
    Put("key", std::string(100, 'v'), Lifetime::For(absl::Seconds(10)));
    EXPECT_TRUE(Decide(Kind::kExpire, "key", "", Lifetime::For(absl::Seconds(60))).ok());
  }
  bool AnswersLater(uint64_t bytes_max = 1000) const {
    return table->AnswersLater({"key", HashKey("key", kTestSeed)}, bytes_max);
  }
  void Sweep() {
    for (int i = 0; i < 100; ++i) {
      now += absl::Milliseconds(10);
      Step();
    }
  }
};

}  // namespace osprey::index

#endif  // OSPREY_TESTS_INDEX_PREPARED_FIXTURE_H_
