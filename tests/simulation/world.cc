#include "tests/simulation/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

// The largest rate difference of the raw clocks of two machines: 1000 ppm
// (client/common/server_clock.h).
constexpr int64_t kDriftPpmMax = 990;
// Slewed clocks run off by 5 to 10 %, as with adjtimex and time daemons.
constexpr int64_t kSlewPpmMin = 50'000;
constexpr int64_t kSlewPpmMax = 100'000;
constexpr int64_t kTickNs = 1'000'000;

int64_t DrawSlew(SplitMix64& rng) {
  const auto ppm = static_cast<int64_t>(rng.Below(kSlewPpmMax - kSlewPpmMin + 1)) + kSlewPpmMin;
  return rng.Chance(50) ? ppm : -ppm;
}

// The time of a clock that is faster by this rate than one that shows `now`.
int64_t Faster(int64_t now, int64_t ppm) { return now + now * ppm / 1'000'000; }

constexpr char kKeyBytes[] = "0123456789abcdef0123456789abcdef";

}  // namespace

World::World(const Plan& plan, SplitMix64& rng, SimulationReport& report)
    : plan_(plan), rng_(rng), report_(report) {
  fake::NetworkOptions network;
  network.seed = rng_.Next();
  network.read_piece_bytes = plan_.piece_bytes;
  network.shuffle_pieces = plan_.shuffle_pieces;
  network.read_bytes_max = plan_.read_bytes_max;
  network.replays_per_10k = plan_.replays_per_10k;
  network.has_views = plan_.has_views;
  network_ = std::make_unique<fake::Network>(network);
  network_->before_piece = [this](absl::Span<const std::byte>) { BeforePiece(); };
  switch (plan_.piece_bytes) {
    case 0:
      ++report_.whole;
      break;
    case 1:
      ++report_.of_1;
      break;
    case 8:
      ++report_.of_8;
      break;
    case 16:
      ++report_.of_16;
      break;
    default:
      ++report_.of_64;
  }
  if (plan_.needs_key) key_ = rdma::AuthKey::FromBytes(kKeyBytes).value();
  if (plan_.durability != Plan::Durability::kNone) {
    data_ = std::make_unique<SimulatedData>(
        plan_, rng_, [this] { RunCheckpointStep(); }, [this] { LetOthersGoOn(); },
        [this] { return now_; });
  }
  pieces_until_ = rng_.Gap(plan_.pieces_per_10k);
  stalls_until_ = rng_.Gap(plan_.stalls_per_10k);
  stores_until_ = rng_.Gap(plan_.stores_per_10k);
  first_words_until_ = rng_.Gap(plan_.first_words_per_10k);
#ifdef OSPREY_INDEX_TEST_HOOKS
  index::store_observer = this;
  index::merging_forced = index::low_runs_forced = plan_.merges;
  index::compaction_forced = plan_.moves;
  index::compaction_bytes_max = plan_.moves_bytes;
  index::whole_read_bytes_max = plan_.whole_read_bytes_max;
#endif
}

World::~World() {
  for (const auto& client : clients_) client->engine.reset();
#ifdef OSPREY_INDEX_TEST_HOOKS
  index::store_observer = nullptr;
  index::merging_forced = index::low_runs_forced = false;
  index::compaction_forced = false;
  index::compaction_bytes_max = 0;
  index::whole_read_bytes_max = 0;
#endif
}

void World::Populate(Actor& actor) {
  actor_ = &actor;
  SplitMix64 slews(
      SplitMix64(rng_)
          .Next());  // (other random numbers: so that the rest is what it would be without)
  server_slew_ppm_ = DrawSlew(slews);
  while (!StartServer() && wrong_.empty()) {
  }
  for (int i = 0; i < plan_.clients; ++i) {
    auto client = std::make_unique<SimulatedClient>();
    client->number = i;
    client->depth = 1 + static_cast<int>(rng_.Below(static_cast<uint64_t>(plan_.depth_max)));
    client->clock_offset = absl::Seconds(static_cast<int64_t>(rng_.Below(7200)) - 3600);
    client->clock_ppm = static_cast<int64_t>(rng_.Below(2 * kDriftPpmMax)) - kDriftPpmMax;
    client->slew_ppm = DrawSlew(slews);
    StartClient(*client);
    clients_.push_back(std::move(client));
  }
  populated_ = true;
}

