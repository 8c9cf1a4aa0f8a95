#include "tests/simulation/workload.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/reasons.h"
#include "index/layout/hash.h"
#include "index/layout/item.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;

constexpr int kBurstMax = 8;

bool KeepsTtl(Kind kind) {
  return kind != Kind::kPut && kind != Kind::kPutIfAbsent && kind != Kind::kPutIfVersion &&
         kind != Kind::kExpire;
}

}  // namespace

Workload::Workload(World& world, int operations, SimulationReport& report)
    : world_(world), plan_(world.plan()), operations_(operations), report_(report) {
  const Mix& mix = plan_.mix;
  mix_total_ = mix.get + mix.put + mix.put_if_absent + mix.put_if_version + mix.remove +
               mix.remove_if_version + mix.increment + mix.append + mix.expire + mix.get_into +
               mix.put_from + mix.scan + mix.touch + mix.burst + mix.flush;
}

Workload::~Workload() = default;

// --- Operations ----------------------------------------------------------------------------------

const std::string& Workload::ChooseKey() {
  // Half of the operations use a few keys.
  const bool hot = Chance(50);
  return plan_.keys[Random(hot ? plan_.hot_keys : plan_.keys.size())];
}

std::string Workload::NewValue() {
  if (plan_.distinct_values != 0) last_value_ = Random(plan_.distinct_values);
  const uint64_t number = plan_.distinct_values != 0 ? last_value_ : ++last_value_;
  std::string value = absl::StrCat("v", number, ".");
  const auto& [least, most] = plan_.value_bytes[Random(plan_.value_bytes.size())];
  const uint64_t bytes = least + Random(most + 1 - least);
  const size_t head = value.size();
  if (bytes <= head) return value;
  value.resize(bytes);
  for (size_t i = head; i < bytes; ++i) value[i] = static_cast<char>('a' + i % 26);
  return value;
}

// A value full of records of the first key, each of which would be valid if readers did not check
// its place. Keys have 16 bytes. So with the padding, a record every 128 bytes lies where items of
// that size lie in a page.
std::string Workload::ForgedValue() {
  constexpr size_t kRecordBytes = 128;
  constexpr size_t kLiesBytes = kRecordBytes - sizeof(index::ItemHeader) - 16;
  const std::string& key = plan_.keys[0];
  std::string record(sizeof(index::ItemHeader), '\0');
  absl::StrAppend(&record, key, "forged", ++last_value_);
  record.resize(kRecordBytes, '!');
  index::ItemHeader header{};
  header.record.version = 0x7ffffff0;
  header.record.tag =
      index::ItemTag{static_cast<uint32_t>(key.size()), index::ItemState::kLive}.Pack();
  const index::ItemFields fields{kLiesBytes, 1, 0};
  header.length_word = fields.length_word();
  header.cas_word = fields.cas_word();
  const absl::string_view rest = absl::string_view(record).substr(sizeof(header));
  header.record.checksum = index::ItemChecksum(
      index::HashBytes({reinterpret_cast<const std::byte*>(rest.data()), rest.size()}), header,
      {0, world_.incarnation()});
  std::memcpy(record.data(), &header, sizeof(header));
  std::string value(kRecordBytes - sizeof(header) - key.size(), '.');
  for (int i = 0; i < 100; ++i) value += record;
  return value;
}

// Consecutive keys: all deleted, or all present.
void Workload::QueueGroup() {
  const uint64_t from = Random(plan_.keys.size() / plan_.group + 1) * plan_.group;
  const uint64_t to = std::min<uint64_t>(from + plan_.group, plan_.keys.size());
  for (uint64_t i = from; i < to; ++i) queue_.emplace_back(Kind::kDelete, plan_.keys[i]);
  for (uint64_t i = from; i < to; ++i) queue_.emplace_back(Kind::kPut, plan_.keys[i]);
}

void Workload::BeginCleaning() {
  cleaning_ = true;
  queue_.clear();
  for (const std::string& key : plan_.keys) {
    queue_.emplace_back(Kind::kGet, key);
    queue_.emplace_back(Kind::kDelete, key);
  }
}

void Workload::MayStart(SimulatedClient& client) {
  if (wrong_.empty() && client.engine->in_flight() < client.depth) {
    if (cleaning_ ? !queue_.empty() : started_ < operations_) StartOperation(client);
  }
}

