#include "tools/bulk/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "rdma/unique_fd.h"
#include "tools/common/own_file.h"
#include "tools/terminal/interrupt.h"

namespace osprey {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr std::streamsize kStateBytesMax = 64 << 10;

absl::Status ErrnoError(absl::string_view what, const std::string& path) {
  return absl::UnknownError(absl::StrCat(path, " cannot be ", what, ": ", std::strerror(errno)));
}

}  // namespace

// --- State

std::string ExportState::Text() const {
  nlohmann::ordered_json json;
  json["format"] = format;
  std::string hex;
  for (const char c : prefix)
    absl::StrAppend(&hex, absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
  json["prefix_hex"] = hex;  // any bytes
  json["cursor"] = cursor;
  json["records"] = records;
  json["bytes"] = bytes;
  return json.dump() + "\n";
}

absl::StatusOr<ExportState> ExportState::Parse(absl::string_view text) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto has_text = [&](const char* name) {
    return json.contains(name) && json[name].is_string();
  };
  const auto has_number = [&](const char* name) {
    return json.contains(name) && json[name].is_number_unsigned();
  };
  const absl::Status bad = absl::InvalidArgumentError("this is no state of an export");
  if (!json.is_object() || !has_text("format") || !has_text("prefix_hex") || !has_text("cursor") ||
      !has_number("records") || !has_number("bytes"))
    return bad;
  ExportState state;
  state.format = json["format"].get<std::string>();
  const auto hex = json["prefix_hex"].get<std::string>();
  if (hex.size() % 2 != 0 || hex.find_first_not_of("0123456789abcdef") != std::string::npos)
    return bad;
  for (size_t i = 0; i < hex.size(); i += 2)
    state.prefix.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  state.cursor = json["cursor"].get<std::string>();
  state.records = json["records"].get<uint64_t>();
  state.bytes = json["bytes"].get<uint64_t>();
  return state;
}

absl::StatusOr<ExportState> ExportFile::ReadState(const std::string& path) {
  const absl::StatusOr<rdma::UniqueFd> fd = OpenOwnFile(StateOf(path));
  if (absl::IsNotFound(fd.status())) {
    return absl::InvalidArgumentError(absl::StrCat("--resume: there is no ", StateOf(path),
                                                   ", so no export to it was interrupted"));
  }
  if (!fd.ok()) return fd.status();
  const absl::StatusOr<std::string> text = ReadOwnFile(*fd, StateOf(path), kStateBytesMax);
  if (!text.ok()) return text.status();
  absl::StatusOr<ExportState> state = ExportState::Parse(*text);
  if (!state.ok())
    return absl::InvalidArgumentError(absl::StrCat(StateOf(path), ": ", state.status().message()));
  return state;
}

// --- Export

ExportFile::~ExportFile() {
  if (fd_ >= 0 && !is_stdout()) close(fd_);
}

absl::Status ExportFile::Error(absl::string_view what) {
  is_full_ |= errno == ENOSPC || errno == EDQUOT;
  return ErrnoError(what, is_stdout() ? "standard output" : PartOf(path_));
}

absl::Status ExportFile::Open(uint64_t bytes) {
  if (is_stdout()) {
    fd_ = STDOUT_FILENO;
    return absl::OkStatus();
  }
  absl::StatusOr<rdma::UniqueFd> fd =
      bytes == 0 ? CreateOwnFile(PartOf(path_)) : OpenOwnFile(PartOf(path_));
  if (!fd.ok()) return absl::UnknownError(fd.status().message());
  fd_ = fd->release();
  if (bytes == 0) {
    std::remove(StateOf(path_).c_str());  // of an earlier one
    return absl::OkStatus();
  }
  struct stat status = {};
  if (fstat(fd_, &status) != 0) return Error("looked at");
  if (static_cast<uint64_t>(status.st_size) < bytes) {
    return absl::DataLossError(absl::StrCat(
        PartOf(path_), " is shorter than its state says: ", "export without --resume"));
  }
  if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0 || lseek(fd_, 0, SEEK_END) < 0)
    return Error("gone on with");
  written_ = bytes;
  return absl::OkStatus();
}

