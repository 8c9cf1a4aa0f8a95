// Torn READs on the real stack. Threads rewrite hot keys, and others GET them by READs of an RDMA
// device, whose copies are not synchronised with the server's stores. The test checks every byte of
// every value. It also checks that no value is older than a write acknowledged, or a value read,
// before the GET began.
//
// No size is READ atomically. A processor may copy a word or a cache line whole, but a GET READs a
// record, whose checksum covers all of it:
//
//   8 B             is inline. READ is its window, 256 B, whose line each write rewrites.
//   40, 256, 900 B  items that are rewritten in place, so a READ may have bytes of two values.
//   4 KiB, 64 KiB   each write makes a new item. A READ may meet changes of the line, which gets
//                   the new slot, and of the headers. The old item gets its dead mark, and the
//                   new one's version is odd until the write's instant. These are few bytes of
//                   many. So between two writes the key's time to live is extended several
//                   times, and each extension rewrites the header in place.
//
// The sizes differ in how often they are torn. From 900 B on, a few rounds of some seconds show it
// with both models, so torn READs are required of each such size. READ and write of shorter ones
// take little time. It is shorter still if the kernel copies by words (max,-erms) instead of by one
// `rep movsb`. With max, 1 to 8 READs in 100,000 of 8 and 40 B were torn; with max,-erms 1 in
// 1,000,000; of 256 B some 3 in 100,000. These count in the sum; --long requires some of each size
// that can be expected (--torn_each_from).
//
// Torn READs also come in bursts: while the server's thread is descheduled during a write, all
// READs of that record are torn.
//
// (Values longer than 256 KiB come in pieces, in no order and with other writes between: the
// simulation tears those.) Half of the readers cache no locations, so each of their GETs READs the
// line as well. The others mostly READ the cached item, new or dead. About half of the GETs block
// (MultiGet). Now and then a reader asks whether a key exists, which is always true: an answer
// without a value takes another path through the lookup.
//
//   tools/lab --cpu=max,-erms -- bazel-bin/tests/system/torn_reads.runfiles/osprey/tests/system/torn_reads
//
// Prints "ok - SENTENCE" or "not ok - SENTENCE" for each case. It is built twice. torn_reads has
// the client that ships. torn_reads_unchecked has one that does not compare the checksums of items,
// and must show that the test detects wrong values.
//
// The server's poller stores on one CPU while soft-RoCE copies on a reader's, so the guest needs
// two. Writes use shared memory, so they cost little.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gflags/gflags.h"
#include "index/layout/test_hooks.h"
#include "server/program/flags.h"
#include "tests/support/subprocess.h"

DEFINE_string(cpu, "max", "the model of the guest's CPU, for the report; checked for erms");
DEFINE_double(seconds, 3, "for each size, in each round");
DEFINE_int32(rounds_max, 20, "more than the first are made if less was seen than is required");
DEFINE_uint64(gets_min, 300000, "GETs of all sizes together, below which nothing was shown");
DEFINE_uint64(torn_min, 300, "torn READs of all sizes together, likewise");
DEFINE_uint64(torn_min_each, 1, "torn READs of each size from --torn_each_from on, likewise");
DEFINE_uint64(torn_each_from, 900, "in bytes; what tears too rarely counts in the sum alone");
DEFINE_uint64(keys, 4, "that are rewritten, each as soon as its last write was acknowledged");
DEFINE_uint64(writers, 2, "threads that rewrite, each its part of the keys by its own connection");
DEFINE_uint64(readers, 2, "threads that GET, with a connection each");
DEFINE_uint64(depth, 8, "GETs that each of them has under way");
DEFINE_string(sizes, "8,40,256,900,4096,65536,0", "of values in bytes; 0: any, changing");

namespace osprey {
namespace {

constexpr size_t kKeysMax = 1024;
constexpr uint64_t kValueMin = 8;  // a value's own header: sequence, tag
constexpr uint64_t kValueMax = 64 << 10;
constexpr int kWrongShownMax = 5;
constexpr size_t kGetsAtOnce = 8;
constexpr uint64_t kGetsAnExists = 8;
constexpr uint64_t kTornMostSize = 900;
// Longer values are not rewritten in place (index/space/item_store.h, kInPlaceBytesMax).
constexpr uint64_t kInPlaceSizeMax = 900;
constexpr int kProlongedTimes = 16;
constexpr absl::Duration kDeadline = absl::Seconds(10);  // the two CPUs are busy, and emulated

uint64_t Mix(uint64_t word) {
  word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
  word = (word ^ word >> 27) * 0x94d049bb133111eb;
  return word ^ word >> 31;
}

// --- Values --------------------------------------------------------------------------------------
//
//    0        4       8
//   +--------+-------+---------------------------+
//   | seq    | tag   | words i = base + i * step |   little-endian; the last word may be cut
//   +--------+-------+---------------------------+
//
// Tag, base and step, and the length if it changes, follow from key and sequence.

struct Pattern {
  Pattern(uint64_t key, uint32_t sequence)
      : seed(Mix(key << 32 | sequence)), base(Mix(seed)), step(base | 1) {}
  uint64_t seed, base, step;

