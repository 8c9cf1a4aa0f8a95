#include "tests/durability/durable_load.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "client/reasons.h"
#include "tests/durability/chunks.h"
#include "tests/history/outcome.h"
#include "tests/support/split_mix64.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

// Keys by what is done with them. They are few, so that operations collide.
constexpr uint64_t kRegisters = 24;
constexpr uint64_t kLogs = 8;
constexpr uint64_t kCounters = 8;
constexpr uint64_t kKeys = kRegisters + kLogs + kCounters;

constexpr size_t kErrorsMax = 10;
constexpr size_t kTogether = 5;  // keys of a MultiPut
constexpr uint64_t kOperationsPerFlush = 4000;
constexpr absl::Duration kPollMax = absl::Milliseconds(20);

std::string KeyOf(uint64_t key) {
  if (key < kRegisters) return absl::StrCat("r", key);
  if (key < kRegisters + kLogs) return absl::StrCat("l", key - kRegisters);
  return absl::StrCat("n", key - kRegisters - kLogs);
}

bool IsCounter(const std::string& key) { return key[0] == 'n'; }
bool IsDelete(Kind kind) { return kind == Kind::kDelete || kind == Kind::kDeleteIfVersion; }

// Whether a restarted server explains the error. (A full server, for a while, explains another.)
// The sessions of a cluster outlive its servers. There, appends make values too long.
bool IsExpected(const absl::Status& status, bool in_cluster) {
  if (in_cluster && absl::IsUnavailable(status)) return true;
  switch (ReasonOf(status)) {
    case Reason::kServerGone:
    case Reason::kDeadline:
    case Reason::kNoConnection:
      return !in_cluster;
    case Reason::kServerFull:
      return true;
    case Reason::kValueTooLong:
      return in_cluster;
    default:
      return false;
  }
}

}  // namespace

int64_t SteadyNs() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct DurableLoad::Shared {
  std::string uri;
  DurableLoadOptions options;
  std::atomic<bool> ended{false};
  std::atomic<uint64_t> done{0};
  std::atomic<int64_t> written_at{SteadyNs()};  // the last write that was answered
  std::atomic<int64_t> longest_pause{0};
  std::atomic<int64_t> chunks{0};
  // A flush runs alone, so that it deletes every key.
  std::atomic<bool> flush_wanted{false};
  std::atomic<int> paused{0};
  std::mutex mutex;
  std::vector<std::string> errors;  // under the mutex
  DurableHistories histories;       // under the mutex
  Counters counters;                // under the mutex

  void NoteWrite(int64_t now) {
    const int64_t pause = now - written_at.exchange(now);
    int64_t longest = longest_pause;
    while (longest < pause && !longest_pause.compare_exchange_weak(longest, pause)) {
    }
  }
  void AddError(std::string error) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (errors.size() < kErrorsMax) errors.push_back(std::move(error));
  }
};

class DurableLoad::Writer {
 public:
  Writer(Shared& shared, int index)
      : shared_(shared), index_(index), random_(shared.options.seed * 1000 + index) {}

  void Run() {
    if (Connect()) Work();
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    for (Record& record : records_)
      shared_.histories[record.key].push_back(std::move(record.operation));
    if (client_ == nullptr) return;
    const Counters& counters = client_->counters();
    Counters& all = shared_.counters;
    all.reads += counters.reads;
    all.rpc_gets += counters.rpc_gets;
    all.connects += counters.connects;
    all.leases += counters.leases;
    all.lease_reads += counters.lease_reads;
    all.uncovered_reads += counters.uncovered_reads;
    all.unleased_gets += counters.unleased_gets;
  }

 private:
  struct Record {
    std::string key;
    Operation operation;
  };

  bool Connect() {
    Options options;
    options.connect_timeout = shared_.options.deadline;
    options.backoff_last = absl::Milliseconds(50);
    options.wait = WaitMode::kEvent;  // there are fewer cores than threads
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(shared_.uri, options);
    if (!client.ok()) {
      shared_.AddError(absl::StrCat("cannot connect: ", client.status().ToString()));
      return false;
    }
    client_ = *std::move(client);
    return true;
  }

