// `kvcli latency`: the latencies of GETs, PUTs, pings and bare READs, side by side.
//
// All kinds alternate on one connection, so that other load affects them alike. The key belongs to
// this run: it has a random name, is put only if absent, and expires soon after the run. The run
// deletes it at the end, also at Ctrl-C.

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tools/cli/commands/run.h"
#include "tools/common/histogram.h"
#include "tools/terminal/chart.h"
#include "tools/terminal/interrupt.h"

namespace osprey {
namespace {

constexpr uint64_t kSizeMax = 64 << 20;
constexpr uint64_t kOperationsMax = 100'000'000;
constexpr absl::Duration kDurationMax() { return absl::Hours(24); }
// The key outlives the run by this time, if the run cannot delete it.
constexpr absl::Duration kKeyOutlives() { return absl::Minutes(1); }
constexpr absl::Duration kRedrawEvery() { return absl::Milliseconds(250); }
// Operations of each kind that are not counted, to warm up caches and branch predictors.
constexpr uint64_t kWarmup = 20;
// Operations of one kind in a row.
constexpr uint64_t kTurn = 16;
constexpr uint32_t kWordBytes = 8;
constexpr uint32_t kWindowBytes = 256;  // the first READ of a GET

absl::StatusOr<absl::Duration> DurationOf(const CommandOptions& options) {
  const std::string text = options.duration.value_or(options.count.has_value() ? "24h" : "5");
  const absl::StatusOr<absl::Duration> duration = ParseTtl("--duration=", text);
  if (!duration.ok()) return duration.status();
  if (*duration > kDurationMax())
    return absl::InvalidArgumentError(absl::StrCat("--duration=", text, " is above 24h"));
  return duration;
}

enum Kind { kGet, kPut, kPing, kReadWord, kReadWindow, kKinds };

class Latency {
 public:
  explicit Latency(CommandContext& context)
      : context_(context),
        client_(*context.client),
        key_(absl::StrFormat("kvcli-latency-%08x%08x", std::random_device()(),
                             std::random_device()())),
        value_(context.options.size.value_or(64), 'l') {}

  ExitStatus Run() {
    absl::Status status = Begin();
    if (status.ok()) status = Measure();
    const absl::Status removed = Remove();
    if (status.ok()) status = removed;
    if (!status.ok()) return Fail(context_, "latency", status);
    Print();
    return ExitStatus::kDone;
  }

 private:
  absl::Status Begin() {
    end_after_ = DurationOf(context_.options).value();
    WriteOptions options = Options();
    options.if_absent = true;
    const absl::StatusOr<uint64_t> version = client_.Put(key_, value_, options);
    if (!version.ok()) return version.status();
    version_ = *version;
    return absl::OkStatus();
  }

  WriteOptions Options() const {
    WriteOptions options;
    options.ttl = end_after_ + kKeyOutlives();
    return options;
  }

  // Removes only a key that this run has put.
  absl::Status Remove() {
    if (version_ == 0) return absl::OkStatus();
    WriteOptions options;
    options.if_version = version_;
    const absl::Status status = client_.Delete(key_, options).status();
    if (status.ok() || absl::IsNotFound(status)) return absl::OkStatus();
    return absl::Status(status.code(), absl::StrCat("its key ", key_, ", which expires by itself, ",
                                                    "was not deleted: ", status.message()));
  }

  absl::Status Measure() {
    if (absl::Status status = Turns(kWarmup, nullptr); !status.ok()) return status;
    before_ = client_.counters();
    const absl::Time start = absl::Now();
    absl::Time drawn = start;
    uint64_t left = context_.options.count.value_or(kOperationsMax);
    while (left > 0 && !Interrupted()) {
      const uint64_t times = std::min(left, kTurn);
      if (absl::Status status = Turns(times, &times_); !status.ok()) return status;
      left -= times;
      const absl::Time now = absl::Now();
      if (now - start >= end_after_) break;
      if (!context_.draws_out || now - drawn < kRedrawEvery()) continue;
      Draw();
      drawn = now;
    }
    return absl::OkStatus();
  }

