// `kvcli backup FROM TO`: copies a data directory that a server may have open.

#include "server/wal/backup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rdma/unique_fd.h"
#include "server/wal/disk/posix_file_system.h"
#include "tools/cli/commands/data_directory.h"
#include "tools/cli/commands/run.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/units.h"

namespace osprey {
namespace {

namespace wal = server::wal;

// A copy within the directory would be copied by the next one.
absl::Status CheckIsOutside(const std::string& from, const std::string& to) {
  std::error_code error;
  const std::filesystem::path origin = std::filesystem::canonical(from, error);
  const std::filesystem::path copy =
      error ? std::filesystem::path() : std::filesystem::weakly_canonical(to, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot follow the paths ", from, " and ", to, ": ", error.message()));
  }
  const std::filesystem::path way = copy.lexically_relative(origin);
  if (way.empty() || *way.begin() == "..") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("TO is FROM or lies within it: ", to, "; name a directory beside it"));
}

// Makes the directory, if it is not there, durably. Its parent has to be there.
absl::Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0) {
    if (errno == EEXIST) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat("cannot make the directory ", path, ": ", std::strerror(errno)));
  }
  const std::string parent = path + "/..";
  const rdma::UniqueFd fd(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid() && fsync(fd.get()) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot sync the directory ", parent, ": ", std::strerror(errno)));
}

absl::StatusOr<wal::BackupReport> BackUp(const std::string& from, const std::string& to,
                                         Progress& progress) {
  const absl::StatusOr<std::unique_ptr<wal::FileSystem>> origin = wal::OpenPosixFileSystem(from);
  if (!origin.ok()) return origin.status();
  // Before TO is made.
  const absl::Status is_readable = wal::DataDirectory::OpenToRead(**origin).status();
  if (!is_readable.ok()) return is_readable;
  absl::Status status = CheckIsOutside(from, to);
  if (status.ok()) status = MakeDirectory(to);
  if (!status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<wal::FileSystem>> copy = wal::OpenPosixFileSystem(to);
  if (!copy.ok()) return copy.status();
  return wal::Backup(**origin, **copy, DrawWord,
                     [&progress](uint64_t bytes) { progress.Update(bytes, 0, bytes); });
}

}  // namespace

absl::Status CheckBackup(Arguments arguments, const CommandOptions& /*options*/) {
  const absl::Status status = CheckPath("FROM", arguments[0]);
  return status.ok() ? CheckPath("TO", arguments[1]) : status;
}

ExitStatus RunBackup(CommandContext& context, Arguments arguments) {
  const std::string& from = arguments[0];
  const std::string& to = arguments[1];
  const std::string what = absl::StrCat("backup ", from, " ", to);
  Progress progress(context.draws_err, "backup", 0);
  const absl::StatusOr<wal::BackupReport> report = BackUp(from, to, progress);
  progress.Clear();
  if (!report.ok()) return FailLocally(context, what, report.status());
  if (!report->removal.ok()) {
    context.out->Note(absl::StrCat(
        what, ": the backup is complete, but older files are left: ", report->removal.message()));
  }
  const std::string seconds = absl::StrFormat("%.1f s", absl::ToDoubleSeconds(progress.elapsed()));
  const std::string people = absl::StrCat(
      to, " has ", from, " up to record ", report->current.synced_to, ": ", report->parts_linked,
      " parts linked, ", report->parts_copied, " copied, ", report->parts_kept, " kept; ",
      report->segments_copied, " segments copied, ", report->segments_kept, " kept; ",
      ShortBytes(static_cast<double>(report->bytes_copied)), " in ", seconds);
  const std::string plain = absl::StrFormat(
      "last_record=%d checkpoint=%d parts_linked=%d parts_copied=%d parts_kept=%d "
      "segments_copied=%d segments_kept=%d bytes_copied=%d",
      report->current.synced_to, report->current.checkpoint, report->parts_linked,
      report->parts_copied, report->parts_kept, report->segments_copied, report->segments_kept,
      report->bytes_copied);
  Json json;
  SetBytes(json, "to", to);
  json["id"] = TextOf(report->format.directory);
  json["copied_from"] = TextOf(report->format.copied_from);
  json["last_record"] = report->current.synced_to;
  json["checkpoint"] = report->current.checkpoint;
  json["parts_linked"] = report->parts_linked;
  json["parts_copied"] = report->parts_copied;
  json["parts_kept"] = report->parts_kept;
  json["segments_copied"] = report->segments_copied;
  json["segments_kept"] = report->segments_kept;
  json["bytes_copied"] = report->bytes_copied;
  context.out->Result(ForTerminal(people), plain, json);
  return ExitStatus::kDone;
}

}  // namespace osprey
