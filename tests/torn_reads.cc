// Torn READs for real: one thread rewrites hot keys, others GET them by READs of an RDMA device
// whose copies nobody synchronises with the server's stores. Every byte of every value is checked,
// and that no value is older than a write that was acknowledged, or a value that was got, before
// the GET began.
//
//   tools/lab --cpu=max,-erms -- bazel-bin/tests/torn_reads.runfiles/osprey/tests/torn_reads
//
// Prints "ok - SENTENCE" or "not ok - SENTENCE" a case. Built twice: as torn_reads with the client
// that ships, and as torn_reads_unchecked with one that does not compare the checksums of items,
// which must show that wrong values would be noticed.
//
// The server's poller stores on one CPU while soft-RoCE copies on the reader's: the guest needs
// two. Writes come over shared memory, so that they cost little.

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
#include "index/test_hooks.h"
#include "server/flags.h"
#include "tests/subprocess.h"

DEFINE_string(cpu, "max", "the model of the guest's CPU, for the report; checked for erms");
DEFINE_double(seconds, 5, "for each size");
DEFINE_uint64(gets_min, 300000, "GETs of all sizes together; more rounds are made if need be");
DEFINE_uint64(torn_min, 300, "torn READs of all sizes together, below which nothing was shown");
DEFINE_uint64(keys, 4, "that are rewritten, each as soon as its last write was acknowledged");
DEFINE_uint64(readers, 1, "threads that GET, with a connection each");
DEFINE_uint64(depth, 8, "GETs that each of them has under way");
DEFINE_string(sizes, "8,40,256,900,4096,65536,0", "of values in bytes; 0: any, changing");

namespace osprey {
namespace {

constexpr size_t kKeysMax = 1024;
constexpr uint64_t kValueMin = 8;  // what a value says of itself: sequence, tag
constexpr uint64_t kValueMax = 64 << 10;
constexpr int kWrongShownMax = 5;
// Further rounds for what --gets_min and --torn_min want, of the size that is torn most.
constexpr int kMoreRoundsMax = 20;
constexpr uint64_t kTornMostSize = 900;
constexpr absl::Duration kDeadline = absl::Seconds(10);  // the two CPUs are busy, and emulated

uint64_t Mix(uint64_t word) {
  word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
  word = (word ^ word >> 27) * 0x94d049bb133111eb;
  return word ^ word >> 31;
}

// --- Values
// ---------------------------------------------------------------------------------------
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

// Keys of one size and what is known of them.
class HotKeys {
 public:
  HotKeys(uint64_t size, size_t count) : size_(size), count_(count) {}

  uint64_t size() const { return size_; }
  size_t count() const { return count_; }
  std::string Name(uint64_t key) const { return absl::StrCat("torn", size_, "/", key); }

  // Before the write is sent.
  uint32_t Begin(uint64_t key) { return started_[key].fetch_add(1) + 1; }
  // It was acknowledged, or its value was got: from now on nothing older is right.
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

// "" if `value` may be what a GET of `key` answers that began when `least` was known.
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

// --- Threads
// --------------------------------------------------------------------------------------

struct Report {
  uint64_t gets = 0;
  uint64_t wrong = 0;
  uint64_t failed = 0;  // GETs and writes that ended in an error
  uint64_t writes = 0;
  uint64_t torn = 0, retries = 0, rpc_gets = 0;
  double seconds = 0;

  void Add(const Report& other) {
    gets += other.gets, wrong += other.wrong, failed += other.failed, writes += other.writes;
    torn += other.torn, retries += other.retries, rpc_gets += other.rpc_gets;
  }
};

std::unique_ptr<Client> Connect(const std::string& uri, Report* report) {
  Options options;
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

// Each key has one write under way, so that its writes are applied in order.
class Writer {
 public:
  Writer(Client& client, HotKeys& keys, Report& report)
      : client_(client), keys_(keys), report_(report), values_(keys.count()) {}

  void Run(const std::atomic<bool>& stop) {
    for (uint64_t key = 0; key < keys_.count(); ++key) Write(key, stop);
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
      if (!stop.load()) Write(key, stop);
    };
    const absl::Status started = client_.StartPut(keys_.Name(key), values_[key], {}, done);
    if (!started.ok()) Fail(report_, started.ToString());
  }

  Client& client_;
  HotKeys& keys_;
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
    const auto done = [this, key, least = keys_.known(key)](absl::StatusOr<Value> value) {
      ++report_.gets;
      if (!value.ok()) return Fail(report_, value.status().ToString());
      const std::string wrong = WhatIsWrong(keys_, key, least, value->bytes);
      if (wrong.empty()) return;
      if (report_.wrong++ < kWrongShownMax) {
        std::printf("  %s: %s\n", names_[key].c_str(), wrong.c_str());
      }
    };
    const absl::Status started = client_.StartGet(names_[key], done);
    if (!started.ok()) Fail(report_, started.ToString());
  }

