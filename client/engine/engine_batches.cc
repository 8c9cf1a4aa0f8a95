// The engine's side of blocking GETs (client/read/shm_fast_path.h, client/read/get_batches.h):
// their start, and the operations for those that READs alone do not answer.

#include <algorithm>
#include <cassert>
#include <utility>

#include "client/engine/engine.h"

namespace osprey::client {

size_t Engine::StartGets(absl::Span<const absl::string_view> keys, absl::StatusOr<Value>* answers,
                         absl::Time deadline, absl::Time now, size_t& unanswered) {
  assert(!polling_ && "a callback may not call a blocking operation");
  if (closed_ || in_flight_ >= operations_max_) return 0;
  const size_t count = std::min(
      {keys.size(), static_cast<size_t>(operations_max_ - in_flight_), GetBatches::kGetsMax});
  const bool ready = connection_->ready();
  const bool grouped = ready && groups_.HasRoom(ReadSource(), count);
  // The caller's own READs use up the limit, and will end.
  if (ready && !grouped && unanswered > 0) return 0;
  size_t begun = 0;
  for (size_t i = 0; i < count; ++i) {
    if (absl::Status status = CheckKeyAlone(keys[i]); !status.ok()) {
      answers[i] = std::move(status);
      continue;
    }
    const absl::Time begun_at = report_.TakesTime() ? ReadClock() : absl::InfinitePast();
    starting_[begun++] = {keys[i], &answers[i], begun_at};
  }
  if (begun > 0 && ready) begun = AnswerMapped(ReadSource(), {starting_.data(), begun}, deadline);
  if (begun == 0) return count;
  in_flight_ += static_cast<int>(begun);
  unanswered += begun;
  next_deadline_ = std::min(next_deadline_, deadline);
  const GroupedCall call = {&unanswered, deadline};
  const absl::Span<const GroupedGet> all(starting_.data(), begun);
  if (grouped) {
    groups_.Begin(ReadSource(), connection_->maps(), call, all, std::max(now, polled_at_), *this);
  } else {
    for (const GroupedGet& grouped_get : all) Restart(call, grouped_get);
  }
  return count;
}

// Answers the GETs that it finds in a mapped region. Returns the number of the others, which come
// first.
size_t Engine::AnswerMapped(const ReadBatches::Source& source, absl::Span<GroupedGet> gets,
                            absl::Time deadline) {
  const rdma::Bytes region = transport_->View(source.connection, source.region);
  if (region.empty()) return gets.size();
  const size_t left = mapped_.Answer(source, region, connection_->maps(), gets, deadline, *this);
  ended_ += gets.size() - left;
  return left;
}

// The operation counts as in flight already.
GetOperation& Engine::OperationOf(const GroupedCall& call, const GroupedGet& grouped) {
  GetOperation& get = NewGet();
  get.Start(grouped.key, /*want_value=*/true, call.deadline,
            [answer = grouped.answer, unanswered = call.unanswered](absl::StatusOr<Value> value) {
              *answer = std::move(value);
              --*unanswered;
            });
  get.TakeTime(grouped.begun_at);
  return get;
}

void Engine::Continue(const GroupedCall& call, const GroupedGet& grouped,
                      std::unique_ptr<CachedLookup>& lookup, const CachedLookup::Step& step) {
  GetOperation& get = OperationOf(call, grouped);
  get.TakeOver(lookup, step, ItemReadBytesMax());
  Place(get, polled_at_);
}

void Engine::Restart(const GroupedCall& call, const GroupedGet& grouped) {
  new_.PushBack(OperationOf(call, grouped));
}

void Engine::Answered(size_t count) {
  in_flight_ -= static_cast<int>(count);
  ended_ += count;
}

void Engine::Timed(absl::Time begun_at) { report_.Lasted(ReadClock() - begun_at); }

index::ServerTimeBounds Engine::ClockSince(absl::Time posted) {
  clock_used_until_ = polled_at_ + ServerClock::kAgeMax();
  return TimeSince(posted);
}

}  // namespace osprey::client
