#include "tools/bulk/format.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/client.h"
#include "tools/bulk/text.h"
#include "tools/terminal/output.h"

namespace osprey {
namespace {

constexpr size_t kInputBufferBytes = 256 << 10;

// What stands behind the last dot of the file's name, in small letters; "": nothing. The dot that
// hides a file is none.
std::string EndingOf(absl::string_view path) {
  const absl::string_view file = path.substr(path.rfind('/') + 1);
  const size_t dot = file.rfind('.');
  if (dot == file.npos || dot == 0) return "";
  return absl::AsciiStrToLower(file.substr(dot + 1));
}

// Endings of compressed files, and the programs that read and write those as a filter.
constexpr struct {
  const char* ending;
  const char* program;
} kCompressed[] = {{"gz", "gzip"}, {"bz2", "bzip2"}, {"xz", "xz"}, {"zst", "zstd"}, {"lz4", "lz4"}};

absl::Status CheckNotCompressed(absl::string_view ending) {
  for (const auto& [compressed, program] : kCompressed) {
    if (ending != compressed) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "files are not compressed here, and this name ends in .", ending,
        "; use - and a pipe: "
        "kvcli export - --format=jsonl | ",
        program, " > FILE, or ", program, " -dc FILE | kvcli import - --format=jsonl"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BulkFormat> BulkFormatOf(absl::string_view name, absl::string_view path) {
  const std::string ending = EndingOf(path);
  if (absl::Status status = CheckNotCompressed(ending); !status.ok()) return status;
  if (name == "csv") return BulkFormat::kCsv;
  if (name == "jsonl") return BulkFormat::kJsonl;
  if (name == "binary") return BulkFormat::kBinary;
  if (!name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--format=", name, " is none of csv, jsonl and binary"));
  }
  if (ending.empty() || ending == "jsonl") return BulkFormat::kJsonl;
  if (ending == "csv") return BulkFormat::kCsv;
  if (ending == "bin" || ending == "osprey") return BulkFormat::kBinary;
  return absl::InvalidArgumentError(
      absl::StrCat("no format has names that end in .", absl::Utf8SafeCHexEscape(ending),
                   "; give --format=jsonl, csv or binary, or a name that ends in .jsonl, .csv, "
                   ".bin or .osprey"));
}

absl::string_view NameOf(BulkFormat format) {
  switch (format) {
    case BulkFormat::kJsonl:
      return "jsonl";
    case BulkFormat::kCsv:
      return "csv";
    case BulkFormat::kBinary:
      return "binary";
  }
  return "";
}

std::unique_ptr<BulkWriter> NewBulkWriter(BulkFormat format, uint64_t records) {
  switch (format) {
    case BulkFormat::kJsonl:
      return NewJsonlWriter();
    case BulkFormat::kCsv:
      return NewCsvWriter();
    case BulkFormat::kBinary:
      return NewBinaryWriter(records);
  }
  return nullptr;
}

std::unique_ptr<BulkReader> NewBulkReader(BulkFormat format, BulkInput& input) {
  switch (format) {
    case BulkFormat::kJsonl:
      return NewJsonlReader(input);
    case BulkFormat::kCsv:
      return NewCsvReader(input);
    case BulkFormat::kBinary:
      return NewBinaryReader(input);
  }
  return nullptr;
}

// --- Input

BulkInput::BulkInput(Source source)
    : source_(std::move(source)), buffer_(kInputBufferBytes, '\0') {}

void BulkInput::Fill() {
  if (!status_.ok()) return;
  offset_ += filled_;
  position_ = filled_ = 0;
  const absl::StatusOr<size_t> count = source_(buffer_.data(), buffer_.size());
  if (!count.ok()) {
    status_ = count.status();
  } else {
    filled_ = *count;
  }
}

absl::string_view BulkInput::First() {
  if (position_ == filled_) Fill();
  return absl::string_view(buffer_).substr(0, filled_);
}

bool BulkInput::Line(std::string& line, uint64_t bytes_max, bool& is_too_long) {
  is_too_long = false;
  bool any = false;
  while (Peek() >= 0) {
    any = true;
    const char* begin = buffer_.data() + position_;
    const size_t room = filled_ - position_;
    const auto* end = static_cast<const char*>(std::memchr(begin, '\n', room));
    const size_t length = end == nullptr ? room : static_cast<size_t>(end - begin);
    is_too_long |= line.size() + length > bytes_max;
    if (!is_too_long) line.append(begin, length);
    position_ += length + (end == nullptr ? 0 : 1);
    if (end != nullptr) break;
  }
  return any;
}

// By and by: what a header says of lengths may be anything.
bool BulkInput::Exactly(uint64_t bytes, std::string& to) {
  while (bytes > 0 && Peek() >= 0) {
    const size_t count = std::min<uint64_t>(bytes, filled_ - position_);
    to.append(buffer_.data() + position_, count);
    position_ += count;
    bytes -= count;
  }
  return bytes == 0;
}

// --- Text

bool IsBulkText(absl::string_view bytes) {
  const auto pieces = absl::StrSplit(bytes, absl::ByAnyChar("\n\r\t"));
  return std::all_of(pieces.begin(), pieces.end(), IsPrintable);
}

absl::Status CheckBulkText(const BulkRecord& record) {
  if (record.value.size() <= kBulkTextValueBytesMax) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("the value of ", ForTerminal(record.key), " has ",
                                            record.value.size(),
                                            " bytes, and text takes 64 MiB: use --format=binary"));
}

std::string BulkTtl(absl::Duration ttl) {
  return absl::StrFormat("%.3f", std::max(absl::ToDoubleSeconds(ttl), 0.001));
}

std::string DecodeBulk(absl::string_view name, absl::string_view encoding, std::string field,
                       std::string& bytes) {
  if (encoding.empty() || encoding == "utf-8") {
    bytes = std::move(field);
    return "";
  }
  if (encoding != kBase64)
    return absl::StrCat("its ", name, " is encoded as neither utf-8 nor base64");
  if (!absl::Base64Unescape(field, &bytes)) return absl::StrCat("its ", name, " is no base64");
  return "";
}

std::string DecodeBulkTtl(absl::Duration told, absl::Duration& ttl) {
  // (One of a fraction of a nanosecond is zero here, which to the client means: for ever.)
  ttl = told;
  if (!(ttl > absl::ZeroDuration() && ttl <= kTtlMax()))
    return "its ttl is not above 0 and at most 100 years";
  return "";
}

}  // namespace osprey
