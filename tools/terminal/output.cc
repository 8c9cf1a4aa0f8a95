#include "tools/terminal/output.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace osprey {
namespace {

Json NumberOrText(const std::string& text) {
  int64_t whole = 0;
  double fraction = 0;
  if (absl::SimpleAtoi(text, &whole)) return whole;
  // "inf" and "nan" are numbers to SimpleAtod, not to JSON.
  if (!text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text.back())) &&
      absl::SimpleAtod(text, &fraction)) {
    return fraction;
  }
  return text;
}

std::string Plural(uint64_t number, absl::string_view thing) {
  return absl::StrCat(number, " ", thing, number == 1 ? "" : "s");
}

// "1 READ, 24.8 µs"
std::string Text(const Cost& cost) {
  std::string text;
  if (cost.reads > 0) absl::StrAppend(&text, Plural(cost.reads, "READ"), ", ");
  if (cost.messages > 0) absl::StrAppend(&text, Plural(cost.messages, "message"), ", ");
  absl::StrAppendFormat(&text, "%.1f µs", absl::ToDoubleMicroseconds(cost.time));
  return text;
}

}  // namespace

std::string ItemText(uint64_t bytes, uint64_t version, absl::Duration ttl) {
  std::string text = absl::StrCat(Plural(bytes, "byte"), ", version ", version);
  if (ttl != absl::InfiniteDuration())
    absl::StrAppendFormat(&text, ", expires in %.3f s", absl::ToDoubleSeconds(ttl));
  return text;
}

void SetBytes(Json& json, const std::string& name, absl::string_view bytes) {
  const bool text = IsUtf8(bytes);
  json[name] = text ? std::string(bytes) : absl::Base64Escape(bytes);
  json[name + "_encoding"] = text ? "utf-8" : "base64";
}

void Output::PrintJson(Json json) {
  if (cost_.has_value()) {
    json["reads"] = cost_->reads;
    json["messages"] = cost_->messages;
    json["us"] = absl::ToDoubleMicroseconds(cost_->time);
  }
  // Messages may quote a key that is not UTF-8.
  out_ << PrintableJson(json.dump(-1, ' ', false, Json::error_handler_t::replace)) << '\n';
}

void Output::Result(absl::string_view people, absl::string_view plain, const Json& json) {
  switch (form_) {
    case Form::kPeople:
      out_ << people;
      if (cost_.has_value()) out_ << " (" << Text(*cost_) << ")";
      out_ << '\n';
      break;
    case Form::kPlain:
      out_ << plain << '\n';
      break;
    case Form::kJson:
      PrintJson(json);
      break;
  }
  cost_.reset();
}

void Output::Results(absl::string_view people, absl::string_view plain, uint64_t keys,
                     const Json& json) {
  if (form_ == Form::kPeople) out_ << people;
  if (form_ == Form::kPlain) out_ << plain;
  End(keys, json);
}

void Output::End(uint64_t keys, const Json& json) {
  if (form_ == Form::kPeople) {
    out_ << '(' << Plural(keys, "key") << (cost_.has_value() ? "; " + Text(*cost_) : "") << ")\n";
  }
  if (form_ == Form::kJson) PrintJson(json);
  cost_.reset();
}

void Output::Value(absl::string_view key, absl::string_view bytes, uint64_t version,
                   absl::Duration ttl) {
  switch (form_) {
    case Form::kPeople:
      out_ << ForTerminal(bytes) << '\n';
      if (cost_.has_value()) {
        out_ << absl::StrCat("(", ItemText(bytes.size(), version, ttl),
                             ttl == absl::InfiniteDuration() ? ", lives until it is deleted" : "",
                             "; ", Text(*cost_), ")\n");
      }
      break;
    case Form::kPlain:
      out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      if (values_are_lines_) out_ << '\n';
      break;
    case Form::kJson:
      Json json;
      SetBytes(json, "key", key);
      SetBytes(json, "value", bytes);
      json["bytes"] = bytes.size();
      json["version"] = version;
      if (ttl != absl::InfiniteDuration()) json["ttl"] = absl::ToDoubleSeconds(ttl);
      PrintJson(std::move(json));
      break;
  }
  cost_.reset();
}

void Output::Table(absl::string_view title,
                   const std::vector<std::pair<std::string, std::string>>& rows) {
  switch (form_) {
    case Form::kPeople: {
      size_t width = 0;
      for (const auto& [name, value] : rows) width = std::max(width, ForTerminal(name).size());
      out_ << Printable(title) << '\n';
      for (const auto& [name, value] : rows) {
        out_ << absl::StreamFormat("  %-*s  %s\n", static_cast<int>(width), ForTerminal(name),
                                   ForTerminal(value));
      }
      return;
    }
    case Form::kPlain:
      for (const auto& [name, value] : rows)
        out_ << Printable(name) << '=' << Printable(value) << '\n';
      return;
    case Form::kJson:
      Json json = Json::object();
      for (const auto& [name, value] : rows) json[name] = NumberOrText(value);
      PrintJson(json);
      return;
  }
}

void Output::Note(absl::string_view text) {
  if (form_ != Form::kJson) err_ << "kvcli: " << Printable(text) << '\n';
}

void Output::Ask(absl::string_view question) {
  out_.flush();
  err_ << Printable(question) << std::flush;
}

void Output::PartError(absl::string_view what, const absl::Status& status, absl::string_view fix) {
  const std::string line = absl::StrCat("kvcli: ", what, what.empty() ? "" : ": ", status.message(),
                                        fix.empty() ? "" : "; ", fix);
  // Keys, paths and messages of others may hold anything.
  err_ << Printable(line) << '\n';
}

void Output::Error(absl::string_view what, const absl::Status& status, absl::string_view fix) {
  cost_.reset();
  PartError(what, status, fix);
  if (form_ != Form::kJson) return;
  Json json;
  json["error"] = absl::StatusCodeToString(status.code());
  json["message"] = absl::StrReplaceAll(status.message(), {{"\n", " "}});
  PrintJson(json);
}

bool Output::Flush() {
  out_.flush();
  return out_.good();
}

}  // namespace osprey
