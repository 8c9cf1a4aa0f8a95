#include "client/engine/operations.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rdma/errors.h"

namespace osprey::client {
namespace {

// The first pause before a torn record is READ again. A write of a small item takes well below a
// microsecond, one of a large item tens. The last pause leaves a preempted writer some time before
// the attempts are used up.
constexpr absl::Duration kTornPauseFirst = absl::Microseconds(1);
constexpr int kTornPauseDoublingsMax = 6;
// The first pause before another GET by message for a key whose item cannot be READ.
constexpr absl::Duration kAskPauseFirst = absl::Milliseconds(1);
constexpr int kAskPauseDoublingsMax = 6;

}  // namespace

Operations::Operations(ServerLink& link, ReadBatches& batches, ValueReads& value_reads)
    : link_(link),
      batches_(batches),
      value_reads_(value_reads),
      random_(static_cast<std::minstd_rand::result_type>(link.options.connection.seed)) {}

GetOperation& Operations::NewGet() {
  if (free_gets.empty()) {
    gets.push_back(std::make_unique<GetOperation>(link_.get_context));
    free_gets.push_back(gets.back().get());
  }
  GetOperation& get = *free_gets.back();
  free_gets.pop_back();
  return get;
}

MessageOperation& Operations::NewMessage() {
  if (free_messages.empty()) {
    messages.push_back(std::make_unique<MessageOperation>(link_.counters));
    free_messages.push_back(messages.back().get());
  }
  MessageOperation& message = *free_messages.back();
  free_messages.pop_back();
  return message;
}

absl::StatusOr<MessageOperation*> Operations::NewMessage(absl::string_view value) {
  MessageOperation& message = NewMessage();
  Buffer& buffer = message.value();
  if (buffer.size() < value.size()) {
    buffer.Reset();
    buffer = link_.value_buffers.Take(value.size());
    if (!buffer.valid()) {
      // Ended messages keep short buffers.
      for (MessageOperation* const free : free_messages) free->value().Reset();
      buffer = link_.value_buffers.Take(value.size());
    }
    if (!buffer.valid()) {
      free_messages.push_back(&message);
      return link_.value_buffers.error();
    }
  }
  if (!value.empty()) std::memcpy(buffer.data(), value.data(), value.size());
  return &message;
}

void Operations::Started(Operation& operation) {
  ++in_flight;
  next_deadline = std::min(next_deadline, operation.deadline());
}

void Operations::Started(GetOperation& get) {
  if (link_.report.TakesTime()) get.TakeTime(link_.ReadClock());
  new_gets.PushBack(get);
  Started(static_cast<Operation&>(get));
}

void Operations::Defer(absl::AnyInvocable<void()> callback) {
  deferred.push_back(std::move(callback));
  ++in_flight;
}

void Operations::Place(GetOperation& get, absl::Time now) {
  OperationQueue::Remove(get);
  switch (get.state()) {
    case GetOperation::State::kNew:
      return new_gets.PushBack(get);
    case GetOperation::State::kToRead:
      return to_read.PushBack(get);
    case GetOperation::State::kFetching:
      return fetching.PushBack(get);
    case GetOperation::State::kPaused: {
      const bool asks = get.pause().asks;
      const int doublings =
          std::min(get.pause().attempt - 1, asks ? kAskPauseDoublingsMax : kTornPauseDoublingsMax);
      const absl::Duration pause = (asks ? kAskPauseFirst : kTornPauseFirst) * (1 << doublings);
      get.pause().end = now + pause * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
      next_pause_end = std::min(next_pause_end, get.pause().end);
      return paused.PushBack(get);
    }
    case GetOperation::State::kToAsk:
      return to_send.PushBack(get);
    case GetOperation::State::kDone:
      return done.PushBack(get);
    case GetOperation::State::kReading:
    case GetOperation::State::kAsking:
      return;
  }
}

void Operations::Place(MessageOperation& message) {
  OperationQueue::Remove(message);
  switch (message.state()) {
    case MessageOperation::State::kToSend:
      return to_send.PushBack(message);
    case MessageOperation::State::kSent:
      return;
    case MessageOperation::State::kDone:
      return done.PushBack(message);
  }
}

void Operations::EndPauses(absl::Time now) {
  if (now < next_pause_end) return;
  next_pause_end = absl::InfiniteFuture();
  for (Operation* next = paused.first(); next != nullptr;) {
    auto& get = static_cast<GetOperation&>(*next);
    next = OperationQueue::Next(*next);
    if (now < get.pause().end) {
      next_pause_end = std::min(next_pause_end, get.pause().end);
      continue;
    }
    get.EndPause();
    Place(get, now);
  }
}

void Operations::End(GetOperation& get, absl::Status error) {
  if (get.state() == GetOperation::State::kReading) batches_.Abandon(get);
  if (get.state() == GetOperation::State::kFetching) value_reads_.Abandon(get);
  if (get.sequence() != 0) link_.session.Abandon(get, Buffer());
  get.Finish(std::move(error));
  OperationQueue::Remove(get);
  done.PushBack(get);
}

void Operations::End(MessageOperation& message, const absl::Status& error) {
  if (message.state() == MessageOperation::State::kSent) {
    link_.session.Abandon(message, message.by_rendezvous() ? std::move(message.value()) : Buffer());
  } else if (message.sequence() != 0) {
    // Its connection is gone: no answer will come, and no READ of its value.
    link_.session.Remove(message.sequence());
  }
  message.Finish(error);
  Place(message);
}

void Operations::End(Operation& operation, const absl::Status& error) {
  if (operation.type() == Operation::Type::kGet)
    return End(static_cast<GetOperation&>(operation), error);
  End(static_cast<MessageOperation&>(operation), error);
}

void Operations::EndDrained() {
  const auto end = [this](Operation& operation) {
    if (!operation.active() || operation.last_error().ok()) return;
    const absl::Status error = operation.last_error();
    End(operation, error);
  };
  for (const std::unique_ptr<GetOperation>& get : gets) end(*get);
  for (const std::unique_ptr<MessageOperation>& message : messages) end(*message);
}

bool Operations::IsInUserMemory(const Operation& operation) {
  if (operation.type() == Operation::Type::kGet)
    return static_cast<const GetOperation&>(operation).reads_in_user_memory() > 0;
  const auto& message = static_cast<const MessageOperation&>(operation);
  return message.state() == MessageOperation::State::kSent && message.by_rendezvous() &&
         message.has_source();
}

void Operations::FailAfterDrain(Operation& operation, const absl::Status& error) {
  if (!IsInUserMemory(operation)) return End(operation, error);
  operation.set_last_error(error);
  link_.connection->Fail(rdma::PeerGoneError("READs in memory of the user were late"));
}

}  // namespace osprey::client