  void Work() {
    while (!shared_.ended) {
      if (shared_.flush_wanted) {
        Drain();
        index_ == 0 ? Flush() : StandAside();
        continue;
      }
      if (index_ == 0 && random_.Below(kOperationsPerFlush) == 0) shared_.flush_wanted = true;
      while (in_flight_ < shared_.options.operations) StartOne();
      client_->Wait(kPollMax);
    }
    Drain();
    // Acknowledged writes are read even if no later operation did.
    for (uint64_t key = index_; key < kKeys; key += shared_.options.clients) StartGet(KeyOf(key));
    Drain();
  }

  void Drain() {
    while (in_flight_ > 0) client_->Wait(kPollMax);
  }

  void StandAside() {
    ++shared_.paused;
    while (shared_.flush_wanted) absl::SleepFor(absl::Milliseconds(1));
    --shared_.paused;
  }

  void Flush() {
    while (shared_.paused < shared_.options.clients - 1 && !shared_.ended)
      absl::SleepFor(absl::Milliseconds(1));
    if (!shared_.ended) {
      std::vector<Record*> records;
      for (uint64_t key = 0; key < kKeys; ++key)
        records.push_back(&Call(KeyOf(key), Kind::kDelete));
      const absl::StatusOr<uint64_t> flushed = client_->Flush(shared_.options.deadline);
      for (Record* record : records) {
        Return(*record, flushed.status());
        // It deleted the key if there was one.
        if (flushed.ok()) record->operation.kind = Kind::kEvicted;
      }
    }
    shared_.flush_wanted = false;
  }

  // --- Operations

  void StartOne() {
    const uint64_t key = random_.Below(kKeys);
    const std::string name = KeyOf(key);
    const uint64_t choice = random_.Below(100);
    if (IsCounter(name)) return choice < 60 ? StartIncrement(name) : StartGet(name);
    if (key >= kRegisters) {
      if (choice < 60) return StartAppend(name);
      if (choice < 65) return StartPut(name, Kind::kPut);
    } else {
      if (choice < 30) return StartPut(name, Kind::kPut);
      if (choice < 40) return StartPut(name, Kind::kPutIfAbsent);
      if (choice < 52) return StartPut(name, Kind::kPutIfVersion);
      if (choice < 56) return StartDelete(name, Kind::kDeleteIfVersion);
      if (choice < 60) return StartMultiPut();
    }
    if (choice < 68) return StartDelete(name, Kind::kDelete);
    if (choice < 73) return StartExpire(name);
    if (choice < 76) return StartPersist(name);
    if (choice < 80) return StartExists(name);
    StartGet(name);
  }

  // Inline, items of each size, by rendezvous, and in pieces of the log.
  size_t NewLength() { return std::min(AnyLength(), shared_.options.value_bytes_max); }

  size_t AnyLength() {
    const uint64_t choice = random_.Below(1000);
    if (choice < 350) return kChunkBytesMin + random_.Below(20);
    if (choice < 650) return 50 + random_.Below(300);
    if (choice < 850) return 350 + random_.Below(5000);
    if (choice < 950) return 5000 + random_.Below(70'000);
    if (choice < 993) return 70'000 + random_.Below(400'000);
    return 1'000'000 + random_.Below(2'000'000);
  }

  // Sets the operation's value, and returns its bytes.
  std::string NewValue(Operation& op, size_t length) {
    const int64_t number = ++shared_.chunks;
    op.value = NameOfChunk(number);
    return Chunk(number, length);
  }

  std::string NewValue(Operation& op) {
    return random_.Chance(8) ? std::string() : NewValue(op, NewLength());
  }

  // Most are over soon; some outlive the test.
  absl::Duration NewTtl() {
    return random_.Chance(70) ? absl::Milliseconds(1 + random_.Below(1500)) : absl::Hours(1);
  }

