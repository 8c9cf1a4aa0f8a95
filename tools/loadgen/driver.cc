#include "tools/loadgen/driver.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey::loadgen {
namespace {

// The longest wait. After it the thread checks whether to stop, and reports the last second.
constexpr int64_t kWaitNsMax = 50'000'000;
constexpr int64_t kSecondNs = 1'000'000'000;

uint64_t Since(int64_t then_ns, int64_t now_ns) {
  return now_ns > then_ns ? static_cast<uint64_t>(now_ns - then_ns) : 0;
}

}  // namespace

uint64_t VersionsSeen::FloorOf(uint64_t key) const {
  const Seen& seen = seen_[key % kKeys];
  return seen.key == key ? seen.version : 0;
}

bool VersionsSeen::Note(uint64_t key, uint64_t version, uint64_t connects) {
  if (!IsOf(connects)) {
    connects_ = connects;
    std::fill(seen_.begin(), seen_.end(), Seen{});
    return false;
  }
  Seen& seen = seen_[key % kKeys];
  if (seen.key != key) {
    seen = {key, version};
  } else {
    seen.version = std::max(seen.version, version);
  }
  return true;
}

uint64_t PresentSecond::SecondOf(int64_t ns) const { return Since(start_ns_, ns) / kSecondNs; }

void PresentSecond::Reach(int64_t now_ns) {
  if (now_ns < start_ns_) return;
  const uint64_t second = SecondOf(std::min(now_ns, end_ns_));
  if (second == second_) return;
  Add();
  second_ = second;
}

void PresentSecond::Add() {
  if (latencies_.count() == 0) return;
  series_.Add(second_, latencies_);
  latencies_.Clear();
}

void PresentSecond::Close(int64_t last_ns) {
  second_ = std::min(second_, SecondOf(last_ns));
  Add();
}

Driver::Driver(const DriverOptions& options, const Workload& workload, SharedKeys& keys,
               Store& store, Clock& clock, RunState& state)
    : options_(options),
      workload_(workload),
      keys_(keys),
      store_(store),
      clock_(clock),
      state_(state),
      source_(options.phase, workload, keys, options.seed),
      records_(workload, options.serial, Mix64(options.seed)),
      slots_(options.depth),
      versions_(options.verify),
      last_start_ns_(options.start_ns),
      second_(state.series, options.start_ns, options.end_ns - 1) {
  ended_.last_ns = options.start_ns;
  assert(options.depth > 0);
  for (Token token = options.depth; token > 0; --token) free_.push_back(token - 1);
  store.set_listener(this);
}

void Driver::Run() {
  while (true) {
    const int64_t now_ns = clock_.NowNs();
    if (!before_ && now_ns >= options_.start_ns) before_ = store_.counters();
    second_.Reach(now_ns);
    const bool stop = state_.stop.load(std::memory_order_relaxed);
    if (now_ns >= options_.end_ns || stop) {
      ended_.stopped |= stop && MayStart() && now_ns < options_.end_ns;
      if (options_.pacer && !exhausted_)
        ended_.behind_ns = std::max<int64_t>(0, now_ns - options_.pacer->due_ns());
      Exhaust();
    }
    if (!MayStart() && free_.size() == slots_.size()) break;
    StartWhatIsDue(now_ns);
    WaitForWork(now_ns);
  }
  second_.Close(last_start_ns_);
  if (before_) CountClient();
}

void Driver::Exhaust() {
  exhausted_ = true;
  // The last operations in flight are not a second's load.
  second_.EndAt(last_start_ns_);
}

bool Driver::MayStart() const { return !exhausted_ && !failed_; }

// A clock read is expensive compared to a GET over shared memory. So it is read twice for each
// operation, at its start and its end. The time of one start also decides whether the next is due.
void Driver::StartWhatIsDue(int64_t now_ns) {
  // At most `depth`, so that Run gets control even if no operation can be started.
  for (uint32_t i = 0; i < options_.depth && MayStart() && !free_.empty(); ++i) {
    if (now_ns >= options_.end_ns) return;  // Run handles the end
    if (options_.pacer && options_.pacer->due_ns() > now_ns) return;
    const std::optional<Operation> operation = source_.Next();
    if (!operation) {
      // A run's insert must wait for others; a load is done.
      if (options_.phase == OperationSource::Phase::kLoad) Exhaust();
      return;
    }
    const Token token = free_.back();
    free_.pop_back();
    StartOne(token, *operation, now_ns);
    now_ns = last_start_ns_ = slots_[token].start_ns;
    if (options_.operations > 0 && started_ >= options_.operations) Exhaust();
  }
}

