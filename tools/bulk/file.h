// The files behind export and import.
//
//   FILE             is there when an export is complete, and not before
//   FILE.part        what an export has written so far
//   FILE.part.state  where it can go on (JSON): written now and then, and when it is interrupted
//
// All of them are this user's alone (mode 0600), and no other file at such a name is written to
// (own_file.h).
//
// Thread rule: one thread.

#ifndef OSPREY_TOOLS_BULK_FILE_H_
#define OSPREY_TOOLS_BULK_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/bulk/format.h"

namespace osprey {

// Where an interrupted export can go on.
struct ExportState {
  std::string format;
  std::string prefix;
  std::string cursor;
  uint64_t records = 0;  // before it
  uint64_t bytes = 0;    // of FILE.part that they take

  std::string Text() const;
  // Errors: INVALID_ARGUMENT.
  static absl::StatusOr<ExportState> Parse(absl::string_view text);
};

class ExportFile {
 public:
  // "-": standard output.
  explicit ExportFile(std::string path) : path_(std::move(path)) {}
  ~ExportFile();
  ExportFile(const ExportFile&) = delete;
  ExportFile& operator=(const ExportFile&) = delete;

  static std::string PartOf(const std::string& path) { return path + ".part"; }
  static std::string StateOf(const std::string& path) { return path + ".part.state"; }
  // Of an interrupted one. Errors: INVALID_ARGUMENT: there is none; UNKNOWN: it is not this user's.
  static absl::StatusOr<ExportState> ReadState(const std::string& path);

  // Creates FILE.part, or goes on behind the first `bytes` of what an earlier export left there.
  // Errors: UNKNOWN, DATA_LOSS: with the path.
  absl::Status Open(uint64_t bytes);
  // Buffered.
  absl::Status Write(absl::string_view bytes);
  absl::Status Flush();
  uint64_t bytes() const { return written_ + buffer_.size(); }
  // Drops what is buffered, and what the file holds behind `bytes`.
  absl::Status Truncate(uint64_t bytes);
  // Flushes, too. A state that cannot be written leaves the earlier one as it is.
  absl::Status SaveState(const ExportState& state);
  // Removes FILE.part and its state: nothing goes on from them.
  void Discard();
  // An error was that there is no room.
  bool is_full() const { return is_full_; }
  // What was written may be lost, so that no state is true of it.
  bool is_damaged() const { return is_damaged_; }
  // All is written: gives it its name.
  absl::Status Finish();

 private:
  bool is_stdout() const { return path_ == "-"; }
  absl::Status WriteNow(absl::string_view bytes);
  absl::Status Error(absl::string_view what);

  const std::string path_;
  int fd_ = -1;
  bool is_full_ = false;
  bool is_damaged_ = false;
  std::string buffer_;
  uint64_t written_ = 0;
};

class ImportFile {
 public:
  ImportFile() = default;
  ~ImportFile();
  ImportFile(const ImportFile&) = delete;
  ImportFile& operator=(const ImportFile&) = delete;

  // "-": standard input. Errors: UNKNOWN, why it cannot be read.
  absl::Status Open(const std::string& path);
  // 0: not known.
  uint64_t bytes() const { return bytes_; }
  // Reads nothing away. False of a pipe, whatever it holds.
  bool BeginsWith(absl::string_view bytes) const;
  // Whether reading would not wait, now.
  bool HasMore() const;
  // Reads. CANCELLED when it was interrupted (terminal/interrupt.h).
  BulkInput::Source Source();

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
};

}  // namespace osprey

#endif  // OSPREY_TOOLS_BULK_FILE_H_
