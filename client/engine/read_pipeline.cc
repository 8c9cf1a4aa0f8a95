#include "client/engine/read_pipeline.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "client/common/errors.h"
#include "index/layout/layout.h"

namespace osprey::client {

namespace {

bool KeyMayBe(absl::string_view key) { return !key.empty() && key.size() <= index::kKeyBytesMax; }

}  // namespace

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
      get_batches_(link.reads, link.read_buffers, link.get_context),
      scans_(link.reads, link.read_buffers, link.counters, link.lease) {}

// --- Blocking GETs -------------------------------------------------------------------------------

size_t ReadPipeline::StartGets(absl::Span<const absl::string_view> keys,
                               absl::StatusOr<Value>* answers, absl::Time deadline, absl::Time now,
                               size_t& unanswered) {
  const size_t count = std::min(keys.size(), GetBatches::kGetsMax);
  // Without a lease all are operations, which go by message.
  const bool ready = link_.connection->ready() && link_.lease.Begin();
  if (ready && link_.lease.in_cluster()) link_.lease.PostRead(link_.source, now);
  const bool batched = ready && get_batches_.Open(link_.source, count);
  // The caller's own READs use up the limit, and will end.
  if (ready && !batched && unanswered > 0) return 0;
  size_t begun = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!KeyMayBe(keys[i])) {
      answers[i] = CheckKeyAlone(keys[i]);
      continue;
    }
    const absl::Time begun_at = link_.report.TakesTime() ? link_.ReadClock() : absl::InfinitePast();
    starting_[begun++] = {keys[i], &answers[i], begun_at};
  }
  if (ready && mapped_.available()) begun = AnswerMapped({starting_.data(), begun}, deadline);
  if (begun == 0) return count;
  operations_.in_flight += static_cast<int>(begun);
  unanswered += begun;
  operations_.next_deadline = std::min(operations_.next_deadline, deadline);
  const BatchCall call = {&unanswered, deadline};
  if (batched) {
    for (size_t i = 0; i < begun; ++i) get_batches_.Add(link_.connection->maps(), starting_[i]);
    get_batches_.Begin(link_.source, call, std::max(now, link_.polled_at), *this);
  } else {
    for (size_t i = 0; i < begun; ++i) Restart(call, starting_[i]);
  }
  return count;
}

bool ReadPipeline::GetOne(absl::string_view key, absl::StatusOr<Value>& answer, absl::Time deadline,
                          absl::Time now, size_t& unanswered) {
  ServerConnection& connection = *link_.connection;
  if (!connection.ready() || connection.probing() || link_.reads.count() > 0 ||
      mapped_.available() || !KeyMayBe(key) || !link_.lease.Begin())
    return false;
  const absl::Time begun_at = link_.report.TakesTime() ? link_.ReadClock() : absl::InfinitePast();
  rdma::Transport::ReadsDone done;
  const GetBatches::One one =
      get_batches_.GetOne(link_.source, connection.maps(), {key, &answer, begun_at},
                          {&unanswered, deadline}, now, done);
  if (one == GetBatches::One::kNotBegun) return false;
  if (one == GetBatches::One::kAnswered) {
    connection.NoteActivity(now);
    ++operations_.ended;
    ++link_.counters.gets;
    if (link_.IsLate(deadline)) {
      answer = DeadlineError();
    } else {
      ++(answer.ok() ? link_.counters.hits : link_.counters.misses);
    }
    if (begun_at != absl::InfinitePast()) Timed(begun_at);
    return true;
  }
  ++operations_.in_flight;
  ++unanswered;
  operations_.next_deadline = std::min(operations_.next_deadline, deadline);
  if (one == GetBatches::One::kEnded) {
    link_.Arrived();
    OnReadsDone(get_batches_.one(), done.status, now);
  }
  return true;
}

