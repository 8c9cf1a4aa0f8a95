#include "client/read/scans.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/common/errors.h"
#include "rdma/wire/wire.h"

namespace osprey::client {

namespace {

// The pauses of a scan after a torn record, and after a place that it gave up.
constexpr absl::Duration kPauseFirst = absl::Microseconds(4);
constexpr absl::Duration kGivenUpPauseFirst = absl::Milliseconds(1);
constexpr int kPauseDoublingsMax = 6;
// A pause after READs that no lease covers. Usually there is none then, and the scan waits for it.
constexpr absl::Duration kUncoveredPause = absl::Milliseconds(5);

// "s" and the shard (2 hexadecimal digits), but not for shard 0; then, but not at the shard's
// beginning: dataset (16 hexadecimal digits), partition (2), position (7), depth (2), home (2), and from_hash
// (16), at which the home is divided
constexpr size_t kShardDigits = 2;
static_assert(rdma::kShardsMax <= 1 << 4 * kShardDigits);
constexpr size_t kDatasetDigits = 16;
constexpr size_t kPartitionDigits = 2;
static_assert(index::kPartitionsMax <= 1 << 4 * kPartitionDigits);
constexpr size_t kPositionDigits = 7;
constexpr size_t kDepthDigits = 2;
constexpr size_t kHomeDigits = 2;
constexpr size_t kHashDigits = 16;

absl::Status BadCursor() {
  return MakeError(Reason::kBadCursor,
                   "this is no cursor of a scan: use that of an earlier page, or \"\" to begin");
}

}  // namespace

std::string ScanPlace::Text() const {
  if (at_end()) return "";
  std::string text = shard == 0 ? "" : absl::StrFormat("s%02x", shard);
  if (dataset == 0) return text;
  absl::StrAppendFormat(&text, "%016x%02x%07x%02x%02x", dataset, partition, cursor.position,
                        cursor.depth, cursor.home);
  if (cursor.from_hash != 0) absl::StrAppendFormat(&text, "%016x", cursor.from_hash);
  return text;
}

absl::StatusOr<ScanPlace> ScanPlace::Parse(absl::string_view text) {
  ScanPlace place;
  if (text.empty()) return place;
  const absl::string_view whole = text;
  uint64_t depth = 0;
  uint64_t home = 0;
  const auto take = [&text](size_t digits, auto& number) {
    if (text.size() < digits || !absl::SimpleHexAtoi(text.substr(0, digits), &number)) return false;
    text.remove_prefix(digits);
    return true;
  };
  if (absl::ConsumePrefix(&text, "s")) {
    if (!take(kShardDigits, place.shard) || place.shard >= rdma::kShardsMax) return BadCursor();
    if (text.empty() && place.Text() == whole) return place;
  }
  if (!take(kDatasetDigits, place.dataset) || !take(kPartitionDigits, place.partition) ||
      !take(kPositionDigits, place.cursor.position) || !take(kDepthDigits, depth) ||
      !take(kHomeDigits, home) || (!text.empty() && !take(kHashDigits, place.cursor.from_hash)) ||
      !text.empty() || place.dataset == 0 || place.partition >= index::kPartitionsMax ||
      place.at_end() || depth > index::kDirectoryDepthMax || home >= index::kHomesPerSegment) {
    return BadCursor();
  }
  place.cursor.depth = static_cast<uint32_t>(depth);
  place.cursor.home = static_cast<uint32_t>(home);
  const uint64_t hash = place.cursor.from_hash;
  if (hash != 0 && index::KeyHash{hash}.home() != home) return BadCursor();
  // The parser also accepts a sign or "0x", which our numbers never have.
  return place.Text() == whole ? absl::StatusOr<ScanPlace>(place) : BadCursor();
}

void Scans::Start(Request request) {
  if (free_.empty()) {
    free_.push_back(operations_.size());
    operations_.push_back(std::make_unique<Operation>());
  }
  Operation& operation = *operations_[free_.back()];
  free_.pop_back();
  operation.found = Found();
  operation.found.next = request.from;
  operation.request = std::move(request);
  operation.pauses = 0;
  operation.expired = false;
  operation.state = State::kNew;
}

void Scans::Advance(const ReadSource& source, PartitionMaps& maps, absl::Time now) {
  waits_for_lease_ = !idle() && !lease_.Begin();
  if (waits_for_lease_) return;
  for (const std::unique_ptr<Operation>& operation : operations_) {
    if (operation->state == State::kPaused && now >= operation->pause_end) {
      operation->state = operation->scan.has_value() ? State::kReading : State::kNew;
    }
    // READs of an earlier connection may still land in the buffer.
    if (operation->state == State::kNew && operation->chains == 0) Begin(*operation, maps);
  }
  // Until no scan has a READ to post, or a limit is reached.
  for (size_t passed = 0; passed < operations_.size();) {
    const Posted posted = Post(turn_, source, now);
    if (posted == Posted::kCut) return;
    passed = posted == Posted::kTurn ? 0 : passed + 1;
    turn_ = (turn_ + 1) % operations_.size();
  }
}

void Scans::Begin(Operation& operation, PartitionMaps& maps) {
  ScanPlace& next = operation.found.next;
  if (next.dataset != 0 && next.dataset != maps.dataset()) {
    if (operation.request.from.dataset != 0) {
      return End(operation, MakeError(Reason::kStaleCursor,
                                      "the server was started again since this scan began, and its "
                                      "keys are others: start the scan again"));
    }
    operation.found = Found();
    next.shard = operation.request.from.shard;
  }
  next.dataset = maps.dataset();
  if (next.partition >= maps.count()) return End(operation, BadCursor());
  MappedPartition& partition = maps.at(next.partition);
  operation.partition_offset = partition.offset;
  operation.partitions = maps.count();
  index::ScanOptions options;
  options.prefix = operation.request.prefix;
  options.entries_max = operation.request.limit - operation.found.count;
  options.want_values = operation.request.values;
  options.count_only = operation.request.count_only;
  operation.begun = lease_.Begun();
  operation.scan.emplace(partition.map, next.cursor, options);
  operation.state = State::kReading;
  Follow(operation, operation.scan->Start(), absl::InfinitePast());
}

void Scans::Follow(Operation& operation, index::Scan::Step step, absl::Time now) {
  operation.step = step;
  operation.next_read = 0;
  operation.next_byte = 0;
  operation.landing = 0;
  switch (step.kind) {
    case index::Scan::Kind::kRead:
      if (step.backoff > 0) Pause(operation, step.backoff, now);
      return;
    case index::Scan::Kind::kDone:
      TakeOut(operation);
      if (operation.found.count >= operation.request.limit || operation.found.next.at_end())
        return End(operation, std::move(operation.found));
      operation.scan.reset();
      operation.state = State::kNew;  // the next partition
      return;
    case index::Scan::Kind::kGiveUp:
      TakeOut(operation);
      operation.scan.reset();
      // Each pause is longer; the deadline ends the scan.
      operation.state = State::kPaused;
      operation.pause_end =
          now + kGivenUpPauseFirst * (1 << std::min(operation.pauses++, kPauseDoublingsMax));
      return;
  }
}

void Scans::Pause(Operation& operation, int attempt, absl::Time now) {
  operation.state = State::kPaused;
  operation.pause_end = now + kPauseFirst * (1 << std::min(attempt - 1, kPauseDoublingsMax));
}

// Moves the scan's results to the answer, and its cursor behind them.
void Scans::TakeOut(Operation& operation) {
  std::vector<index::ScanEntry>& entries = operation.scan->entries();
  std::move(entries.begin(), entries.end(), std::back_inserter(operation.found.entries));
  entries.clear();
  operation.found.count += operation.scan->count();
  ScanPlace& next = operation.found.next;
  next.cursor = operation.scan->cursor();
  if (next.cursor.at_end() && next.partition + 1 < operation.partitions) {
    ++next.partition;
    next.cursor = index::ScanCursor();
  }
}

// Takes a buffer in which the step fits. False: there is none now, or the scan has failed for lack
// of one.
bool Scans::TakeBuffer(Operation& operation) {
  if (operation.buffer.size() >= operation.step.bytes) return true;
  operation.buffer.Reset();
  operation.buffer = buffers_.Take(operation.step.bytes);
  if (operation.buffer.valid()) return true;
  if (!buffers_.CanEverHold(operation.step.bytes)) End(operation, buffers_.error());
  return false;
}

// Posts one more chain of the step.
Scans::Posted Scans::Post(size_t index, const ReadSource& source, absl::Time now) {
  Operation& operation = *operations_[index];
  if (operation.state != State::kReading || operation.chains == kChainsMax) return Posted::kNothing;
  const absl::Span<const index::ReadSpan> reads = operation.step.reads;
  if (operation.next_read == reads.size() || !TakeBuffer(operation)) return Posted::kNothing;
  const size_t all_room = reads_.Room(source);
  if (all_room <= source.reads_left) return Posted::kCut;
  const size_t room = std::min(all_room - source.reads_left, kChainReadsMax);
  size_t next_read = operation.next_read;
  uint32_t next_byte = operation.next_byte;
  uint64_t landing = operation.landing;
  chain_.clear();
  while (next_read < reads.size() && chain_.size() < room) {
    const index::ReadSpan& span = reads[next_read];
    const uint32_t bytes = std::min(span.length - next_byte, source.read_bytes_max);
    rdma::ReadRequest read;
    read.remote_address =
        source.region.address + operation.partition_offset + span.offset + next_byte;
    read.remote_key = source.region.key;
    read.segments[0] = {operation.buffer.data() + landing, bytes, &operation.buffer.memory()};
    chain_.push_back(read);
    landing += bytes;
    next_byte += bytes;
    if (next_byte < span.length) continue;
    ++next_read;
    next_byte = 0;
  }
  // The connection has just ended: its last event follows.
  const ReadChainId id = {ReadChainId::User::kScan, static_cast<uint32_t>(index)};
  if (!reads_.Post(source, chain_, id, now).ok()) return Posted::kCut;
  counters_.scan_reads += chain_.size();
  if (operation.next_read == 0 && operation.next_byte == 0) operation.posted_at = now;
  ++operation.chains;
  operation.next_read = next_read;
  operation.next_byte = next_byte;
  operation.landing = landing;
  const bool whole = chain_.size() == kChainReadsMax || next_read == reads.size();
  return whole ? Posted::kTurn : Posted::kCut;
}

void Scans::Done(uint32_t number, bool believe, absl::Time now, TimeSince time_since) {
  Operation& operation = *operations_[number];
  assert(operation.chains > 0);
  --operation.chains;
  if (operation.state == State::kDone) {
    // The scan is answered, and its callback has run or is about to.
    if (operation.chains > 0) return;
    operation.buffer.Reset();
    if (operation.request.done == nullptr) free_.push_back(number);
    return;
  }
  if (operation.state != State::kReading) return;
  if (!believe) {
    TakeOut(operation);
    operation.scan.reset();
    operation.state = State::kNew;
    return;
  }
  if (operation.chains > 0 || operation.next_read < operation.step.reads.size()) return;
  if (!lease_.Covers(operation.begun)) {
    ++counters_.uncovered_reads;
    TakeOut(operation);
    operation.scan.reset();
    operation.lacked_time = false;
    operation.state = State::kPaused;
    operation.pause_end = now + kUncoveredPause;
    return;
  }
  const index::ServerTimeBounds time = time_since(operation.posted_at);
  operation.lacked_time = time.latest_ns == UINT64_MAX;
  if (!operation.lacked_time) operation.found.now_ns = time.latest_ns;
  Follow(operation, operation.scan->Resume({operation.buffer.data(), operation.step.bytes}, time),
         now);
}

void Scans::OnLost() {
  for (const std::unique_ptr<Operation>& operation : operations_) {
    if (operation->state == State::kDone) continue;
    if (operation->scan.has_value()) TakeOut(*operation);
    operation->scan.reset();
    operation->state = State::kNew;
  }
}

void Scans::Expire(absl::Time now, const absl::Status& error) {
  for (const std::unique_ptr<Operation>& operation : operations_) {
    if (operation->state == State::kDone || now < operation->request.deadline) continue;
    if (operation->scan.has_value()) TakeOut(*operation);
    Found& found = operation->found;
    const ScanPlace& from = operation->request.from;
    operation->expired = true;
    const bool moved =
        found.next.dataset != 0 && (found.next.partition != from.partition ||
                                    found.next.cursor.position != from.cursor.position ||
                                    found.next.cursor.home != from.cursor.home ||
                                    found.next.cursor.from_hash != from.cursor.from_hash);
    // A page may be short; a count must be complete.
    if (moved && !operation->request.count_only) {
      End(*operation, std::move(found));
    } else {
      End(*operation, error);
    }
  }
}

void Scans::EndAll(const absl::Status& error) {
  for (const std::unique_ptr<Operation>& operation : operations_) {
    if (operation->state != State::kDone) End(*operation, error);
  }
}

void Scans::End(Operation& operation, absl::StatusOr<Found> answer) {
  operation.answer = std::move(answer);
  operation.scan.reset();
  operation.state = State::kDone;
  if (operation.chains == 0) operation.buffer.Reset();
  for (size_t i = 0; i < operations_.size(); ++i) {
    if (operations_[i].get() == &operation) done_.push_back(i);
  }
}

void Scans::RunCallback(absl::FunctionRef<bool(absl::Time deadline)> is_late,
                        const absl::Status& late) {
  const size_t index = done_.back();
  done_.pop_back();
  Operation& operation = *operations_[index];
  // Moved out first: the callback may start this operation again.
  auto done = std::exchange(operation.request.done, nullptr);
  absl::StatusOr<Found> answer = std::move(operation.answer);
  if (!operation.expired && answer.ok() && is_late(operation.request.deadline)) answer = late;
  if (operation.chains == 0) free_.push_back(index);
  done(std::move(answer));
}

absl::Time Scans::NextDeadline() const {
  absl::Time deadline = absl::InfiniteFuture();
  for (const std::unique_ptr<Operation>& operation : operations_) {
    if (operation->state != State::kDone)
      deadline = std::min(deadline, operation->request.deadline);
  }
  return deadline;
}

bool Scans::wants_time() const {
  return std::any_of(operations_.begin(), operations_.end(), [](const auto& operation) {
    return operation->state == State::kPaused && !operation->scan.has_value() &&
           operation->lacked_time;
  });
}

absl::Time Scans::NextTimer() const {
  absl::Time timer = absl::InfiniteFuture();
  for (const std::unique_ptr<Operation>& operation : operations_) {
    if (operation->state == State::kPaused) timer = std::min(timer, operation->pause_end);
  }
  return timer;
}

}  // namespace osprey::client
