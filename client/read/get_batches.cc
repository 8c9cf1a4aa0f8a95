#include "client/read/get_batches.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "client/common/errors.h"

namespace osprey::client {

namespace {

// READs land at the start of CPU cache lines.
constexpr uint32_t kLandingStep = 64;

std::string TextOf(index::ByteSpan bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

bool GetBatches::HasRoom(const ReadBatches::Source& source, size_t count) {
  if (transport_.ReadRoom(source.connection) < count) return false;
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(batches_.size()));
    batches_.push_back(std::make_unique<Batch>());
    for (Member& member : batches_.back()->members)
      member.lookup = std::make_unique<CachedLookup>(context_);
  }
  Buffer& buffer = batches_[free_.back()]->buffer;
  if (!buffer.valid()) buffer = buffers_.Take(kGetsMax * kReadBytesMax);
  return buffer.valid();
}

void GetBatches::Begin(const ReadBatches::Source& source, PartitionMaps& maps,
                       const BatchCall& call, absl::Span<const BatchedGet> gets, absl::Time now,
                       Owner& owner) {
  assert(!gets.empty() && gets.size() <= kGetsMax && !free_.empty());
  const uint32_t number = free_.back();
  free_.pop_back();
  Batch& batch = *batches_[number];
  batch.call = call;
  for (size_t i = 0; i < gets.size(); ++i) {
    Member& member = batch.members[i];
    member.get = gets[i];
    member.lookup->Prepare(maps, member.get.key, {});
    // (Prefetching does not help a single lookup.)
    if (gets.size() > 1) member.lookup->Prefetch();
  }
  for (size_t i = 0; i < gets.size(); ++i) {
    Member& member = batch.members[i];
    Follow(source, batch, member, member.lookup->Begin(), owner);
  }
  Post(source, number, now, owner);
}

// For a lookup without an answer: another READ of the batch, if that suffices and fits its buffer.
// Otherwise an operation.
void GetBatches::Follow(const ReadBatches::Source& source, Batch& batch, Member& member,
                        const CachedLookup::Step& step, Owner& owner) {
  const bool reads = step.kind == index::Lookup::Kind::kRead && step.backoff == 0 &&
                     step.length <= std::min(kReadBytesMax, source.read_bytes_max);
  if (!reads) {
    owner.Continue(batch.call, member.get, member.lookup, step);
    member.get.answer = nullptr;
    return;
  }
  member.read = {member.lookup->offset() + step.offset, step.length};
  if (Member& place = batch.members[batch.reading++]; &place != &member) std::swap(place, member);
}

void GetBatches::Post(const ReadBatches::Source& source, uint32_t number, absl::Time now,
                      Owner& owner) {
  Batch& batch = *batches_[number];
  if (batch.reading == 0) return Free(number);
  std::byte* const buffer = batch.buffer.data();
  const rdma::Memory* const memory = &batch.buffer.memory();
  uint32_t at = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < batch.reading; ++i) {
    Member& member = batch.members[i];
    member.lands_at = at;
    rdma::ReadRequest& read = chain_[i];
    read.remote_address = source.region.address + member.read.offset;
    read.remote_key = source.region.key;
    read.segments[0] = {buffer + at, member.read.length, memory};
    at += (member.read.length + kLandingStep - 1) / kLandingStep * kLandingStep;
    bytes += member.read.length;
  }
  const absl::Span<const rdma::ReadRequest> chain(chain_.data(), batch.reading);
  // The connection has just ended.
  if (!transport_.PostReads(source.connection, chain, kCookieBit | number).ok()) {
    Restart(batch, owner);
    return Free(number);
  }
  context_.counters.reads += batch.reading;
  context_.counters.read_bytes += bytes;
  batch.posted_at = now;
  if (outstanding_++ == 0) progress_at_ = now;
}

