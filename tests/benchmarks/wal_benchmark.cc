// Entries a second that server/wal appends to a directory of this machine, written, or written and
// synced each time. The rows differ in the length of the value and the entries of a batch.
//
//   bazel run //tests/benchmarks:wal_benchmark -- --directory=/var/tmp
//   bazel-bin/tests/benchmarks/wal_benchmark --values=64,4096 --batches=1,64 --seconds=2
//
// One thread appends a group with the entries of a batch (keys of 16 B) and writes it. With sync it
// also syncs, before the next batch. Then a log of such entries is read. In the last rows each thread
// awaits each of its entries, which a SyncThread syncs together (group commit). CPU is that of all
// threads.

#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gflags/gflags.h"
#include "server/wal/disk/posix_file_system.h"
#include "server/wal/format/checksum.h"
#include "server/wal/log.h"
#include "server/wal/sync_thread.h"

DEFINE_string(directory, "/var/tmp", "a folder of the disk to measure; a new one in it is used");
DEFINE_string(values, "64,4096,1048576", "bytes");
DEFINE_string(batches, "1,64,256", "entries");
DEFINE_string(threads, "1,16,64,256", "of the group commit");
DEFINE_double(seconds, 2, "for each");
DEFINE_uint64(bytes_max, uint64_t{2} << 30, "written for each, at most");

namespace osprey::server::wal {
namespace {

struct CountingVisitor final : public ReplayVisitor {
  absl::Status OnGroup(const LogRecord&, const Group& group,
                       const std::vector<std::vector<PiecePlace>>&) override {
    entries += group.entries.size();
    return absl::OkStatus();
  }
  uint64_t entries = 0;
};

double CpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void Check(const absl::Status& status) {
  if (status.ok()) return;
  absl::FPrintF(stderr, "wal_benchmark: %s\n", status.message());
  std::exit(4);
}

// An empty log in a new folder, which is removed at the end.
class Subject {
 public:
  Subject() {
    std::string pattern = absl::StrCat(FLAGS_directory, "/wal_benchmark.XXXXXX");
    if (mkdtemp(pattern.data()) == nullptr) {
      absl::FPrintF(stderr, "wal_benchmark: no folder can be made in %s\n", FLAGS_directory);
      std::exit(4);
    }
    path_ = pattern;
    files_ = OpenPosixFileSystem(path_).value();
    Open();
  }
  ~Subject() {
    log_.reset();
    std::filesystem::remove_all(path_);
  }
  Log& log() { return *log_; }
  // Ends the log, reads it, and starts it again. Returns the entries read.
  uint64_t Open() {
    log_.reset();
    directory_.reset();
    directory_ =
        DataDirectory::Open(*files_, NewDirectory(), [this] { return random_() | 1; }).value();
    CountingVisitor visitor;
    const LogEnd end = Replay(*directory_, visitor).value();
    LogOptions options;
    // Those that await a sync would await it forever.
    options.progressed = [this] { Check(log_->status()); };
    log_ = StartLog(*directory_, end, options).value();
    return visitor.entries;
  }