  WriteOptions NewOptions() const {
    WriteOptions options;
    options.deadline = shared_.options.deadline;
    return options;
  }

  void StartPut(const std::string& key, Kind kind) {
    uint64_t if_version = versions_[key];
    if (kind == Kind::kPutIfVersion && if_version == 0) kind = Kind::kPut;
    Record& record = Call(key, kind);
    WriteOptions options = NewOptions();
    options.if_absent = kind == Kind::kPutIfAbsent;
    if (kind == Kind::kPutIfVersion) options.if_version = record.operation.if_version = if_version;
    if (random_.Chance(15)) {
      options.ttl = NewTtl();
      record.operation.ttl = absl::ToInt64Nanoseconds(options.ttl);
    }
    const std::string value = NewValue(record.operation);
    Started(record, client_->StartPut(key, value, options, WhenWritten(record)));
  }

  void StartMultiPut() {
    std::vector<Record*> records;
    std::vector<std::string> values;
    const uint64_t first = random_.Below(kRegisters);
    for (uint64_t i = 0; i < kTogether; ++i) {
      records.push_back(&Call(KeyOf((first + i) % kRegisters), Kind::kPut));
      values.push_back(NewValue(records.back()->operation));
    }
    std::vector<KeyValue> items;
    for (size_t i = 0; i < kTogether; ++i) items.push_back({records[i]->key, values[i]});
    const absl::Status status = client_->StartMultiPut(
        items, NewOptions(), [this, records](std::vector<absl::StatusOr<uint64_t>> versions) {
          --in_flight_;
          for (size_t i = 0; i < records.size(); ++i) {
            if (versions[i].ok()) SetVersion(*records[i], *versions[i]);
            Return(*records[i], versions[i].status());
          }
        });
    if (status.ok()) {
      ++in_flight_;
      return;
    }
    for (Record* record : records) Return(*record, status);
  }

  void StartAppend(const std::string& key) {
    Record& record = Call(key, Kind::kAppend);
    // (Over verbs a frame has 5 KiB.)
    const size_t length =
        random_.Chance(80) ? kChunkBytesMin + random_.Below(200) : 200 + random_.Below(3700);
    const std::string value = NewValue(record.operation, length);
    Started(record, client_->StartAppend(key, value, NewOptions(), WhenWritten(record)));
  }

  void StartDelete(const std::string& key, Kind kind) {
    if (versions_[key] == 0) kind = Kind::kDelete;
    Record& record = Call(key, kind);
    WriteOptions options = NewOptions();
    if (kind == Kind::kDeleteIfVersion)
      options.if_version = record.operation.if_version = versions_[key];
    Started(record, client_->StartDelete(key, options, WhenWritten(record)));
  }

  void StartExpire(const std::string& key) {
    Record& record = Call(key, Kind::kExpire);
    const absl::Duration ttl = NewTtl();
    record.operation.ttl = absl::ToInt64Nanoseconds(ttl);
    Started(record, client_->StartExpire(key, ttl, NewOptions(), WhenWritten(record)));
  }

  void StartPersist(const std::string& key) {
    Record& record = Call(key, Kind::kPersist);
    Started(record, client_->StartPersist(key, NewOptions(), WhenWritten(record)));
  }

  void StartIncrement(const std::string& key) {
    Record& record = Call(key, Kind::kIncrement);
    record.operation.by = static_cast<int64_t>(1 + random_.Below(9));
    Started(record, client_->StartIncrement(key, record.operation.by, NewOptions(),
                                            [this, &record](absl::StatusOr<Number> number) {
                                              --in_flight_;
                                              if (number.ok()) {
                                                record.operation.answer =
                                                    absl::StrCat(number->value);
                                                record.operation.version = number->version;
                                              }
                                              Return(record, number.status());
                                            }));
  }