void Workload::StartOperation(SimulatedClient& client) {
  // At first each key once, so that windows are full.
  if (static_cast<size_t>(started_) < plan_.keys.size() && !cleaning_) {
    if (plan_.first_in_order && in_flight_ > 0) return;
    const std::string& key = plan_.keys[static_cast<size_t>(started_)];
    ++started_;
    StartOne(NewStart(client, key, Kind::kPut), false).IgnoreError();
    return;
  }
  if (plan_.group != 0 && queue_.empty() && !cleaning_ && Chance(plan_.group_percent)) QueueGroup();
  // A slow client reads while others write.
  if (!queue_.empty() && (cleaning_ || plan_.slow_factor == 1 || client.number != 0)) {
    // In order: a group is deleted before it is written again.
    if (plan_.group != 0 && !cleaning_ && Chance(50)) return;
    const auto [kind, key] = queue_.front();
    queue_.pop_front();
    ++started_;
    StartOne(NewStart(client, key, kind), false).IgnoreError();
    return;
  }
  ++started_;
  const bool reads = plan_.first_reads_only && client.number == 0;
  uint32_t what = reads ? 0 : static_cast<uint32_t>(Random(mix_total_));
  const Mix& mix = plan_.mix;
  const auto is = [&what](uint32_t share) {
    if (what < share) return true;
    what -= share;
    return false;
  };
  if (is(mix.scan)) return StartScan(client);
  if (is(mix.burst)) return StartBurst(client);
  if (is(mix.flush)) return StartFlush(client);
  Kind kind = Kind::kGet;
  bool with_buffer = false;
  if (is(mix.get)) {
    kind = Kind::kGet;
  } else if (is(mix.put)) {
    kind = Kind::kPut;
  } else if (is(mix.put_if_absent)) {
    kind = Kind::kPutIfAbsent;
  } else if (is(mix.put_if_version)) {
    kind = Kind::kPutIfVersion;
  } else if (is(mix.remove)) {
    kind = Kind::kDelete;
  } else if (is(mix.remove_if_version)) {
    kind = Kind::kDeleteIfVersion;
  } else if (is(mix.increment)) {
    kind = Kind::kIncrement;
  } else if (is(mix.append)) {
    kind = Kind::kAppend;
  } else if (is(mix.expire)) {
    kind = Kind::kExpire;
  } else if (is(mix.get_into)) {
    kind = Kind::kGet;
    with_buffer = true;
  } else if (is(mix.put_from)) {
    kind = Kind::kPut;
    with_buffer = true;
  } else {
    kind = Kind::kExists;
  }
  const std::string key = ChooseKey();
  // A version that was seen, if any.
  if ((kind == Kind::kPutIfVersion || kind == Kind::kDeleteIfVersion) &&
      versions_.count({client.number, key}) == 0) {
    kind = Kind::kPut;
  }
  StartOne(NewStart(client, key, kind), with_buffer).IgnoreError();
}

Workload::Start Workload::NewStart(SimulatedClient& client, std::string key, Kind kind) {
  Start start{client, std::move(key), std::make_shared<Operation>(), 0, {}, {}};
  Operation& operation = *start.operation;
  operation.kind = kind;
  operation.client = client.number;
  operation.call = world_.Tick();
  const uint64_t more = Chance(50) ? 20 : plan_.deadline_ms_max;
  start.deadline =
      world_.now() + 1'000'000 * static_cast<int64_t>(plan_.deadline_ms_min + Random(more));
  if (cleaning_) start.deadline = world_.now() + 2'000'000'000;
  // The client's clock differs, and is a little slower.
  start.until = world_.ClientTime(client) + absl::Nanoseconds(start.deadline - operation.call);
  if (plan_.ttl_percent != 0 && !KeepsTtl(kind) && !cleaning_ && Chance(plan_.ttl_percent)) {
    // Some of the time to live passes before the write arrives.
    const uint64_t most_us = Chance(50) ? 200 : plan_.ttl_us_max;
    operation.ttl = 1000 * static_cast<int64_t>(1 + Random(most_us));
    operation.ttl_slack = kTtlSlack;
    start.options.ttl = absl::Nanoseconds(operation.ttl);
  }
  switch (kind) {
    case Kind::kPut:
    case Kind::kPutIfAbsent:
    case Kind::kPutIfVersion:
      operation.value = plan_.forges && start.key != plan_.keys[0] ? ForgedValue() : NewValue();
      break;
    case Kind::kAppend:
      operation.value = absl::StrCat("+", ++last_value_);
      break;
    case Kind::kIncrement:
      operation.by = 1 + static_cast<int64_t>(Random(9));
      break;
    case Kind::kExpire:
      if (operation.ttl == 0) operation.kind = Kind::kPersist;
      break;
    default:
      break;
  }
  start.options.if_absent = kind == Kind::kPutIfAbsent;
  if (kind == Kind::kPutIfVersion || kind == Kind::kDeleteIfVersion)
    operation.if_version = start.options.if_version = versions_.at({client.number, start.key});
  return start;
}