  uint64_t Length(uint64_t size) const {
    if (size != 0) return size;
    // As many short ones as long ones.
    const uint64_t magnitude = uint64_t{16} << (seed >> 40) % 13;  // 16 to 65536
    return kValueMin + base % (magnitude - kValueMin + 1);
  }
};

void WriteValue(uint64_t key, uint32_t sequence, uint64_t size, std::string* value) {
  const Pattern pattern(key, sequence);
  value->resize(pattern.Length(size));
  const auto tag = static_cast<uint32_t>(pattern.seed);
  char* const data = value->data();
  std::memcpy(data, &sequence, 4);
  std::memcpy(data + 4, &tag, 4);
  uint64_t word = pattern.base;
  size_t at = kValueMin;
  for (; at + 8 <= value->size(); at += 8, word += pattern.step) std::memcpy(data + at, &word, 8);
  std::memcpy(data + at, &word, value->size() - at);
}

// Keys of one size and their recorded state.
class HotKeys {
 public:
  HotKeys(uint64_t size, size_t count) : size_(size), count_(count) {}

  uint64_t size() const { return size_; }
  size_t count() const { return count_; }
  std::string Name(uint64_t key) const { return absl::StrCat("torn", size_, "/", key); }

  // Before the write is sent.
  uint32_t Begin(uint64_t key) { return started_[key].fetch_add(1) + 1; }
  // Called when a write was acknowledged, or its value was read: from now on no older value is
  // right.
  void Know(uint64_t key, uint32_t sequence) {
    uint32_t known = known_[key].load();
    while (known < sequence && !known_[key].compare_exchange_weak(known, sequence)) {
    }
  }
  uint32_t known(uint64_t key) const { return known_[key].load(); }
  uint32_t started(uint64_t key) const { return started_[key].load(); }

 private:
  const uint64_t size_;
  const size_t count_;
  std::array<std::atomic<uint32_t>, kKeysMax> started_{}, known_{};
};

// "" if `value` is a possible answer of a GET of `key` that began when `least` was the last
// recorded write.
std::string WhatIsWrong(HotKeys& keys, uint64_t key, uint32_t least, const std::string& value) {
  if (value.size() < kValueMin) return absl::StrCat(value.size(), " bytes are none of ours");
  uint32_t sequence = 0;
  std::memcpy(&sequence, value.data(), 4);
  if (sequence > keys.started(key)) return absl::StrCat("write ", sequence, " has not begun");
  static thread_local std::string right;
  WriteValue(key, sequence, keys.size(), &right);
  if (value.size() != right.size()) return absl::StrCat("write ", sequence, " is of another size");
  if (value != right) {
    const auto differs = std::mismatch(value.begin(), value.end(), right.begin()).first;
    return absl::StrCat("not what write ", sequence, " wrote, from byte ", differs - value.begin(),
                        " of ", value.size(), " on");
  }
  if (sequence < least) return absl::StrCat("write ", sequence, " when ", least, " was known");
  keys.Know(key, sequence);
  return "";
}

// --- Threads -------------------------------------------------------------------------------------

struct Report {
  uint64_t gets = 0;
  uint64_t exists = 0;  // questions whether a key exists
  uint64_t wrong = 0;
  uint64_t failed = 0;  // GETs and writes that ended in an error
  uint64_t writes = 0;
  uint64_t torn = 0, retries = 0, rpc_gets = 0;
  double seconds = 0;

  void Add(const Report& other) {
    gets += other.gets, exists += other.exists, wrong += other.wrong, failed += other.failed;
    writes += other.writes, torn += other.torn, retries += other.retries;
    rpc_gets += other.rpc_gets, seconds += other.seconds;
  }
};

std::unique_ptr<Client> Connect(const std::string& uri, Report* report, Options options = {}) {
  options.deadline = kDeadline;
  options.connect_timeout = kDeadline;
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(uri, options);
  if (client.ok()) return *std::move(client);
  ++report->failed;
  std::printf("  %s\n", client.status().ToString().c_str());
  return nullptr;
}

void Fail(Report& report, const std::string& what) {
  if (report.failed++ < kWrongShownMax) std::printf("  %s\n", what.c_str());
}

// Writes the keys `first`, `first` + --writers and so on. Each key has one write under way, so that
// its writes are applied in order.
class Writer {
 public:
  Writer(Client& client, HotKeys& keys, uint64_t first, Report& report)
      : client_(client), keys_(keys), first_(first), report_(report), values_(keys.count()) {}

