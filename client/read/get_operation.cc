#include "client/read/get_operation.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/common/errors.h"
#include "client/common/server_clock.h"
#include "client/read/get_trace.h"

namespace osprey::client {

namespace {

// A finished operation keeps a buffer up to this size, so that the next GET does not need the pool.
constexpr uint64_t kKeptBufferBytes = 1024;
// Items up to this length are READ whole and copied to the user's memory. A longer item lands there
// directly, for the cost of one more READ, of its head: as much as copying this many bytes.
constexpr uint64_t kCopiedBytesMax = 64 << 10;

// A value's memory is reserved in steps, each at most this multiple of the bytes that have landed.
// Growing it copies a third of the value at most.
constexpr uint64_t kReservedPerTaken = 4;

absl::string_view Text(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void Assign(std::string& to, absl::Span<const std::byte> bytes) {
  to.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

void GetOperation::Start(absl::string_view key, bool want_value, absl::Time deadline, Done done,
                         UserMemory target) {
  assert(state_ == State::kDone);
  StartOperation(key, deadline);
  want_value_ = want_value;
  target_ = std::move(target);
  special_ = kPlain;
  asks_length_ = false;
  used_clock_ = false;
  begun_at_ = absl::InfinitePast();
  times_asked_ = 0;
  done_ = std::move(done);
  state_ = State::kNew;
}

void GetOperation::StartMeasure(uint32_t bytes, absl::Time deadline, Client::GetCallback done) {
  Start("", /*want_value=*/false, deadline, std::move(done));
  special_ = bytes;
}

void GetOperation::StartTraced(absl::string_view key, absl::Time deadline, Client::GetCallback done,
                               GetTrace& trace) {
  Start(key, /*want_value=*/true, deadline, std::move(done));
  special_ = kTraced;
  trace_ = &trace;
}

void GetOperation::Prepare(PartitionMaps& maps) {
  assert(state_ == State::kNew);
  if (is_measure()) return;
  lookup_->Prepare(KeyStart(maps, key()), key(), ReadOptions(/*present_version=*/0));
}

void GetOperation::Prefetch() const {
  if (!is_measure()) lookup_->Prefetch();
}

void GetOperation::Begin(uint64_t read_bytes_max) {
  assert(state_ == State::kNew);
  if (special_ != kPlain && BeginSpecial()) return;
  read_bytes_max_ = read_bytes_max;
  lookup_begun_ = lease_.Begun();
  named_version_ = 0;
  Follow(lookup_->Begin());
}

// True: it is no GET, and has begun.
[[gnu::cold, gnu::noinline]] bool GetOperation::BeginSpecial() {
  if (is_measure()) {
    step_read_.span = {0, special_};
    step_read_.landed = 0;
    state_ = State::kToRead;
    return true;
  }
  absl::optional<GetTrace::LeaseTimes> lease;
  if (lease_.in_cluster()) lease = lease_.times();
  trace_->Begins({lookup_->start().hash.bits, lookup_->partition(), lookup_->offset()}, lease);
  return false;
}

void GetOperation::BeginByMessage(uint64_t read_bytes_max) {
  assert(state_ == State::kNew && !is_measure());
  read_bytes_max_ = read_bytes_max;
  ++counters_.unleased_gets;
  if (special_ == kTraced) trace_->BeginsByMessage();
  AskServer();
}

void GetOperation::TakeOver(std::unique_ptr<CachedLookup>& lookup, const CachedLookup::Step& step,
                            uint64_t read_bytes_max, absl::Time begun) {
  assert(state_ == State::kNew && special_ == kPlain);
  std::swap(lookup_, lookup);
  lookup_begun_ = begun;
  named_version_ = 0;
  lookup_->set_key(key());
  read_bytes_max_ = read_bytes_max;
  Follow(step);
}

index::LookupOptions GetOperation::ReadOptions(uint64_t present_version) const {
  index::LookupOptions options;
  options.present_version = present_version;
  options.want_value = want_value_;
  if (target_.data != nullptr) options.whole_read_bytes_max = kCopiedBytesMax;
  return options;
}

void GetOperation::Landed(TimeSince time_since) {
  assert(state_ == State::kReading && step_read_.landed == step_read_.span.length);
  if (special_ != kPlain) return LandedSpecial(time_since);
  Follow(lookup_->Resume({step_read_.buffer.data(), step_read_.span.length},
                         [&] { return time_since(step_read_.posted_at); }));
}

[[gnu::cold, gnu::noinline]] void GetOperation::LandedSpecial(TimeSince time_since) {
  if (is_measure()) return Answer(Value());
  const GetTrace::Read read = {step_read_.span,      lookup_->lookup().Reading(),
                               step_read_.posted_at, trace_->Now(),
                               lookup_->hint(),      lookup_->lookup().counters()};
  const CachedLookup::Step step =
      lookup_->Resume({step_read_.buffer.data(), step_read_.span.length},
                      [&] { return time_since(step_read_.posted_at); });
  trace_->Landed(read, step, lookup_->lookup());
  FollowTraced(step);
}

// As Follow; the trace gets what it leads to, but for the end (Count).
void GetOperation::FollowTraced(const index::Lookup::Step& step) {
  const uint64_t uncovered = counters_.uncovered_reads;
  Follow(step);
  if (counters_.uncovered_reads != uncovered) trace_->Uncovered();
  if (state_ == State::kPaused) trace_->Pauses(pause_.attempt, pause_.asks);
  if (state_ == State::kToAsk) trace_->Asks();
}

void GetOperation::BeginFetch(const index::Lookup::Step& step) {
  if (target_.data != nullptr && step.value_length > target_.size) {
    // Only the head says so, which no checksum has confirmed yet.
    asks_length_ = true;
    return AskServer();
  }
  fetch_ = ValueFetch();
  fetch_.offset = lookup_->offset() + step.offset;
  fetch_.length = step.value_length;
  fetched_.clear();
  state_ = State::kFetching;
  if (fetch_.length == 0) Fetched();
}

void GetOperation::TakePiece(rdma::Bytes piece) {
  assert(state_ == State::kFetching);
  lookup_->TakeValue(piece);
  fetch_.taken += piece.size();
  if (target_.data != nullptr) return;
  // The length comes from a head that no checksum covers yet, so memory is reserved by the bytes
  // that landed.
  if (fetched_.capacity() < fetch_.taken)
    fetched_.reserve(std::min(fetch_.length, kReservedPerTaken * fetch_.taken));
  fetched_.append(reinterpret_cast<const char*>(piece.data()), piece.size());
}

void GetOperation::Fetched() {
  assert(state_ == State::kFetching && fetch_.taken == fetch_.length && fetch_.count == 0);
  if (special_ == kPlain) return Follow(lookup_->FinishValue());
  const CachedLookup::Step step = lookup_->FinishValue();
  trace_->Fetched(fetch_.length, step);
  FollowTraced(step);
}

void GetOperation::Follow(const index::Lookup::Step& step) {
  switch (step.kind) {
    case index::Lookup::Kind::kRead:
      if (step.length > read_bytes_max_) break;
      step_read_.span = {lookup_->offset() + step.offset, step.length};
      step_read_.landed = 0;
      pause_.attempt = step.backoff;
      pause_.asks = false;
      state_ = step.backoff == 0 ? State::kToRead : State::kPaused;
      return;
    case index::Lookup::Kind::kReadValue:
      if (step.value_length > read_bytes_max_) break;
      // From here on the value is immutable, so later READs need not be covered.
      head_counts_ = lease_.Covers(lookup_begun_);
      if (!head_counts_ && named_version_ == 0) {
        lease_.CountRefused();
        break;
      }
      return BeginFetch(step);
    case index::Lookup::Kind::kHit:
      if (!Counts(step)) break;
      used_clock_ = step.expiry_ns != 0;
      if (!step.in_pieces) return Hit(step.value, step.version, TtlOf(step));
      length_ = fetch_.length;
      return Answer(Value{std::move(fetched_), step.version, TtlOf(step)});
    case index::Lookup::Kind::kMiss:
      if (!Counts(step)) break;
      return Answer(AbsentError());
    case index::Lookup::Kind::kAskServer:
      break;
  }
  AskServer();
}

// Whether a hit or a miss is an answer. Else a GET by message follows. A reply is as good as a lease
// for the version that it names: items never change.
bool GetOperation::Counts(const index::Lookup::Step& step) {
  const bool is_hit = step.kind == index::Lookup::Kind::kHit;
  if (is_hit && named_version_ != 0 && step.version == named_version_) return true;
  if (is_hit && step.in_pieces ? head_counts_ : lease_.Covers(lookup_begun_)) return true;
  lease_.CountRefused();
  return false;
}

// The whole value is available.
void GetOperation::Hit(absl::Span<const std::byte> bytes, uint64_t version, absl::Duration ttl) {
  Value value;
  value.version = version;
  value.ttl = ttl;
  if (target_.data != nullptr) {
    if (bytes.size() > target_.size) return Answer(BufferTooSmallError(bytes.size(), target_.size));
    if (!bytes.empty()) std::memcpy(target_.data, bytes.data(), bytes.size());
    length_ = bytes.size();
  } else if (want_value_) {
    Assign(value.bytes, bytes);
  }
  Answer(std::move(value));
}

// The first GET by message follows at once. If the server's slot fails again and again, they become
// rarer.
void GetOperation::AskServer() {
  lookup_->Drop();
  pause_.attempt = times_asked_++;
  pause_.asks = true;
  state_ = pause_.attempt == 0 ? State::kToAsk : State::kPaused;
}

void GetOperation::EndPause() {
  assert(state_ == State::kPaused);
  state_ = pause_.asks ? State::kToAsk : State::kToRead;
}

bool GetOperation::AppendTo(rdma::FrameBatch& frame, uint64_t session, uint64_t sequence) const {
  assert(state_ == State::kToAsk);
  rdma::GetBody body;
  body.key_length = static_cast<uint16_t>(key().size());
  body.want_value = want_value_ && !asks_length_ ? 1 : 0;
  const rdma::Message<rdma::GetBody> message(rdma::Opcode::kGet, session, sequence, body,
                                             key().size());
  if (!frame.Fits(message.bytes().size() + key().size())) return false;
  frame.Append({message.bytes(), {reinterpret_cast<const std::byte*>(key().data()), key().size()}});
  return true;
}

void GetOperation::Replied(const rdma::Reply& reply, uint64_t value_bytes_max) {
  assert(state_ == State::kAsking);
  const auto code = static_cast<absl::StatusCode>(reply.body.status);
  if (code == absl::StatusCode::kOk) lookup_->Wrote(reply.body.slot);
  if (code == absl::StatusCode::kNotFound) return Answer(AbsentError());
  if (code != absl::StatusCode::kOk) {
    return Answer(absl::Status(code, absl::StrCat("the server says: ", Text(reply.data))));
  }
  const uint64_t length = reply.body.value_length;
  if (!want_value_ || length == reply.data.size())
    return Hit(reply.data, reply.body.version, TtlOf(reply.body.expiry, reply.body.server_time));
  if (target_.data != nullptr && length > target_.size)
    return Answer(BufferTooSmallError(length, target_.size));
  if (std::exchange(asks_length_, false)) return Restart();  // the value would fit now
  if (length > value_bytes_max || reply.body.slot == 0) {
    return Answer(MakeError(Reason::kBadServer, "the server's reply to a GET is invalid"));
  }
  // The item stays in its place for a while: READ it there. The bytes are verified like any other
  // READ.
  lookup_begun_ = lease_.Begun();
  named_version_ = reply.body.version;
  Follow(lookup_->BeginAt(reply.body.slot, key(), ReadOptions(reply.body.version)));
}

void GetOperation::Restart() {
  assert(state_ != State::kDone);
  if (special_ == kTraced) trace_->Restarts();
  lookup_->Drop();
  state_ = State::kNew;
}

void GetOperation::End(absl::StatusOr<Value> answer, bool is_answered) {
  assert(state_ != State::kDone);
  lookup_->Drop();
  answer_ = std::move(answer);
  if (step_read_.buffer.size() > kKeptBufferBytes) step_read_.buffer.Reset();
  fetched_ = std::string();
  target_ = UserMemory();
  state_ = State::kDone;
  EndOperation(is_answered);
}

void GetOperation::Count() {
  if (special_ != kPlain) {
    if (is_measure()) return;
    trace_->Ends(answer_, /*by_message=*/times_asked_ > 0);
  }
  ++counters_.gets;
  if (answer_.ok()) ++counters_.hits;
  if (absl::IsNotFound(answer_.status())) ++counters_.misses;
}

void GetOperation::RunCallback() {
  assert(state_ == State::kDone);
  Count();
  // Moved out first: the callback may start this operation again.
  Done moved = std::move(done_);
  done_ = Client::GetCallback();
  absl::StatusOr<Value> answer = std::move(answer_);
  if (auto* get = std::get_if<Client::GetCallback>(&moved)) return (*get)(std::move(answer));
  if (auto* into = std::get_if<Client::GetIntoCallback>(&moved)) {
    if (answer.ok()) return (*into)(ValueInfo{length_, answer->version, answer->ttl});
    return (*into)(answer.status());
  }
  if (auto* ttl = std::get_if<Client::TtlCallback>(&moved)) {
    if (answer.ok()) return (*ttl)(answer->ttl);
    return (*ttl)(answer.status());
  }
  auto& exists = std::get<Client::ExistsCallback>(moved);
  if (answer.ok() || absl::IsNotFound(answer.status())) return exists(answer.ok());
  exists(answer.status());
}

}  // namespace osprey::client