  Client& client_;
  HotKeys& keys_;
  Report& report_;
  std::mt19937_64 random_;
  std::vector<std::string> names_;
};

// One round with values of one size: a thread rewrites the keys as fast as it can, others GET them.
Report RewriteAndGet(const std::string& write_uri, const std::string& read_uri, uint64_t size) {
  HotKeys keys(size, std::min(FLAGS_keys, kKeysMax));
  std::vector<Report> reports(1 + FLAGS_readers);
  const std::unique_ptr<Client> writer = Connect(write_uri, &reports[0]);
  if (writer == nullptr) return reports[0];
  for (uint64_t key = 0; key < keys.count(); ++key) {
    std::string value;
    const uint32_t sequence = keys.Begin(key);
    WriteValue(key, sequence, size, &value);
    const absl::StatusOr<uint64_t> version = writer->Put(keys.Name(key), value);
    if (!version.ok()) Fail(reports[0], version.status().ToString());
    keys.Know(key, sequence);
  }

  const absl::Time began = absl::Now();
  const absl::Time end = began + absl::Seconds(FLAGS_seconds);
  std::atomic<bool> stop{false};
  std::thread writing([&] { Writer(*writer, keys, reports[0]).Run(stop); });
  std::vector<std::thread> reading;
  for (uint64_t i = 1; i <= FLAGS_readers; ++i) {
    reading.emplace_back([&, i] {
      const std::unique_ptr<Client> client = Connect(read_uri, &reports[i]);
      if (client != nullptr) Reader(*client, keys, reports[i], i).Run(end);
    });
  }
  for (std::thread& thread : reading) thread.join();
  stop.store(true);
  writing.join();

  Report sum;
  for (const Report& report : reports) sum.Add(report);
  sum.seconds = absl::ToDoubleSeconds(absl::Now() - began);
  return sum;
}

// --- Cases
// ----------------------------------------------------------------------------------------

bool Case(bool ok, const std::string& sentence) {
  std::printf("%sok - %s\n", ok ? "" : "not ", sentence.c_str());
  std::fflush(stdout);
  return ok;
}

std::string SizeName(uint64_t size) {
  return size == 0 ? absl::StrCat(kValueMin, " to ", kValueMax, " B") : absl::StrCat(size, " B");
}

std::string Figures(const Report& report) {
  char text[200];
  std::snprintf(text, sizeof(text),
                "%llu GETs, %llu torn READs rejected, %llu retries, %llu by message, "
                "%llu writes, %.1f s",
                0ull + report.gets, 0ull + report.torn, 0ull + report.retries,
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

std::vector<uint64_t> Sizes() {
  std::vector<uint64_t> sizes;
  for (absl::string_view text : absl::StrSplit(FLAGS_sizes, ',')) {
    uint64_t size = 0;
    if (absl::SimpleAtoi(text, &size) && size <= kValueMax && (size == 0 || size >= kValueMin))
      sizes.push_back(size);
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
    for (const uint64_t size : Sizes()) ok &= OfSize(size);
    const auto enough = [this] {
      return total_.gets >= FLAGS_gets_min && total_.torn >= FLAGS_torn_min;
    };
    for (int round = 0; round < kMoreRoundsMax && !enough(); ++round) ok &= OfSize(kTornMostSize);
    return Case(enough(), absl::StrCat(total_.torn, " torn READs were seen and rejected in ",
                                       total_.gets, " GETs", where_, "; at least ", FLAGS_torn_min,
                                       " in ", FLAGS_gets_min, " are wanted")) &&
           ok;
  }

  // What must happen when checksums of items are not compared.
  bool WrongValuesAreNoticed() {
    for (int round = 0; round < kMoreRoundsMax && total_.wrong == 0 && total_.failed == 0; ++round)
      total_.Add(RewriteAndGet(write_uri_, read_uri_, kTornMostSize));
    return Case(total_.wrong > 0,
                absl::StrCat("a client that compares no checksums of items is told wrong values, "
                             "which are noticed",
                             where_, " (", total_.wrong, " of ", total_.gets, ")"));
  }

 private:
  bool OfSize(uint64_t size) {
    const Report report = RewriteAndGet(write_uri_, read_uri_, size);
    total_.Add(report);
    return Case(
        report.wrong == 0 && report.failed == 0 && report.gets > 0,
        absl::StrCat("GETs of values of ", SizeName(size), " that are being rewritten answer ",
                     "every byte as it was written, and nothing old,", where_, " (",
                     Figures(report), ")"));
  }

  const std::string write_uri_, read_uri_;
  const std::string where_ = absl::StrCat(" with the CPU model ", FLAGS_cpu);
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
  index::seeded_bug = index::SeededBug::kNoItemChecksum;
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
