// kvcli's commands on several keys.

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tools/cli/commands/run.h"
#include "tools/cli/key_iterator.h"

namespace osprey {
namespace {

std::vector<absl::string_view> KeysOf(Arguments arguments) {
  return std::vector<absl::string_view>(arguments.begin(), arguments.end());
}

// The exit status of several results: the first failure, otherwise the first "no", otherwise OK.
class Outcome {
 public:
  void Add(const absl::Status& status) {
    const ExitStatus exit = ExitStatusOf(status);
    if (exit == ExitStatus::kDone) return;
    if (exit_ == ExitStatus::kDone || exit_ == ExitStatus::kNo) exit_ = exit;
  }
  ExitStatus exit() const { return exit_; }

 private:
  ExitStatus exit_ = ExitStatus::kDone;
};

Json KeyJson(absl::string_view key) {
  Json json;
  SetBytes(json, "key", key);
  return json;
}

void AddTtl(absl::Duration ttl, Json& json) {
  if (ttl != absl::InfiniteDuration()) json["ttl"] = absl::ToDoubleSeconds(ttl);
}

// Adds one failed result: its error on its own line, its JSON among the others.
void AddError(CommandContext& context, absl::string_view verb, absl::string_view key,
              const absl::Status& status, Json json, Json& results) {
  json["error"] = absl::StatusCodeToString(status.code());
  json["message"] = std::string(status.message());
  results.push_back(std::move(json));
  context.out->PartError(Quoted(verb, key), status, FixOf(status));
}

// Prints one key. In JSON it is an object of its own, so that a scan of any size needs no memory.
void PrintFound(CommandContext& context, const ScanItem& item) {
  Json json = KeyJson(item.key);
  json["bytes"] = item.value_length;
  json["version"] = item.version;
  AddTtl(item.ttl, json);
  std::string people = ForTerminal(item.key), plain = EscapedField(item.key);
  if (context.options.values) {
    SetBytes(json, "value", item.value);
    absl::StrAppend(&people, "  ", ForTerminal(item.value));
    absl::StrAppend(&plain, "\t", EscapedField(item.value));
  }
  absl::StrAppend(&people, "  (", ItemText(item.value_length, item.version, item.ttl), ")");
  context.out->Result(people, plain, json);
}

// Prints versions, one a line, in the order of the keys; a failed key has an empty line.
ExitStatus PrintVersions(CommandContext& context, absl::string_view verb, absl::string_view done,
                         absl::Span<const absl::string_view> keys,
                         const std::vector<absl::StatusOr<uint64_t>>& versions) {
  Outcome outcome;
  Json results = Json::array();
  std::string people, plain;
  uint64_t written = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    outcome.Add(versions[i].status());
    if (!versions[i].ok()) {
      AddError(context, verb, keys[i], versions[i].status(), KeyJson(keys[i]), results);
      absl::StrAppend(&people, Quoted("failed", keys[i]), "\n");
      absl::StrAppend(&plain, "\n");
      continue;
    }
    absl::StrAppend(&people, Quoted(done, keys[i]), ", version ", *versions[i], "\n");
    absl::StrAppend(&plain, *versions[i], "\n");
    Json json = KeyJson(keys[i]);
    json["version"] = *versions[i];
    results.push_back(std::move(json));
    ++written;
  }
  context.out->Results(people, plain, written, Json{{"results", results}});
  return outcome.exit();
}

}  // namespace

ExitStatus RunDelete(CommandContext& context, Arguments arguments) {
  if (arguments.size() == 1) {
    const std::string& key = arguments[0];
    const absl::StatusOr<uint64_t> version = Timed(context, [&](Client& client) {
      return client.Delete(key, WriteOptionsOf(context.options));
    });
    if (!version.ok()) return Fail(context, Quoted("del", key), version.status());
    PrintWritten(context, absl::StrCat("deleted ", ForTerminal(key)), key, *version);
    return ExitStatus::kDone;
  }
  const std::vector<absl::string_view> keys = KeysOf(arguments);
  const std::vector<absl::StatusOr<uint64_t>> versions =
      Timed(context, [&](Client& client) { return client.MultiDelete(keys); });
  return PrintVersions(context, "del", "deleted", keys, versions);
}

absl::Status CheckMultiPut(Arguments arguments, const CommandOptions& options) {
  if (arguments.size() % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the last key, ", arguments.back(), ", has no value"));
  }
  int from_input = 0;
  for (size_t i = 0; i < arguments.size(); i += 2) {
    from_input += !options.literal && arguments[i + 1] == "-" ? 1 : 0;
    if (absl::Status pair = CheckPut(arguments.subspan(i, 2), options); !pair.ok()) return pair;
  }
  if (from_input > 1)
    return absl::InvalidArgumentError("standard input (-) can be one value, not several");
  return absl::OkStatus();
}