void ReadPipeline::BeginLookups(absl::Time now) {
  const uint64_t read_bytes_max = link_.item_read_bytes_max;
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
      get.is_measure() || link_.lease.Begin() ? get.Begin(read_bytes_max)
                                              : get.BeginByMessage(read_bytes_max);
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
  const ReadSource& source = link_.source;
  PostValueReads(source, now);
  scans_.Advance(source, link_.connection->maps(), now);
  while (!operations_.to_read.empty()) {
    if (batches_.Post(source, operations_.to_read, now) > 0) continue;
    auto& first = static_cast<GetOperation&>(*operations_.to_read.first());
    const uint32_t length = first.step_read().span.length;
    if (first.step_read().buffer.size() >= length || link_.read_buffers.CanEverHold(length))
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
    if (get->NeedsNothingOfBuffer()) get->step_read().buffer.Reset();
  }
  return link_.read_buffers.taken_bytes() < before;
}

void ReadPipeline::PostValueReads(const ReadSource& source, absl::Time now) {
  while (value_reads_.Post(source, operations_.fetching, now) == ValueReads::Posted::kNoBuffer) {
    operations_.End(static_cast<GetOperation&>(*operations_.fetching.first()),
                    link_.read_buffers.error());
  }
}

void ReadPipeline::OnReadsDone(ReadChainId id, const absl::Status& status, absl::Time now) {
  if (status.ok()) link_.connection->NoteActivity(now);
  const bool believe = status.ok() && link_.connection->answers_count();
  switch (id.user) {
    case ReadChainId::User::kBatch:
      get_batches_.Done(link_.source, id.number, believe, now, *this);
      break;
    case ReadChainId::User::kOperations:
      batches_.Done(id.number, [&](GetOperation& get) { OnLanded(get, believe, now); });
      break;
    case ReadChainId::User::kValue:
      OnPieceDone(id.number, believe, now);
      break;
    case ReadChainId::User::kScan:
      // An expired scan accepts no more READs.
      if (link_.options.coarse_clock) scans_.Expire(link_.options.coarse_clock(), DeadlineError());
      scans_.Done(id.number, believe, now,
                  [this](absl::Time posted) { return link_.TimeSince(posted); });
      break;
    case ReadChainId::User::kLease:
      link_.lease.Landed(believe);
      break;
    case ReadChainId::User::kConnection:
      assert(false);
  }
  if (!status.ok()) link_.connection->Fail(status);
}

void ReadPipeline::OnLanded(GetOperation& get, bool believe, absl::Time now) {
  if (!believe) {
    get.Restart();
  } else if (get.step_read().landed < get.step_read().span.length) {
    get.set_state(GetOperation::State::kToRead);
  } else {
    get.Landed([this](absl::Time posted) { return link_.TimeSince(posted); });
    if (get.used_clock()) link_.clock_used_until = now + ServerClock::kAgeMax();
  }
  operations_.Place(get, now);
}

void ReadPipeline::OnPieceDone(uint32_t number, bool believe, absl::Time now) {
  GetOperation* const get = value_reads_.Done(number, believe);
  if (get == nullptr) return;
  if (believe) {
    get->Fetched();
  } else {
    value_reads_.Abandon(*get);
    get->Restart();
  }
  operations_.Place(*get, now);
}

// Answers the GETs that it finds in a mapped region. Returns the number of the others, which come
// first.
size_t ReadPipeline::AnswerMapped(absl::Span<BatchedGet> gets, absl::Time deadline) {
  const rdma::Bytes region = mapped_.View(link_.source);
  if (region.empty()) return gets.size();
  const size_t left =
      mapped_.Answer(link_.source, region, link_.connection->maps(), gets, deadline, *this);
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
                            std::unique_ptr<CachedLookup>& lookup, const CachedLookup::Step& step,
                            absl::Time begun) {
  GetOperation& get = OperationOf(call, batched);
  get.TakeOver(lookup, step, link_.item_read_bytes_max, begun);
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
  // Before others, which may use up the limits.
  if (link_.lease.in_cluster()) link_.lease.Advance(link_.source, now);
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
