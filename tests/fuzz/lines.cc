// What is typed at kvcli, and what it prints of it: lines of its shell, command lines, and answers
// of a server that says anything. What is taken is the same when it is quoted again. What is printed
// keeps to its line, has no codes for the terminal, and differs from all else that is printed.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "server/monitoring/http_address.h"
#include "tests/fuzz/support/input.h"
#include "tools/cli/commands.h"
#include "tools/cli/commands/run.h"
#include "tools/cli/commands/stat.h"
#include "tools/cli/line.h"
#include "tools/terminal/output.h"

namespace osprey {
namespace {

bool IsControl(char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }

bool IsOneLine(absl::string_view text) {
  return text.size() > 1 && text.find('\n') == text.size() - 1;
}

// Every byte by its number.
std::string DoublyQuoted(absl::string_view word) {
  std::string quoted = "\"";
  for (const char c : word) absl::StrAppendFormat(&quoted, "\\x%02x", static_cast<uint8_t>(c));
  return quoted + "\"";
}

// As it is. A backslash before the end would take the quote with it: REQUIRES: there is none.
std::string SinglyQuoted(absl::string_view word) {
  std::string quoted = "'";
  for (const char c : word) absl::StrAppend(&quoted, c == '\'' ? "\\'" : absl::string_view(&c, 1));
  return quoted + "'";
}

void TakeLine(const std::string& line) {
  const absl::StatusOr<std::vector<std::string>> words = SplitLine(line);
  if (!words.ok()) {
    OSPREY_MUST(absl::IsInvalidArgument(words.status()) && !words.status().message().empty() &&
                    !absl::StrContains(words.status().message(), "\n"),
                "an error of several lines, or of none");
    return;
  }
  OSPREY_MUST(!words->empty() || IsNoCommand(line), "a command without words");
  std::string anew;
  for (const std::string& word : *words) {
    const bool plain = !absl::StrContains(word, "\\");
    absl::StrAppend(&anew, " ",
                    plain && anew.size() % 2 == 0 ? SinglyQuoted(word) : DoublyQuoted(word));
  }
  const absl::StatusOr<std::vector<std::string>> same = SplitLine(anew);
  OSPREY_MUST(same.ok() && *same == *words, "words that differ when quoted again");
}

void TakeCompletion(const std::string& line) {
  const Completions completions = CompleteLine(line);
  OSPREY_MUST(completions.from <= line.size(), "a completion behind the line");
  const std::string word = line.substr(completions.from);
  OSPREY_MUST(std::is_sorted(completions.words.begin(), completions.words.end()),
              "completions without order");
  for (const std::string& completion : completions.words)
    OSPREY_MUST(absl::StartsWith(completion, word), "a completion of another word");
  const std::string common = CommonBeginning(completions.words);
  OSPREY_MUST(completions.words.empty() || absl::StartsWith(common, word),
              "a beginning that is not common");
}

// What must hold of all that goes to the second stream.
void MustBeTold(absl::string_view what, const absl::Status& status) {
  std::ostringstream out, err;
  Output output(Output::Form::kJson, out, err);
  output.Error(what, status, "`kvcli help` shows how");
  OSPREY_MUST(IsOneLine(err.str()) && IsOneLine(out.str()), "an error of several lines");
  OSPREY_MUST(Json::parse(out.str())["message"].is_string(), "an error that does not say why");
}

// No files but one that is not there.
std::string Harmless(const Command& command, std::string argument) {
  const absl::string_view name = command.name;
  constexpr char kNoFile[] = "/nonexistent/osprey.csv";
  if (absl::StartsWith(argument, "@")) return absl::StrCat("@", kNoFile);
  if ((name == "import" || name == "export") && !argument.empty() && argument != "-")
    return kNoFile;
  return argument;
}

CommandOptions TakeOptions(fuzz::Input& input) {
  CommandOptions options;
  const auto text = [&] { return input.OneIn(6) ? input.Text(20) : std::optional<std::string>(); };
  const auto number = [&] { return input.OneIn(6) ? input.Number() : std::optional<uint64_t>(); };
  options.if_absent = input.OneIn(6);
  options.if_version = number();
  options.ttl = text();
  options.prefix = text();
  options.limit = number();
  options.cursor = text();
  options.format = text();
  options.top = number();
  options.size = number();
  options.count = number();
  options.duration = text();
  if (input.OneIn(4)) {
    options.doctor.peer = text();
    options.memory = text();
    options.doctor.self_test = text();
    options.doctor.bind = text();
  }
  if (input.OneIn(4)) {
    options.cluster.replicas = number();
    options.cluster.min_in_sync = number();
    options.cluster.etcd.user = text().value_or("");
  }
  if (input.OneIn(6)) options.repeat = static_cast<int64_t>(input.Number());
  return options;
}

void TakeCommand(fuzz::Input& input) {
  const CommandOptions options = TakeOptions(input);
  const absl::Span<const Command> all = Commands();
  const Command& command = all[input.Choice(static_cast<uint32_t>(all.size()))];
  std::vector<std::string> arguments;
  for (uint32_t left = input.Choice(5); left > 0; --left)
    arguments.push_back(Harmless(command, input.Text(40)));
  const absl::Status usage = CheckUsage(command, arguments, options);
  if (!usage.ok()) return MustBeTold(command.name, usage);
  OSPREY_MUST(
      arguments.size() >= command.arguments_min && arguments.size() <= command.arguments_max,
      "a command with too few arguments, or too many");
  OSPREY_MUST(!options.if_absent || !options.if_version.has_value(), "conditions that cannot hold");
}

void TakeName(const std::string& name) {
  const Command* command = FindCommand(name);
  if (command == nullptr) return MustBeTold("", NoSuchCommand(name));
  OSPREY_MUST(absl::EqualsIgnoreCase(command->name, name), "another command than was asked for");
}

// As bash reads one word.
std::string OfShell(absl::string_view text) {
  std::string word;
  while (!text.empty()) {
    const bool escaped = absl::ConsumePrefix(&text, "$'");
    if (!escaped && !absl::ConsumePrefix(&text, "'")) {
      const bool quoted = absl::ConsumePrefix(&text, "\\");
      OSPREY_MUST(!text.empty() && (quoted || !absl::StrContains(" \t\n\"$`&|;<>(){}*?[]~#!\\",
                                                                 text.substr(0, 1))),
                  "a word that a shell takes apart");
      word.push_back(text[0]);
      text.remove_prefix(1);
      continue;
    }
    const size_t end = text.find('\'');
    OSPREY_MUST(end != absl::string_view::npos, "a quote that is not closed");
    std::string inside(text.substr(0, end));
    std::string plain;
    OSPREY_MUST(!escaped || absl::CUnescape(inside, &plain), "an escape that is none");
    absl::StrAppend(&word, escaped ? plain : inside);
    text.remove_prefix(end + 1);
  }
  return word;
}

// A key or a value, wherever it is shown.
void TakeBytes(const std::string& bytes) {
  const std::string field = EscapedField(bytes);
  std::string same;
  OSPREY_MUST(absl::CUnescape(field, &same) && same == bytes,
              "a field that could be another key's");
  OSPREY_MUST(IsPrintable(field), "a field that leaves its line");

  const std::string shown = ForTerminal(bytes);
  OSPREY_MUST(IsPrintable(shown) && (shown == bytes) == IsPrintable(bytes),
              "bytes that a terminal must not see");
  OSPREY_MUST(IsPrintable(Printable(bytes)), "a message that a terminal must not see");
  MustBeTold(Quoted("get", bytes), absl::NotFoundError("there is no such key"));

  const std::string quoted = ShellQuoted(bytes);
  OSPREY_MUST(IsPrintable(quoted), "a command that leaves its line");
  OSPREY_MUST(OfShell(quoted) == bytes, "a word that is another one to a shell");

  std::ostringstream out, err;
  Output output(Output::Form::kJson, out, err);
  output.Value(bytes, bytes, 1);
  OSPREY_MUST(IsPrintable(absl::StripSuffix(out.str(), "\n")), "JSON that a terminal must not see");
  const Json json = Json::parse(out.str());
  const bool base64 = json["value_encoding"] == "base64";
  same = json["value"].get<std::string>();
  OSPREY_MUST(!base64 || absl::Base64Unescape(json["value"].get<std::string>(), &same),
              "a value that is no base64");
  OSPREY_MUST(same == bytes && base64 == !IsUtf8(bytes), "another value in JSON");
}

// Statistics, as any server may tell them.
void TakeStatistics(fuzz::Input& input) {
  std::string texts[2];
  for (std::string& text : texts) {
    for (const char* name : {"uptime_seconds", "incarnation", "keys", "index_bytes", "item_bytes",
                             "requests_put", "requests_get", "client_get_hits", "process_cpu_us"}) {
      if (input.Flag()) absl::StrAppend(&text, name, "=", input.Text(12), "\n");
    }
    absl::StrAppend(&text, input.Text(60));
  }
  const std::vector<double> row = StatRow(texts[0], texts[1]);
  OSPREY_MUST(row.size() == StatColumns().size(), "another number of columns");
  // JSON has room for them as whole numbers.
  for (size_t i = 0; i < row.size(); ++i) {
    using Kind = StatColumn::Kind;
    const Kind kind = StatColumns()[i].kind;
    const bool whole = kind == Kind::kNow || kind == Kind::kBytes;
    if (kind == Kind::kReported && std::isnan(row[i])) continue;
    OSPREY_MUST(std::isfinite(row[i]) && row[i] >= 0 && (!whole || row[i] < 0x1p64),
                "a figure that is none");
  }
  const std::string line = StatLine(row);
  OSPREY_MUST(std::none_of(line.begin(), line.end(), IsControl) && line.size() < 200,
              "a line that is none");

  std::ostringstream out, err;
  Output(Output::Form::kJson, out, err).Table("stats", SplitPairs(texts[1], '\n'));
  OSPREY_MUST(IsOneLine(out.str()) && Json::parse(out.str()).is_object(),
              "statistics that are not JSON");
  std::ostringstream people;
  Output(Output::Form::kPeople, people, err).Table("stats", SplitPairs(texts[1], '\n'));
  const std::string shown = people.str();
  for (const absl::string_view shown_line : absl::StrSplit(shown, '\n')) {
    OSPREY_MUST(IsPrintable(shown_line), "what a server says to the terminal");
  }
}

void TakeHttpAddress(const std::string& text) {
  const absl::StatusOr<server::HttpAddress> address = server::ParseHttpAddress(text);
  if (!address.ok()) return MustBeTold("--metrics", address.status());
  const std::string again = address->ToString();
  const absl::StatusOr<server::HttpAddress> same = server::ParseHttpAddress(again);
  OSPREY_MUST(same.ok() && same->ToString() == again && same->host == address->host &&
                  same->port == address->port,
              "an address that differs when written again");
}

void One(fuzz::Input input) {
  enum { kLine, kCompletion, kCommand, kName, kBytes, kStatistics, kHttpAddress, kKinds };
  switch (input.Choice(kKinds)) {
    case kLine:
      return TakeLine(input.Rest());
    case kCompletion:
      return TakeCompletion(input.Rest());
    case kCommand:
      return TakeCommand(input);
    case kName:
      return TakeName(input.Rest());
    case kBytes:
      return TakeBytes(input.Rest());
    case kStatistics:
      return TakeStatistics(input);
    case kHttpAddress:
      return TakeHttpAddress(input.Rest());
  }
}

}  // namespace
}  // namespace osprey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::One(osprey::fuzz::Input(data, size));
  return 0;
}
