#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tools/bulk_text.h"

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
    const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return Bad("it is no JSON object");
    std::string error = Take(json, "key", record.key);
    if (error.empty()) error = Take(json, "value", record.value);
    record.ttl = absl::InfiniteDuration();
    const auto ttl = json.find("ttl");
    if (error.empty() && ttl != json.end() && !ttl->is_null()) {
      if (!ttl->is_number()) return Bad("its ttl is no number");
      error = DecodeBulkTtl(absl::Seconds(ttl->get<double>()), record.ttl);
    }
    return error.empty() ? Result::kRecord : Bad(std::move(error));
  }
  std::string place() const override { return absl::StrCat("line ", line_); }

 private:
  static std::string Take(const Json& json, const std::string& name, std::string& bytes) {
    const auto text = json.find(name);
    if (text == json.end() || !text->is_string())
      return absl::StrCat("it has no text \"", name, "\"");
    const auto encoding = json.find(name + "_encoding");
    if (encoding == json.end()) return DecodeBulk(name, "", text->get<std::string>(), bytes);
    if (!encoding->is_string()) return absl::StrCat("its ", name, "_encoding is no text");
    return DecodeBulk(name, encoding->get<std::string>(), text->get<std::string>(), bytes);
  }

  BulkInput& input_;
  uint64_t line_ = 0;
};

}  // namespace

std::unique_ptr<BulkWriter> NewJsonlWriter() { return std::make_unique<JsonlWriter>(); }
std::unique_ptr<BulkReader> NewJsonlReader(BulkInput& input) {
  return std::make_unique<JsonlReader>(input);
}

}  // namespace osprey
