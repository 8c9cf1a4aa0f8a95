#include "client/engine/read_pipeline.h"

#include <algorithm>
#include <utility>

#include "client/common/errors.h"
#include "index/layout/layout.h"

namespace osprey::client {

absl::Status CheckKeyAlone(absl::string_view key) {
  if (key.empty()) return EmptyKeyError();
  if (key.size() > index::kKeyBytesMax) return KeyTooLongError(key.size(), index::kKeyBytesMax);
  return absl::OkStatus();
}

ReadPipeline::ReadPipeline(ServerLink& link, Operations& operations, ReadBatches& batches,
                           ValueReads& value_reads)
    : link_(link),
      operations_(operations),
      batches_(batches),
      value_reads_(value_reads),
      mapped_(link.transport->mapped_reads(), link.read_buffers, link.get_context),
      get_batches_(*link.transport, link.read_buffers, link.get_context),
      scans_(*link.transport, link.read_buffers, link.counters) {}

// --- Blocking GETs -------------------------------------------------------------------------------

size_t ReadPipeline::StartGets(absl::Span<const absl::string_view> keys,
                               absl::StatusOr<Value>* answers, absl::Time deadline, absl::Time now,
                               size_t& unanswered) {
  const size_t count = std::min(keys.size(), GetBatches::kGetsMax);
  const bool ready = link_.connection->ready();
  const bool batched = ready && get_batches_.HasRoom(link_.ReadSource(), count);
  // The caller's own READs use up the limit, and will end.
  if (ready && !batched && unanswered > 0) return 0;
  size_t begun = 0;
  for (size_t i = 0; i < count; ++i) {
    if (absl::Status status = CheckKeyAlone(keys[i]); !status.ok()) {
      answers[i] = std::move(status);
      continue;
    }
    const absl::Time begun_at = link_.report.TakesTime() ? link_.ReadClock() : absl::InfinitePast();
    starting_[begun++] = {keys[i], &answers[i], begun_at};
  }
  if (begun > 0 && ready)
    begun = AnswerMapped(link_.ReadSource(), {starting_.data(), begun}, deadline);
  if (begun == 0) return count;
  operations_.in_flight += static_cast<int>(begun);
  unanswered += begun;
  operations_.next_deadline = std::min(operations_.next_deadline, deadline);
  const BatchCall call = {&unanswered, deadline};
  const absl::Span<const BatchedGet> all(starting_.data(), begun);
  if (batched) {
    get_batches_.Begin(link_.ReadSource(), link_.connection->maps(), call, all,
                       std::max(now, link_.polled_at), *this);
  } else {
    for (const BatchedGet& batched_get : all) Restart(call, batched_get);
  }
  return count;
}

void ReadPipeline::BeginLookups(absl::Time now) {
  const uint64_t read_bytes_max = link_.ItemReadBytesMax();
  while (!operations_.new_gets.empty()) {
    // Lookups are prepared in small batches: their cache lines are prefetched together and stay
    // until they are used.
    constexpr int kPreparedMax = 32;
    int prepared = 0;
    for (Operation* next = operations_.new_gets.first(); next != nullptr && prepared < kPreparedMax;
         ++prepared) {
      auto& get = static_cast<GetOperation&>(*next);
      get.Prepare(link_.connection->maps());
      next = OperationQueue::Next(*next);
      // (Prefetching does not help a single lookup.)
      if (prepared > 0 || next != nullptr) get.Prefetch();
    }
    for (; prepared > 0; --prepared) {
      auto& get = static_cast<GetOperation&>(*operations_.new_gets.first());
      get.Begin(read_bytes_max);
      operations_.Place(get, now);
    }
  }
}

void ReadPipeline::PostReads(absl::Time now) {
  PostReadsOfAll(now);
  // Operations that found no buffer try again with buffers that were not in use.
  if (link_.read_buffers.TakeRanOut() && ReclaimBuffers()) PostReadsOfAll(now);
}

void ReadPipeline::PostReadsOfAll(absl::Time now) {
  const ReadBatches::Source source = link_.ReadSource();
  PostValueReads(source, now);
  scans_.Advance(source, link_.connection->maps(), now);
  while (!operations_.to_read.empty()) {
    if (batches_.Post(source, operations_.to_read, now) > 0) continue;
    auto& first = static_cast<GetOperation&>(*operations_.to_read.first());
    const uint32_t length = first.read().length;
    if (first.buffer().size() >= length || link_.read_buffers.CanEverHold(length))
      return;  // its turn will come
    operations_.End(first, link_.read_buffers.error());
  }
}

// GETs keep their buffers from READ to READ, and short ones from operation to operation. Together
// they may hold the whole pool. Then a GET that needs a longer buffer would never get one.
bool ReadPipeline::ReclaimBuffers() {
  const uint64_t before = link_.read_buffers.taken_bytes();
  mapped_.ReleaseBuffer();
  get_batches_.ReleaseBuffers();
  for (const std::unique_ptr<GetOperation>& get : operations_.gets) {
    if (get->NeedsNothingOfBuffer()) get->buffer().Reset();
  }
  return link_.read_buffers.taken_bytes() < before;
}

void ReadPipeline::PostValueReads(const ReadBatches::Source& source, absl::Time now) {
  while (value_reads_.Post(source, operations_.fetching, now) == ValueReads::Posted::kNoBuffer) {
    operations_.End(static_cast<GetOperation&>(*operations_.fetching.first()),
                    link_.read_buffers.error());
  }
}

void ReadPipeline::OnReadsDone(const rdma::Event& event, absl::Time now) {
  if (event.status.ok()) link_.connection->NoteActivity(now);
  const bool believe = event.status.ok() && link_.connection->answers_count();
  if (GetBatches::Owns(event.cookie)) return OnGetBatchDone(event, believe, now);
  if (ValueReads::Owns(event.cookie)) return OnPieceDone(event, believe, now);
  if (Scans::Owns(event.cookie)) {
    // An expired scan accepts no more READs.
    if (link_.options.coarse_clock) scans_.Expire(link_.options.coarse_clock(), DeadlineError());
    scans_.Done(event.cookie, believe, now,
                [this](absl::Time posted) { return link_.TimeSince(posted); });
    if (!event.status.ok()) link_.connection->Fail(event.status);
    return;
  }
  batches_.Done(event.cookie, now, [&](GetOperation& get) {
    if (!believe) {
      get.Restart();
    } else if (get.landed() < get.read().length) {
      get.set_state(GetOperation::State::kToRead);
    } else {
      get.Landed([this](absl::Time posted) { return link_.TimeSince(posted); });
      if (get.used_clock()) link_.clock_used_until = now + ServerClock::kAgeMax();
    }
    operations_.Place(get, now);
  });
  if (!event.status.ok()) link_.connection->Fail(event.status);
}

void ReadPipeline::OnGetBatchDone(const rdma::Event& event, bool believe, absl::Time now) {
  get_batches_.Done(link_.ReadSource(), event.cookie, believe, now, *this);
  if (!event.status.ok()) link_.connection->Fail(event.status);
}

void ReadPipeline::OnPieceDone(const rdma::Event& event, bool believe, absl::Time now) {
  if (GetOperation* get = value_reads_.Done(event.cookie, believe, now); get != nullptr) {
    if (believe) {
      get->Fetched();
    } else {
      value_reads_.Abandon(*get);
      get->Restart();
    }
    operations_.Place(*get, now);
  }
  if (!event.status.ok()) link_.connection->Fail(event.status);
}

// READs end in the order in which they were posted. So the end of any READ is progress for all, the
// connection's own included.
absl::Time ReadPipeline::ReadsStuckSince() const {
  if (outstanding_reads() == 0) return absl::InfiniteFuture();
  return std::max({read_ended_at_, batches_.progress_at(), get_batches_.progress_at(),
                   value_reads_.progress_at(), scans_.progress_at()});
}

// Answers the GETs that it finds in a mapped region. Returns the number of the others, which come
// first.
size_t ReadPipeline::AnswerMapped(const ReadBatches::Source& source, absl::Span<BatchedGet> gets,
                                  absl::Time deadline) {
  const rdma::Bytes region = mapped_.View(source);
  if (region.empty()) return gets.size();
  const size_t left =
      mapped_.Answer(source, region, link_.connection->maps(), gets, deadline, *this);
  operations_.ended += gets.size() - left;
  return left;
}

// The operation counts as in flight already.
GetOperation& ReadPipeline::OperationOf(const BatchCall& call, const BatchedGet& batched) {
  GetOperation& get = operations_.NewGet();
  get.Start(batched.key, /*want_value=*/true, call.deadline,
            [answer = batched.answer, unanswered = call.unanswered](absl::StatusOr<Value> value) {
              *answer = std::move(value);
              --*unanswered;
            });
  get.TakeTime(batched.begun_at);
  return get;
}

void ReadPipeline::Continue(const BatchCall& call, const BatchedGet& batched,
                            std::unique_ptr<CachedLookup>& lookup, const CachedLookup::Step& step) {
  GetOperation& get = OperationOf(call, batched);
  get.TakeOver(lookup, step, link_.ItemReadBytesMax());
  operations_.Place(get, link_.polled_at);
}

void ReadPipeline::Restart(const BatchCall& call, const BatchedGet& batched) {
  operations_.new_gets.PushBack(OperationOf(call, batched));
}

void ReadPipeline::Answered(size_t count) {
  operations_.in_flight -= static_cast<int>(count);
  operations_.ended += count;
}

void ReadPipeline::Timed(absl::Time begun_at) { link_.report.Lasted(link_.ReadClock() - begun_at); }

index::ServerTimeBounds ReadPipeline::ClockSince(absl::Time posted) {
  link_.clock_used_until = link_.polled_at + ServerClock::kAgeMax();
  return link_.TimeSince(posted);
}

void ReadPipeline::PostAll(absl::Time now) {
  if (!operations_.new_gets.empty()) BeginLookups(now);
  if (!operations_.to_read.empty() || !operations_.fetching.empty() || !scans_.idle())
    PostReads(now);
}

void ReadPipeline::Expire(absl::Time now, const absl::Status& error) {
  get_batches_.Expire(now, error, *this);
  scans_.Expire(now, error);
}

void ReadPipeline::EndAll(const absl::Status& error) {
  get_batches_.Expire(absl::InfiniteFuture(), error, *this);
  scans_.EndAll(error);
}

absl::Time ReadPipeline::NextDeadline() const {
  return std::min(get_batches_.NextDeadline(), scans_.NextDeadline());
}

}  // namespace osprey::client
