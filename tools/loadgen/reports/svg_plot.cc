#include "tools/loadgen/reports/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "tools/loadgen/reports/hdr_text.h"
#include "tools/loadgen/reports/text.h"

namespace osprey::loadgen {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 860;
constexpr size_t kPointsMax = 2000;  // of a line; more are indistinguishable

// Distinguishable also with colour blindness (Okabe and Ito).
constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73",
                                   "#cc79a7", "#e69f00", "#56b4e9"};

struct Point {
  double x = 0;
  double y = 0;
};

// A rectangle to draw in, and the positions of numbers in it: 0 … 1 on both axes.
struct Panel {
  double left = 80;
  double top = 0;
  double width = kWidth - 160;
  double height = 300;

  double X(double x) const { return left + x * width; }
  double Y(double y) const { return top + (1 - y) * height; }
};

std::string Escape(absl::string_view text) {
  std::string kept;
  // XML cannot represent these.
  for (const char c : text) kept += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return absl::StrReplaceAll(kept,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

class Svg {
 public:
  Svg() {
    absl::StrAppendFormat(&text_,
                          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
                          "viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"13\">\n"
                          "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                          kWidth, kHeight, kWidth, kHeight);
  }

  void Text(double x, double y, absl::string_view text, absl::string_view more = "") {
    absl::StrAppendFormat(&text_, "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, more,
                          Escape(text));
  }

  void Line(Point from, Point to, absl::string_view color) {
    absl::StrAppendFormat(&text_,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                          "stroke-width=\"1\"/>\n",
                          from.x, from.y, to.x, to.y, color);
  }

  void Path(const std::vector<Point>& points, absl::string_view color, bool dashed) {
    if (points.empty()) return;
    std::string path;
    for (const Point& point : points)
      absl::StrAppendFormat(&path, "%s%.1f,%.1f", path.empty() ? "" : " ", point.x, point.y);
    absl::StrAppendFormat(
        &text_, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s/>\n",
        path, color, dashed ? " stroke-dasharray=\"6,4\"" : "");
    // A line of one point is invisible.
    if (points.size() == 1)
      absl::StrAppendFormat(&text_, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n",
                            points[0].x, points[0].y, color);
  }

  void Frame(const Panel& panel) {
    absl::StrAppendFormat(
        &text_,
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" "
        "stroke=\"#444\"/>\n",
        panel.left, panel.top, panel.width, panel.height);
  }

  std::string Take() { return std::move(text_) + "</svg>\n"; }

 private:
  std::string text_;
};

// A logarithmic axis from a power of ten to a power of ten.
struct LogAxis {
  double low = 0;  // exponents
  double high = 1;

  static LogAxis Over(double least, double most) {
    LogAxis axis;
    axis.low = std::floor(std::log10(std::max(least, 1e-3)) + 1e-9);
    axis.high = std::max(axis.low + 1, std::ceil(std::log10(std::max(most, 1e-3)) - 1e-9));
    return axis;
  }
  double At(double value) const {
    return std::clamp((std::log10(std::max(value, 1e-9)) - low) / (high - low), 0.0, 1.0);
  }
};

// A linear axis from 0 in some five round steps.
struct LinearAxis {
  double step = 1;
  double high = 1;

  static LinearAxis Over(double most) {
    LinearAxis axis;
    const double wanted = std::max(most, 1e-9) / 5;
    const double power = std::pow(10, std::floor(std::log10(wanted)));
    for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
      axis.step = factor * power;
      if (axis.step >= wanted * 0.999) break;
    }
    axis.high = axis.step * std::ceil(std::max(most, axis.step) / axis.step - 1e-9);
    return axis;
  }
  double At(double value) const { return std::clamp(value / high, 0.0, 1.0); }
  int steps() const { return static_cast<int>(std::lround(high / step)); }
};

// 0.5, 12, 340, 5k, 6M.
std::string Short(double value) {
  if (value >= 1e9) return absl::StrCat(value / 1e9, "G");
  if (value >= 1e6) return absl::StrCat(value / 1e6, "M");
  if (value >= 1e4) return absl::StrCat(value / 1e3, "k");
  return absl::StrCat(value);
}

std::string MicrosLabel(double micros) {
  if (micros >= 1e6) return absl::StrCat(micros / 1e6, " s");
  if (micros >= 1e3) return absl::StrCat(micros / 1e3, " ms");
  return absl::StrCat(micros, " µs");
}

// "0 %", "90 %", "99 %", "99.9 %": the label of `nines`.
std::string NinesLabel(int nines) {
  if (nines == 0) return "0 %";
  if (nines == 1) return "90 %";
  if (nines == 2) return "99 %";
  return absl::StrCat("99.", std::string(static_cast<size_t>(nines - 2), '9'), " %");
}

void Legend(Svg& svg, double x, double y, absl::string_view name, const char* color, bool dashed) {
  svg.Path({{x, y - 4}, {x + 30, y - 4}}, color, dashed);
  svg.Text(x + 38, y, name);
}

void LatencyAxes(Svg& svg, const Panel& panel, const LogAxis& axis, int nines) {
  for (double power = axis.low; power <= axis.high + 0.5; ++power) {
    const double value = std::pow(10, power);
    const double y = panel.Y(axis.At(value));
    svg.Line({panel.left, y}, {panel.left + panel.width, y}, "#ddd");
    svg.Text(panel.left - 8, y + 4, MicrosLabel(value), "text-anchor=\"end\"");
  }
  for (int i = 0; i <= nines; ++i) {
    const double x = panel.X(static_cast<double>(i) / nines);
    svg.Line({x, panel.top}, {x, panel.top + panel.height}, "#ddd");
    svg.Text(x, panel.top + panel.height + 18, NinesLabel(i), "text-anchor=\"middle\"");
  }
  svg.Text(panel.X(0.5), panel.top + panel.height + 38, "percentile of operations",
           "text-anchor=\"middle\"");
  svg.Text(panel.left, panel.top - 12, "Latency by percentile", "font-weight=\"bold\"");
}

void PlotPercentiles(Svg& svg, const Panel& panel, const RunResult& result) {
  const std::vector<LatencySet> sets = LatencySets(result);
  double least = 1e12;
  double most = 0;
  uint64_t count = 1;
  for (const LatencySet& set : sets) {
    least = std::min(least, static_cast<double>(set.nanos->min()) / 1000);
    most = std::max(most, static_cast<double>(set.nanos->max()) / 1000);
    count = std::max(count, set.nanos->count());
  }
  // As many nines as the number of operations supports.
  const int nines =
      std::clamp(static_cast<int>(std::ceil(std::log10(static_cast<double>(count)))), 1, 8);
  const LogAxis axis = LogAxis::Over(sets.empty() ? 1 : least, sets.empty() ? 10 : most);
  LatencyAxes(svg, panel, axis, nines);
  for (size_t i = 0; i < sets.size(); ++i) {
    std::vector<Point> points;
    for (const PercentileLevel& level : PercentileLevels(*sets[i].nanos)) {
      const double distance = level.level < 1 ? -std::log10(1 - level.level) : nines;
      points.push_back({panel.X(std::min(1.0, distance / nines)),
                        panel.Y(axis.At(static_cast<double>(level.value) / 1000))});
    }
    const char* color = kColors[i % std::size(kColors)];
    const bool dashed = sets[i].intended || sets[i].failed;
    svg.Path(points, color, dashed);
    // Latencies rise to the right, so the legend fits below.
    const auto from_last = static_cast<double>(sets.size() - 1 - i);
    Legend(svg, panel.X(1) - 260, panel.Y(0) - 14 - 18 * from_last, sets[i].name, color, dashed);
  }
  svg.Frame(panel);
}

// Merges neighbouring seconds into one point if there are more than can be drawn: the mean of the
// operations, the greatest p99.
std::vector<SeriesRow> Thinned(const std::vector<SeriesRow>& rows) {
  const size_t group = (rows.size() + kPointsMax - 1) / kPointsMax;
  if (group <= 1) return rows;
  std::vector<SeriesRow> thinned;
  for (size_t begin = 0; begin < rows.size(); begin += group) {
    const size_t end = std::min(rows.size(), begin + group);
    SeriesRow row;
    row.second = rows[begin].second;
    for (size_t i = begin; i < end; ++i) {
      row.operations += rows[i].operations;
      row.p99_ns = std::max(row.p99_ns, rows[i].p99_ns);
    }
    row.operations /= end - begin;
    thinned.push_back(row);
  }
  return thinned;
}

void TimeAxes(Svg& svg, const Panel& panel, const LinearAxis& rate, const LinearAxis& latency,
              const LinearAxis& seconds) {
  for (int i = 0; i <= rate.steps(); ++i) {
    const double y = panel.Y(rate.At(rate.step * i));
    svg.Line({panel.left, y}, {panel.left + panel.width, y}, "#ddd");
    svg.Text(panel.left - 8, y + 4, Short(rate.step * i), "text-anchor=\"end\"");
  }
  for (int i = 0; i <= latency.steps(); ++i) {
    svg.Text(panel.left + panel.width + 8, panel.Y(latency.At(latency.step * i)) + 4,
             MicrosLabel(latency.step * i));
  }
  for (int i = 0; i <= seconds.steps(); ++i) {
    const double x = panel.X(seconds.At(seconds.step * i));
    svg.Line({x, panel.top}, {x, panel.top + panel.height}, "#ddd");
    svg.Text(x, panel.top + panel.height + 18, Short(seconds.step * i), "text-anchor=\"middle\"");
  }
  svg.Text(panel.X(0.5), panel.top + panel.height + 38, "seconds", "text-anchor=\"middle\"");
  svg.Text(panel.left, panel.top - 12, "Throughput (left) and latency (right)",
           "font-weight=\"bold\"");
}

void PlotSeries(Svg& svg, const Panel& panel, const RunResult& result) {
  const std::vector<SeriesRow> rows = Thinned(result.series);
  uint64_t rate_most = 1;
  uint64_t latency_most = 1000;
  for (const SeriesRow& row : rows) {
    rate_most = std::max(rate_most, row.operations);
    latency_most = std::max(latency_most, row.p99_ns);
  }
  const LinearAxis rate = LinearAxis::Over(static_cast<double>(rate_most));
  const LinearAxis latency = LinearAxis::Over(static_cast<double>(latency_most) / 1000);
  const LinearAxis seconds =
      LinearAxis::Over(std::max(1.0, static_cast<double>(result.series.size())));
  TimeAxes(svg, panel, rate, latency, seconds);
  std::vector<Point> rates;
  std::vector<Point> latencies;
  for (const SeriesRow& row : rows) {
    // The middle of its second.
    const double x = panel.X(seconds.At(static_cast<double>(row.second) + 0.5));
    // The last part of a second has no meaningful rate.
    const bool whole = static_cast<double>(row.second) + 1 <= result.seconds + 0.05;
    if (whole || rows.size() == 1)
      rates.push_back({x, panel.Y(rate.At(static_cast<double>(row.operations)))});
    latencies.push_back({x, panel.Y(latency.At(static_cast<double>(row.p99_ns) / 1000))});
  }
  svg.Path(rates, kColors[0], false);
  svg.Path(latencies, kColors[1], true);
  Legend(svg, panel.X(1) - 400, panel.top - 12, "operations a second", kColors[0], false);
  Legend(svg, panel.X(1) - 210, panel.top - 12,
         result.open_loop ? "p99, from intended start" : "p99", kColors[1], true);
  svg.Frame(panel);
}

std::string Find(const Facts& facts, absl::string_view name) {
  for (const auto& [known, value] : facts) {
    if (known == name) return value;
  }
  return "?";
}

}  // namespace

std::string SvgPlot(const RunResult& result) {
  Svg svg;
  svg.Text(80, 30,
           absl::StrFormat("kvbench %s, workload %s: %.0f operations a second", result.phase,
                           Find(result.settings, "workload"), result.throughput()),
           "font-size=\"18\" font-weight=\"bold\"");
  svg.Text(
      80, 52,
      absl::StrFormat("transport=%s device=%s, %s records of %s B, %s threads × depth %s, %s",
                      Find(result.environment, "transport"), Find(result.environment, "device"),
                      Find(result.settings, "records"), Find(result.settings, "value_bytes"),
                      Find(result.settings, "threads"), Find(result.settings, "depth"),
                      absl::FormatTime("%Y-%m-%d %H:%M UTC", result.began, absl::UTCTimeZone())),
      "fill=\"#444\"");
  Panel percentiles;
  percentiles.top = 100;
  PlotPercentiles(svg, percentiles, result);
  Panel series;
  series.top = 500;
  PlotSeries(svg, series, result);
  return svg.Take();
}

}  // namespace osprey::loadgen
