// Bounds one connection's work in one turn, so that the others have their turns. A Batch of the
// most expensive requests, or many frames at once, wait for turns of their own, in order.
//
// Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_CONNECTION_TURN_BUDGET_H_
#define OSPREY_SERVER_ENGINE_CONNECTION_TURN_BUDGET_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "rdma/wire/protocol.h"
#include "server/engine/connection/shared.h"
#include "server/requests/requests.h"
#include "server/requests/sessions.h"

namespace osprey::server {

// Frames that may wait for a turn.
inline constexpr size_t kBacklogMax = 2 * kRequestsMax;

class TurnBudget {
 public:
  // The least cost of a request.
  static constexpr uint64_t kRequestCost = 1;

  explicit TurnBudget(Shared& shared) : shared_(shared) {}
  TurnBudget(const TurnBudget&) = delete;
  TurnBudget& operator=(const TurnBudget&) = delete;

  // The cost of a request, on top of the work that the tables report (Table::effort).
  static uint64_t CostOf(const rdma::FrameHeader& header, rdma::FrameBytes frame);
  // The same of a request on a key.
  static uint64_t CostOfKeyed(rdma::FrameBytes frame) {
    return kRequestCost + frame.size() / kBytesPerCost;
  }

  // Begins this turn, unless it has begun.
  void Enter();
  uint64_t spent() const { return spent_; }
  // The connection has used up this turn.
  bool used_up() const { return spent_ >= shared_.turn_cost_max; }
  // It will be, with the batched requests.
  bool WillBeUsedUp() const { return spent_ + batched_cost_ >= shared_.turn_cost_max; }
  // Begins this turn. True if it will be used up, or a further request would overtake waiting ones.
  bool IsOver();

  // Charges the tables' work since the last charge. Otherwise the next request of any client is
  // charged with it.
  void ChargeEffort() { spent_ += shared_.tables.TakeEffort(); }
  // Likewise, and the cost of a request that was executed.
  void ChargeRequest(uint64_t cost);

  // Requests in Shared::partition_batch: their cost is expected. Returns their number before.
  size_t AddBatched(uint64_t cost);
  void RemoveBatched(uint64_t cost);
  size_t batched() const { return batched_; }

  // Copies a request, which waits for a later turn. False: too many wait.
  bool Keep(rdma::FrameBytes frame);
  // Requests wait for a turn of their own.
  bool waiting() const { return !backlog_.empty(); }
  // The first of them. REQUIRES: waiting().
  std::string TakeWaiting();
  void DropWaiting() { backlog_.clear(); }

 private:
  // About a microsecond each.
  static constexpr uint64_t kBytesPerCost = 4096;  // parsed, stored, hashed
  static constexpr uint64_t kStatsCost = 64;
  static constexpr uint64_t kHintBytesPerCost = 64;  // 8 of them: each finds its key

  Shared& shared_;
  uint64_t turn_ = 0;                // for which spent_ counts
  uint64_t spent_ = 0;               // of Shared::turn_cost_max
  uint64_t greedy_turn_ = 0;         // the last in which it sent much
  size_t batched_ = 0;               // requests in Shared::partition_batch
  uint64_t batched_cost_ = 0;        // of these
  std::deque<std::string> backlog_;  // requests that wait for the next turn, each a whole frame
};

inline uint64_t TurnBudget::CostOf(const rdma::FrameHeader& header, rdma::FrameBytes frame) {
  uint64_t cost = CostOfKeyed(frame);
  if (header.opcode == static_cast<uint8_t>(rdma::Opcode::kFlush)) cost += kFlushKeysPerRequest;
  if (header.opcode == static_cast<uint8_t>(rdma::Opcode::kStats)) cost += kStatsCost;
  if (header.opcode == static_cast<uint8_t>(rdma::Opcode::kHints))
    cost += frame.size() / kHintBytesPerCost;
  return cost;
}

inline void TurnBudget::Enter() {
  if (turn_ == shared_.turn) return;
  turn_ = shared_.turn;
  spent_ = 0;
}

inline bool TurnBudget::IsOver() {
  Enter();
  return waiting() || WillBeUsedUp();
}

inline void TurnBudget::ChargeRequest(uint64_t cost) {
  spent_ += cost;
  ChargeEffort();
  if (spent_ >= kGreedyCost && greedy_turn_ != shared_.turn) {
    greedy_turn_ = shared_.turn;
    ++shared_.greedy;
  }
}

inline size_t TurnBudget::AddBatched(uint64_t cost) {
  batched_cost_ += cost;
  return batched_++;
}

inline void TurnBudget::RemoveBatched(uint64_t cost) {
  assert(batched_ > 0 && batched_cost_ >= cost);
  --batched_;
  batched_cost_ -= cost;
}

inline bool TurnBudget::Keep(rdma::FrameBytes frame) {
  // A client that respects requests_max never has more unanswered; hints come on top.
  if (backlog_.size() >= kBacklogMax) return false;
  ++shared_.counters.requests_deferred;
  backlog_.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
  return true;
}

inline std::string TurnBudget::TakeWaiting() {
  std::string frame = std::move(backlog_.front());
  backlog_.pop_front();
  return frame;
}

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_CONNECTION_TURN_BUDGET_H_
