#include <array>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/bulk/text.h"

namespace osprey {
namespace {

enum Column { kKey, kValue, kTtl, kKeyEncoding, kValueEncoding, kColumns };
constexpr const char* kNames[kColumns] = {"key", "value", "ttl", "key_encoding", "value_encoding"};
// Of a file to be read: others than ours are ignored.
constexpr size_t kColumnsMax = 1000;

void AppendField(absl::string_view field, std::string& out) {
  if (field.find_first_of(",\"\r\n") == absl::string_view::npos) {
    absl::StrAppend(&out, field);
    return;
  }
  out.push_back('"');
  for (const char c : field) out.append(c == '"' ? 2 : 1, c);
  out.push_back('"');
}

class CsvWriter final : public BulkWriter {
 public:
  void Begin(std::string& out) override {
    for (const char* name : kNames) absl::StrAppend(&out, name == kNames[0] ? "" : ",", name);
    out.push_back('\n');
  }
  absl::Status Append(const BulkRecord& record, std::string& out) override {
    if (absl::Status status = CheckBulkText(record); !status.ok()) return status;
    const bool key_is_text = IsBulkText(record.key);
    const bool value_is_text = IsBulkText(record.value);
    AppendField(key_is_text ? record.key : absl::Base64Escape(record.key), out);
    out.push_back(',');
    AppendField(value_is_text ? record.value : absl::Base64Escape(record.value), out);
    absl::StrAppend(&out, ",", record.ttl == absl::InfiniteDuration() ? "" : BulkTtl(record.ttl),
                    ",", key_is_text ? "" : kBase64, ",", value_is_text ? "" : kBase64, "\n");
    return absl::OkStatus();
  }
  void End(std::string& /*out*/) override {}
};

class CsvReader final : public BulkReader {
 public:
  explicit CsvReader(BulkInput& input) : input_(input) {}

  Result Next(BulkRecord& record) override {
    if (!has_header_) {
      has_header_ = true;
      if (absl::string_view(input_.First()).substr(0, 3) == "\xEF\xBB\xBF")
        for (int i = 0; i < 3; ++i) input_.Next();  // a byte order mark
      if (const std::string error = TakeHeader(); !error.empty()) return Broken(error);
    }
    do {
      if (input_.Peek() < 0) return AtEnd();
      const std::string error = TakeFields();
      if (!input_.status().ok()) return AtEnd();  // what came before may be a part of a record
      if (!error.empty()) return Bad(error);
    } while (fields_.size() == 1 && fields_[0].empty());  // an empty line
    return Make(record);
  }
  std::string place() const override { return absl::StrCat("line ", began_); }

 private:
  Result AtEnd() {
    if (input_.status().ok()) return Result::kEnd;
    return Broken(std::string(input_.status().message()));
  }

  std::string TakeHeader() {
    place_of_.fill(kColumnsMax);
    if (input_.Peek() < 0) {
      return input_.status().ok() ? "there is not even a line that names the columns"
                                  : std::string(input_.status().message());
    }
    const std::string error = TakeFields();
    // What came before that may be a part of the line.
    if (!input_.status().ok()) return std::string(input_.status().message());
    if (!error.empty()) return error;
    columns_ = fields_.size();
    for (size_t i = 0; i < columns_; ++i) {
      for (size_t column = 0; column < kColumns; ++column) {
        if (fields_[i] == kNames[column]) place_of_[column] = i;
      }
    }
    if (place_of_[kKey] < kColumnsMax && place_of_[kValue] < kColumnsMax) return "";
    return "the first line does not name the columns key and value";
  }

  // One record of the file, with its line end. On an error all up to the next line end is taken.
  std::string TakeFields() {
    began_ = ++line_;
    fields_.assign(1, "");
    uint64_t bytes = 0;
    bool quoted = false;  // within quotes
    bool closed = false;  // behind them
    std::string error;
    for (int c = input_.Next(); c >= 0; c = input_.Next()) {
      if (++bytes > kBulkTextRecordBytesMax && error.empty()) {
        error = absl::StrCat("it has more than ", kBulkTextRecordBytesMax, " bytes");
        quoted = false;
        fields_.assign(1, "");
      }
      if (quoted) {
        if (c == '\n') ++line_;
        if (c != '"') {
          fields_.back().push_back(static_cast<char>(c));
        } else if (input_.Peek() == '"') {
          fields_.back().push_back('"');
          input_.Next();
        } else {
          quoted = false;
          closed = true;
        }
        continue;
      }
      if (c == '\n') return error;
      if (!error.empty() || (c == '\r' && input_.Peek() == '\n')) continue;
      if (c == ',') {
        if (fields_.size() == kColumnsMax) error = "it has too many fields";
        fields_.emplace_back();
        closed = false;
      } else if (closed) {
        error = "something stands behind a closing quote";
      } else if (c != '"') {
        fields_.back().push_back(static_cast<char>(c));
      } else if (fields_.back().empty()) {
        quoted = true;
      } else {
        error = "a quote stands within a field that does not begin with one";
      }
    }
    return quoted ? "a quote is not closed: the file is cut off, or its quotes are wrong" : error;
  }

  std::string& Field(Column column) {
    return place_of_[column] < fields_.size() ? fields_[place_of_[column]] : none_;
  }

  Result Make(BulkRecord& record) {
    none_.clear();
    if (fields_.size() != columns_)
      return Bad(
          absl::StrFormat("it has %d fields, and the first line has %d", fields_.size(), columns_));
    std::string error = DecodeBulk("key", Field(kKeyEncoding), std::move(Field(kKey)), record.key);
    if (error.empty())
      error = DecodeBulk("value", Field(kValueEncoding), std::move(Field(kValue)), record.value);
    record.ttl = absl::InfiniteDuration();
    if (error.empty() && !Field(kTtl).empty()) {
      double seconds = 0;
      if (!absl::SimpleAtod(Field(kTtl), &seconds)) return Bad("its ttl is no number");
      error = DecodeBulkTtl(absl::Seconds(seconds), record.ttl);
    }
    return error.empty() ? Result::kRecord : Bad(std::move(error));
  }

  BulkInput& input_;
  bool has_header_ = false;
  size_t columns_ = 0;
  std::array<size_t, kColumns> place_of_{};  // kColumnsMax: there is none
  std::vector<std::string> fields_;
  std::string none_;
  uint64_t line_ = 0;
  uint64_t began_ = 0;
};

}  // namespace

std::unique_ptr<BulkWriter> NewCsvWriter() { return std::make_unique<CsvWriter>(); }
std::unique_ptr<BulkReader> NewCsvReader(BulkInput& input) {
  return std::make_unique<CsvReader>(input);
}

}  // namespace osprey
