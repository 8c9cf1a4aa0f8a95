// The world of a simulation: virtual time, the network, the server's incarnations, the clients'
// engines, scheduling and faults. It is independent of the clients' operations (Actor).
//
// It has more methods and members than other classes: every turn, fault and restart draws from the one
// sequence of random numbers and advances the one clock. world_processes.cc starts and ends server and
// clients, world_data.cc has the data directory, world.cc the turns, faults and the end.
//
// Thread rule: one thread. Process-wide while it lives: the hooks of index/layout/test_hooks.h.

#ifndef OSPREY_TESTS_SIMULATION_WORLD_H_
#define OSPREY_TESTS_SIMULATION_WORLD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/common/registered_memory.h"
#include "client/engine/engine.h"
#include "index/layout/test_hooks.h"
#include "index/writer/table.h"
#include "server/engine/engine.h"
#include "server/engine/pollers.h"
#include "server/requests/tables.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/simulated_data.h"
#include "tests/simulation/simulation.h"
#include "tests/support/split_mix64.h"
#include "tests/support/transports/fake_transport.h"

namespace osprey {

inline constexpr uint64_t kSimulatedHashSeed = 42;

// A client's process.
struct SimulatedClient {
  // Memory of the application, in use by one operation at a time.
  struct Buffer {
    std::shared_ptr<client::RegisteredMemory> memory;
    bool busy = false;
  };

  int number = 0;
  std::shared_ptr<rdma::Domain> domain;
  std::vector<Buffer> buffers;
  std::unique_ptr<client::ClientEngine> engine;
  absl::Duration clock_offset;
  int64_t clock_ppm = 0;   // of its raw clock, relative to the server's
  int64_t slew_ppm = 0;    // of its monotonic clock, relative to its raw one
  int64_t tick = -1;       // of the kernel, by the monotonic clock, when …
  absl::Time coarse_time;  // … this was read
  int depth = 1;
  uint32_t turns_until_due = 0;  // of a slow one
  bool polling = false;
  bool closing = false;
  int64_t poll_began = 0;           // the last one
  int64_t previous_poll_began = 0;  // … and the one before
  int64_t asleep_until = 0;
  bool device_lost = false;
};

class World final : public index::StoreObserver {
 public:
  // The workload that runs in the world. Times are those of World::now.
  class Actor {
   public:
    virtual ~Actor() = default;
    // It is the client's turn: operations may be started.
    virtual void MayStart(SimulatedClient& client) = 0;
    // Its turn has ended: blocking callers check for their answers.
    virtual void HadTurn(SimulatedClient& client) = 0;
    virtual void ClientEnded(SimulatedClient& client) = 0;
    // All keys were lost at some instant from `from` to now.
    virtual void AllLost(int64_t from) = 0;
    // The server was, and its keys were not.
    virtual void Restarted(int64_t from) = 0;
    // A key's last changes were lost at some instant from `from` to now. Expiries are those of the
    // server's clock, which shows `server_time_ns` now.
    virtual void Restored(int64_t from, const std::string& key, const LostKey& lost,
                          uint64_t server_time_ns) = 0;
    // This change was lost. No client may have an answer to it.
    virtual void LostUnanswered(const ReportedChange& change) = 0;
    // The evictions of this turn did not happen.
    virtual void EvictionsUndone() = 0;
    // The server is about to evict this key, before its turn ends.
    virtual void Evicting(absl::string_view key) = 0;
    virtual void ServerTurnEnded() = 0;
    // A mutant: a write between the copies of a segment that splits and their publication.
    virtual void BetweenCopyAndPublish(index::Table& table) = 0;
  };

  World(const Plan& plan, SplitMix64& rng, SimulationReport& report);
  ~World() override;

  void Populate(Actor& actor);

  // Gives one party a turn, advances the time, and may inject a fault.
  void Step();
  // Ends the faults. Clients are awake, and every party gets turns soon.
  void CalmDown();
  // Ends clients, then sessions, and returns a description of what is left; "" for nothing.
  std::string End(bool table_is_empty);

