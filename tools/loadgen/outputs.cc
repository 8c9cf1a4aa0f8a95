#include "tools/loadgen/outputs.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tools/loadgen/hdr_text.h"
#include "tools/loadgen/report_json.h"
#include "tools/loadgen/report_text.h"
#include "tools/loadgen/svg_plot.h"

namespace osprey::loadgen {
namespace {

absl::Status Write(const std::string& path, absl::string_view text, absl::Status before) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file.good() || !before.ok()) return before;
  return absl::DataLossError(
      absl::StrCat("file '", path, "' cannot be written; is the disk full?"));
}

}  // namespace

std::string HdrPath(absl::string_view path, absl::string_view name) {
  const std::filesystem::path whole{std::string(path)};
  std::filesystem::path with_name = whole;
  with_name.replace_extension();
  return absl::StrCat(with_name.string(), ".", name, whole.extension().string());
}

absl::Status CheckOutputs(const OutputPaths& paths) {
  for (const std::string* path : {&paths.json, &paths.hdr, &paths.series, &paths.plot}) {
    if (path->empty()) continue;
    const std::string tried = path == &paths.hdr ? HdrPath(*path, "READ") : *path;
    // Appending: what is there stays until there is something better.
    const bool there = std::filesystem::exists(tried);
    const std::ofstream file(tried, std::ios::binary | std::ios::app);
    if (!file.good()) {
      return absl::InvalidArgumentError(
          absl::StrCat("file '", tried, "' cannot be written; does its folder exist?"));
    }
    // Which sets of latencies there will be is not known yet.
    if (path == &paths.hdr && !there) std::filesystem::remove(tried);
  }
  return absl::OkStatus();
}

absl::Status WriteOutputs(const RunResult& result, const OutputPaths& paths) {
  absl::Status status;
  if (!paths.json.empty()) status = Write(paths.json, ToJson(result), status);
  if (!paths.series.empty()) status = Write(paths.series, SeriesCsv(result), status);
  if (!paths.plot.empty()) status = Write(paths.plot, SvgPlot(result), status);
  if (paths.hdr.empty()) return status;
  for (const LatencySet& set : LatencySets(result))
    status = Write(HdrPath(paths.hdr, set.name), HdrPercentileText(*set.nanos), status);
  return status;
}

absl::StatusOr<RunResult> ReadResult(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char piece[1 << 16];
  while (text.size() <= kJsonBytesMax && (file.read(piece, sizeof(piece)), file.gcount() > 0))
    text.append(piece, static_cast<size_t>(file.gcount()));
  if (file.bad() || !file.is_open())
    return absl::InvalidArgumentError(absl::StrCat("file '", path, "' cannot be read"));
  absl::StatusOr<RunResult> result = FromJson(text);
  if (result.ok()) return result;
  return absl::InvalidArgumentError(absl::StrCat("file '", path, "': ", result.status().message()));
}

}  // namespace osprey::loadgen