  void Run(const std::atomic<bool>& stop) {
    for (uint64_t key = first_; key < keys_.count(); key += FLAGS_writers) Write(key, stop);
    while (client_.in_flight() > 0) client_.Wait(kDeadline);
  }

 private:
  void Write(uint64_t key, const std::atomic<bool>& stop) {
    const uint32_t sequence = keys_.Begin(key);
    WriteValue(key, sequence, keys_.size(), &values_[key]);
    const auto done = [this, key, sequence, &stop](absl::StatusOr<uint64_t> version) {
      ++report_.writes;
      if (!version.ok()) return Fail(report_, version.status().ToString());
      keys_.Know(key, sequence);
      const bool is_in_place = keys_.size() != 0 && keys_.size() <= kInPlaceSizeMax;
      Continue(key, stop, is_in_place ? 0 : kProlongedTimes);
    };
    const absl::Status started = client_.StartPut(keys_.Name(key), values_[key], {}, done);
    if (!started.ok()) Fail(report_, started.ToString());
  }

  // The next write, after several extensions of the time to live.
  void Continue(uint64_t key, const std::atomic<bool>& stop, int prolong) {
    if (stop.load()) return;
    if (prolong == 0) return Write(key, stop);
    const auto done = [this, key, prolong, &stop](const absl::StatusOr<uint64_t>& version) {
      if (!version.ok()) return Fail(report_, version.status().ToString());
      Continue(key, stop, prolong - 1);
    };
    const absl::Status started =
        client_.StartExpire(keys_.Name(key), absl::Hours(1 + prolong), {}, done);
    if (!started.ok()) Fail(report_, started.ToString());
  }

  Client& client_;
  HotKeys& keys_;
  const uint64_t first_;
  Report& report_;
  std::vector<std::string> values_;
};

class Reader {
 public:
  Reader(Client& client, HotKeys& keys, Report& report, uint64_t seed)
      : client_(client), keys_(keys), report_(report), random_(seed) {
    for (uint64_t key = 0; key < keys.count(); ++key) names_.push_back(keys.Name(key));
  }

  void Run(absl::Time end) {
    bool more = true;
    while (more || client_.in_flight() > 0) {
      while (more && client_.in_flight() < static_cast<int>(FLAGS_depth)) Get();
      // Blocking and asynchronous GETs use different code.
      if (more && random_() % 2 == 0) GetMany();
      client_.Poll();
      more = more && absl::Now() < end && report_.failed == 0;
    }
    const Counters& counters = client_.counters();
    report_.torn = counters.torn;
    report_.retries = counters.retries;
    report_.rpc_gets = counters.rpc_gets;
  }

 private:
  void Get() {
    const uint64_t key = random_() % keys_.count();
    if (random_() % kGetsAnExists == 0) return Exists(key);
    const auto done = [this, key, least = keys_.known(key)](const absl::StatusOr<Value>& value) {
      Judge(key, least, value);
    };
    const absl::Status started = client_.StartGet(names_[key], done);
    if (!started.ok()) Fail(report_, started.ToString());
  }

  void Exists(uint64_t key) {
    const auto done = [this, key](const absl::StatusOr<bool>& exists) {
      ++report_.exists;
      if (!exists.ok()) return Fail(report_, exists.status().ToString());
      if (!*exists) Wrong(key, "is said not to exist");
    };
    const absl::Status started = client_.StartExists(names_[key], done);
    if (!started.ok()) Fail(report_, started.ToString());
  }

  void GetMany() {
    std::array<uint64_t, kGetsAtOnce> keys;
    std::array<uint32_t, kGetsAtOnce> least;
    std::array<absl::string_view, kGetsAtOnce> names;
    for (size_t i = 0; i < kGetsAtOnce; ++i) {
      keys[i] = random_() % keys_.count();
      least[i] = keys_.known(keys[i]);
      names[i] = names_[keys[i]];
    }
    const std::vector<absl::StatusOr<Value>> values = client_.MultiGet(names);
    for (size_t i = 0; i < kGetsAtOnce; ++i) Judge(keys[i], least[i], values[i]);
  }