absl::Time World::ServerTime() {
  int64_t now = Tick();
  if (index::IsMutant(index::Mutant::kServerClockSlewed)) now = Faster(now, server_slew_ppm_);
  return absl::FromUnixNanos(now + server_clock_ns_) + absl::Hours(400000);
}

absl::Time World::ClientTime(const SimulatedClient& client) {
  int64_t now = Faster(Tick(), client.clock_ppm);
  if (index::IsMutant(index::Mutant::kClientClockSlewed)) now = Faster(now, client.slew_ppm);
  return absl::FromUnixNanos(now) + client.clock_offset;
}

// As client::CoarseClock.
absl::Time World::CoarseClientTime(SimulatedClient& client) {
  const int64_t monotonic = Faster(Faster(now_, client.clock_ppm), client.slew_ppm);
  if (const int64_t tick = monotonic / kTickNs; tick != client.tick) {
    client.tick = tick;
    client.coarse_time = ClientTime(client);
  }
  return client.coarse_time;
}

// --- Turns ---------------------------------------------------------------------------------------

SimulatedClient& World::ChooseClient() {
  SimulatedClient& client = *clients_[rng_.Below(clients_.size())];
  if (client.number != 0 || plan_.slow_factor == 1 || calm_) return client;
  if (client.turns_until_due == 0) {
    client.turns_until_due = static_cast<uint32_t>(rng_.Below(2 * plan_.slow_factor));
    return client;
  }
  --client.turns_until_due;
  return *clients_[1 + rng_.Below(clients_.size() - 1)];
}

void World::TakeTurn(SimulatedClient& client) {
  if (!client.polling && !client.closing && now_ >= client.asleep_until) {
    // (Operations that it starts may READ at once, and others run meanwhile.)
    client.polling = true;
    actor_->MayStart(client);
    client.polling = false;
  }
  PollClient(client);
}

void World::BeforePiece() {
  if (IsTime(stalls_until_, plan_.stalls_per_10k)) return Stall();
  if (IsTime(pieces_until_, plan_.pieces_per_10k)) LetOthersGoOn();
}

// Within another party's step.
void World::LetOthersGoOn() {
  if (depth_ >= 2 || calm_ || !populated_) return;
  ++depth_;
  if (rng_.Chance(plan_.nested_server_percent)) PollServer();
  // Enough for whole operations, one after the other, between two stores.
  const uint64_t turns_max = rng_.Chance(plan_.long_nest_percent) ? 30 : 8;
  for (uint64_t turns = 1 + rng_.Below(turns_max); turns > 0; --turns) {
    if (plan_.nested_ns_max > 1) now_ += static_cast<int64_t>(rng_.Below(plan_.nested_ns_max));
    TakeTurn(ChooseClient());
    Tick();
  }
  --depth_;
}

// A READ waits long between two of its pieces, as if its second half were retransmitted. The world
// continues, and the server may die and come back.
void World::Stall() {
  if (depth_ >= 1 || calm_) return;
  ++depth_;
  ++report_.stalls;
  for (uint64_t turns = 1 + rng_.Below(plan_.stall_turns_max); turns > 0; --turns) {
    PassTime();
    if (server_ == nullptr || !server_->polling) {
      if (rng_.Below(1000) < plan_.faults_per_mille) Fault();
      ReviveServer();
    }
    if (rng_.Chance(60)) PollServer();
    TakeTurn(ChooseClient());
  }
  --depth_;
}

void World::PassTime() {
  const uint64_t kind = rng_.Below(1000);
  if (kind < 900) {
    now_ += 1 + static_cast<int64_t>(rng_.Below(plan_.step_ns_max));
  } else if (kind < 995 || calm_) {
    now_ += static_cast<int64_t>(rng_.Below(plan_.rare_step_ns_max));
  } else {
    now_ +=
        static_cast<int64_t>(rng_.Below(kind == 999 ? 20 * plan_.jump_ns_max : plan_.jump_ns_max));
  }
}