ExitStatus RunMultiPut(CommandContext& context, Arguments arguments) {
  std::vector<absl::string_view> keys;
  std::vector<std::string> values;
  for (size_t i = 0; i < arguments.size(); i += 2) {
    absl::StatusOr<std::string> value = ReadValue(context, arguments[i + 1]);
    if (!value.ok()) return FailToRead(context, Quoted("mput", arguments[i]), value.status());
    keys.push_back(arguments[i]);
    values.push_back(*std::move(value));
  }
  std::vector<KeyValue> pairs;
  for (size_t i = 0; i < keys.size(); ++i) pairs.push_back({keys[i], values[i]});
  const std::vector<absl::StatusOr<uint64_t>> versions = Timed(context, [&](Client& client) {
    return client.MultiPut(pairs, WriteOptionsOf(context.options));
  });
  return PrintVersions(context, "mput", "stored", keys, versions);
}

ExitStatus RunMultiGet(CommandContext& context, Arguments arguments) {
  const std::vector<absl::string_view> keys = KeysOf(arguments);
  const std::vector<absl::StatusOr<Value>> values =
      Timed(context, [&](Client& client) { return client.MultiGet(keys); });
  Outcome outcome;
  Json results = Json::array();
  std::string people, plain;
  uint64_t found = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    outcome.Add(values[i].status());
    if (!values[i].ok()) {
      AddError(context, "mget", keys[i], values[i].status(), KeyJson(keys[i]), results);
      continue;
    }
    const std::string& bytes = values[i]->bytes;
    absl::StrAppend(&people, ForTerminal(keys[i]), "  ", ForTerminal(bytes), "  (",
                    ItemText(bytes.size(), values[i]->version, values[i]->ttl), ")\n");
    absl::StrAppend(&plain, EscapedField(keys[i]), "\t", EscapedField(bytes), "\n");
    Json json = KeyJson(keys[i]);
    SetBytes(json, "value", bytes);
    json["version"] = values[i]->version;
    AddTtl(values[i]->ttl, json);
    results.push_back(std::move(json));
    ++found;
  }
  context.out->Results(people, plain, found, Json{{"results", results}});
  return outcome.exit();
}

// Asks on the terminal, because a flush cannot be undone.
static bool Confirmed(CommandContext& context) {
  if (!context.may_ask || context.options.yes) return true;
  const absl::StatusOr<uint64_t> count = context.client->Count();
  context.out->Ask(absl::StrCat("delete all ", count.ok() ? absl::StrCat(*count, " ") : "",
                                "keys at ", context.server, "? Type yes: "));
  std::string answer;
  std::getline(std::cin, answer);
  std::cin.clear();  // Ctrl-D means no, too
  return answer == "yes";
}

ExitStatus RunFlush(CommandContext& context, Arguments /*arguments*/) {
  if (!Confirmed(context)) {
    context.out->Error("flush", absl::FailedPreconditionError("not confirmed; nothing was deleted"),
                       "");
    return ExitStatus::kNo;
  }
  const absl::StatusOr<uint64_t> deleted =
      Timed(context, [](Client& client) { return client.Flush(); });
  if (!deleted.ok()) return Fail(context, "flush", deleted.status());
  context.out->Result(absl::StrCat("deleted ", *deleted, *deleted == 1 ? " key" : " keys"),
                      absl::StrCat(*deleted), Json{{"deleted", *deleted}});
  return ExitStatus::kDone;
}

ExitStatus RunScan(CommandContext& context, Arguments /*arguments*/) {
  KeyIterator iterator;
  iterator.prefix = context.options.prefix.value_or("");
  iterator.values = context.options.values;
  iterator.limit = context.options.limit.value_or(UINT64_MAX);
  iterator.cursor = context.options.cursor.value_or("");
  uint64_t found = 0;
  const absl::Status walked = Timed(context, [&](Client& client) {
    return IterateKeys(
        client, iterator,
        [&](const ScanItem& item) {
          PrintFound(context, item);
          ++found;
          return absl::OkStatus();
        },
        [&] { return context.out->Flush(); });
  });
  if (!walked.ok()) return Fail(context, "scan", walked);
  if (!iterator.cursor.empty())
    context.out->Note(absl::StrCat("there may be more: --cursor=", iterator.cursor));
  context.out->End(found, Json{{"keys", found}, {"cursor", iterator.cursor}});
  return ExitStatus::kDone;
}

ExitStatus RunCount(CommandContext& context, Arguments /*arguments*/) {
  KeyIterator iterator;
  iterator.prefix = context.options.prefix.value_or("");
  const absl::StatusOr<uint64_t> count =
      Timed(context, [&](Client& client) -> absl::StatusOr<uint64_t> {
        if (iterator.prefix.empty()) return client.Count();
        uint64_t found = 0;
        const absl::Status walked = IterateKeys(
            client, iterator,
            [&](const ScanItem&) {
              ++found;
              return absl::OkStatus();
            },
            [] { return true; });
        if (walked.ok() && !iterator.cursor.empty()) return absl::CancelledError("interrupted");
        if (!walked.ok()) return walked;
        return found;
      });
  if (!count.ok()) return Fail(context, "count", count.status());
  context.out->Result(absl::StrCat(*count, *count == 1 ? " key" : " keys"), absl::StrCat(*count),
                      Json{{"count", *count}});
  return ExitStatus::kDone;
}

}  // namespace osprey