  int64_t now() const { return now_; }
  // Every read of the clock returns a new time.
  int64_t Tick() { return ++now_; }
  // Server and client time, by the raw clocks of their machines (rdma/raw_clock.h).
  absl::Time ServerTime();
  absl::Time ClientTime(const SimulatedClient& client);
  // The client's time, read once in each tick of its kernel.
  absl::Time CoarseClientTime(SimulatedClient& client);

  SplitMix64& rng() { return rng_; }
  const Plan& plan() const { return plan_; }
  std::vector<std::unique_ptr<SimulatedClient>>& clients() { return clients_; }
  uint64_t incarnation() const { return server_ == nullptr ? 0 : server_->incarnation; }
  bool server_lives() const { return server_ != nullptr; }
  // The first violation of a rule that holds at any time; "": none.
  const std::string& wrong() const { return wrong_; }

  void BeforeStore() override {
    if (IsTime(stores_until_, plan_.stores_per_10k)) LetOthersGoOn();
  }
  void BeforeFirstWord() override {
    if (IsTime(first_words_until_, plan_.first_words_per_10k)) LetOthersGoOn();
  }
  void BeforeEviction(absl::string_view key) override { actor_->Evicting(key); }
  void BetweenCopyAndPublish(index::Table& table) override { actor_->BetweenCopyAndPublish(table); }

 private:
  // One incarnation of the server.
  struct Server {
    uint64_t incarnation = 0;
    std::unique_ptr<rdma::Domain> domain;
    std::unique_ptr<rdma::Memory> region, scratch;
    std::unique_ptr<server::Tables> tables;
    std::unique_ptr<server::Pollers> pollers;
    std::vector<std::unique_ptr<server::Engine>> engines;
    bool polling = false;
  };

  // Counts down to an event of this rate.
  bool IsTime(uint64_t& until, uint64_t per_10k) {
    if (until-- > 0) return false;
    until = rng_.Gap(per_10k);
    return true;
  }
  void BeforePiece();
  // False: its data directory's disk failed, and it comes back later.
  [[nodiscard]] bool StartServer();
  bool LoadData(Server& server);
  void StartEngines(Server& server);
  bool FailStart();
  void EndData();
  std::vector<server::SessionImage> Sessions();
  void TellOfRestart(int64_t from);
  void RunDuties();
  void RunCheckpointStep();
  bool HasFailed() const;
  void KillServer();
  void EndServer();  // it comes back later
  void StartClient(SimulatedClient& client);
  void PollServer();
  void PollClient(SimulatedClient& client);
  SimulatedClient& ChooseClient();
  void TakeTurn(SimulatedClient& client);
  void LetOthersGoOn();
  void Stall();
  void PassTime();
  void ReviveServer();
  void Fault();
  void HoldFrames();
  void ReleaseFrames(int64_t held_until);
  void LoseDevice(SimulatedClient& client);
  void Count(const SimulatedClient& client);
  std::string LeftOver(bool table_is_empty);

  const Plan plan_;
  SplitMix64& rng_;
  SimulationReport& report_;
  Actor* actor_ = nullptr;
  int64_t now_ = 1'000'000'000;
  bool populated_ = false;
  bool calm_ = false;
  std::string wrong_;

  std::unique_ptr<fake::Network> network_;
  rdma::AuthKey::Pointer key_;
  uint64_t lives_ = 0;
  int64_t server_slew_ppm_ = 0;          // of its monotonic clock, relative to its raw one
  std::unique_ptr<SimulatedData> data_;  // null: the server has no data directory
  int64_t duties_at_ = 0;
  bool is_in_checkpoint_ = false;
  std::unique_ptr<Server> server_;
  int64_t server_back_at_ = 0;
  int64_t server_clock_ns_ = 0;  // what the server's clock was set by
  int64_t data_ended_at_ = 0;    // when an incarnation with a data directory ended last
  int64_t server_asleep_until_ = 0;
  std::vector<std::pair<int64_t, rdma::ConnectionId>> held_;  // held frames, until this time
  rdma::ConnectionId haunted_ = rdma::ConnectionId::kNone;
  std::vector<std::unique_ptr<SimulatedClient>> clients_;
  int depth_ = 0;  // of turns within turns
  uint64_t pieces_until_ = 0;
  uint64_t stalls_until_ = 0;
  uint64_t stores_until_ = 0;
  uint64_t first_words_until_ = 0;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_WORLD_H_
