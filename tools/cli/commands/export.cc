// `kvcli export`: all keys, values and times to live into a file, by READs alone.

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tools/bulk/file.h"
#include "tools/bulk/format.h"
#include "tools/cli/commands/run.h"
#include "tools/cli/key_iterator.h"
#include "tools/common/own_file.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/units.h"

namespace osprey {
namespace {

constexpr absl::Duration kSaveEvery() { return absl::Seconds(1); }

class Export {
 public:
  Export(CommandContext& context, std::string path)
      : context_(context), path_(std::move(path)), file_(path_) {}

  ExitStatus Run() {
    absl::Status status = Begin();
    if (status.ok()) status = WalkAll();
    const bool is_complete = status.ok() && iterator_.cursor.empty();
    if (is_complete) status = End();
    progress_->Clear();
    if (is_complete && status.ok()) return Done();
    if (status.ok()) status = absl::CancelledError("interrupted");
    return Failed(status);
  }

 private:
  absl::Status Begin() {
    // The count is for the progress alone.
    const absl::StatusOr<uint64_t> count =
        context_.options.prefix.has_value() || !context_.draws_err ? absl::StatusOr<uint64_t>(0)
                                                                   : context_.client->Count();
    progress_.emplace(context_.draws_err, "export", count.value_or(0));
    if (context_.options.resume) {
      const absl::StatusOr<ExportState> state = ExportFile::ReadState(path_);
      if (!state.ok()) return state.status();
      state_ = *state;
    } else {
      state_.format = context_.options.format.value_or("");
      state_.prefix = context_.options.prefix.value_or("");
    }
    records_ = resumed_records_ = state_.records;
    iterator_.prefix = state_.prefix;
    iterator_.cursor = state_.cursor;
    iterator_.values = true;
    const absl::StatusOr<BulkFormat> format = BulkFormatOf(state_.format, path_);
    if (!format.ok()) return format.status();
    state_.format = std::string(NameOf(*format));
    writer_ = NewBulkWriter(*format, records_);
    if (absl::Status opened = file_.Open(state_.bytes); !opened.ok()) return opened;
    is_open_ = true;
    is_saved_ = state_.bytes > 0;
    if (is_saved_) return absl::OkStatus();
    std::string text;
    writer_->Begin(text);
    return file_.Write(text);
  }

  absl::Status WalkAll() {
    BulkRecord record;
    std::string text;
    absl::Status flushed;
    const absl::Status walked = IterateKeys(
        *context_.client, iterator_,
        [&](const ScanItem& item) {
          record.key = item.key;
          record.value = item.value;
          record.ttl = item.ttl;
          if (item.ttl <= absl::ZeroDuration()) return absl::OkStatus();  // it has just expired
          text.clear();
          absl::Status status = writer_->Append(record, text);
          if (status.ok()) status = file_.Write(text);
          ++records_;
          progress_->Update(records_, records_, file_.bytes());
          return status;
        },
        [&] {
          // The state names only bytes that the file system has taken.
          flushed = file_.Flush();
          if (!flushed.ok()) return false;
          if (!iterator_.cursor.empty()) TakeState();
          return true;
        });
    return walked.ok() ? flushed : walked;
  }

  // The place behind a page. The first one is saved at once, so that a disk without room for
  // another state still holds one.
  void TakeState() {
    state_.cursor = iterator_.cursor;
    state_.records = records_;
    state_.bytes = file_.bytes();
    const absl::Time now = absl::Now();
    if (is_saved_ && now - saved_ < kSaveEvery()) return;
    saved_ = now;
    // A state that cannot be written leaves the last one in place.
    is_saved_ = file_.SaveState(state_).ok() || is_saved_;
  }

  absl::Status End() {
    std::string text;
    writer_->End(text);
    absl::Status status = file_.Write(text);
    return status.ok() ? file_.Finish() : status;
  }

