// A client process of the fault tests. It has several clients, each with its own thread and several
// operations in flight, that read and write the same few keys. They record their calls and the
// answers in a journal (history/journal.h), which history_checker checks.
//
//   fault_load --server=URI --journal=FILE --prefix=P --number=N
//
// Prints "up 1 SHARD" when all its clients have completed an operation on that shard; a server by
// itself has shard 0 alone. After the first "up" on its standard input it prints "up 2 SHARD" when
// they have since, and so on. Continues until the input is "end": the fault is over. From
// then on each client continues until nothing has failed for a second (or its time is up), reads
// every key once more, and ends. With "quit" it ends at once.
//
// At its end it prints these lines. "connections N": the connections made. "left open N …": the
// additional open files since it was up, with all clients connected. "starved S": the longest
// delay, in seconds, of a thread that only sleeps. Then one line for each error with its count.
// Exit status 0, or 4: it could not connect, or its journal is full.

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "client/reasons.h"
#include "gflags/gflags.h"
#include "tests/history/journal.h"
#include "tests/history/outcome.h"
#include "tests/history/value.h"
#include "tests/support/subprocess.h"

DEFINE_string(server, "", "the server's URI");
DEFINE_string(journal, "", "the file to write to");
DEFINE_string(prefix, "", "of all keys");
DEFINE_int32(number, 0, "of this process; no two that use the same keys have the same");
DEFINE_int32(clients, 2, "clients, each with a thread");
DEFINE_int32(lanes, 4, "operations that each client has in flight");
DEFINE_int32(deadline_ms, 1000, "of each operation");
DEFINE_int32(
    pause_ms, 0,
    "between the beginnings of two operations of a client; above 0 it sleeps while it waits, "
    "so that the CPU is left to others");

namespace osprey {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

constexpr absl::Duration kConnectMax = absl::Seconds(20);
constexpr absl::Duration kFreedMax = absl::Seconds(5);
constexpr int64_t kSteadyNs = 1'000'000'000;
constexpr int64_t kSteadyMaxNs = 12'000'000'000;
constexpr absl::Duration kSweepDeadline = absl::Seconds(5);
constexpr size_t kErrorsMax = 50;
// Registered memory from this length on belongs to a client's buffers, which grow on demand
// (client/common/buffer_pool.h, kSlabBytesMin). A connection registers less.
constexpr uint64_t kBuffersBytesMin = 1 << 20;

int64_t NowNs() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The resources of this process.
struct Holdings {
  std::multiset<std::string> files;
  std::map<std::string, int> objects;  // of devices, by kind
};

// State shared by the threads.
struct Shared {
  std::unique_ptr<Journal> journal;
  std::atomic<int64_t> end_ns{0};
  std::atomic<int> asked{1};  // "up" requests, and one
  std::atomic<int64_t> values{0};
  std::atomic<uint64_t> connections{0};
  std::atomic<int> waiting{0};       // clients that are done, and wait for the others …
  std::atomic<bool> counted{false};  // … until all resources were counted
  std::atomic<bool> quit{false};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  // Under the mutex.
  std::map<std::string, int> errors;
  std::vector<int> served;  // by shard: clients with an operation done since the last request
  // Each written by one thread; read after `end_ns` was set, and after all threads have ended.
  Holdings held;  // when all clients were up for the first time
  std::vector<std::string> left_open;
};

// The open files of this process, except the folder that lists them and registered memory. A
// client's registered memory grows in use (Options::buffer_bytes_max).
std::multiset<std::string> OpenFiles() {
  std::multiset<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    const bool counts = target.rfind("/proc/", 0) != 0 && target.rfind("/memfd:", 0) != 0;
    if (!gone && counts) files.insert(target);
  }
  return files;
}

// The number of objects of each kind, except buffers, that RDMA devices hold for this process. The
// kernel lists them by thread.
std::map<std::string, int> DeviceObjects() {
  std::set<std::string> own;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task"))
    own.insert(thread.path().filename().string());
  std::map<std::string, int> objects;
  for (const char* kind : {"qp", "cm_id", "cq", "pd", "mr"}) {
    const ProgramResult shown = RunProgram({"rdma", "resource", "show", kind});
    for (absl::string_view line : absl::StrSplit(shown.out, '\n')) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      const auto pid = std::find(words.begin(), words.end(), "pid");
      const auto length = std::find(words.begin(), words.end(), "mrlen");
      uint64_t bytes = 0;
      if (words.end() - length > 1 && absl::SimpleAtoi(length[1], &bytes) &&
          bytes >= kBuffersBytesMin) {
        continue;
      }
      objects[kind] += words.end() - pid > 1 && own.count(pid[1]) != 0;
    }
  }
  return objects;
}