  // Checks a GET that began when write `least` was recorded as done.
  void Judge(uint64_t key, uint32_t least, const absl::StatusOr<Value>& value) {
    ++report_.gets;
    if (!value.ok()) return Fail(report_, value.status().ToString());
    const std::string wrong = WhatIsWrong(keys_, key, least, value->bytes);
    if (!wrong.empty()) Wrong(key, wrong);
  }

  void Wrong(uint64_t key, const std::string& what) {
    if (report_.wrong++ < kWrongShownMax)
      std::printf("  %s: %s\n", names_[key].c_str(), what.c_str());
  }

  Client& client_;
  HotKeys& keys_;
  Report& report_;
  std::mt19937_64 random_;
  std::vector<std::string> names_;
};

bool WriteAll(Client& client, HotKeys& keys, Report& report) {
  for (uint64_t key = 0; key < keys.count(); ++key) {
    std::string value;
    const uint32_t sequence = keys.Begin(key);
    WriteValue(key, sequence, keys.size(), &value);
    const absl::StatusOr<uint64_t> version = client.Put(keys.Name(key), value);
    if (!version.ok()) Fail(report, version.status().ToString());
    keys.Know(key, sequence);
  }
  return report.failed == 0;
}

// For --seconds, with values of one size.
Report RewriteAndGet(const std::string& write_uri, const std::string& read_uri, uint64_t size) {
  HotKeys keys(size, std::min(FLAGS_keys, kKeysMax));
  std::vector<Report> reports(FLAGS_writers + FLAGS_readers);
  std::vector<std::unique_ptr<Client>> clients;
  for (uint64_t i = 0; i < reports.size(); ++i) {
    Options options;
    if (i >= FLAGS_writers && i % 2 == 1) options.slot_cache_bytes = 0;
    clients.push_back(Connect(i < FLAGS_writers ? write_uri : read_uri, &reports[i], options));
    if (clients.back() == nullptr) return reports[i];
  }
  if (!WriteAll(*clients[0], keys, reports[0])) return reports[0];

  const absl::Time began = absl::Now();
  const absl::Time end = began + absl::Seconds(FLAGS_seconds);
  std::atomic<bool> stop{false};
  std::vector<std::thread> writing, reading;
  for (uint64_t i = 0; i < reports.size(); ++i) {
    if (i < FLAGS_writers) {
      writing.emplace_back([&, i] { Writer(*clients[i], keys, i, reports[i]).Run(stop); });
    } else {
      reading.emplace_back([&, i] { Reader(*clients[i], keys, reports[i], i).Run(end); });
    }
  }
  for (std::thread& thread : reading) thread.join();
  stop.store(true);
  for (std::thread& thread : writing) thread.join();

  Report sum;
  for (const Report& report : reports) sum.Add(report);
  sum.seconds = absl::ToDoubleSeconds(absl::Now() - began);
  return sum;
}

// --- Cases ---------------------------------------------------------------------------------------

bool Case(bool ok, const std::string& sentence) {
  std::printf("%sok - %s\n", ok ? "" : "not ", sentence.c_str());
  std::fflush(stdout);
  return ok;
}

std::string SizeName(uint64_t size) {
  return size == 0 ? absl::StrCat(kValueMin, " to ", kValueMax, " B") : absl::StrCat(size, " B");
}

std::string MetricTable(const Report& report) {
  char text[200];
  std::snprintf(text, sizeof(text),
                "%llu GETs, %llu EXISTS, %llu torn READs rejected, %llu retries, %llu by message, "
                "%llu writes, %.0f s",
                0ull + report.gets, 0ull + report.exists, 0ull + report.torn, 0ull + report.retries,
                0ull + report.rpc_gets, 0ull + report.writes, report.seconds);
  return text;
}

bool CpuHasErms() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (absl::StartsWith(line, "flags")) return absl::StrContains(line + " ", " erms ");
  }
  return false;
}

struct OfSize {
  uint64_t size = 0;
  Report report;
};

std::vector<OfSize> Sizes() {
  std::vector<OfSize> sizes;
  for (absl::string_view text : absl::StrSplit(FLAGS_sizes, ',')) {
    uint64_t size = 0;
    if (absl::SimpleAtoi(text, &size) && size <= kValueMax && (size == 0 || size >= kValueMin))
      sizes.push_back({size, {}});
  }
  return sizes;
}

class Cases {
 public:
  Cases(std::string write_uri, std::string read_uri)
      : write_uri_(std::move(write_uri)), read_uri_(std::move(read_uri)) {}