  ExitStatus Done() {
    const double seconds = absl::ToDoubleSeconds(progress_->elapsed());
    const std::string text =
        absl::StrFormat("exported %d records, %s in %.1f s (%s records/s)", records_,
                        ShortBytes(static_cast<double>(file_.bytes())), seconds,
                        ShortNumber(static_cast<double>(records_ - resumed_records_) / seconds));
    if (path_ == "-") {
      context_.out->Note(text);
      return ExitStatus::kDone;
    }
    Json json;
    SetBytes(json, "file", path_);
    json["format"] = state_.format;
    json["records"] = records_;
    json["bytes"] = file_.bytes();
    json["seconds"] = seconds;
    context_.out->Result(absl::StrCat(text, " to ", ForTerminal(path_)),
                         absl::StrCat("records=", records_, " bytes=", file_.bytes()), json);
    return ExitStatus::kDone;
  }

  ExitStatus Failed(const absl::Status& status) {
    const std::string what = absl::StrCat("export ", ForTerminal(path_), " at ", context_.server);
    const Reason reason = ReasonOf(status);
    const bool is_stale = reason == Reason::kStaleCursor || reason == Reason::kBadCursor;
    const bool can_go_on = is_open_ && path_ != "-" && !is_stale && CanBeResumed();
    std::string fix(FixOf(status));
    if (can_go_on) {
      // The state has its format and prefix.
      fix = absl::StrCat(file_.is_full() ? "make room; " : "", "go on with: ",
                         ContinueWith(context_, "export", path_,
                                      {"--format", "--prefix", "--resume"}, "--resume"));
    } else if (is_open_ && path_ != "-") {
      // It may be all that is left of keys that the server no longer has.
      if (!is_stale) file_.Discard();
      fix = absl::StrCat(file_.is_full() ? "make room; " : "",
                         "export again without --resume; nothing was written under that name");
    }
    context_.out->Error(what, status, fix);
    return ExitStatus::kFailed;
  }

  // Whether a state of this export is on the disk; the newest, if there is room for it.
  bool CanBeResumed() {
    if (file_.is_damaged()) return false;
    // What follows the last page takes the disk space that the state needs.
    if (!state_.cursor.empty() && file_.Truncate(state_.bytes).ok() &&
        file_.SaveState(state_).ok()) {
      return true;
    }
    return is_saved_;
  }

  CommandContext& context_;
  const std::string path_;
  ExportFile file_;
  bool is_open_ = false;
  bool is_saved_ = false;  // a state, by this process or an earlier one
  std::optional<Progress> progress_;
  std::unique_ptr<BulkWriter> writer_;
  KeyIterator iterator_;
  ExportState state_;
  uint64_t records_ = 0;
  uint64_t resumed_records_ = 0;
  absl::Time saved_ = absl::Now();
};

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

absl::Status CheckExport(Arguments arguments, const CommandOptions& options) {
  const std::string& path = arguments[0];
  if (path.empty()) return absl::InvalidArgumentError("FILE is empty");
  if (path == "-" && options.resume)
    return absl::InvalidArgumentError("--resume needs a FILE: what is written there is counted");
  std::string format_name = options.format.value_or("");
  if (!format_name.empty()) {
    if (absl::Status format = BulkFormatOf(format_name, path).status(); !format.ok()) return format;
  }
  if (options.resume) {
    const absl::StatusOr<ExportState> state = ExportFile::ReadState(path);
    if (!state.ok()) return state.status();
    if (options.prefix.value_or(state->prefix) != state->prefix ||
        options.format.value_or(state->format) != state->format)
      return absl::InvalidArgumentError(
          "--resume goes on as it began: leave out --format and --prefix");
    format_name = state->format;
  }
  const absl::StatusOr<BulkFormat> format = BulkFormatOf(format_name, path);
  if (!format.ok()) return format.status();
  if (path == "-") {
    if (*format == BulkFormat::kBinary && isatty(STDOUT_FILENO) != 0)
      return absl::InvalidArgumentError("--format=binary is nothing for a terminal");
    return absl::OkStatus();
  }
  if (absl::Status replaceable = CheckReplaceable(path); !replaceable.ok()) return replaceable;
  const std::string folder = FolderOf(path);
  if (access(folder.c_str(), W_OK) != 0)
    return absl::UnknownError(
        absl::StrCat(folder, " cannot be written to: ", std::strerror(errno)));
  return absl::OkStatus();
}

ExitStatus RunExport(CommandContext& context, Arguments arguments) {
  const CatchInterrupts catching;
  return Export(context, arguments[0]).Run();
}

}  // namespace osprey
