#include "client/read/get_batches.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "client/common/errors.h"
#include "index/layout/item.h"
#include "index/reader/window_probe.h"

namespace osprey::client {

namespace {

// READs land at the start of CPU cache lines.
constexpr uint32_t kLandingStep = 64;

[[gnu::always_inline]] inline void SetHit(absl::StatusOr<Value>& answer, index::ByteSpan bytes,
                                          uint64_t version, absl::Duration ttl) {
  Value& value = answer.ok() ? *answer : answer.emplace();
  value.bytes.clear();
  value.bytes.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  value.version = version;
  value.ttl = ttl;
}

}  // namespace

GetBatches::Batch* GetBatches::NewBatch() {
  batches_.push_back(std::make_unique<Batch>());
  Batch& batch = *batches_.back();
  batch.number = static_cast<uint32_t>(batches_.size() - 1);
  for (Member& member : batch.members) member.lookup = std::make_unique<CachedLookup>(context_);
  free_.push_back(&batch);
  return &batch;
}

// Whether there is a buffer for a batch.
inline bool GetBatches::Open() {
  open_ = free_.empty() ? NewBatch() : free_.back();
  if (!open_->buffer.valid()) open_->buffer = buffers_.Take(kBufferBytes);
  return open_->buffer.valid();
}

bool GetBatches::Open(const ReadSource& source, size_t count) {
  assert(count >= 1 && count <= kGetsMax);
  return reads_.Room(source) >= count && Open();
}

// The READ with which most begin: of the item whose place is cached, or of the window. False: the
// map does not know the window, or the READ is a long one.
[[gnu::always_inline]] inline bool GetBatches::SetFirstRead(const ReadSource& source,
                                                            FirstRead& first) {
  const KeyStart& start = first.start;
  if (start.window.generation == 0) return false;
  first.hint = first.sets.Find(start.hash.fingerprint());
  index::ReadSpan read = {start.window.offset, index::kWindowBytes};
  if (first.hint != 0) {
    if (!index::IsReadWhole(first.hint)) return false;
    read = start.partition->map.ItemSpan(first.hint);
    if (read.length == 0) return false;
  }
  if (read.length > std::min(kReadBytesMax, source.read_bytes_max)) return false;
  context_.counters.hints += first.hint != 0;
  first.read = {start.partition->offset + read.offset, read.length};
  return true;
}

// Whether the bytes of the first READ are the answer.
[[gnu::always_inline]] inline bool GetBatches::AnswersAtOnce(const FirstRead& first,
                                                             index::ByteSpan bytes,
                                                             const BatchedGet& get) {
  const KeyStart& start = first.start;
  const index::DirectoryCache& map = start.partition->map;
  if (first.hint != 0) {
    const uint64_t offset = first.read.offset - start.partition->offset;
    const index::ItemReading item = index::ReadItem(bytes, {offset, map.incarnation()}, get.key);
    // An expiry must be compared with the server's clock.
    if (item.verdict != index::ItemVerdict::kLive || item.expiry_ns != 0) return false;
    first.sets.Worked(start.hash.fingerprint(), first.hint);
    context_.Hit(start, index::WordKind::kSlot, offset);
    SetHit(*get.answer, item.value, item.cas_version, absl::InfiniteDuration());
    return true;
  }
  const index::WindowProbe probe(bytes, map, start.window, {get.key, start.hash});
  if (probe.kind() == index::WindowProbe::Kind::kOther) return false;
  context_.Saw(start, probe.slots_seen());
  if (probe.kind() == index::WindowProbe::Kind::kMiss) {
    *get.answer = AbsentError();
    return true;
  }
  context_.Hit(start, index::WordKind::kInline, probe.line());
  SetHit(*get.answer, probe.item().value, probe.item().cas_version, absl::InfiniteDuration());
  return true;
}

inline void GetBatches::SetRequest(const ReadSource& source, const Batch& batch,
                                   const index::ReadSpan& read, std::byte* lands_at,
                                   rdma::ReadRequest& request) {
  request.remote_address = source.region.address + read.offset;
  request.remote_key = source.region.key;
  request.segments[0] = {lands_at, read.length, &batch.buffer.memory()};
}

void GetBatches::Begin(const ReadSource& source, const BatchCall& call, absl::Time now,
                       Owner& owner) {
  Batch& batch = *open_;
  free_.pop_back();
  batch.call = call;
  if (context_.lease.in_cluster()) batch.begun = context_.lease.Begun();
  const size_t count = std::exchange(batch.reading, 0);
  for (size_t i = 0; i < count; ++i) {
    Member& member = batch.members[i];
    member.sets = context_.cache.SetsOf(member.start.place());
    // (Prefetching does not help a single lookup.)
    if (count > 1) member.sets.Prefetch();
  }
  for (size_t i = 0; i < count; ++i) {
    Member& member = batch.members[i];
    member.stage = Stage::kFirst;
    if (SetFirstRead(source, member)) {
      KeepReading(batch, member);
      continue;
    }
    member.stage = Stage::kLooks;
    member.lookup->Prepare(member.start, member.get.key);
    Follow(source, batch, member, member.lookup->Begin(), owner);
  }
  Post(source, batch, now, owner);
}

GetBatches::One GetBatches::GetOne(const ReadSource& source, PartitionMaps& maps,
                                   const BatchedGet& get, const BatchCall& call, absl::Time now,
                                   rdma::Transport::ReadsDone& done) {
  if (!Open()) return One::kNotBegun;
  FirstRead first = {KeyStart(maps, get.key), {}, 0, {}};
  first.sets = context_.cache.SetsOf(first.start.place());
  if (!SetFirstRead(source, first)) return One::kNotBegun;
  std::byte* const landed = open_->buffer.data();
  SetRequest(source, *open_, first.read, landed, chain_[0]);
  const ReadsInFlight::Awaited read = reads_.PostAndAwait(source, chain_[0], one(), now, done);
  if (read == ReadsInFlight::Awaited::kNotPosted) return One::kNotBegun;
  ++context_.counters.reads;
  context_.counters.read_bytes += first.read.length;
  ReadLease& lease = context_.lease;
  const bool ended = read == ReadsInFlight::Awaited::kEnded;
  Stage stage = Stage::kFirst;
  if (ended && done.status.ok()) {
    lease.Arrived();
    if (lease.Covers(lease.Begun())) {
      if (AnswersAtOnce(first, {landed, first.read.length}, get)) return One::kAnswered;
      stage = Stage::kUnanswered;
    }
  }
  KeepOne(first, get, call, now);
  open_->members[0].stage = stage;
  return ended ? One::kEnded : One::kUnderWay;
}

[[gnu::noinline]] void GetBatches::KeepOne(const FirstRead& first, const BatchedGet& get,
                                           const BatchCall& call, absl::Time posted_at) {
  Batch& batch = *open_;
  free_.pop_back();
  batch.call = call;
  batch.begun = context_.lease.Begun();
  batch.posted_at = posted_at;
  batch.reading = 1;
  Member& member = batch.members[0];
  static_cast<FirstRead&>(member) = first;
  member.get = get;
  member.lands_at = batch.buffer.data();
}

// For a lookup without an answer: another READ of the batch, if that suffices and fits its buffer.
// Otherwise an operation.
void GetBatches::Follow(const ReadSource& source, Batch& batch, Member& member,
                        const CachedLookup::Step& step, Owner& owner) {
  const bool reads = step.kind == index::Lookup::Kind::kRead && step.backoff == 0 &&
                     step.length <= std::min(kReadBytesMax, source.read_bytes_max);
  if (!reads) {
    owner.Continue(batch.call, member.get, member.lookup, step, batch.begun);
    member.get.answer = nullptr;
    return;
  }
  member.read = {member.lookup->offset() + step.offset, step.length};
  KeepReading(batch, member);
}

// What its READs have found does not count: an operation sends a GET by message.
void GetBatches::Ask(Batch& batch, Member& member, Owner& owner) {
  context_.lease.CountRefused();
  if (member.stage != Stage::kLooks) member.lookup->Prepare(member.start, member.get.key);
  CachedLookup::Step step;
  step.kind = index::Lookup::Kind::kAskServer;
  owner.Continue(batch.call, member.get, member.lookup, step, batch.begun);
  member.get.answer = nullptr;
}

void GetBatches::KeepReading(Batch& batch, Member& member) {
  if (Member& place = batch.members[batch.reading++]; &place != &member) std::swap(place, member);
}

void GetBatches::Post(const ReadSource& source, Batch& batch, absl::Time now, Owner& owner) {
  if (batch.reading == 0) return Free(batch);
  std::byte* at = batch.buffer.data();
  uint64_t bytes = 0;
  for (size_t i = 0; i < batch.reading; ++i) {
    Member& member = batch.members[i];
    member.lands_at = at;
    SetRequest(source, batch, member.read, at, chain_[i]);
    at += (member.read.length + kLandingStep - 1) / kLandingStep * kLandingStep;
    bytes += member.read.length;
  }
  const absl::Span<const rdma::ReadRequest> chain(chain_.data(), batch.reading);
  // The connection has just ended.
  if (!reads_.Post(source, chain, {ReadChainId::User::kBatch, batch.number}, now).ok()) {
    Restart(batch, owner);
    return Free(batch);
  }
  context_.counters.reads += batch.reading;
  context_.counters.read_bytes += bytes;
  batch.posted_at = now;
}

void GetBatches::Done(const ReadSource& source, uint32_t number, bool believe, absl::Time now,
                      Owner& owner) {
  assert(number < batches_.size());
  Batch& batch = *batches_[number];
  if (!believe) {
    Restart(batch, owner);
    return Free(batch);
  }
  const auto clock = [&] { return owner.ClockSince(batch.posted_at); };
  const index::Lookup::TimeOfRead time(clock);
  const size_t landed = std::exchange(batch.reading, 0);
  const bool in_cluster = context_.lease.in_cluster();
  for (size_t i = 0; i < landed; ++i) {
    Member& member = batch.members[i];
    const index::ByteSpan bytes(member.lands_at, member.read.length);
    if (in_cluster && !context_.lease.Covers(batch.begun)) {
      Ask(batch, member, owner);
      continue;
    }
    if (member.stage == Stage::kFirst && AnswersAtOnce(member, bytes, member.get)) continue;
    const CachedLookup::Step step = Look(member, bytes, time);
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
  Post(source, batch, now, owner);
}

CachedLookup::Step GetBatches::Look(Member& member, index::ByteSpan bytes,
                                    index::Lookup::TimeOfRead time) {
  if (member.stage == Stage::kLooks) return member.lookup->Resume(bytes, time);
  member.stage = Stage::kLooks;
  member.lookup->Prepare(member.start, member.get.key);
  return member.lookup->BeginWith(member.hint, bytes, time);
}

bool GetBatches::Answers(const CachedLookup::Step& step, absl::StatusOr<Value>& answer) {
  if (step.kind == index::Lookup::Kind::kMiss) {
    answer = AbsentError();
    return true;
  }
  if (step.kind != index::Lookup::Kind::kHit) return false;
  SetHit(answer, step.value, step.version, TtlOf(step));
  return true;
}

void GetBatches::CountOut(Batch& batch, absl::Span<Member> answered, Owner& owner) {
  size_t count = 0;
  size_t hits = 0;
  for (Member& member : answered) {
    const BatchedGet& get = member.get;
    if (get.answer == nullptr) continue;
    if (member.stage == Stage::kLooks) member.lookup->Drop();
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
    if (batch.members[i].stage == Stage::kLooks) batch.members[i].lookup->Drop();
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
  for (Batch* batch : free_) batch->buffer.Reset();
}

}  // namespace osprey::client
