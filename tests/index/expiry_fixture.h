// Shared by the tests of time to live: a table with a clock that stands still until a test moves
// it.

#ifndef OSPREY_TESTS_INDEX_EXPIRY_FIXTURE_H_
#define OSPREY_TESTS_INDEX_EXPIRY_FIXTURE_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "index/reader/lookup.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"

namespace osprey::index {

inline constexpr uint64_t kStartNs = uint64_t{1763765432} * 1000000000;
inline constexpr uint64_t kSecondNs = 1000000000;

inline constexpr Condition kNone = {};
inline constexpr Condition kAbsent = {Condition::Kind::kAbsent, 0};
constexpr Condition VersionIs(uint64_t version) { return {Condition::Kind::kVersionIs, version}; }

struct ExpiryFixture {
  explicit ExpiryFixture(uint64_t bytes = 2 << 20) : memory(bytes) {
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
  // Reads with a clock that is exact to within `error_ns`.
  GetResult Read(absl::string_view key, uint64_t error_ns = 0, uint64_t hint = 0,
                 const LookupOptions& options = {}) {
    DirectoryCache map = MapOf(memory);
    return Get(map, memory.data(), key, hint, options, {now_ns - error_ns, now_ns + error_ns});
  }
  // Runs all steps that are due, as an engine would.
  void Sweep() {
    for (int i = 0; i < 100000 && table->SweepStep(Now()); ++i) {
    }
  }

  uint64_t now_ns = kStartNs;
  RegionMemory memory;
  std::unique_ptr<Table> table;
};

inline const Lifetime kTenSeconds = Lifetime::For(absl::Seconds(10));

}  // namespace osprey::index

#endif  // OSPREY_TESTS_INDEX_EXPIRY_FIXTURE_H_