  void StartExists(const std::string& key) {
    Record& record = Call(key, Kind::kExists);
    Started(record, client_->StartExists(
                        key,
                        [this, &record](absl::StatusOr<bool> exists) {
                          --in_flight_;
                          Return(record, exists.status());
                          if (exists.ok() && !*exists)
                            record.operation.outcome = Outcome::kNotFound;
                        },
                        shared_.options.deadline));
  }

  void StartGet(const std::string& key) {
    Record& record = Call(key, Kind::kGet);
    Started(record, client_->StartGet(
                        key,
                        [this, &record](absl::StatusOr<Value> value) {
                          --in_flight_;
                          Return(record, value.status());
                          if (value.ok()) TakeValue(record, *value);
                        },
                        shared_.options.deadline));
  }

  void TakeValue(Record& record, const Value& value) {
    SetVersion(record, value.version);
    int64_t number = 0;
    absl::optional<std::string> answer;
    if (!IsCounter(record.key)) {
      answer = NamesOfChunks(value.bytes);
    } else if (absl::SimpleAtoi(value.bytes, &number)) {
      answer = value.bytes;
    }
    if (!answer.has_value()) {
      shared_.AddError(absl::StrCat("key ", record.key, " has a damaged value of ",
                                    value.bytes.size(), " bytes"));
    }
    record.operation.answer = std::move(answer).value_or("damaged");
  }

  // --- Records

  Record& Call(const std::string& key, Kind kind) {
    Record& record = records_.emplace_back();
    record.key = key;
    record.operation.kind = kind;
    record.operation.client = index_;
    record.operation.call = SteadyNs();
    return record;
  }

  // Callbacks run inside Wait alone.
  void Started(Record& record, const absl::Status& status) {
    if (status.ok()) {
      ++in_flight_;
    } else {
      Return(record, status);
    }
  }

  void SetVersion(Record& record, uint64_t version) {
    record.operation.version = versions_[record.key] = version;
  }

  Client::WriteCallback WhenWritten(Record& record) {
    return [this, &record](absl::StatusOr<uint64_t> version) {
      --in_flight_;
      if (version.ok() && !IsDelete(record.operation.kind)) SetVersion(record, *version);
      Return(record, version.status());
    };
  }

  void Return(Record& record, const absl::Status& status) {
    Operation& op = record.operation;
    op.returned = SteadyNs();
    op.outcome = OutcomeOf(status, op.kind);
    if (op.outcome != Outcome::kUnknown && op.outcome != Outcome::kUnapplied) {
      ++shared_.done;
      if (!IsRead(op.kind)) shared_.NoteWrite(op.returned);
    } else if (!IsExpected(status, shared_.options.in_cluster)) {
      shared_.AddError(
          absl::StrCat(op.ToString(), " of key ", record.key, ": ", status.ToString()));
    }
  }

  Shared& shared_;
  const int index_;
  SplitMix64 random_;
  std::unique_ptr<Client> client_;
  int in_flight_ = 0;
  std::deque<Record> records_;
  std::map<std::string, uint64_t> versions_;  // last seen by this client
};

DurableLoad::DurableLoad(const std::string& uri, const DurableLoadOptions& options)
    : shared_(std::make_unique<Shared>()) {
  shared_->uri = uri;
  shared_->options = options;
  for (int i = 0; i < options.clients; ++i)
    writers_.push_back(std::make_unique<Writer>(*shared_, i));
  for (const std::unique_ptr<Writer>& writer : writers_)
    threads_.emplace_back([&writer = *writer] { writer.Run(); });
}

DurableLoad::~DurableLoad() { End(); }

uint64_t DurableLoad::done() const { return shared_->done; }

absl::Duration DurableLoad::longest_pause() const {
  return absl::Nanoseconds(shared_->longest_pause.load());
}

void DurableLoad::End() {
  shared_->ended = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

DurableHistories DurableLoad::TakeHistories() { return std::move(shared_->histories); }

Counters DurableLoad::counters() const {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->counters;
}

std::vector<std::string> DurableLoad::TakeErrors() {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  return std::move(shared_->errors);
}

}  // namespace osprey
