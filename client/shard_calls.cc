#include "client/shard_calls.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace osprey::client {
namespace {

using Line = std::pair<absl::string_view, absl::string_view>;  // name, value

std::vector<Line> LinesOf(absl::string_view text) {
  std::vector<Line> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty()))
    lines.push_back(absl::StrSplit(line, absl::MaxSplits('=', 1)));
  return lines;
}

// Numbers of a process, which may serve several shards: the greatest counts.
bool IsOfProcess(absl::string_view name) {
  return name == "uptime_seconds" || absl::StartsWith(name, "process_");
}

// Other numbers that are none of things.
bool IsCount(absl::string_view name) {
  return name != "incarnation" && name != "cas_version" && name != "directory_depth" &&
         !absl::EndsWith(name, "_max");
}

// One value for all shards: the sum of counts, the greatest of a process, or what all say. Nullopt:
// there is none.
absl::optional<std::string> Together(absl::string_view name,
                                     const std::vector<std::vector<Line>>& shards) {
  uint64_t sum = 0;
  bool are_counts = IsCount(name);
  bool are_same = true;
  absl::optional<absl::string_view> first;
  absl::string_view greatest;
  double greatest_number = -1;
  for (const std::vector<Line>& lines : shards) {
    const auto line = std::find_if(lines.begin(), lines.end(),
                                   [&](const Line& one) { return one.first == name; });
    if (line == lines.end()) {  // a count that is 0 may be left out
      are_same = false;
      continue;
    }
    if (!first.has_value()) first = line->second;
    are_same &= line->second == *first;
    double number = 0;
    if (absl::SimpleAtod(line->second, &number) && number > greatest_number) {
      greatest_number = number;
      greatest = line->second;
    }
    uint64_t count = 0;
    are_counts &= absl::SimpleAtoi(line->second, &count);
    sum += count;
  }
  if (IsOfProcess(name)) return std::string(greatest);
  if (are_counts) return absl::StrCat(sum);
  return are_same && first.has_value() ? absl::optional<std::string>(*first) : absl::nullopt;
}

}  // namespace

absl::StatusOr<uint64_t> SumOf(const std::vector<absl::StatusOr<uint64_t>>& answers) {
  if (absl::Status status = ErrorOfShards(answers); !status.ok()) return status;
  uint64_t sum = 0;
  for (const absl::StatusOr<uint64_t>& answer : answers) sum += *answer;
  return sum;
}

absl::StatusOr<uint64_t> SumOfWrites(const std::vector<absl::StatusOr<uint64_t>>& answers) {
  absl::StatusOr<uint64_t> sum = SumOf(answers);
  if (sum.ok()) return sum;
  const auto applied =
      std::count_if(answers.begin(), answers.end(), [](const absl::StatusOr<uint64_t>& answer) {
        return answer.ok() || MayBeApplied(answer.status());
      });
  // (The shard of the error is one of them, if its own part may be applied.)
  const bool others = applied > (MayBeApplied(sum.status()) ? 1 : 0);
  return others ? AppliedInPart(sum.status()) : sum;
}

std::string StatsOfShards(const std::vector<absl::StatusOr<std::string>>& texts) {
  std::vector<std::vector<Line>> shards;
  for (const absl::StatusOr<std::string>& text : texts) shards.push_back(LinesOf(*text));
  std::string all;
  std::vector<absl::string_view> names;
  for (const std::vector<Line>& lines : shards) {
    for (const Line& line : lines) {
      if (std::find(names.begin(), names.end(), line.first) != names.end()) continue;
      names.push_back(line.first);
      if (const absl::optional<std::string> value = Together(line.first, shards))
        absl::StrAppend(&all, line.first, "=", *value, "\n");
    }
  }
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    for (const auto& [name, value] : shards[shard])
      absl::StrAppend(&all, "shard", shard, ".", name, "=", value, "\n");
  }
  return all;
}

}  // namespace osprey::client
