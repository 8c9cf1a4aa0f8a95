// What one connection may do in one turn, so that the others have theirs: a Batch of the dearest
// requests, or many frames at once, wait for turns of their own, in order.

#include <cassert>
#include <cstddef>
#include <string>
#include <utility>

#include "server/connection.h"

namespace osprey::server {
namespace {

// About a microsecond each, on top of what the tables say that they did (Table::effort).
constexpr uint64_t kRequestCost = 1;
constexpr uint64_t kBytesPerCost = 4096;  // parsed, stored, hashed
constexpr uint64_t kStatsCost = 64;
constexpr uint64_t kHintBytesPerCost = 64;  // 8 of them: each finds its key

uint64_t CostOf(const rdma::FrameHeader& header, rdma::FrameBytes frame) {
  uint64_t cost = kRequestCost + frame.size() / kBytesPerCost;
  if (header.opcode == static_cast<uint8_t>(rdma::Opcode::kFlush)) cost += kFlushKeysPerRequest;
  if (header.opcode == static_cast<uint8_t>(rdma::Opcode::kStats)) cost += kStatsCost;
  if (header.opcode == static_cast<uint8_t>(rdma::Opcode::kHints))
    cost += frame.size() / kHintBytesPerCost;
  return cost;
}

}  // namespace

void Connection::EnterTurn() {
  if (turn_ == shared_.turn) return;
  turn_ = shared_.turn;
  spent_ = 0;
}

// True when it has done what it may do in this turn, or would overtake what waits already.
bool Connection::TurnIsOver() {
  EnterTurn();
  return !backlog_.empty() || spent_ >= kTurnCostMax;
}

void Connection::Execute(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now) {
  const uint64_t cost = CostOf(header, frame);
  TakeRequest(header, frame, now);
  spent_ += cost + shared_.tables.TakeEffort();
}

// The frame is copied: it is the transport's until the next turn only.
void Connection::Defer(rdma::FrameBytes frame) {
  if (state_ == State::kClosing) return;
  // Who keeps to requests_max has never more than that unanswered; hints come on top.
  if (backlog_.size() >= kBacklogMax)
    return Malformed("more requests unanswered than requests_max");
  ++shared_.counters.requests_deferred;
  backlog_.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
}

void Connection::Work(absl::Time now) {
  assert(busy());
  turn_ = shared_.turn;
  spent_ = 0;
  if (awaits_room_) AdvanceRendezvous(now);
  if (!appends_.empty() && state_ != State::kClosing) StepAppend(now);
  spent_ += shared_.tables.TakeEffort();
  WorkOffBacklog(now);
}

void Connection::WorkOffBacklog(absl::Time now) {
  if (backlog_.empty()) return;
  in_batch_ = true;
  while (!backlog_.empty() && spent_ < kTurnCostMax) {
    const std::string frame = std::move(backlog_.front());
    backlog_.pop_front();
    const rdma::FrameBytes bytes(reinterpret_cast<const std::byte*>(frame.data()), frame.size());
    Execute(rdma::ParseHeader(bytes).value(), bytes, now);
  }
  in_batch_ = false;
  FlushOutbox(now);
  LeaveWhenAnswered(now);
}

}  // namespace osprey::server