absl::Status Workload::StartOne(Start start, bool with_buffer) {
  ++in_flight_;
  absl::Status status;
  if (with_buffer && start.operation->kind == Kind::kGet) {
    status = StartGetInto(start);
  } else if (with_buffer && start.operation->kind == Kind::kPut) {
    status = StartPutFrom(start);
  } else if (start.operation->kind == Kind::kGet && Chance(50)) {
    --in_flight_;
    StartWaiting({std::move(start)});
    return absl::OkStatus();
  } else if (start.operation->kind == Kind::kGet) {
    status = start.client.engine->start().Get(start.key, true, start.until, Ending<Value>(start));
  } else {
    status = StartWrite(start);
  }
  NoteStart(start, status);
  return status;
}

absl::Status Workload::StartWrite(Start& start) {
  client::ClientEngine& engine = *start.client.engine;
  const Operation& operation = *start.operation;
  const absl::Time until = start.until;
  switch (operation.kind) {
    case Kind::kPut:
    case Kind::kPutIfAbsent:
    case Kind::kPutIfVersion:
      return engine.start().Put(start.key, operation.value, start.options, until,
                                Ending<uint64_t>(start));
    case Kind::kDelete:
    case Kind::kDeleteIfVersion:
      return engine.start().Delete(start.key, start.options, until, Ending<uint64_t>(start));
    case Kind::kIncrement:
      return engine.start().Increment(start.key, operation.by, start.options, until,
                                      Ending<Number>(start));
    case Kind::kAppend:
      return engine.start().Append(start.key, operation.value, start.options, until,
                                   Ending<uint64_t>(start));
    case Kind::kExpire:
      start.options.ttl = absl::ZeroDuration();
      return engine.start().Expire(start.key, absl::Nanoseconds(operation.ttl), start.options,
                                   until, Ending<uint64_t>(start));
    case Kind::kPersist:
      return engine.start().Expire(start.key, absl::InfiniteDuration(), start.options, until,
                                   Ending<uint64_t>(start));
    case Kind::kExists:
      return engine.start().Touch(start.key, until, Ending<uint64_t>(start));
    case Kind::kGet:
    case Kind::kLoss:
    case Kind::kRestart:
    case Kind::kEvicted:
      break;
  }
  return absl::InternalError("no write");
}

void Workload::NoteStart(const Start& start, const absl::Status& status) {
  if (status.ok()) {
    histories_.keys[start.key].push_back(start.operation);
  } else {
    NotStarted(status);
  }
}

void Workload::NotStarted(const absl::Status& status) {
  --in_flight_;
  if (cleaning_) cleaning_failed_ = true;
  if (status.code() != absl::StatusCode::kCancelled &&
      status.code() != absl::StatusCode::kResourceExhausted) {
    Wrong(absl::StrCat("not started: ", status.ToString()));
  }
}

// --- Memory of the application -------------------------------------------------------------------

size_t Workload::TakeBuffer(SimulatedClient& client) {
  for (size_t i = 0; i < client.buffers.size(); ++i) {
    if (client.buffers[i].busy) continue;
    client.buffers[i].busy = true;
    return i;
  }
  std::unique_ptr<rdma::Memory> memory =
      client.domain->Allocate(kBufferBytes, rdma::Access::kRemoteRead).value();
  std::fill_n(memory->data(), kBufferBytes, kIdle);
  client.buffers.push_back(
      {std::make_shared<client::RegisteredMemory>(client.domain, std::move(memory), kBufferBytes,
                                                  client.engine->exposer_link()),
       true});
  return client.buffers.size() - 1;
}

// From now on nothing may land there (R5). This is checked when it is used again, and at the end.
void Workload::ReturnBuffer(SimulatedClient& client, size_t number,
                            const client::RegisteredMemory* memory) {
  if (number >= client.buffers.size() || client.buffers[number].memory.get() != memory) return;
  std::fill_n(memory->memory->data(), kBufferBytes, kIdle);
  client.buffers[number].busy = false;
}

absl::Status Workload::StartGetInto(Start start) {
  const size_t number = TakeBuffer(start.client);
  const std::shared_ptr<client::RegisteredMemory> memory = start.client.buffers[number].memory;
  std::byte* const data = memory->memory->data();
  if (std::any_of(data, data + kBufferBytes, [](std::byte b) { return b != kIdle; }))
    Wrong("something landed in memory that no operation used");
  const size_t from = 8 * Random(100);
  const size_t size = Chance(90) ? kBufferBytes - from - 8 : Random(2000);
  const client::UserMemory target{data + from, size, memory};
  const auto done = [this, start, number, memory, data, from,
                     size](const absl::StatusOr<ValueInfo>& info) {
    for (size_t i = 0; i < kBufferBytes; ++i) {
      if ((i < from || i >= from + size) && data[i] != kIdle) {
        Wrong("something landed beside the memory of a GET");
        break;
      }
    }
    absl::StatusOr<Value> value = Value();
    if (info.ok()) {
      value->version = info->version;
      value->bytes.assign(reinterpret_cast<const char*>(data + from),
                          std::min<size_t>(info->length, size));
    } else if (info.status().code() == absl::StatusCode::kOutOfRange) {
      value = absl::UnavailableError("the buffer is too small");  // no evidence
    } else {
      value = info.status();
    }
    ReturnBuffer(start.client, number, memory.get());
    Ended(start, value);
  };
  const absl::Status status =
      start.client.engine->start().GetInto(start.key, target, start.until, done);
  if (!status.ok()) ReturnBuffer(start.client, number, memory.get());
  return status;
}

