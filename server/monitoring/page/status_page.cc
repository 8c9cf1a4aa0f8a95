#include "server/monitoring/page/status_page.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "server/monitoring/page/status_files.h"

namespace osprey::server {
namespace {

using Json = nlohmann::ordered_json;

// The page's own files alone, and no frame around it.
constexpr char kHeaders[] =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors "
    "'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cache-Control: no-store\r\n";

HttpPage Page(const char* content_type, std::string body) {
  HttpPage page;
  page.content_type = content_type;
  page.headers = kHeaders;
  page.body = std::move(body);
  return page;
}

// For text and for attributes in quotes.
std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

// StrReplaceAll does not look for marks in what it has put in.
std::string RowHtml(const StatusRow& row) {
  return absl::StrReplaceAll(kRowHtml, {{"{{id}}", Escaped(row.id)},
                                        {"{{label}}", Escaped(row.label)},
                                        {"{{value}}", Escaped(row.value)},
                                        {"{{average}}", Escaped(row.average)}});
}

std::string SectionHtml(const StatusSection& section) {
  std::string rows;
  for (const StatusRow& row : section.rows) rows += RowHtml(row);
  return absl::StrReplaceAll(kSectionHtml, {{"{{id}}", Escaped(section.id)},
                                            {"{{title}}", Escaped(section.title)},
                                            {"{{value_title}}", Escaped(section.value_title)},
                                            {"{{average_title}}", Escaped(section.average_title)},
                                            {"{{now_title}}", Escaped(section.now_title)},
                                            {"{{rows}}", rows}});
}

std::string BarHtml(const index::Table::Stats& table) {
  constexpr double kWidth = 1000;
  std::string bar;
  double x = 0;
  for (const MemoryUse& use : MemoryUses(table)) {
    const double all = table.region_bytes == 0 ? 1 : static_cast<double>(table.region_bytes);
    const double width = kWidth * static_cast<double>(use.bytes) / all;
    bar += absl::StrReplaceAll(
        kUseHtml, {{"{{id}}", Escaped(use.id)},
                   {"{{x}}", absl::StrFormat("%.2f", x)},
                   {"{{width}}", absl::StrFormat("%.2f", width)},
                   {"{{label}}", absl::StrCat(Escaped(use.label), ": ", BytesText(use.bytes))}});
    x += width;
  }
  return bar;
}

Json CountsJson(const StatsInput& stats, const std::vector<StatusSection>& sections) {
  Json counts = Json::object();
  counts["requests"] = stats.counters.requests();
  counts["client_reads"] = stats.client_gets.reads;
  counts["client_torn_reads"] = stats.client_gets.torn;
  for (const StatusSection& section : sections) {
    for (const StatusRow& row : section.rows) {
      if (row.count.has_value()) counts[row.id] = *row.count;
    }
  }
  return counts;
}

}  // namespace

HttpPage StatusPage(const StatusInput& input) {
  std::string sections;
  for (const StatusSection& section : StatusSections(input)) sections += SectionHtml(section);
  return Page(
      "text/html; charset=utf-8",
      absl::StrReplaceAll(kPageHtml, {{"{{title}}", Escaped(StatusTitle(input))},
                                      {"{{health}}", Escaped(HealthText(input.health))},
                                      {"{{health_class}}", input.health.ok() ? "good" : "bad"},
                                      {"{{bar}}", BarHtml(input.reading.stats.table)},
                                      {"{{sections}}", sections}}));
}

HttpPage StatusJson(const StatusInput& input) {
  const StatsInput& stats = input.reading.stats;
  const std::vector<StatusSection> sections = StatusSections(input);
  Json json;
  json["title"] = StatusTitle(input);
  json["health"] = HealthText(input.health);
  json["is_healthy"] = input.health.ok();
  json["uptime_seconds"] = absl::ToDoubleSeconds(stats.uptime);
  json["memory_bytes"] = stats.table.region_bytes;
  for (const MemoryUse& use : MemoryUses(stats.table))
    json["memory"].push_back({{"id", use.id}, {"bytes", use.bytes}});
  if (stats.durability.has_value())
    json["log_lag_seconds"] = absl::ToDoubleSeconds(stats.durability->log_lag);
  json["latencies"] = {{"put", stats.counters.put_latencies}, {"get", stats.client_gets.latencies}};
  json["counts"] = CountsJson(stats, sections);
  for (const StatusSection& section : sections) {
    for (const StatusRow& row : section.rows) {
      json["rows"].push_back({{"id", row.id},
                              {"label", row.label},
                              {"value", row.value},
                              {"average", row.average},
                              {"is_counter", row.count.has_value()}});
    }
  }
  // Bytes that are no UTF-8 are replaced.
  return Page("application/json",
              json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::optional<HttpPage> StatusFile(absl::string_view path) {
  if (path == "/status.css") return Page("text/css; charset=utf-8", std::string(kStatusCss));
  if (path == "/status.js") return Page("text/javascript; charset=utf-8", std::string(kStatusJs));
  return std::nullopt;
}

}  // namespace osprey::server
