// `kvcli import`: stores the records of a file, many at a time.

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "tools/bulk/file.h"
#include "tools/bulk/format.h"
#include "tools/cli/commands/run.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/units.h"

namespace osprey {
namespace {

// The limit for bytes on their way to the server. (A single longer value is allowed.)
constexpr uint64_t kBytesInFlightMax = 64 << 20;
constexpr int kPutsInFlightMax = 256;
constexpr size_t kErrorsListed = 10;
// The interval of checks for an interruption.
constexpr absl::Duration kWaitStep() { return absl::Milliseconds(100); }
// The interval of checks for more input.
constexpr absl::Duration kLookStep() { return absl::Milliseconds(5); }

// Whether the connection failed: then later records would fail, too.
bool IsOfConnection(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsUnknown(status) || absl::IsCancelled(status) ||
         absl::IsDeadlineExceeded(status);
}

absl::StatusOr<BulkFormat> FormatOf(const CommandOptions& options, const std::string& path,
                                    absl::string_view first_bytes) {
  if (!options.format.has_value() && absl::StartsWith(first_bytes, kBulkMagic))
    return BulkFormat::kBinary;
  return BulkFormatOf(options.format.value_or(""), path);
}

class Import {
 public:
  Import(CommandContext& context, std::string path)
      : context_(context), client_(*context.client), path_(std::move(path)) {}

  ExitStatus Run() {
    if (absl::Status opened = file_.Open(path_); !opened.ok())
      return Report(absl::UnknownError(opened.message()));
    progress_.emplace(context_.draws_err, "import", file_.bytes());
    dataset_ = client_.dataset();
    BulkInput input(Source());
    const absl::StatusOr<BulkFormat> format = FormatOf(context_.options, path_, input.First());
    if (!format.ok()) return Report(format.status());
    const std::unique_ptr<BulkReader> reader = NewBulkReader(*format, input);
    absl::Status status = PutAll(*reader, input);
    // Each put ends by its deadline.
    while (client_.in_flight() > 0) client_.Wait(kWaitStep());
    if (status.ok()) status = lost_;
    // This takes precedence over other errors: all stored records are gone.
    if (client_.dataset() != dataset_) status = AnotherServer();
    return Report(status);
  }

 private:
  // A pipe may have no input for long. Puts in flight complete meanwhile, instead of running into
  // their deadlines.
  BulkInput::Source Source() {
    return [this, read = file_.Source()](char* data, size_t bytes) {
      while (client_.in_flight() > 0 && !file_.HasMore() && !Interrupted())
        client_.Wait(kLookStep());
      return read(data, bytes);
    };
  }

  static absl::Status AnotherServer() {
    return absl::AbortedError(
        "the server was started again meanwhile, and began empty: import all of it once more");
  }

  absl::Status PutAll(BulkReader& reader, const BulkInput& input) {
    const uint64_t skip = context_.options.skip.value_or(0);
    BulkRecord record;
    while (true) {
      if (Interrupted()) return absl::CancelledError("interrupted");
      if (!lost_.ok()) return lost_;
      if (client_.dataset() != dataset_) return AnotherServer();
      switch (reader.Next(record)) {
        case BulkReader::Result::kEnd:
          return absl::OkStatus();
        case BulkReader::Result::kBroken:
          if (Interrupted()) return absl::CancelledError("interrupted");
          return absl::DataLossError(absl::StrCat(reader.place(), ": ", reader.error()));
        case BulkReader::Result::kBadRecord:
          if (next_++ >= skip) Failed(reader.place(), absl::InvalidArgumentError(reader.error()));
          break;
        case BulkReader::Result::kRecord:
          if (next_++ >= skip) Put(record, reader.place());
          break;
      }
      progress_->Update(input.offset(), next_, bytes_);
    }
  }

  void Put(const BulkRecord& record, std::string place) {
    const uint64_t bytes = record.key.size() + record.value.size();
    // Of two records of one key, the later one must remain.
    AwaitRoom([&] {
      return client_.in_flight() < kPutsInFlightMax && keys_.count(record.key) == 0 &&
             (bytes_in_flight_ == 0 || bytes_in_flight_ + bytes <= kBytesInFlightMax);
    });
    WriteOptions options;
    options.if_absent = context_.options.if_absent;
    options.ttl = record.ttl;
    const uint64_t number = next_ - 1;
    auto done = [this, number, bytes, key = record.key, place](absl::StatusOr<uint64_t> version) {
      keys_.erase(key);
      bytes_in_flight_ -= bytes;
      Ended(number, place, bytes, version.status());
    };
    const absl::Status started =
        client_.StartPut(record.key, record.value, options, std::move(done));
    if (!started.ok()) return Ended(number, place, bytes, started);
    keys_.insert(record.key);
    bytes_in_flight_ += bytes;
  }

  template <typename HasRoom>
  void AwaitRoom(HasRoom has_room) {
    client_.Poll();
    // Operations end by their deadlines at the latest, so this does, too.
    while (!has_room() && client_.in_flight() > 0) client_.Wait(kWaitStep());
  }