Holdings Held() { return {OpenFiles(), DeviceObjects()}; }

// The resources that have grown.
std::vector<std::string> More(const Holdings& before, const Holdings& now) {
  std::vector<std::string> more;
  std::set_difference(now.files.begin(), now.files.end(), before.files.begin(), before.files.end(),
                      std::back_inserter(more));
  for (const auto& [kind, count] : now.objects) {
    const auto found = before.objects.find(kind);
    const int had = found == before.objects.end() ? 0 : found->second;
    if (count > had) more.push_back(absl::StrCat(kind, ":", count, "_instead_of_", had));
  }
  return more;
}

class LoadClient {
 public:
  LoadClient(Shared& shared, int index)
      : shared_(shared), index_(index), random_(std::random_device()()) {}

  void Run() {
    if (!Connect()) return;
    while (!Finished()) {
      while (in_flight_ < FLAGS_lanes && IsDue() && StartOne()) {
      }
      client_->Wait(absl::Milliseconds(20));
    }
    const absl::Time until = absl::Now() + absl::Seconds(10);
    while (in_flight_ > 0 && absl::Now() < until) client_->Wait(absl::Milliseconds(20));
    if (!shared_.quit) Sweep();
    shared_.connections += client_->counters().connects;
    // All of them are still connected when the last one counts.
    if (++shared_.waiting == FLAGS_clients) Count();
    while (!shared_.counted && !shared_.failed) client_->Wait(absl::Milliseconds(5));
  }

 private:
  // The kernel may need a moment to free the resources of a connection that has just ended.
  void Count() {
    const absl::Time until = absl::Now() + kFreedMax;
    do {
      client_->Wait(absl::Milliseconds(20));
      shared_.left_open = More(shared_.held, Held());
    } while (!shared_.left_open.empty() && absl::Now() < until);
    shared_.counted = true;
  }

  static osprey::Options ClientOptions() {
    osprey::Options options;
    if (FLAGS_pause_ms > 0) options.wait = WaitMode::kEvent;
    return options;
  }

  bool Connect() {
    absl::Status status;
    for (const absl::Time until = absl::Now() + kConnectMax; absl::Now() < until;) {
      absl::StatusOr<std::unique_ptr<Client>> client =
          Client::Connect(FLAGS_server, ClientOptions());
      if (client.ok()) {
        client_ = *std::move(client);
        const std::lock_guard<std::mutex> lock(shared_.mutex);
        shared_.served.resize(client_->shards());
        return true;
      }
      status = client.status();
      absl::SleepFor(absl::Milliseconds(100));
    }
    Remember(status);
    shared_.failed = true;
    return false;
  }

  bool Finished() const {
    if (shared_.quit || shared_.failed) return true;
    const int64_t end = shared_.end_ns;
    if (end == 0) return false;
    const int64_t now = NowNs();
    const bool steady =
        last_done_ns_ > end && now - last_failed_ns_ > kSteadyNs && now - end > kSteadyNs / 2;
    return steady || now > end + kSteadyMaxNs;
  }

  // Reads every key, so that acknowledged writes are checked even if no later operation read them.
  void Sweep() {
    for (uint16_t key = static_cast<uint16_t>(index_); key < kFaultKeys;
         key = static_cast<uint16_t>(key + FLAGS_clients)) {
      JournalRecord call = NewCall(key, Kind::kGet);
      call.deadline_ns = absl::ToInt64Nanoseconds(kSweepDeadline);
      JournalRecord* const record = Call(call);
      if (record == nullptr) return;
      const absl::StatusOr<Value> value = client_->Get(FaultKey(FLAGS_prefix, key), kSweepDeadline);
      TakeValue(record, value, NowNs());
    }
  }

  JournalRecord NewCall(uint16_t key, Kind kind) const {
    JournalRecord call;
    call.key = key;
    call.client = static_cast<uint8_t>(index_);
    call.kind = kind;
    call.deadline_ns = int64_t{FLAGS_deadline_ms} * 1'000'000;
    return call;
  }

  JournalRecord* Call(JournalRecord call) {
    call.call_ns = NowNs();
    JournalRecord* const record = shared_.journal->Call(call);
    if (record == nullptr) {
      Remember(absl::ResourceExhaustedError("the journal is full"));
      shared_.failed = true;
    }
    return record;
  }

  bool IsDue() {
    const int64_t now = NowNs();
    if (now < due_ns_) return false;
    due_ns_ = now + int64_t{FLAGS_pause_ms} * 1'000'000;
    return true;
  }