void World::ReviveServer() {
  if (server_ != nullptr || now_ < server_back_at_) return;
  const int64_t from = server_back_at_;
  if (!StartServer()) return;
  if (data_ == nullptr) return actor_->AllLost(from);
  TellOfRestart(from);
}

void World::Step() {
  PassTime();
  if (!calm_ && rng_.Below(1000) < plan_.faults_per_mille) Fault();
  if (!held_.empty()) ReleaseFrames(now_);
  ReviveServer();
  if (rng_.Chance(calm_ ? 50 : plan_.server_percent)) PollServer();
  if (HasFailed()) EndServer();
  SimulatedClient& client = ChooseClient();
  // As an application does after such an answer.
  if (client.device_lost && !client.closing && !client.polling) {
    client.closing = true;
    client.engine->Close();
  }
  if (!client.closing) return TakeTurn(client);
  PollClient(client);
  if (!client.engine->closed()) return;
  Count(client);
  actor_->ClientEnded(client);
  client.engine.reset();
  client.domain.reset();
  ++report_.clients_restarted;
  StartClient(client);
}

bool World::HasFailed() const {
  return server_ != nullptr &&
         std::any_of(server_->engines.begin(), server_->engines.end(),
                     [](const auto& engine) { return !engine->failure().ok(); });
}

// --- Faults --------------------------------------------------------------------------------------

void World::Fault() {
  SimulatedClient& client = *clients_[rng_.Below(clients_.size())];
  const rdma::ConnectionId id = client.engine->connection().id();
  if (plan_.deaths_percent != 0 && server_ != nullptr && rng_.Chance(plan_.deaths_percent))
    return EndServer();
  const bool connected = client.engine->connection().ready();
  switch (rng_.Below(13)) {
    case 0:
    case 1:
    case 2:
      report_.broken += connected;
      return network_->Break(id, rng_.Chance(50));
    case 3:
      report_.cut += connected;
      return network_->Cut(id);
    case 4:
      report_.reads_held += connected;
      return network_->HoldReads(id, true);
    case 5:
      return network_->HoldReads(id, false);
    case 6:
      report_.reads_failed += connected;
      return network_->FailNextReads(id, absl::UnavailableError("a READ failed"));
    case 7:
      client.asleep_until = now_ + 1'000'000 * static_cast<int64_t>(rng_.Below(3000));
      return;
    case 8:
      if (!plan_.clients_die || client.closing || client.polling) return;
      client.closing = true;
      return client.engine->Close();
    case 9:
      return HoldFrames();
    case 10:
      ++report_.naps;
      server_asleep_until_ =
          now_ + 1'000'000 * static_cast<int64_t>(rng_.Below(rng_.Chance(10) ? 4000 : 100));
      return;
    case 11:
      return LoseDevice(client);
    default:
      if (plan_.server_dies && server_ != nullptr) EndServer();
  }
}

void World::EndServer() {
  KillServer();
  server_back_at_ = now_ + static_cast<int64_t>(rng_.Below(1'000'000 * plan_.back_ms_max));
}

// Faults affect some connections to the server, or some to the client.
void World::HoldFrames() {
  for (const auto& client : clients_) {
    rdma::ConnectionId id = client->engine->connection().id();
    if (rng_.Chance(50)) id = network_->Peer(id);
    if (rng_.Chance(30)) continue;
    network_->HoldFrames(id, true);
    held_.emplace_back(now_ + 1'000'000 * static_cast<int64_t>(rng_.Below(100)), id);
  }
}

void World::ReleaseFrames(int64_t held_until) {
  const auto released = std::partition(held_.begin(), held_.end(),
                                       [&](const auto& held) { return held.first > held_until; });
  for (auto held = released; held != held_.end(); ++held) network_->HoldFrames(held->second, false);
  held_.erase(released, held_.end());
}

// A server ends when it notices this, and so does the process of a client.
void World::LoseDevice(SimulatedClient& client) {
  if (plan_.server_dies && server_ != nullptr && rng_.Chance(30)) {
    ++report_.devices_lost;
    return network_->LoseDevice("server");
  }
  if (!plan_.clients_die || client.closing) return;
  ++report_.devices_lost;
  client.device_lost = true;
  network_->LoseDevice(absl::StrCat("client", client.number));
}

