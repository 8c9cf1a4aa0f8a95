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

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/durability/durability.h"
#include "server/requests/tables.h"
#include "tests/index/index_test_util.h"
#include "tests/support/split_mix64.h"

namespace osprey::server {

class Life {
 public:
  Life(const std::string& directory, DurabilityOptions options) {
    options.random = [this] { return random_.Next() | 1; };
    options.log = [](absl::string_view) {};
    absl::StatusOr<std::unique_ptr<Durability>> durability =
        Durability::Open(directory, /*partitions=*/2, std::move(options));
    EXPECT_TRUE(durability.ok()) << durability.status();
    durability_ = *std::move(durability);
    index::TableOptions table;
    table.incarnation = 1;
    table.hash_seed = durability_->hash_seed();
    table.clock = [this] { return runs_ ? absl::Now() : absl::UnixEpoch(); };
    tables_ =
        *Tables::Create(memory_.span(), durability_->partitions(), table, durability_->changes());
    access_.emplace(*tables_);
    EXPECT_TRUE(durability_->Load(*tables_, {}).ok());
    runs_ = true;
    const absl::Status status =
        durability_->Start([] { return absl::Now(); }, [] { return std::vector<SessionImage>(); });
    EXPECT_TRUE(status.ok()) << status;
  }

  void Put(absl::string_view key, absl::string_view value) {
    access_->set_write({1, ++sequence_, rdma::Opcode::kPut});
    const LockedTable table = access_->For(key);
    const auto* const bytes = reinterpret_cast<const std::byte*>(value.data());
    EXPECT_TRUE(table->Put(key, {bytes, value.size()}, {}, absl::Now()).status.ok());
  }
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
  TableAccess& access() { return *access_; }

 private:
  index::RegionMemory memory_{16 << 20};
  SplitMix64 random_{1};
  bool runs_ = false;
  uint64_t sequence_ = 0;
  std::unique_ptr<Tables> tables_;
  std::optional<TableAccess> access_;
  std::unique_ptr<Durability> durability_;  // its thread uses the tables
};

}  // namespace osprey::server

#endif  // OSPREY_TESTS_SERVER_DURABILITY_DURABLE_LIFE_H_
