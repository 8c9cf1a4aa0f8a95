#include "tools/terminal/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace osprey {
namespace {

constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr int kColumnsMin = 40;
constexpr double kQuantileShown = 0.99;

class Axis {
 public:
  Axis(const std::vector<ChartRow>& rows, int columns) : columns_(columns) {
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    for (const ChartRow& row : rows) {
      if (row.values->count() == 0) continue;
      least = std::min(least, row.values->min());
      most = std::max(most, row.values->ValueAt(kQuantileShown));
    }
    if (most == 0) most = least = 1;
    low_ = std::log2(static_cast<double>(std::max<uint64_t>(least, 1)));
    // At least an octave, otherwise the axis might have one column.
    high_ = std::max(std::log2(static_cast<double>(std::max<uint64_t>(most, 1))), low_ + 1);
  }

  int ColumnOf(double value) const {
    const double at = (std::log2(std::max(value, 1.0)) - low_) / (high_ - low_);
    return std::clamp(static_cast<int>(at * columns_), 0, columns_ - 1);
  }

  // Powers of two times 1 µs (or a part of it), as far as they fit.
  std::string Labels() const {
    std::string line(static_cast<size_t>(columns_), ' ');
    size_t free_from = 0;
    for (int power = static_cast<int>(std::ceil(low_ - std::log2(1000.0)));; ++power) {
      const double micros = std::exp2(power);
      if (std::log2(micros * 1000) > high_) break;
      const auto column = static_cast<size_t>(ColumnOf(micros * 1000));
      const std::string label = absl::StrFormat("%.6g", micros);
      if (column < free_from || column + label.size() > line.size()) continue;
      line.replace(column, label.size(), label);
      free_from = column + label.size() + 2;
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    return absl::StrCat(line, " µs");
  }

 private:
  int columns_;
  double low_ = 0;  // logarithms of nanoseconds
  double high_ = 1;
};

std::string Bars(const Histogram& values, const Axis& axis, int columns) {
  std::vector<uint64_t> counts(static_cast<size_t>(columns));
  for (const Histogram::Bucket& bucket : values.Buckets())
    counts[static_cast<size_t>(axis.ColumnOf(static_cast<double>(bucket.highest)))] += bucket.count;
  const uint64_t most = *std::max_element(counts.begin(), counts.end());
  std::string line;
  for (const uint64_t count : counts) {
    const double height = most == 0 ? 0 : static_cast<double>(count) / static_cast<double>(most);
    line += kBlocks[count == 0 ? 0 : std::max(1, static_cast<int>(std::lround(height * 8)))];
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace

std::vector<std::string> Chart(const std::vector<ChartRow>& rows, int columns) {
  size_t name_width = 0;
  bool is_empty = true;
  for (const ChartRow& row : rows) {
    name_width = std::max(name_width, row.name.size());
    is_empty = is_empty && row.values->count() == 0;
  }
  if (is_empty) return {};
  const int left = static_cast<int>(name_width) + 2;
  const int room = std::max(columns, kColumnsMin) - left - 3;  // " µs"
  const Axis axis(rows, room);
  std::vector<std::string> lines;
  for (const ChartRow& row : rows) {
    lines.push_back(absl::StrFormat("%-*s%s", left, row.name, Bars(*row.values, axis, room)));
  }
  lines.push_back(absl::StrCat(std::string(static_cast<size_t>(left), ' '), axis.Labels()));
  return lines;
}

}  // namespace osprey