  // False if no more now.
  bool StartOne() {
    const auto key = static_cast<uint16_t>(random_() % kFaultKeys);
    const uint32_t choice = random_() % 100;
    if (key >= kRegisters) return choice < 50 ? StartIncrement(key) : StartGet(key);
    if (choice < 45) return StartGet(key);
    if (choice < 75) return StartPut(key, Kind::kPut);
    if (choice < 82) return StartPut(key, Kind::kPutIfAbsent);
    if (choice < 92 && versions_[key] != 0) return StartPut(key, Kind::kPutIfVersion);
    return StartDelete(key, versions_[key] != 0 && choice % 2 == 0);
  }

  bool StartGet(uint16_t key) {
    JournalRecord* const record = Call(NewCall(key, Kind::kGet));
    if (record == nullptr) return false;
    return Started(record, client_->StartGet(
                               FaultKey(FLAGS_prefix, key),
                               [this, record](absl::StatusOr<Value> value) {
                                 const int64_t returned_ns = NowNs();
                                 --in_flight_;
                                 TakeValue(record, value, returned_ns);
                               },
                               Deadline()));
  }

  bool StartPut(uint16_t key, Kind kind) {
    JournalRecord call = NewCall(key, kind);
    call.written = int64_t{FLAGS_number} << 40 | ++shared_.values;
    WriteOptions options = Options();
    options.if_absent = kind == Kind::kPutIfAbsent;
    if (kind == Kind::kPutIfVersion) options.if_version = call.if_version = versions_[key];
    JournalRecord* const record = Call(call);
    if (record == nullptr) return false;
    return Started(record,
                   client_->StartPut(FaultKey(FLAGS_prefix, key), FaultValue(key, call.written),
                                     options, WhenWritten(record)));
  }

  bool StartDelete(uint16_t key, bool if_version) {
    JournalRecord call = NewCall(key, if_version ? Kind::kDeleteIfVersion : Kind::kDelete);
    WriteOptions options = Options();
    if (if_version) options.if_version = call.if_version = versions_[key];
    JournalRecord* const record = Call(call);
    if (record == nullptr) return false;
    return Started(record,
                   client_->StartDelete(FaultKey(FLAGS_prefix, key), options, WhenWritten(record)));
  }

  bool StartIncrement(uint16_t key) {
    JournalRecord call = NewCall(key, Kind::kIncrement);
    call.written = static_cast<int64_t>(1 + random_() % 9);
    JournalRecord* const record = Call(call);
    if (record == nullptr) return false;
    return Started(record,
                   client_->StartIncrement(FaultKey(FLAGS_prefix, key), call.written, Options(),
                                           [this, record](absl::StatusOr<Number> number) {
                                             const int64_t returned_ns = NowNs();
                                             --in_flight_;
                                             if (number.ok()) {
                                               record->answer = number->value;
                                               record->version = number->version;
                                             }
                                             Return(record, number.status(), returned_ns);
                                           }));
  }

  absl::Duration Deadline() const { return absl::Milliseconds(FLAGS_deadline_ms); }
  WriteOptions Options() const {
    WriteOptions options;
    options.deadline = Deadline();
    return options;
  }

  Client::WriteCallback WhenWritten(JournalRecord* record) {
    return [this, record](absl::StatusOr<uint64_t> version) {
      const int64_t returned_ns = NowNs();
      --in_flight_;
      const bool deleted = record->kind == Kind::kDelete || record->kind == Kind::kDeleteIfVersion;
      if (version.ok() && !deleted) record->version = versions_[record->key] = *version;
      Return(record, version.status(), returned_ns);
    };
  }

  bool Started(JournalRecord* record, const absl::Status& status) {
    if (status.ok()) {
      record->started_ns = NowNs();
      ++in_flight_;
    } else {
      Return(record, status, NowNs());
    }
    return status.ok();
  }

  void TakeValue(JournalRecord* record, const absl::StatusOr<Value>& value, int64_t returned_ns) {
    if (value.ok()) {
      record->version = versions_[record->key] = value->version;
      absl::optional<int64_t> number;
      int64_t count = 0;
      if (record->key < kRegisters) {
        number = NumberOfFaultValue(record->key, value->bytes);
      } else if (absl::SimpleAtoi(value->bytes, &count)) {
        number = count;
      }
      record->damaged = !number.has_value();
      record->answer = number.value_or(0);
    }
    Return(record, value.status(), returned_ns);
  }