void GetBatches::Done(const ReadBatches::Source& source, uint64_t cookie, bool believe,
                      absl::Time now, Owner& owner) {
  const auto number = static_cast<uint32_t>(cookie & ~kCookieBit);
  assert(number < batches_.size());
  --outstanding_;
  progress_at_ = now;
  Batch& batch = *batches_[number];
  if (!believe) {
    Restart(batch, owner);
    return Free(number);
  }
  const auto clock = [&] { return owner.ClockSince(batch.posted_at); };
  const index::Lookup::TimeOfRead time(clock);
  const size_t landed = std::exchange(batch.reading, 0);
  for (size_t i = 0; i < landed; ++i) {
    Member& member = batch.members[i];
    const index::ByteSpan bytes(batch.buffer.data() + member.lands_at, member.read.length);
    if (member.lookup->InlineProbes()) {
      if (const index::InlineProbe inline_probe = member.lookup->InlineProbe(bytes);
          inline_probe.hit()) {
        member.get.answer->emplace(Value{TextOf(inline_probe.value()), inline_probe.cas_version(),
                                         absl::InfiniteDuration()});
        continue;
      }
    }
    const CachedLookup::Step step = member.lookup->Resume(bytes, time);
    if (!Answers(step, *member.get.answer)) Follow(source, batch, member, step, owner);
  }
  if (batch.reading < landed) {
    const absl::Span<Member> answered(&batch.members[batch.reading], landed - batch.reading);
    if (owner.IsLate(batch.call.deadline)) {
      for (const Member& member : answered) {
        if (member.get.answer != nullptr) *member.get.answer = DeadlineError();
      }
    }
    CountOut(batch, answered, owner);
  }
  Post(source, number, now, owner);
}

bool GetBatches::Answers(const CachedLookup::Step& step, absl::StatusOr<Value>& answer) {
  if (step.kind == index::Lookup::Kind::kMiss) {
    answer = AbsentError();
    return true;
  }
  if (step.kind != index::Lookup::Kind::kHit) return false;
  answer.emplace(Value{TextOf(step.value), step.version, TtlOf(step)});
  return true;
}

// Counts out the answered members, except those that an operation continues.
void GetBatches::CountOut(Batch& batch, absl::Span<Member> answered, Owner& owner) {
  size_t count = 0;
  size_t hits = 0;
  for (Member& member : answered) {
    const BatchedGet& get = member.get;
    if (get.answer == nullptr) continue;
    member.lookup->Drop();
    ++count;
    if (get.answer->ok()) {
      ++hits;
    } else if (absl::IsNotFound(get.answer->status())) {
      ++context_.counters.misses;
    }
    if (get.begun_at != absl::InfinitePast()) owner.Timed(get.begun_at);
  }
  context_.counters.gets += count;
  context_.counters.hits += hits;
  *batch.call.unanswered -= count;
  owner.Answered(count);
}

void GetBatches::Restart(Batch& batch, Owner& owner) {
  for (size_t reading = std::exchange(batch.reading, 0), i = 0; i < reading; ++i) {
    batch.members[i].lookup->Drop();
    owner.Restart(batch.call, batch.members[i].get);
  }
}

void GetBatches::Expire(absl::Time now, const absl::Status& error, Owner& owner) {
  for (const std::unique_ptr<Batch>& batch : batches_) {
    if (batch->reading == 0 || now < batch->call.deadline) continue;
    const absl::Span<Member> late(batch->members.data(), std::exchange(batch->reading, 0));
    for (Member& member : late) *member.get.answer = error;
    CountOut(*batch, late, owner);
  }
}

absl::Time GetBatches::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const std::unique_ptr<Batch>& batch : batches_) {
    if (batch->reading > 0) next = std::min(next, batch->call.deadline);
  }
  return next;
}

void GetBatches::ReleaseBuffers() {
  for (uint32_t number : free_) batches_[number]->buffer.Reset();
}

}  // namespace osprey::client
