// Many lives of a server with random writes, ends and checkpoints.

#ifndef OSPREY_TESTS_SERVER_DURABILITY_DURABLE_LIVES_H_
#define OSPREY_TESTS_SERVER_DURABILITY_DURABLE_LIVES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/durability/durable_server.h"
#include "tests/server/wal/sim_disk.h"
#include "tests/support/split_mix64.h"

namespace osprey::server {

// Writes of all kinds and sizes, of some clients.
class RandomWriter {
 public:
  RandomWriter(DurableServer& server, SplitMix64& random, uint64_t keys)
      : server_(server), random_(random), keys_(keys) {}

  void Write() {
    const std::string key = absl::StrCat("key-", random_.Below(keys_));
    const absl::Duration ttl =
        random_.Chance(20) ? absl::Milliseconds(1 + random_.Below(400)) : absl::ZeroDuration();
    server_.Advance(absl::Microseconds(random_.Below(100)));
    switch (random_.Below(16)) {
      case 0:
      case 1:
      case 2:
        (void)server_.Delete(key, NextAsker());
        break;
      case 3:
      case 4:
        (void)server_.Expire(key, ttl, NextAsker());
        break;
      case 5:
        if (random_.Chance(3)) server_.Flush(1 + random_.Below(50), NextAsker(true));
        break;
      case 6:
        if (random_.Chance(5)) ChangeClients();
        break;
      default:
        (void)server_.Put(key, Value(), ttl, NextAsker());
    }
    if (random_.Chance(10)) server_.RunMaintenance();
  }

  std::string Value() {
    const uint64_t kind = random_.Below(400);
    const uint64_t bytes = kind == 0    ? (1 << 20) + random_.Below(1 << 20)
                           : kind < 4   ? 60000 + random_.Below(12000)
                           : kind < 20  ? 4000 + random_.Below(2000)
                           : kind < 200 ? random_.Below(24)
                                        : random_.Below(400);
    std::string value(bytes, static_cast<char>(random_.Next()));
    for (size_t at = 0; at < value.size(); at += 61) value[at] = static_cast<char>(random_.Next());
    return value;
  }

 private:
  struct Client {
    uint64_t id = 0;
    uint64_t sequence = 0;
  };

  void ChangeClients() {
    if (clients_.size() < 5 || random_.Chance(40)) {
      clients_.push_back({random_.Next() | 1, 0});
      server_.BeginSession(clients_.back().id);
      return;
    }
    const uint64_t which = random_.Below(clients_.size());
    server_.EndSession(clients_[which].id);
    clients_.erase(clients_.begin() + static_cast<ptrdiff_t>(which));
  }
  // A client of which no write waits, or none.
  Asker NextAsker(bool with_cursor = false) {
    Asker asker;
    if (clients_.empty() || (!with_cursor && random_.Chance(50))) return asker;
    Client& client = clients_[random_.Below(clients_.size())];
    asker.client = client.id;
    // Numbers of refused writes are not in the log.
    client.sequence += 1 + random_.Below(3);
    asker.sequence = client.sequence;
    // Some answers come late.
    if (random_.Chance(10) && client.sequence > 20) asker.sequence -= random_.Below(20);
    if (random_.Chance(20)) {
      asker.result = wal::EntryResult{0, 0, random_.Next(), -5, 7, 0, 11};
      asker.has_number = random_.Chance(50);
    }
    return asker;
  }

  DurableServer& server_;
  SplitMix64& random_;
  const uint64_t keys_;
  std::vector<Client> clients_;
};

struct LivesOptions {
  ServerOptions server;
  uint64_t keys = 1500;
  int lives = 4;
  uint64_t redo_shift = 0;
};

// The first difference between a life and the next one; empty if there is none.
inline std::string RunLives(uint64_t seed, const LivesOptions& options) {
  wal::SimDisk disk(seed);
  SplitMix64 random(seed);
  DurableServer server(disk, options.server);
  RandomWriter writer(server, random, options.keys);
  for (int life = 0; life < options.lives; ++life) {
    if (absl::Status status = server.Start(); !status.ok()) return status.ToString();
    if (std::string difference = server.Difference(); !difference.empty())
      return absl::StrCat("life ", life, ": ", difference);
    for (uint64_t turns = 1 + random.Below(3); turns > 0; --turns) {
      for (uint64_t writes = random.Below(800); writes > 0; --writes) writer.Write();
      if (random.Chance(20)) continue;
      const auto size = server.Checkpoint(
          [&] {
            for (uint64_t writes = 1 + random.Below(40); writes > 0; --writes) writer.Write();
          },
          options.redo_shift);
      if (!size.ok()) return size.status().ToString();
    }
    absl::Status status = server.log().Write();
    const bool loses_power = random.Chance(50);
    if (status.ok() && loses_power) status = server.log().Sync();
    if (!status.ok()) return status.ToString();
    server.Stop();
    if (loses_power) disk.LosePower();
    disk.Kill();
  }
  return "";
}

}  // namespace osprey::server

#endif  // OSPREY_TESTS_SERVER_DURABILITY_DURABLE_LIVES_H_