absl::Status Workload::StartPutFrom(Start start) {
  const size_t number = TakeBuffer(start.client);
  const std::shared_ptr<client::RegisteredMemory> memory = start.client.buffers[number].memory;
  const std::string& value = start.operation->value;
  std::memcpy(memory->memory->data(), value.data(), value.size());
  const client::UserMemory source{memory->memory->data(), value.size(), memory};
  const auto done = [this, start, number, memory](const absl::StatusOr<uint64_t>& version) {
    ReturnBuffer(start.client, number, memory.get());
    Ended(start, version);
  };
  const absl::Status status =
      start.client.engine->start().PutFrom(start.key, source, start.options, start.until, done);
  if (!status.ok()) ReturnBuffer(start.client, number, memory.get());
  return status;
}

// --- Many at once --------------------------------------------------------------------------------

// As one MultiGet or several: a GET that does not fit begins when another has ended, or never.
void Workload::StartBurst(SimulatedClient& client) {
  std::vector<Start> starts;
  for (int left = 2 + static_cast<int>(Random(kBurstMax - 1)); left > 0; --left)
    starts.push_back(NewStart(client, ChooseKey(), Kind::kGet));
  StartWaiting(std::move(starts));
}

// Operations of one client, by the deadline of the first.
void Workload::StartWaiting(std::vector<Start> starts) {
  SimulatedClient& client = starts[0].client;
  auto waiter = std::make_unique<Waiter>();
  waiter->starts = std::move(starts);
  std::vector<absl::string_view> keys;
  for (Start& start : waiter->starts) {
    start.deadline = waiter->starts[0].deadline;
    keys.push_back(start.key);
  }
  waiter->answers.assign(keys.size(), absl::UnknownError("none yet"));
  waiter->told.resize(keys.size());
  client::ClientEngine& engine = *client.engine;
  const absl::Time until = waiter->starts[0].until;
  const absl::Time now = world_.ClientTime(client);
  size_t begun = 0;
  // What is answered at once has its time now, though the caller gets it at the turn's end.
  const auto note_answered = [&] {
    for (size_t i = 0; i < begun; ++i) {
      int64_t& returned = waiter->starts[i].operation->returned;
      if (!absl::IsUnknown(waiter->answers[i].status()) && returned == Operation::kNever)
        returned = world_.Tick();
    }
  };
  // As the blocking calls of Client do, some of which wait by polling.
  const bool awaits = Chance(50);
  if (awaits && keys.size() == 1 &&
      engine.GetOne(keys[0], waiter->answers[0], until, now, waiter->unanswered)) {
    begun = 1;
    report_.awaited += begun - waiter->unanswered;
  } else {
    begun = engine.StartGets(keys, waiter->answers.data(), until, now, waiter->unanswered);
    report_.at_once += begun - waiter->unanswered;
  }
  note_answered();
  for (Start& start : waiter->starts) start.reads_posted = waiter->unanswered > 0;
  if (awaits) {
    const size_t before = waiter->unanswered;
    engine.AwaitReads(waiter->unanswered, now);
    report_.awaited += before - waiter->unanswered;
  }
  note_answered();
  while (waiter->starts.size() > begun) waiter->starts.pop_back();
  in_flight_ += static_cast<int>(begun);
  for (const Start& start : waiter->starts) NoteStart(start, absl::OkStatus());
  waiters_.push_back(std::move(waiter));
}

void Workload::HadTurn(SimulatedClient& client) {
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    Waiter& waiter = **it;
    for (size_t i = 0; i < waiter.starts.size(); ++i) {
      if (&waiter.starts[i].client != &client || waiter.told[i]) continue;
      if (absl::IsUnknown(waiter.answers[i].status())) continue;
      waiter.told[i] = true;
      Ended(waiter.starts[i], waiter.answers[i]);
    }
    const bool done = std::count(waiter.told.begin(), waiter.told.end(), true) ==
                      static_cast<ptrdiff_t>(waiter.starts.size());
    if (done && waiter.unanswered != 0) Wrong("a caller waits for answers that it has");
    it = done ? waiters_.erase(it) : std::next(it);
  }
}

}  // namespace osprey