  // `returned_ns` is read first in the callback. Verifying a value takes a while, in which this
  // process may be stopped.
  void Return(JournalRecord* record, const absl::Status& status, int64_t returned_ns) {
    record->outcome = OutcomeOf(status, record->kind);
    record->failed = record->outcome == Outcome::kUnknown || record->outcome == Outcome::kUnapplied;
    record->server_gone = ReasonOf(status) == Reason::kServerGone;
    record->returned_ns = returned_ns;
    Journal::Return(record);
    if (record->failed) {
      last_failed_ns_ = record->returned_ns;
      Remember(status);
      return;
    }
    NoteServed(client_->ShardOf(FaultKey(FLAGS_prefix, record->key)));
    last_done_ns_ = record->returned_ns;
  }

  void NoteServed(uint32_t shard) {
    if (const int asked = shared_.asked; asked != answered_) {
      answered_ = asked;
      served_.clear();
    }
    if (!served_.insert(shard).second) return;
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    if (shared_.asked == answered_) ++shared_.served[shard];
  }

  void Remember(const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    if (shared_.errors.size() < kErrorsMax) ++shared_.errors[status.ToString()];
  }

  Shared& shared_;
  const int index_;
  std::minstd_rand random_;
  std::unique_ptr<Client> client_;
  int in_flight_ = 0;
  int answered_ = 0;           // the last request that was seen, …
  std::set<uint32_t> served_;  // … and shards with an operation done since
  int64_t due_ns_ = 0;         // the next operation
  int64_t last_done_ns_ = 0;
  int64_t last_failed_ns_ = 0;
  uint64_t versions_[kFaultKeys] = {};  // last seen by this client
};

// Prints which shards have served all clients since the last request. Counts what is held before the
// last of the first lines, since the fault may follow it at once. `told` belongs to that request.
void TellServed(Shared& shared, std::set<uint32_t>& told) {
  std::vector<int> served;
  {
    const std::lock_guard<std::mutex> lock(shared.mutex);
    served = shared.served;
  }
  for (uint32_t shard = 0; shard < served.size(); ++shard) {
    if (served[shard] < FLAGS_clients || !told.insert(shard).second) continue;
    if (told.size() == served.size() && shared.held.files.empty()) shared.held = Held();
    std::printf("up %d %u\n", shared.asked.load(), shard);
    std::fflush(stdout);
  }
}

// Returns at "end" or "quit", or at the end of the input.
void AwaitEnd(Shared& shared) {
  std::set<uint32_t> told;
  while (shared.end_ns == 0 && !shared.failed) {
    TellServed(shared, told);
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, 20) <= 0) continue;
    char letter = 'q';
    if (read(STDIN_FILENO, &letter, 1) != 1) letter = 'q';
    if (letter == 'u') {
      const std::lock_guard<std::mutex> lock(shared.mutex);
      std::fill(shared.served.begin(), shared.served.end(), 0);
      ++shared.asked;
      told.clear();
    }
    if (letter != 'e' && letter != 'q') continue;
    shared.quit = letter == 'q';
    shared.end_ns = NowNs();
  }
}

// Measures how late an idle thread wakes. Any longer delay is not the machine's fault. Excludes the
// time that the process was stopped, in which a sleep also ends.
class Canary {
 public:
  Canary() : thread_([this] { Run(); }) {}
  // The largest delay, in seconds.
  double End() {
    ended_ = true;
    thread_.join();
    return static_cast<double>(late_ns_) / 1e9;
  }

 private:
  void Run() {
    constexpr int64_t kSleepNs = 5'000'000;
    while (!ended_) {
      const int64_t began = NowNs();
      absl::SleepFor(absl::Nanoseconds(kSleepNs));
      late_ns_ = std::max(late_ns_, NowNs() - began - kSleepNs);
    }
  }

  std::atomic<bool> ended_{false};
  int64_t late_ns_ = 0;
  std::thread thread_;
};

int Main() {
  Shared shared;
  absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Create(FLAGS_journal);
  if (!journal.ok()) {
    std::fprintf(stderr, "fault_load: %s\n", journal.status().ToString().c_str());
    return 4;
  }
  shared.journal = *std::move(journal);
  Canary canary;
  std::vector<std::thread> threads;
  for (int i = 0; i < FLAGS_clients; ++i)
    threads.emplace_back([&shared, i] { LoadClient(shared, i).Run(); });
  AwaitEnd(shared);
  for (std::thread& thread : threads) thread.join();
  std::printf("starved %.3f\n", canary.End());
  std::printf("connections %lu\nleft open %zu %s\n", shared.connections.load(),
              shared.left_open.size(), absl::StrJoin(shared.left_open, " ").c_str());
  for (const auto& [error, count] : shared.errors) std::printf("%d %s\n", count, error.c_str());
  return shared.failed ? 4 : 0;
}

}  // namespace
}  // namespace osprey

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return osprey::Main();
}
