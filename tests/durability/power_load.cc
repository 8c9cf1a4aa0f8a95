// The load of the power-loss test, beside kvserver in the lab's guest (power_guest starts both).
//
//   power_load --server=URI
//
// Prints the contents of the server ("have KEY CHUNKS", "have-end"), then reads "go N N …" from its
// standard input: the number of the last write of each writer that is known to have been kept. Each
// writer goes on from there, a write at a time, and prints "ack WRITER N CALLED RETURNED" after
// each: the times in us of the steady clock. It ends when the power goes.
//
// Write N of writer W is determined by the two (below; `power` computes the same), so that the
// state that a writer leaves shows how many of its writes were kept.
//
// Exit status 4: a value is damaged, or an operation failed.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "gflags/gflags.h"
#include "tests/durability/chunks.h"

DEFINE_string(server, "", "the server's URI");

namespace osprey {
namespace {

constexpr int kExitFailed = 4;
constexpr int64_t kWritesPerWriter = 1'000'000'000;  // more than there are
constexpr absl::Duration kDeadline = absl::Seconds(60);

int64_t SteadyUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Whole lines, each by one write. The reader is outside of this machine.
void Print(const std::string& line) {
  static_cast<void>(std::fputs((line + "\n").c_str(), stdout));
  static_cast<void>(std::fflush(stdout));
}

[[noreturn]] void Fail(absl::string_view what, const absl::Status& status) {
  Print(absl::StrCat("failed ", what, ": ", status.ToString()));
  std::_Exit(kExitFailed);
}

std::unique_ptr<Client> Connect() {
  Options options;
  options.connect_timeout = kDeadline;
  options.deadline = kDeadline;
  options.wait = WaitMode::kEvent;
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(FLAGS_server, options);
  if (!client.ok()) Fail("connect", client.status());
  return *std::move(client);
}

void PrintContents(Client& client) {
  std::string cursor;
  do {
    ScanOptions options;
    options.values = true;
    options.deadline = kDeadline;
    const absl::StatusOr<ScanPage> page = client.Scan(cursor, options);
    if (!page.ok()) Fail("scan", page.status());
    for (const ScanItem& item : page->items) {
      const bool is_counter = item.key.back() == 'n';
      const absl::optional<std::string> names =
          is_counter ? absl::optional<std::string>(item.value) : NamesOfChunks(item.value);
      if (!names.has_value()) Fail(item.key, absl::DataLossError("the value is damaged"));
      Print(absl::StrCat("have ", item.key, " ", *names));
    }
    cursor = page->cursor;
  } while (!cursor.empty());
  Print("have-end");
}

// Keys of a writer: p0 … p4 and b hold values, l a log, n a number.
absl::Status Write(Client& client, int writer, int64_t n) {
  const auto key = [&](absl::string_view name) { return absl::StrCat(writer, "/", name); };
  const std::string some = key(absl::StrCat("p", n % 5));
  const auto chunk = [&](size_t length) { return Chunk(writer * kWritesPerWriter + n, length); };
  switch (n % 8) {
    case 0:
      return client.Put(some, n % 3 == 0 ? "" : chunk(kChunkBytesMin)).status();
    case 1:
      return client.Put(some, chunk(300)).status();
    case 2:
      return client.Put(some, chunk(6000)).status();
    case 3:
      return client.Increment(key("n"), n).status();
    case 4:
      return client.Append(key("l"), chunk(100)).status();
    case 5:
      return client.Append(key("l"), chunk(3000)).status();
    case 6:
      return client.Put(key("b"), chunk(n % 64 == 6 ? 1'500'000 : 20'000)).status();
    default: {
      const absl::Status status = client.Delete(n % 40 == 7 ? key("l") : some).status();
      return absl::IsNotFound(status) ? absl::OkStatus() : status;
    }
  }
}

void RunWriter(int writer, int64_t last) {
  const std::unique_ptr<Client> client = Connect();
  for (int64_t n = last + 1;; ++n) {
    const int64_t called = SteadyUs();
    if (const absl::Status status = Write(*client, writer, n); !status.ok())
      Fail(absl::StrCat("write ", n, " of writer ", writer), status);
    Print(absl::StrCat("ack ", writer, " ", n, " ", called, " ", SteadyUs()));
  }
}

int Main() {
  PrintContents(*Connect());
  std::string line, word;
  std::getline(std::cin, line);
  std::istringstream words(line);
  words >> word;
  std::vector<std::thread> writers;
  for (int64_t last = 0; words >> last;)
    writers.emplace_back(RunWriter, static_cast<int>(writers.size()), last);
  for (std::thread& writer : writers) writer.join();
  Fail("go", absl::InvalidArgumentError(absl::StrCat("'", line, "' names no writer")));
}

}  // namespace
}  // namespace osprey

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return osprey::Main();
}