  void Ended(uint64_t number, const std::string& place, uint64_t bytes,
             const absl::Status& status) {
    if (status.ok()) {
      ++stored_;
      bytes_ += bytes;
    } else if (absl::IsAlreadyExists(status)) {
      ++present_;
    } else if (IsOfConnection(status)) {
      if (lost_.ok()) lost_ = status;
      lost_records_.insert(number);
    } else {
      Failed(place, status);
    }
  }

  void Failed(const std::string& place, const absl::Status& status) {
    if (errors_++ >= kErrorsListed) return;
    progress_->Clear();
    const std::string what = absl::StrCat("import ", ForTerminal(path_), " ", place);
    context_.out->PartError(what, status, FixOf(status));
    Json json;
    json["place"] = place;
    json["error"] = absl::StatusCodeToString(status.code());
    json["message"] = std::string(status.message());
    listed_.push_back(std::move(json));
  }

  // The number of records, from the first on, that are done.
  uint64_t RecordsDone() const { return lost_records_.empty() ? next_ : *lost_records_.begin(); }

  ExitStatus Report(const absl::Status& status) {
    const absl::Duration elapsed = progress_.has_value() ? progress_->elapsed() : absl::Seconds(1);
    if (progress_.has_value()) progress_->Clear();
    if (errors_ > kErrorsListed) {
      context_.out->Note(
          absl::StrCat(errors_, " records failed; the first ", kErrorsListed, " are listed above"));
    }
    Json json;
    SetBytes(json, "file", path_);
    json["records"] = next_;
    json["stored"] = stored_;
    json["present"] = present_;
    json["errors"] = errors_;
    json["bytes"] = bytes_;
    json["seconds"] = absl::ToDoubleSeconds(elapsed);
    json["errors_listed"] = listed_;
    if (!status.ok()) {
      // A restarted, empty server needs all records; a broken file has no more.
      const bool can_go_on = !absl::IsAborted(status) && !absl::IsDataLoss(status) && next_ > 0;
      std::string fix(FixOf(status));
      if (can_go_on) {
        const std::string skip = absl::StrCat("--skip=", RecordsDone());
        fix = path_ == "-" ? absl::StrCat("go on with the same input and ", skip)
                           : absl::StrCat("go on with: ", ContinueWith(context_, "import", path_,
                                                                       {"--skip"}, skip));
        // Printed before the command, because users copy the end of the output.
        if (IsOfConnection(status) && !absl::IsCancelled(status))
          fix = absl::StrCat("unless the server was started again, and began empty, ", fix);
      }
      json["skip"] = RecordsDone();
      context_.out->PartError(absl::StrCat("import ", ForTerminal(path_), " at ", context_.server),
                              status, fix);
      json["error"] = absl::StatusCodeToString(status.code());
      json["message"] = std::string(status.message());
    }
    const double seconds = absl::ToDoubleSeconds(elapsed);
    context_.out->Result(
        absl::StrFormat("imported %d records of %d, %s in %.1f s (%s records/s)%s%s", stored_,
                        next_, ShortBytes(static_cast<double>(bytes_)), seconds,
                        ShortNumber(static_cast<double>(stored_) / seconds),
                        present_ == 0 ? "" : absl::StrCat("; ", present_, " were there already"),
                        errors_ == 0 ? "" : absl::StrCat("; ", errors_, " failed")),
        absl::StrCat("records=", next_, " stored=", stored_, " present=", present_,
                     " errors=", errors_),
        json);
    return status.ok() && errors_ == 0 ? ExitStatus::kDone : ExitStatus::kFailed;
  }

  CommandContext& context_;
  Client& client_;
  const std::string path_;
  ImportFile file_;
  std::optional<Progress> progress_;
  uint64_t dataset_ = 0;
  uint64_t next_ = 0;  // records read, including skipped and bad ones
  uint64_t stored_ = 0;
  uint64_t present_ = 0;
  uint64_t errors_ = 0;
  uint64_t bytes_ = 0;  // stored so far
  uint64_t bytes_in_flight_ = 0;
  absl::flat_hash_set<std::string> keys_;  // in flight
  absl::Status lost_;
  std::set<uint64_t> lost_records_;  // at most those in flight
  Json listed_ = Json::array();
};

}  // namespace

absl::Status CheckImport(Arguments arguments, const CommandOptions& options) {
  const std::string& path = arguments[0];
  if (options.format.has_value()) {
    if (absl::Status format = BulkFormatOf(*options.format, path).status(); !format.ok())
      return format;
  }
  ImportFile file;
  if (absl::Status opened = file.Open(path); !opened.ok()) return opened;
  const bool is_binary = path != "-" && file.BeginsWith(kBulkMagic);
  return FormatOf(options, path, is_binary ? kBulkMagic : "").status();
}

ExitStatus RunImport(CommandContext& context, Arguments arguments) {
  if (arguments[0] == "-" && context.in == nullptr) {
    context.out->Error("import -",
                       absl::InvalidArgumentError("standard input is where the shell reads its "
                                                  "commands"),
                       "name a FILE");
    return ExitStatus::kUsage;
  }
  const CatchInterrupts catching;
  return Import(context, arguments[0]).Run();
}

}  // namespace osprey
