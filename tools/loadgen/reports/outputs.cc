#include "tools/loadgen/reports/outputs.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tools/common/own_file.h"
#include "tools/loadgen/reports/hdr_text.h"
#include "tools/loadgen/reports/json.h"
#include "tools/loadgen/reports/svg_plot.h"
#include "tools/loadgen/reports/text.h"

namespace osprey::loadgen {
namespace {

absl::Status Write(const std::string& path, absl::string_view text, absl::Status before) {
  const absl::Status written = ReplaceOwnFile(path, text);
  if (written.ok() || !before.ok()) return before;
  return absl::DataLossError(
      absl::StrCat("file '", path, "' cannot be written: ", written.message()));
}

// As ReplaceOwnFile will, but leaves what is there.
absl::Status Try(const std::string& path) {
  if (absl::Status replaceable = CheckReplaceable(path); !replaceable.ok()) return replaceable;
  const std::string part = path + ".part";
  const absl::Status created = CreateOwnFile(part).status();
  if (created.ok()) unlink(part.c_str());
  return created;
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
    if (const absl::Status able = Try(tried); !able.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("file '", tried, "' cannot be written: ", able.message()));
    }
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