 private:
  std::string path_;
  std::mt19937_64 random_{1};
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<DataDirectory> directory_;
  std::unique_ptr<Log> log_;
};

// As a server does, values above 64 KiB go in pieces, here of up to 1 MiB: one for each entry.
void AppendBatch(Log& log, uint64_t count, const std::string& value) {
  const Bytes bytes = BytesOfText(value);
  const bool in_pieces = value.size() > (64 << 10);
  GroupBuilder group((GroupHeader()));
  for (uint64_t i = 0; i < count; ++i) {
    Entry entry;
    entry.key = "key-0123456789ab";
    entry.value_length = value.size();
    if (in_pieces) {
      entry.value_checksum = Checksum(bytes, 0);
      const BodyPart part{bytes, true};
      absl::StatusOr<uint64_t> number = log.Append({{RecordKind::kPiece, {&part, 1}}});
      // More than the queue may hold.
      if (absl::IsAborted(number.status())) {
        Check(log.Write());
        number = log.Append({{RecordKind::kPiece, {&part, 1}}});
      }
      Check(number.status());
      entry.pieces = {{*number, static_cast<uint32_t>(value.size()), 0}};
    } else {
      entry.value = bytes;
    }
    group.Add(entry);
  }
  Check(log.Append({{RecordKind::kEntries, group.Parts()}}).status());
}

void MeasureBatches(uint64_t value_bytes, uint64_t batch, bool synced) {
  Subject subject;
  Log& log = subject.log();
  const std::string value(value_bytes, 'v');
  const absl::Time begin = absl::Now();
  const double cpu = CpuSeconds();
  uint64_t entries = 0, bytes = 0;
  double seconds = 0;
  std::vector<double> latencies;
  while (seconds < FLAGS_seconds && bytes < FLAGS_bytes_max) {
    const absl::Time start = absl::Now();
    AppendBatch(log, batch, value);
    Check(log.Write());
    if (synced) Check(log.Sync());
    const absl::Time end = absl::Now();
    latencies.push_back(absl::ToDoubleMicroseconds(end - start));
    entries += batch;
    bytes += batch * value_bytes;
    seconds = absl::ToDoubleSeconds(end - begin);
  }
  std::nth_element(latencies.begin(), latencies.begin() + latencies.size() / 2, latencies.end());
  absl::PrintF("%8d B  %4d  %-7s %12.0f/s %9.1f MB/s %8.2f us CPU %10.1f us p50\n", value_bytes,
               batch, synced ? "synced" : "written", entries / seconds, bytes / seconds / 1e6,
               (CpuSeconds() - cpu) / entries * 1e6, latencies[latencies.size() / 2]);
}

void MeasureReplay(uint64_t value_bytes) {
  Subject subject;
  const std::string value(value_bytes, 'v');
  while (subject.log().bytes_written() < FLAGS_bytes_max / 4) {
    AppendBatch(subject.log(), 64, value);
    Check(subject.log().Write());
  }
  Check(subject.log().Sync());
  const double bytes = static_cast<double>(subject.log().bytes_written());
  const double cpu = CpuSeconds();
  const absl::Time begin = absl::Now();
  const uint64_t entries = subject.Open();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  absl::PrintF("%8d B  %4d  %-7s %12.0f/s %9.1f MB/s %8.2f us CPU\n", value_bytes, 64, "read",
               entries / seconds, bytes / seconds / 1e6, (CpuSeconds() - cpu) / entries * 1e6);
}

void MeasureGroupCommit(uint64_t threads) {
  Subject subject;
  Log& log = subject.log();
  std::atomic<uint64_t> entries{0};
  const double cpu = CpuSeconds();
  const absl::Time begin = absl::Now();
  {
    absl::StatusOr<std::unique_ptr<SyncThread>> sync_thread =
        SyncThread::Start(log, SyncThread::Clock::duration::zero());
    Check(sync_thread.status());
    std::vector<std::thread> clients;
    for (uint64_t i = 0; i < threads; ++i) {
      clients.emplace_back([&] {
        const std::string value(64, 'v');
        while (absl::Now() - begin < absl::Seconds(FLAGS_seconds)) {
          AppendBatch(log, 1, value);
          const uint64_t number = log.appended();
          Check(log.Write());
          (*sync_thread)->Kick();
          for (uint64_t before = log.synced(); before < number; before = log.synced())
            std::this_thread::yield();
          ++entries;
        }
      });
    }
    for (std::thread& client : clients) client.join();
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  absl::PrintF("%8d threads, each awaits its entry of 64 B %12.0f/s %8.2f us CPU\n", threads,
               entries / seconds, (CpuSeconds() - cpu) / entries * 1e6);
}

std::vector<uint64_t> Numbers(const std::string& text) {
  std::vector<uint64_t> numbers;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(part, &number) || number == 0) {
      absl::FPrintF(stderr, "wal_benchmark: '%s' is no list of numbers, such as 1,64\n", text);
      std::exit(2);
    }
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace
}  // namespace osprey::server::wal

int main(int argc, char** argv) {
  using namespace osprey::server::wal;
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (!(FLAGS_seconds > 0) || FLAGS_bytes_max < 4) {
    absl::FPrintF(stderr, "wal_benchmark: --seconds must be above 0, --bytes_max at least 4\n");
    return 2;
  }
  for (const uint64_t value : Numbers(FLAGS_values)) {
    for (const uint64_t batch : Numbers(FLAGS_batches)) {
      for (const bool synced : {false, true}) MeasureBatches(value, batch, synced);
    }
    MeasureReplay(value);
  }
  for (const uint64_t threads : Numbers(FLAGS_threads)) MeasureGroupCommit(threads);
}
