// The data directory of a simulated server: its starts, its ends, and what its threads do.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/world.h"

namespace osprey {

namespace {

// How far the time of day is set back, at most; and how soon after the end of an incarnation. The mark
// is ahead of that one's clock by a second or more, if some key expires.
constexpr uint64_t kSetBackNsMax = 10'000'000'000;
constexpr int64_t kSetBackWithinNs = 500'000'000;

}  // namespace

bool World::LoadData(Server& server) {
  const bool may_set_back = now_ < data_ended_at_ + kSetBackWithinNs && rng_.Chance(50);
  const auto set_back = may_set_back ? static_cast<int64_t>(rng_.Below(kSetBackNsMax)) : 0;
  server_clock_ns_ -= set_back;
  const bool loaded = data_->Load(*server.tables, ServerTime());
  actor_->ServerTurnEnded();  // it may have evicted keys
  if (!loaded) server_clock_ns_ += set_back;
  if (!loaded) return false;
  // The mark may be ahead of the time of day. The clock begins there. If it is also ahead of what the
  // last incarnation's clock would show, the new one comes that late.
  const int64_t ahead = std::max<int64_t>(
      absl::ToInt64Nanoseconds(data_->durability().clock_start() - ServerTime()), 0);
  server_clock_ns_ += std::min(ahead, set_back);
  now_ += ahead - std::min(ahead, set_back);
  report_.clocks_set_back += set_back > ahead;
  return data_->Start([this] { return ServerTime(); }, [this] { return Sessions(); });
}

bool World::FailStart() {
  ++report_.failed_starts;
  if (wrong_.empty()) wrong_ = data_->wrong();
  actor_->EvictionsUndone();
  EndData();
  server_back_at_ = now_ + static_cast<int64_t>(rng_.Below(1'000'000 * plan_.back_ms_max));
  return false;
}

// The incarnation ends: by itself, by kill, or with the machine.
void World::EndData() {
  if (data_->is_loaded()) data_ended_at_ = now_;
  const bool is_power_lost = rng_.Chance(plan_.power_percent);
  report_.power_losses += is_power_lost;
  data_->Close(is_power_lost);
  report_.checkpoints = data_->checkpoints();
  report_.tails_lost = data_->tails_lost();
  report_.values_in_pieces = data_->values_in_pieces();
}

std::vector<server::SessionImage> World::Sessions() {
  std::vector<server::SessionImage> all;
  for (const auto& engine : server_->engines) {
    for (server::SessionImage& image : engine->SessionImages()) all.push_back(std::move(image));
  }
  return all;
}

// As the server's other threads do.
void World::RunDuties() {
  server_->polling = true;  // a sync may let others go on
  if (plan_.durability == Plan::Durability::kAsync && rng_.Chance(5)) data_->Sync();
  if (!is_in_checkpoint_ && (now_ >= duties_at_ || rng_.Chance(1))) {
    duties_at_ = now_ + 100'000'000;
    data_->RunDuties();
  }
  server_->polling = false;
}

// Between two steps of a checkpoint, which holds no lock.
void World::RunCheckpointStep() {
  if (server_ == nullptr || depth_ >= 2 || calm_ || !rng_.Chance(30)) return;
  server_->polling = false;
  is_in_checkpoint_ = true;
  ++depth_;  // no READ stalls, which may end the server
  for (uint64_t turns = 1 + rng_.Below(20); turns > 0; --turns) {
    PassTime();
    PollServer();
    TakeTurn(ChooseClient());
  }
  --depth_;
  is_in_checkpoint_ = false;
  server_->polling = true;
}

void World::TellOfRestart(int64_t from) {
  actor_->Restarted(from);
  for (const ReportedChange& change : data_->unanswered()) actor_->LostUnanswered(change);
  const auto server_time_ns = static_cast<uint64_t>(absl::ToUnixNanos(ServerTime()));
  for (const auto& [key, lost] : data_->lost()) actor_->Restored(from, key, lost, server_time_ns);
}

}  // namespace osprey
