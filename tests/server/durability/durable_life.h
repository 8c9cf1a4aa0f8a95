// A life of a server without requests: a data directory on a real disk, and its tables.
//
// Thread rule: one thread.

#ifndef OSPREY_TESTS_SERVER_DURABILITY_DURABLE_LIFE_H_
#define OSPREY_TESTS_SERVER_DURABILITY_DURABLE_LIFE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/durability/durability.h"
#include "server/requests/tables.h"
#include "tests/index/index_test_util.h"
#include "tests/support/split_mix64.h"

namespace osprey::server {

struct LifeOptions {
  uint64_t memory_bytes = 16 << 20;
  bool evict = false;
  // Of the server's clock, before the time of day.
  absl::Duration ahead;
  // Of Load. The life ends there, if it is an error.
  absl::StatusCode loads = absl::StatusCode::kOk;
};

class Life {
 public:
  Life(const std::string& directory, DurabilityOptions options, const LifeOptions& own = {})
      : memory_(own.memory_bytes) {
    options.random = [this] { return random_.Next() | 1; };
    options.log = [](absl::string_view) {};
    absl::StatusOr<std::unique_ptr<Durability>> durability =
        Durability::Open(directory, /*partitions=*/2, std::move(options));
    EXPECT_TRUE(durability.ok()) << durability.status();
    durability_ = *std::move(durability);
    index::TableOptions table;
    table.incarnation = 1;
    table.hash_seed = durability_->hash_seed();
    table.evict = own.evict;
    const auto now = [ahead = own.ahead] { return absl::Now() + ahead; };
    table.clock = [this, now] { return runs_ ? now() : absl::UnixEpoch(); };
    tables_ =
        *Tables::Create(memory_.span(), durability_->partitions(), table, durability_->changes());
    access_.emplace(*tables_);
    RecoveryOptions recovery;
    recovery.now = now();
    recovered_ = durability_->Load(*tables_, recovery);
    EXPECT_EQ(recovered_.status().code(), own.loads) << recovered_.status();
    if (!recovered_.ok()) return;
    runs_ = true;
    const absl::Status status = durability_->Start(now, [] { return std::vector<SessionImage>(); });
    EXPECT_TRUE(status.ok()) << status;
  }

  // Returns the version.
  uint64_t Put(absl::string_view key, absl::string_view value, absl::Duration ttl = {}) {
    access_->set_write({1, ++sequence_, rdma::Opcode::kPut});
    const LockedTable table = access_->For(key);
    const auto* const bytes = reinterpret_cast<const std::byte*>(value.data());
    const index::WriteResult result = table->Put(
        key, {bytes, value.size()}, {}, absl::Now(),
        ttl == absl::ZeroDuration() ? index::Lifetime::Forever() : index::Lifetime::For(ttl));
    EXPECT_TRUE(result.status.ok()) << result.status;
    return result.version;
  }
  bool Has(absl::string_view key) { return access_->For(key)->Find(key).ok(); }
  DurabilityStats stats() const { return durability_->stats(); }
  // Waits until `reached`. False: not within 30 s.
  bool Await(const std::function<bool(const DurabilityStats&)>& reached,
             absl::Duration time = absl::Seconds(30)) const {
    for (const absl::Time end = absl::Now() + time; absl::Now() < end;) {
      if (reached(stats())) return true;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  }
  Durability& durability() { return *durability_; }
  Tables& tables() { return *tables_; }
  TableAccess& access() { return *access_; }
  const absl::StatusOr<Recovered>& recovered() const { return recovered_; }

 private:
  index::RegionMemory memory_;
  SplitMix64 random_{1};
  bool runs_ = false;
  uint64_t sequence_ = 0;
  std::unique_ptr<Tables> tables_;
  std::optional<TableAccess> access_;
  absl::StatusOr<Recovered> recovered_;
  std::unique_ptr<Durability> durability_;  // its thread uses the tables
};

}  // namespace osprey::server

#endif  // OSPREY_TESTS_SERVER_DURABILITY_DURABLE_LIFE_H_