  // Does a turn of each kind, in random order.
  absl::Status Turns(uint64_t times, std::array<Histogram, kKinds>* measured) {
    std::array<Kind, kKinds> order = {kGet, kPut, kPing, kReadWord, kReadWindow};
    std::shuffle(order.begin(), order.end(), random_);
    for (const Kind kind : order) {
      // The first operation pays for the change of kind, and is not counted.
      for (uint64_t i = 0; i <= times; ++i) {
        const uint64_t reads = client_.counters().reads;
        const auto start = std::chrono::steady_clock::now();
        const absl::Status status = Do(kind);
        const auto took = std::chrono::steady_clock::now() - start;
        if (!status.ok()) return status;
        if (measured == nullptr || i == 0) continue;
        (*measured)[kind].Record(static_cast<uint64_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(took).count()));
        if (kind == kGet) get_reads_ += client_.counters().reads - reads;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Do(Kind kind) {
    switch (kind) {
      case kGet:
        return client_.Get(key_).status();
      case kPut: {
        const absl::StatusOr<uint64_t> version = client_.Put(key_, value_, Options());
        if (version.ok()) version_ = *version;
        return version.status();
      }
      case kPing:
        return client_.Ping().status();
      case kReadWord:
        return client_.MeasureRead(kWordBytes).status();
      case kReadWindow:
        return client_.MeasureRead(kWindowBytes).status();
      case kKinds:
        break;
    }
    return absl::OkStatus();
  }

  struct Row {
    Kind kind;
    const char* id;    // for scripts
    std::string name;  // for people
  };
  std::vector<Row> Rows() const {
    return {{kGet, "get", absl::StrCat("GET ", value_.size(), " B, by READ")},
            {kPut, "put", absl::StrCat("PUT ", value_.size(), " B, by message")},
            {kPing, "ping", "ping, by message"},
            {kReadWord, "read_8", "bare READ of 8 B"},
            {kReadWindow, "read_256", "bare READ of 256 B"}};
  }

  struct Column {
    const char* name;
    double quantile;  // 0: min, 1: max
  };
  static constexpr Column kColumns[] = {{"min", 0},   {"p50", .5},     {"p90", .9},
                                        {"p99", .99}, {"p99.9", .999}, {"max", 1}};
  double Micros(Kind kind, const Column& column) const {
    const Histogram& times = times_[kind];
    const uint64_t ns = column.quantile == 0 ? times.min() : times.ValueAt(column.quantile);
    return static_cast<double>(ns) / 1e3;
  }
  double ReadsPerGet() const {
    const auto gets = static_cast<double>(times_[kGet].count());
    return gets == 0 ? 0 : static_cast<double>(get_reads_) / gets;
  }

  std::vector<std::string> Lines() const {
    std::vector<std::string> lines = {absl::StrFormat("%-24s%9s", "microseconds", "count")};
    for (const Column& column : kColumns) absl::StrAppendFormat(&lines[0], "%9s", column.name);
    for (const Row& row : Rows()) {
      lines.push_back(absl::StrFormat("%-24s%9d", row.name, times_[row.kind].count()));
      for (const Column& column : kColumns)
        absl::StrAppendFormat(&lines.back(), "%9.1f", Micros(row.kind, column));
    }
    const double floor = Micros(kReadWindow, kColumns[1]);
    if (floor > 0) {
      lines.push_back(
          absl::StrFormat("%.2f READs a GET; the p50 of a GET is %.2f times that of a "
                          "bare READ of 256 B",
                          ReadsPerGet(), Micros(kGet, kColumns[1]) / floor));
    }
    return lines;
  }

  std::vector<std::string> ChartLines() const {
    std::vector<ChartRow> rows;
    for (const Row& row : Rows()) {
      rows.push_back({row.kind == kReadWord     ? "READ 8"
                      : row.kind == kReadWindow ? "READ 256"
                      : row.kind == kGet        ? "GET"
                      : row.kind == kPut        ? "PUT"
                                                : "ping",
                      &times_[row.kind]});
    }
    return Chart(rows, std::clamp(Columns(), 40, 120));
  }

  static int Columns() {
    winsize size = {};
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : 80;
  }

  // Replaces the previous drawing.
  void Draw() {
    std::string text = lines_drawn_ > 0 ? absl::StrFormat("\x1b[%dA\r\x1b[J", lines_drawn_) : "";
    lines_drawn_ = 0;
    const int columns = Columns();
    const auto add = [&](const std::vector<std::string>& lines) {
      for (const std::string& line : lines) {
        absl::StrAppend(&text, line, "\n");
        // A line longer than the terminal's takes several of them.
        const auto characters =
            std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
        lines_drawn_ += 1 + std::max(static_cast<int>(characters) - 1, 0) / columns;
      }
    };
    add({Printable(client_.Describe())});
    add(Lines());
    add(ChartLines());
    text.pop_back();
    const HoldInterrupts hold;
    context_.out->Result(text, "", Json());
    context_.out->Flush();
  }

  void Print() {
    if (context_.out->form() == Output::Form::kPeople) return Draw();
    const Counters& after = client_.counters();
    Json json;
    std::string plain = absl::StrCat(Printable(client_.Describe()), "\n");
    for (const auto& [name, value] : SplitPairs(client_.Describe(), ' ')) json[name] = value;
    json["value_bytes"] = value_.size();
    for (const Row& row : Rows()) {
      json[row.id]["count"] = times_[row.kind].count();
      absl::StrAppend(&plain, row.id, " count=", times_[row.kind].count());
      for (const Column& column : kColumns) {
        json[row.id][absl::StrCat(column.name, "_us")] = Micros(row.kind, column);
        absl::StrAppendFormat(&plain, " %s_us=%.2f", column.name, Micros(row.kind, column));
      }
      absl::StrAppend(&plain, "\n");
    }
    json["reads_per_get"] = ReadsPerGet();
    json["torn"] = after.torn - before_.torn;
    absl::StrAppendFormat(&plain, "reads_per_get=%.4f", ReadsPerGet());
    context_.out->Result("", plain, json);
  }

  CommandContext& context_;
  Client& client_;
  const std::string key_;
  const std::string value_;
  absl::Duration end_after_;
  uint64_t version_ = 0;  // of the key; 0: it was not put
  std::array<Histogram, kKinds> times_;
  uint64_t get_reads_ = 0;
  Counters before_;
  std::minstd_rand random_{std::random_device()()};
  int lines_drawn_ = 0;
};

}  // namespace

absl::Status CheckLatency(Arguments /*arguments*/, const CommandOptions& options) {
  if (options.size.value_or(0) > kSizeMax)
    return absl::InvalidArgumentError(absl::StrCat("--size=", *options.size, " is above 64 MiB"));
  if (options.count.has_value() && (*options.count == 0 || *options.count > kOperationsMax))
    return absl::InvalidArgumentError(
        absl::StrCat("--count=", *options.count, " is not from 1 to ", kOperationsMax));
  return DurationOf(options).status();
}

ExitStatus RunLatency(CommandContext& context, Arguments /*arguments*/) {
  const CatchInterrupts catching;
  return Latency(context).Run();
}

}  // namespace osprey
