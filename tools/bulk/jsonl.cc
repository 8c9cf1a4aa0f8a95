#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/program/printable.h"
#include "tools/bulk/text.h"

namespace osprey {
namespace {

using Json = nlohmann::ordered_json;

void SetText(Json& json, const std::string& name, const std::string& bytes) {
  const bool is_text = IsBulkText(bytes);
  json[name] = is_text ? bytes : absl::Base64Escape(bytes);
  if (!is_text) json[name + "_encoding"] = kBase64;
}

class JsonlWriter final : public BulkWriter {
 public:
  void Begin(std::string& /*out*/) override {}
  absl::Status Append(const BulkRecord& record, std::string& out) override {
    if (absl::Status status = CheckBulkText(record); !status.ok()) return status;
    Json json;
    SetText(json, "key", record.key);
    SetText(json, "value", record.value);
    std::string line = json.dump();
    if (record.ttl != absl::InfiniteDuration()) {
      line.pop_back();
      absl::StrAppend(&line, ",\"ttl\":", BulkTtl(record.ttl), "}");
    }
    absl::StrAppend(&out, line, "\n");
    return absl::OkStatus();
  }
  void End(std::string& /*out*/) override {}
};

// One line, by nlohmann's SAX interface: parsing ends at the first thing that no record has, before
// anything is kept of it. So a line takes time and memory by its length alone, however deep or wide
// it is.
class JsonlLine final : public nlohmann::json_sax<Json> {
 public:
  // "" if `text` is a record; else what is wrong with it.
  std::string Take(absl::string_view text, BulkRecord& record) {
    if (!Json::sax_parse(text.begin(), text.end(), this)) return error_;
    if (!key_.has_value()) return "it has no text \"key\"";
    if (!value_.has_value()) return "it has no text \"value\"";
    std::string error = DecodeBulk("key", key_encoding_.value_or(""), *std::move(key_), record.key);
    if (error.empty()) {
      error = DecodeBulk("value", value_encoding_.value_or(""), *std::move(value_), record.value);
    }
    record.ttl = absl::InfiniteDuration();
    if (error.empty() && ttl_.has_value()) error = DecodeBulkTtl(absl::Seconds(*ttl_), record.ttl);
    return error;
  }

  bool null() override {
    if (name_ == Name::kTtl) return true;
    return NotText();
  }
  bool boolean(bool /*value*/) override { return NotText(); }
  bool number_integer(number_integer_t value) override {
    return Number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const std::string& /*text*/) override {
    return Number(value);
  }
  bool string(std::string& text) override {
    std::optional<std::string>* const field = FieldOf(name_);
    if (field == nullptr) return NotText();
    field->emplace(std::move(text));
    return true;
  }
  bool binary(Json::binary_t& /*bytes*/) override { return NotText(); }  // not in JSON text
  bool start_object(size_t /*elements*/) override {
    if (name_ != Name::kNone) return Wrong("is an object");
    return name_ = Name::kFirst, true;
  }
  bool start_array(size_t /*elements*/) override {
    return name_ == Name::kNone ? NotText() : Wrong("is a list");
  }
  bool end_object() override { return true; }
  bool end_array() override { return true; }
  bool key(std::string& name) override {
    const auto* const known =
        std::find_if(std::begin(kNames), std::end(kNames),
                     [&](const auto& candidate) { return name == candidate.text; });
    if (known == std::end(kNames)) {
      return Ends(absl::StrCat("it has the name '", Printable(name.substr(0, kNameBytesShown)),
                               "'; a record has key, value, ttl, key_encoding and value_encoding"));
    }
    name_ = known->name;
    bool& is_there = is_there_[static_cast<size_t>(name_)];
    return std::exchange(is_there, true) ? Wrong("is there twice") : true;
  }
  bool parse_error(size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*why*/) override {
    return Ends("it is no JSON object");
  }

 private:
  enum class Name { kNone, kFirst, kKey, kValue, kTtl, kKeyEncoding, kValueEncoding };
  struct KnownName {
    const char* text;
    Name name;
  };
  static constexpr KnownName kNames[] = {{"key", Name::kKey},
                                         {"value", Name::kValue},
                                         {"ttl", Name::kTtl},
                                         {"key_encoding", Name::kKeyEncoding},
                                         {"value_encoding", Name::kValueEncoding}};
  static constexpr size_t kNameBytesShown = 64;

  std::optional<std::string>* FieldOf(Name name) {
    switch (name) {
      case Name::kKey:
        return &key_;
      case Name::kValue:
        return &value_;
      case Name::kKeyEncoding:
        return &key_encoding_;
      case Name::kValueEncoding:
        return &value_encoding_;
      case Name::kNone:
      case Name::kFirst:
      case Name::kTtl:
        break;
    }
    return nullptr;
  }

  bool Number(double value) {
    if (name_ != Name::kTtl) return NotText();
    ttl_ = value;
    return true;
  }

  // A value that is not of the kind that its name asks for.
  bool NotText() {
    switch (name_) {
      case Name::kNone:
      case Name::kFirst:
        return Ends("it is no JSON object");
      case Name::kKey:
        return Ends("it has no text \"key\"");
      case Name::kValue:
        return Ends("it has no text \"value\"");
      case Name::kTtl:
        return Ends("its ttl is no number");
      case Name::kKeyEncoding:
      case Name::kValueEncoding:
        return Wrong("is no text");
    }
    return Ends("it is no JSON object");
  }
  bool Wrong(absl::string_view what) {
    const auto* const known = std::find_if(std::begin(kNames), std::end(kNames),
                                           [&](const auto& named) { return named.name == name_; });
    return Ends(absl::StrCat("its ", known->text, " ", what));
  }
  bool Ends(std::string error) {
    error_ = std::move(error);
    return false;
  }

  Name name_ = Name::kNone;  // of the value that comes next
  bool is_there_[std::size(kNames) + 2] = {};
  std::optional<std::string> key_;
  std::optional<std::string> value_;
  std::optional<std::string> key_encoding_;
  std::optional<std::string> value_encoding_;
  std::optional<double> ttl_;
  std::string error_;
};

class JsonlReader final : public BulkReader {
 public:
  explicit JsonlReader(BulkInput& input) : input_(input) {}

  Result Next(BulkRecord& record) override {
    absl::string_view text;
    std::string line;
    do {
      line.clear();
      bool is_too_long = false;
      if (!input_.Line(line, kBulkTextRecordBytesMax, is_too_long) || !input_.status().ok()) {
        if (input_.status().ok()) return Result::kEnd;
        return Broken(std::string(input_.status().message()));
      }
      ++line_;
      if (is_too_long)
        return Bad(absl::StrCat("it has more than ", kBulkTextRecordBytesMax, " bytes"));
      text = absl::StripAsciiWhitespace(line);
    } while (text.empty());
    if (line_ == 1 && text.substr(0, sizeof(kBulkMagic) - 1) == kBulkMagic)
      return Broken("this is no text: use --format=binary");
    std::string error = JsonlLine().Take(text, record);
    return error.empty() ? Result::kRecord : Bad(std::move(error));
  }
  std::string place() const override { return absl::StrCat("line ", line_); }

 private:
  BulkInput& input_;
  uint64_t line_ = 0;
};

}  // namespace

std::unique_ptr<BulkWriter> NewJsonlWriter() { return std::make_unique<JsonlWriter>(); }
std::unique_ptr<BulkReader> NewJsonlReader(BulkInput& input) {
  return std::make_unique<JsonlReader>(input);
}

}  // namespace osprey