  bool NoWrongValueIsTold() {
    bool ok = Case(CpuHasErms() != absl::StrContains(FLAGS_cpu, "-erms"),
                   absl::StrCat("the guest has", CpuHasErms() ? "" : " not",
                                " the CPU's feature erms", where_));
    for (int round = 1; round <= FLAGS_rounds_max && !Enough() && IsGood(total_); ++round) {
      for (OfSize& of_size : sizes_) {
        if (!EnoughInAll() || !EnoughOf(of_size)) Run(round, of_size);
      }
    }
    for (const OfSize& of_size : sizes_) ok &= CaseOf(of_size);
    return Case(EnoughInAll(),
                absl::StrCat(total_.torn, " torn READs were seen and rejected in ", total_.gets,
                             " GETs", where_, "; at least ", FLAGS_torn_min, " in ", FLAGS_gets_min,
                             " are required")) &&
           ok;
  }

  // The expected result if checksums of items are not compared.
  bool WrongValuesAreNoticed() {
    for (int round = 0; round < FLAGS_rounds_max && IsGood(total_); ++round)
      total_.Add(RewriteAndGet(write_uri_, read_uri_, kTornMostSize));
    return Case(total_.wrong > 0,
                absl::StrCat("a client that compares no checksums of items gets wrong values, "
                             "which are noticed",
                             where_, " (", total_.wrong, " of ", total_.gets, ")"));
  }

 private:
  static bool IsGood(const Report& report) { return report.wrong == 0 && report.failed == 0; }
  static bool EnoughOf(const OfSize& of_size) {
    const bool is_rare = of_size.size != 0 && of_size.size < FLAGS_torn_each_from;
    return of_size.report.gets > 0 && (is_rare || of_size.report.torn >= FLAGS_torn_min_each);
  }
  bool EnoughInAll() const {
    return total_.gets >= FLAGS_gets_min && total_.torn >= FLAGS_torn_min;
  }
  bool Enough() const {
    return EnoughInAll() && std::all_of(sizes_.begin(), sizes_.end(), EnoughOf);
  }

  void Run(int round, OfSize& of_size) {
    const Report report = RewriteAndGet(write_uri_, read_uri_, of_size.size);
    of_size.report.Add(report);
    total_.Add(report);
    std::printf("  round %d, %s: %s; in all %llu of %llu GETs, %llu torn\n", round,
                SizeName(of_size.size).c_str(), MetricTable(report).c_str(), 0ull + total_.gets,
                0ull + FLAGS_gets_min, 0ull + total_.torn);
    std::fflush(stdout);
  }

  bool CaseOf(const OfSize& of_size) const {
    const std::string is_void =
        EnoughOf(of_size) ? ""
        : of_size.report.gets == 0
            ? ": void, since no GET was answered"
            : absl::StrCat(": void, since fewer than ", FLAGS_torn_min_each, " READs were torn");
    return Case(IsGood(of_size.report) && EnoughOf(of_size),
                absl::StrCat("GETs of values of ", SizeName(of_size.size),
                             " that are being rewritten answer ",
                             "every byte as it was written, and nothing old,", where_, " (",
                             MetricTable(of_size.report), ")", is_void));
  }

  const std::string write_uri_, read_uri_;
  const std::string where_ = absl::StrCat(" with the CPU model ", FLAGS_cpu);
  std::vector<OfSize> sizes_ = Sizes();
  Report total_;
};

}  // namespace

int Main() {
  const std::string write_uri = absl::StrCat("shm://", NewTemporaryDirectory(), "/socket");
  const absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(
      absl::StrCat(NewListenAddress(), ",", write_uri), {"--memory=256MiB", "--poll=busy"});
  if (!server.ok()) {
    Case(false, absl::StrCat("a server starts: ", server.status().ToString()));
    return 1;
  }
  Cases cases(write_uri, (*server)->uri());
#ifdef OSPREY_INDEX_TEST_HOOKS
  index::active_mutant = index::Mutant::kNoItemChecksum;
  return cases.WrongValuesAreNoticed() ? 0 : 1;
#else
  return cases.NoWrongValueIsTold() ? 0 : 1;
#endif
}

}  // namespace osprey

int main(int argc, char** argv) {
  const absl::StatusOr<std::vector<std::string>> words =
      osprey::ParseFlags(osprey::ArgumentsOf(argc, argv));
  if (!words.ok()) {
    std::fprintf(stderr, "torn_reads: %s\n", std::string(words.status().message()).c_str());
    return 2;
  }
  return osprey::Main();
}