void Driver::StartOne(Token token, const Operation& operation, int64_t now_ns) {
  Slot& slot = slots_[token];
  slot.kind = operation.kind;
  slot.key = operation.key;
  slot.measured = now_ns >= options_.start_ns;
  slot.intended_ns = now_ns;
  if (options_.pacer) {
    slot.intended_ns = options_.pacer->due_ns();
    options_.pacer->Advance();
  }
  if (slot.measured) ++started_;
  if (versions_.on()) {
    slot.floor = versions_.FloorOf(slot.key);
    slot.checkable = true;
  }
  const absl::Status status = StartFirstPart(token, slot, operation);
  if (!status.ok()) Finish(token, status, clock_.NowNs());
}

absl::Status Driver::StartFirstPart(Token token, Slot& slot, const Operation& operation) {
  const bool scan = operation.kind == OperationKind::kScan;
  const bool whole_write = operation.kind == OperationKind::kInsert ||
                           (operation.kind == OperationKind::kUpdate && workload_.write_all_fields);
  const KeyName key(workload_, operation.key);
  absl::string_view value;
  if (whole_write) value = records_.Make(key.view());
  slot.start_ns = slot.part_ns = clock_.NowNs();
  if (scan) return store_.StartScan(slot.cursor, operation.scan_length, token);
  if (whole_write) return store_.StartWrite(key.view(), value, token);
  return store_.StartRead(key.view(), token);
}

void Driver::WriteBack(Token token, Value& value) {
  Slot& slot = slots_[token];
  const KeyName key(workload_, slot.key);
  absl::string_view bytes = value.bytes;
  if (workload_.write_all_fields) {
    bytes = records_.Make(key.view());
  } else {
    records_.ChangeField(key.view(), value.bytes);
    bytes = value.bytes;
  }
  slot.part_ns = clock_.NowNs();
  const absl::Status status = store_.StartWrite(key.view(), bytes, token);
  if (!status.ok()) Finish(token, status, clock_.NowNs());
}

void Driver::WaitForWork(int64_t now_ns) {
  if (!MayStart() && free_.size() == slots_.size()) return;  // all operations have ended
  int64_t timeout_ns = kWaitNsMax;
  if (MayStart() && !free_.empty()) {
    // The next operation is due at a time, or (an insert that must wait) when others have ended.
    timeout_ns = options_.pacer ? options_.pacer->due_ns() - clock_.NowNs() : 0;
  }
  // Wait no longer than until the end.
  if (now_ns < options_.end_ns) timeout_ns = std::min(timeout_ns, options_.end_ns - now_ns);
  if (timeout_ns > 0) {
    store_.Wait(std::min(timeout_ns, kWaitNsMax));
  } else {
    store_.Poll();
  }
}

void Driver::ReadEnded(Token token, absl::StatusOr<Value>& value) {
  const int64_t now_ns = clock_.NowNs();
  Slot& slot = slots_[token];
  if (value.ok() && options_.verify) {
    Verify(slot, KeyName(workload_, slot.key).view(), *value);
    Note(slot, value->version);
  }
  if (slot.kind == OperationKind::kRead) return Finish(token, value.status(), now_ns);
  if (slot.kind == OperationKind::kReadModifyWrite)
    MeasurePart(slot, OperationKind::kRead, value.status(), now_ns);
  if (!value.ok()) return Finish(token, value.status(), now_ns);
  WriteBack(token, *value);
}

