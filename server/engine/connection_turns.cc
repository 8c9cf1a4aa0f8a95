// Bounds one connection's work in one turn, so that the others have their turns. A Batch of the
// most expensive requests, or many frames at once, wait for turns of their own, in order.

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <string>
#include <utility>

#include "server/engine/connection.h"

namespace osprey::server {
namespace {

// About a microsecond each, on top of the work that the tables report (Table::effort).
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

// True if the connection has used up this turn, or the frame would overtake waiting ones.
bool Connection::TurnIsOver() {
  EnterTurn();
  return !backlog_.empty() || spent_ + batched_cost_ >= shared_.turn_cost_max;
}

// Executes the frame together with others if possible, else now.
void Connection::Take(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now) {
  if (TurnIsOver()) return Defer(frame, now);
  const absl::string_view key = BatchedBy(frame);
  if (key.empty()) {
    shared_.execute_batched(now);
    if (lifecycle_.closing()) return;
    // The batched requests may have cost more than expected.
    return TurnIsOver() ? Keep(frame) : Execute(header, frame, now);
  }
  if (batched_++ == 0) shared_.partition_batch.AddConnection(*this);
  batched_cost_ += CostOf(header, frame);
  const index::KeyHash hash = shared_.tables.HashOf(key);
  const uint32_t partition = shared_.tables.PartitionOf(hash);
  shared_.tables.Prefetch(partition, hash);
  shared_.partition_batch.Add({this, header, frame, hash, PartitionBatch::kNone}, partition);
  if (shared_.partition_batch.full()) shared_.execute_batched(now);
}

uint64_t Connection::ExecuteBatched(const PartitionBatch::Request& request, absl::Time now) {
  assert(batched_ > 0);
  --batched_;
  batched_cost_ -= CostOf(request.header, request.frame);
  if (lifecycle_.closing()) return kRequestCost;
  const uint64_t before = spent_;
  lifecycle_.set_locked(true);
  known_hash_ = &request.hash;
  const bool was_gathering = replies_.set_gathering(true);
  // The connection's other requests may have proved expensive.
  if (!backlog_.empty() || spent_ >= shared_.turn_cost_max) {
    Keep(request.frame);
  } else {
    Execute(request.header, request.frame, now);
  }
  replies_.set_gathering(was_gathering);
  known_hash_ = nullptr;
  lifecycle_.set_locked(false);
  return std::max(spent_ - before, kRequestCost);
}

void Connection::EndBatched(absl::Time now) {
  assert(batched_ == 0 && batched_cost_ == 0);
  lifecycle_.FinishClosing();
  if (lifecycle_.closing()) return;
  if (!replies_.gathering()) replies_.Flush(now);
}

void Connection::Execute(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now) {
  const uint64_t cost = CostOf(header, frame);
  TakeRequest(header, frame, now);
  spent_ += cost + shared_.tables.TakeEffort();
  if (spent_ >= kGreedyCost && greedy_turn_ != shared_.turn) {
    greedy_turn_ = shared_.turn;
    ++shared_.greedy;
  }
}

// Puts the frame off to a turn of its own. Batched requests are executed first: some of them may
// have to wait as well, and precede it.
void Connection::Defer(rdma::FrameBytes frame, absl::Time now) {
  if (batched_ > 0) shared_.execute_batched(now);
  Keep(frame);
}

// Copies the frame, which the transport keeps only until the next turn.
void Connection::Keep(rdma::FrameBytes frame) {
  if (lifecycle_.closing()) return;
  // A client that respects requests_max never has more unanswered; hints come on top.
  if (backlog_.size() >= kBacklogMax)
    return lifecycle_.Malformed("more requests unanswered than requests_max");
  ++shared_.counters.requests_deferred;
  backlog_.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
}

void Connection::Work(absl::Time now) {
  assert(busy());
  EnterTurn();
  if (awaits_room_) AdvanceRendezvous(now);
  if (!appends_.empty() && !lifecycle_.closing()) StepAppend(now);
  spent_ += shared_.tables.TakeEffort();
  WorkOffBacklog(now);
}

void Connection::WorkOffBacklog(absl::Time now) {
  if (backlog_.empty()) return;
  replies_.set_gathering(true);
  while (!backlog_.empty() && spent_ < shared_.turn_cost_max) {
    const std::string frame = std::move(backlog_.front());
    backlog_.pop_front();
    const rdma::FrameBytes bytes(reinterpret_cast<const std::byte*>(frame.data()), frame.size());
    Execute(rdma::ParseHeader(bytes).value(), bytes, now);
  }
  replies_.set_gathering(false);
  replies_.Flush(now);
  LeaveWhenAnswered(now);
}

}  // namespace osprey::server