void World::CalmDown() {
  calm_ = true;
  if (data_ != nullptr) data_->CalmDown();
  server_asleep_until_ = 0;
  ReleaseFrames(INT64_MAX);
  for (const auto& client : clients_) {
    client->asleep_until = std::min(client->asleep_until, now_);
    network_->HoldReads(client->engine->connection().id(), false);
  }
}

// --- The end -------------------------------------------------------------------------------------

void World::Count(const SimulatedClient& client) {
  const Counters& counters = client.engine->counters();
  report_.gets += counters.gets;
  report_.torn += counters.torn;
  report_.retries += counters.retries;
  report_.stale_hints += counters.stale_hints;
  report_.rpc_gets += counters.rpc_gets;
  report_.connects += counters.connects;
}

std::string World::End(bool table_is_empty) {
  calm_ = true;
  if (data_ != nullptr) data_->CalmDown();
  if (HasFailed()) EndServer();
  server_asleep_until_ = 0;
  ReleaseFrames(INT64_MAX);
  report_.haunted_reads += network_->haunted_reads();
  report_.replayed_reads += network_->replayed_reads();
  report_.changed_pieces += network_->changed_pieces();
  report_.held_frames += network_->held_frames();
#ifdef OSPREY_INDEX_TEST_HOOKS
  index::merging_forced = false;
  index::compaction_forced = false;
#endif
  for (const auto& client : clients_) {
    client->asleep_until = 0;
    if (!client->closing) client->engine->Close();
    for (int i = 0; i < 10000 && !client->engine->closed(); ++i) {
      now_ += 10'000'000;
      PollServer();
      PollClient(*client);
    }
    if (!client->engine->closed()) return "a client does not close";
    Count(*client);
    actor_->ClientEnded(*client);
    client->engine.reset();
  }
  ReviveServer();
  if (server_ == nullptr) return "";
  const std::string left_over = LeftOver(table_is_empty);
  KillServer();
  return left_over;
}

// State that must be gone after the time for which sessions are kept.
std::string World::LeftOver(bool table_is_empty) {
  constexpr int kTurns = 400;
  const int64_t step = absl::ToInt64Nanoseconds(server::kSessionKept()) * 3 / kTurns;
  for (int i = 0; i < kTurns; ++i) {
    now_ += step;
    for (const auto& engine : server_->engines) engine->Poll(ServerTime());
  }
  actor_->ServerTurnEnded();
  std::string text;
  // No client's timer runs any more, so the table does not free its last dead items. (Compaction
  // may leave some of its last moves.)
  for (uint32_t i = 0; i < plan_.partitions; ++i) {
    const server::LockedTable table = server_->tables->Lock(i);
    uint64_t least = UINT64_MAX;
    for (int turn = 0; turn < 1000 && least > 0; ++turn) {
      now_ += 10'000'000;
      table->CompactStep(ServerTime());
      least = std::min(least, table->stats().quarantine_bytes);
    }
    if (least != 0) absl::StrAppend(&text, least, " dead bytes are left; ");
  }
  for (const auto& engine : server_->engines) {
    if (engine->connections() != 0)
      absl::StrAppend(&text, engine->connections(), " connections are left; ");
    if (engine->sessions() != 0) absl::StrAppend(&text, engine->sessions(), " sessions are left; ");
  }
  if (network_->connections() != 0)
    absl::StrAppend(&text, network_->connections(), " ends of connections are left; ");
  const index::Table::Stats stats = server_->tables->stats();
  if (stats.expiring_keys != 0)
    absl::StrAppend(&text, stats.expiring_keys, " keys that have expired are left; ");
  if (table_is_empty && (stats.keys != 0 || stats.item_bytes != 0 || stats.value_bytes != 0))
    absl::StrAppend(&text, stats.keys, " keys, ", stats.item_bytes, " bytes of items are left; ");
  if (table_is_empty && stats.overflow_lines != 0)
    absl::StrAppend(&text, stats.overflow_lines, " overflow lines are left; ");
  return text;
}

}  // namespace osprey