void Driver::WriteEnded(Token token, const absl::StatusOr<uint64_t>& version) {
  const int64_t now_ns = clock_.NowNs();
  Slot& slot = slots_[token];
  if (version.ok() && options_.verify) Note(slot, *version);
  if (slot.kind == OperationKind::kReadModifyWrite)
    MeasurePart(slot, OperationKind::kUpdate, version.status(), now_ns);
  Finish(token, version.status(), now_ns);
}

void Driver::ScanEnded(Token token, const absl::StatusOr<ScanPage>& page) {
  const int64_t now_ns = clock_.NowNs();
  Slot& slot = slots_[token];
  slot.checkable = false;  // of keys that this driver did not choose
  if (page.ok()) {
    slot.cursor = page->cursor;
    if (slot.measured) measured_.scanned += page->items.size();
    if (options_.verify) {
      for (const ScanItem& item : page->items) {
        Value value;
        value.bytes = item.value;
        Verify(slot, item.key, value);
      }
    }
  } else {
    slot.cursor.clear();
  }
  Finish(token, page.status(), now_ns);
}

void Driver::Verify(const Slot& slot, absl::string_view key, const Value& value) {
  ++measured_.checked;
  const bool right = IsRecordOf(key, value.bytes);
  const bool stale =
      slot.checkable && versions_.IsOf(store_.counters().connects) && value.version < slot.floor;
  if (right && !stale) return;
  ++(right ? measured_.stale : measured_.wrong);
  if (!measured_.first_wrong.empty()) return;
  measured_.first_wrong =
      right ? absl::StrCat("key ", key, ": version ", value.version, " although version ",
                           slot.floor, " had been there before")
            : absl::StrCat("key ", key, ": ", value.bytes.size(),
                           " bytes that kvbench did not write for it");
}

void Driver::Note(const Slot& slot, uint64_t version) {
  if (versions_.Note(slot.key, version, store_.counters().connects)) return;
  for (Slot& other : slots_) other.checkable = false;
}

void Driver::MeasurePart(const Slot& slot, OperationKind kind, const absl::Status& status,
                         int64_t now_ns) {
  if (!slot.measured) return;
  KindMeasurements& of_kind = measured_.of(kind);
  of_kind.Record(status.code(), Since(slot.part_ns, now_ns));
  if (options_.pacer) of_kind.RecordIntended(status.code(), Since(slot.intended_ns, now_ns));
}

void Driver::Finish(Token token, const absl::Status& status, int64_t now_ns) {
  Slot& slot = slots_[token];
  free_.push_back(token);
  if (slot.kind == OperationKind::kInsert && options_.phase == OperationSource::Phase::kRun)
    keys_.inserted.Acknowledge(slot.key);
  const bool failure = !status.ok() && !absl::IsNotFound(status);
  if (failure && measured_.first_failure.empty()) {
    measured_.first_failure =
        absl::StrCat(NameOf(slot.kind), " of ", KeyName(workload_, slot.key).view(), ": ",
                     absl::StatusCodeToString(status.code()), ": ", status.message());
  }
  if (failure && options_.phase == OperationSource::Phase::kLoad) failed_ = true;
  if (!slot.measured) return;
  const uint64_t service_ns = Since(slot.start_ns, now_ns);
  const uint64_t intended_ns = Since(slot.intended_ns, now_ns);
  KindMeasurements& kind = measured_.of(slot.kind);
  kind.Record(status.code(), service_ns);
  if (options_.pacer) kind.RecordIntended(status.code(), intended_ns);
  operations_.store(++measured_.operations, std::memory_order_relaxed);
  ended_.last_ns = std::max(ended_.last_ns, now_ns);
  second_.Reach(now_ns);
  second_.Record(options_.pacer ? intended_ns : service_ns);
}

void Driver::CountClient() {
  const Counters after = store_.counters();
  measured_.gets = after.gets - before_->gets;
  measured_.reads = after.reads - before_->reads;
  measured_.scan_reads = after.scan_reads - before_->scan_reads;
  measured_.torn = after.torn - before_->torn;
  measured_.retries = after.retries - before_->retries;
  measured_.rpc_gets = after.rpc_gets - before_->rpc_gets;
  measured_.messages = after.messages - before_->messages;
  measured_.connects = after.connects - before_->connects;
}

}  // namespace osprey::loadgen