absl::Status ExportFile::Write(absl::string_view bytes) {
  buffer_.append(bytes.data(), bytes.size());
  return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush();
}

absl::Status ExportFile::Flush() {
  absl::Status status = WriteNow(buffer_);
  buffer_.clear();
  return status;
}

absl::Status ExportFile::WriteNow(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) {
      // A pipe without a reader must not delay an interrupted program.
      if (is_stdout() && Interrupted()) return absl::CancelledError("interrupted");
      continue;
    }
    if (count < 0) return Error("written");
    written_ += static_cast<uint64_t>(count);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::Status ExportFile::Truncate(uint64_t bytes) {
  buffer_.clear();
  if (is_stdout()) return absl::OkStatus();
  const auto end = static_cast<off_t>(bytes);
  if (ftruncate(fd_, end) != 0 || lseek(fd_, end, SEEK_SET) < 0) return Error("truncated");
  written_ = bytes;
  return absl::OkStatus();
}

absl::Status ExportFile::SaveState(const ExportState& state) {
  if (absl::Status flushed = Flush(); !flushed.ok()) return flushed;
  if (is_stdout()) return absl::OkStatus();
  return ReplaceOwnFile(StateOf(path_), state.Text());
}

void ExportFile::Discard() {
  if (is_stdout()) return;
  std::remove(StateOf(path_).c_str());
  std::remove(PartOf(path_).c_str());
}

absl::Status ExportFile::Finish() {
  if (absl::Status flushed = Flush(); !flushed.ok()) return flushed;
  if (is_stdout()) return absl::OkStatus();
  // After a failed fsync the kernel forgets what it could not write.
  is_damaged_ = true;
  if (!IsStillNamed(fd_, PartOf(path_))) {
    return absl::UnknownError(
        absl::StrCat(PartOf(path_), " is another file now; let one export write to it at a time"));
  }
  if (fsync(fd_) != 0 && errno != EINVAL) return Error("written");
  if (close(std::exchange(fd_, -1)) != 0) return Error("written");
  is_damaged_ = false;
  if (std::rename(PartOf(path_).c_str(), path_.c_str()) != 0) return Error("renamed");
  std::remove(StateOf(path_).c_str());
  return absl::OkStatus();
}

// --- Import

ImportFile::~ImportFile() {
  if (fd_ > STDIN_FILENO) close(fd_);
}

absl::Status ImportFile::Open(const std::string& path) {
  path_ = path == "-" ? "standard input" : path;
  fd_ = path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) return ErrnoError("read", path_);
  struct stat status = {};
  if (fstat(fd_, &status) != 0) return ErrnoError("read", path_);
  if (S_ISDIR(status.st_mode))
    return absl::UnknownError(absl::StrCat(path_, " cannot be read: it is a folder"));
  if (S_ISREG(status.st_mode)) bytes_ = static_cast<uint64_t>(status.st_size);
  return absl::OkStatus();
}

bool ImportFile::BeginsWith(absl::string_view bytes) const {
  std::string beginning(bytes.size(), '\0');
  const ssize_t count = pread(fd_, beginning.data(), beginning.size(), 0);  // a pipe: ESPIPE
  return count == static_cast<ssize_t>(bytes.size()) && beginning == bytes;
}

bool ImportFile::HasMore() const {
  pollfd waiting = {fd_, POLLIN, 0};
  return poll(&waiting, 1, 0) != 0;
}

BulkInput::Source ImportFile::Source() {
  return [this](char* data, size_t bytes) -> absl::StatusOr<size_t> {
    while (AwaitReadable(fd_)) {
      const ssize_t count = read(fd_, data, bytes);
      if (count >= 0) return static_cast<size_t>(count);
      if (errno != EINTR) return ErrnoError("read", path_);
    }
    return absl::CancelledError("interrupted");
  };
}

}  // namespace osprey
