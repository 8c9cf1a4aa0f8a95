#include "tools/cli/commands/stat.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "tools/cli/commands/run.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/units.h"

namespace osprey {
namespace {

constexpr int kHeaderEvery = 20;
// No server's counter is greater; a sum of some such counters is a whole number of 64 bits.
constexpr double kCountMax = 1e18;

class Statistics {
 public:
  explicit Statistics(absl::string_view text) {
    for (const auto& [name, value] : SplitPairs(text, '\n')) {
      double number = 0;
      // This form refuses NaN as well.
      if (absl::SimpleAtod(value, &number) && number >= 0 && number <= kCountMax)
        numbers_[name] = number;
      // Of each shard, where there are several (Client::ServerStats).
      if (name == "incarnation" || absl::EndsWith(name, ".incarnation")) incarnation_ += value;
    }
  }
  double Of(const std::string& name) const {
    const auto found = numbers_.find(name);
    return found == numbers_.end() ? 0 : found->second;
  }
  double Sum(const std::vector<const char*>& names) const {
    double sum = 0;
    for (const char* name : names) sum += Of(name);
    return sum;
  }
  bool HasAny(const std::vector<const char*>& names) const {
    return std::any_of(names.begin(), names.end(),
                       [this](const char* name) { return numbers_.count(name) > 0; });
  }
  const std::string& incarnation() const { return incarnation_; }

 private:
  std::map<std::string, double> numbers_;
  std::string incarnation_;
};

std::string Shown(const StatColumn& column, double value) {
  switch (column.kind) {
    case StatColumn::Kind::kNow:
      return absl::StrFormat("%.0f", value);
    case StatColumn::Kind::kBytes:
      return ShortBytes(value);
    case StatColumn::Kind::kRate:
      return ShortNumber(value);
    case StatColumn::Kind::kReported:
      return std::isnan(value) ? "-" : ShortNumber(value);
    case StatColumn::Kind::kCpu:
      return absl::StrFormat("%.1f", value);
  }
  return "";
}

Json JsonOf(const std::vector<double>& row) {
  Json json;
  for (size_t i = 0; i < row.size(); ++i) {
    const StatColumn& column = StatColumns()[i];
    const bool whole =
        column.kind == StatColumn::Kind::kNow || column.kind == StatColumn::Kind::kBytes;
    if (whole) {
      json[column.name] = static_cast<uint64_t>(row[i]);
    } else {
      json[column.name] = row[i];  // JSON prints NaN as null
    }
  }
  return json;
}

}  // namespace

const std::vector<StatColumn>& StatColumns() {
  using Kind = StatColumn::Kind;
  static const auto* const columns = new std::vector<StatColumn>{
      {"keys", 10, {"keys"}, Kind::kNow},
      {"memory", 9, {"index_bytes", "item_bytes"}, Kind::kBytes},
      {"conns", 6, {"connections"}, Kind::kNow},
      {"put/s", 8, {"requests_put"}, Kind::kRate},
      {"del/s", 8, {"requests_delete"}, Kind::kRate},
      {"incr/s", 8, {"requests_increment"}, Kind::kRate},
      {"other/s",
       8,
       {"requests_append", "requests_flush", "requests_expire", "requests_touch", "requests_get"},
       Kind::kRate},
      {"get/s",
       8,
       {"client_get_hits", "client_get_misses", "client_get_failures"},
       Kind::kReported},
      {"evict/s", 8, {"evictions"}, Kind::kRate},
      {"expire/s", 9, {"expiries"}, Kind::kRate},
      {"cpu%", 6, {"process_cpu_us"}, Kind::kCpu},
  };
  return *columns;
}

std::vector<double> StatRow(absl::string_view before, absl::string_view now) {
  const Statistics last(now);
  Statistics first(before);
  if (first.incarnation() != last.incarnation()) first = Statistics("");
  // By the server's own clock: the time of the messages does not matter.
  const double seconds = std::max(last.Of("uptime_seconds") - first.Of("uptime_seconds"), 1e-3);
  std::vector<double> row;
  for (const StatColumn& column : StatColumns()) {
    const double value = last.Sum(column.sources);
    const double more = std::max(value - first.Sum(column.sources), 0.0);
    switch (column.kind) {
      case StatColumn::Kind::kNow:
      case StatColumn::Kind::kBytes:
        row.push_back(value);
        break;
      case StatColumn::Kind::kRate:
        row.push_back(more / seconds);
        break;
      case StatColumn::Kind::kReported:
        row.push_back(last.HasAny(column.sources) ? more / seconds
                                                  : std::numeric_limits<double>::quiet_NaN());
        break;
      case StatColumn::Kind::kCpu:
        row.push_back(more / 1e6 / seconds * 100);
        break;
    }
  }
  return row;
}

std::string StatHeader() {
  std::string text;
  for (const StatColumn& column : StatColumns())
    absl::StrAppendFormat(&text, "%*s", column.width, column.name);
  return text;
}

std::string StatLine(const std::vector<double>& row) {
  std::string text;
  for (size_t i = 0; i < row.size(); ++i) {
    // A number that fills its column still has a blank before it.
    absl::StrAppendFormat(&text, " %*s", StatColumns()[i].width - 1,
                          Shown(StatColumns()[i], row[i]));
  }
  return text;
}

ExitStatus RunStat(CommandContext& context, Arguments /*arguments*/) {
  const CatchInterrupts catching;
  const absl::Duration interval =
      std::max(context.options.interval.value_or(absl::Seconds(1)), absl::Milliseconds(10));
  const int64_t lines = context.options.repeat.value_or(-1);
  absl::StatusOr<std::string> before = context.client->ServerStats();
  if (!before.ok()) return Fail(context, "stat", before.status());
  for (int64_t line = 0; lines < 0 || line < lines; ++line) {
    SleepUnlessInterrupted(interval);
    if (Interrupted()) break;
    absl::StatusOr<std::string> now = context.client->ServerStats();
    if (!now.ok()) return Fail(context, "stat", now.status());
    const std::vector<double> row = StatRow(*before, *now);
    const bool is_json = context.out->form() == Output::Form::kJson;
    const HoldInterrupts hold;
    if (!is_json && line % kHeaderEvery == 0)
      context.out->Result(StatHeader(), StatHeader(), Json());
    const std::string text = StatLine(row);
    context.out->Result(text, text, JsonOf(row));
    if (!context.out->Flush()) break;
    before = std::move(now);
  }
  return ExitStatus::kDone;
}

}  // namespace osprey
