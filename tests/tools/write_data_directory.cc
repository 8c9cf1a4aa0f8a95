// Writes a data directory as a server does, for tests of kvcli.
//
//   write_data_directory DIR RECORDS    a checkpoint after a third and after two thirds; a clean end
//   write_data_directory DIR live       records and checkpoints until standard input ends; prints
//                                       "synced N" behind each sync
//
// DIR is made if it is not there. Each record is a put of its own key.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/server/wal/directory_writer.h"

namespace osprey::server::wal {
namespace {

constexpr uint32_t kParts = 2;

absl::Status Write(DirectoryWriter& writer, uint64_t records) {
  for (uint64_t i = 1; i <= records; ++i) {
    const absl::StatusOr<uint64_t> number = writer.Put(std::string(i % 5000, 'v'));
    if (!number.ok()) return number.status();
    if (i == records / 3 || i == records * 2 / 3) {
      const absl::Status status = writer.Checkpoint(kParts);
      if (!status.ok()) return status;
    }
  }
  return writer.End(uint64_t{1'700'000'000} * 1'000'000'000);
}

absl::Status WriteUntilInputEnds(DirectoryWriter& writer) {
  std::atomic<bool> ends{false};
  std::thread input([&ends] {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    ends = true;
  });
  absl::Status status;
  for (uint64_t i = 1; !ends && status.ok(); ++i) {
    const absl::StatusOr<uint64_t> number = writer.Put(std::string(i % 5000, 'v'));
    status = number.status();
    if (status.ok() && i % 10 == 0) {
      status = writer.Sync();
      std::printf("synced %llu\n", static_cast<unsigned long long>(*number));
      std::fflush(stdout);
    }
    if (status.ok() && i % 300 == 0) status = writer.Checkpoint(kParts);
  }
  input.join();
  return status;
}

int Main(const std::string& path, const std::string& what) {
  mkdir(path.c_str(), 0700);
  LogOptions options;
  // A reader of a slow machine finds the time between two segments of a live one.
  options.segment_bytes = (what == "live" ? 256 : 64) << 10;
  absl::StatusOr<std::unique_ptr<DirectoryWriter>> writer = DirectoryWriter::Open(path, options);
  absl::Status status = writer.status();
  uint64_t records = 0;
  if (status.ok() && what == "live") {
    status = WriteUntilInputEnds(**writer);
  } else if (status.ok() && absl::SimpleAtoi(what, &records)) {
    status = Write(**writer, records);
  } else if (status.ok()) {
    status = absl::InvalidArgumentError("write RECORDS or live");
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace osprey::server::wal

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return osprey::server::wal::Main(argv[1], argv[2]);
}
