#include "server/cluster/etcd/etcd_messages.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/cluster/etcd/json_text.h"

namespace osprey {
namespace {

using Json = nlohmann::json;

constexpr size_t kExcerptBytesMax = 200;
constexpr size_t kTokenBytesMax = 4096;
constexpr int kGrpcCodeMax = 16;
constexpr uint64_t kInt64Max = std::numeric_limits<int64_t>::max();
constexpr uint64_t kUint64Max = std::numeric_limits<uint64_t>::max();

// --- Requests

// The first key behind all that begin with `prefix`. "\0" means that there is none.
std::string EndOfPrefix(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');
  ++prefix.back();
  return prefix;
}

Json RangeJson(const StoreRange& range) {
  Json json = {{"key", absl::Base64Escape(range.key)}};
  if (range.is_prefix) json["range_end"] = absl::Base64Escape(EndOfPrefix(range.key));
  if (range.min_mod_revision != 0) json["min_mod_revision"] = absl::StrCat(range.min_mod_revision);
  return json;
}

Json CompareJson(const StoreCompare& compare) {
  Json json = {{"key", absl::Base64Escape(compare.key)}, {"result", "EQUAL"}};
  switch (compare.property) {
    case StoreCompare::Property::kModRevision:
      json["target"] = "MOD";
      json["mod_revision"] = absl::StrCat(compare.number);
      break;
    case StoreCompare::Property::kCreateRevision:
      json["target"] = "CREATE";
      json["create_revision"] = absl::StrCat(compare.number);
      break;
    case StoreCompare::Property::kVersion:
      json["target"] = "VERSION";
      json["version"] = absl::StrCat(compare.number);
      break;
    case StoreCompare::Property::kValue:
      json["target"] = "VALUE";
      json["value"] = absl::Base64Escape(compare.value);
      break;
  }
  return json;
}

Json OperationJson(const StoreOperation& operation) {
  const std::string key = absl::Base64Escape(operation.range.key);
  switch (operation.kind) {
    case StoreOperation::Kind::kPut:
      return {{"request_put", {{"key", key}, {"value", absl::Base64Escape(operation.value)}}}};
    case StoreOperation::Kind::kDelete:
      return {{"request_delete_range", {{"key", key}}}};
    case StoreOperation::Kind::kRange:
      return {{"request_range", RangeJson(operation.range)}};
  }
  return {};
}

// --- Answers

// Takes fields out of an answer. The first mistake stays; after it the values mean nothing.
class AnswerReader {
 public:
  // An answer is one object.
  explicit AnswerReader(absl::string_view text) : json_(ParseJsonObject(text)) {
    if (!json_.is_object()) Fail("is not a JSON object", Excerpt(text));
  }

  const Json& json() const { return json_; }
  bool ok() const { return wrong_.empty(); }
  absl::Status status() const { return ok() ? absl::OkStatus() : absl::DataLossError(wrong_); }

  void Fail(absl::string_view what, absl::string_view detail) {
    if (ok()) wrong_ = absl::StrCat("the answer ", what, ": ", detail);
  }

  // A number, as JSON's or as a string of digits; 0 if it is missing.
  uint64_t Number(const Json& object, const char* name, uint64_t max) {
    uint64_t number = 0;
    const Json* field = Find(object, name);
    if (field == nullptr) return 0;
    if (field->is_number_unsigned()) {
      number = field->get<uint64_t>();
    } else if (!field->is_string() || !ParseDigits(field->get_ref<const std::string&>(), number)) {
      Fail("has a field that is no number", name);
      return 0;
    }
    if (number > max) Fail("has a number out of range", name);
    return number;
  }
  int64_t Int64(const Json& object, const char* name) {
    return static_cast<int64_t>(Number(object, name, kInt64Max));
  }

  bool Flag(const Json& object, const char* name) {
    const Json* field = Find(object, name);
    if (field == nullptr) return false;
    if (!field->is_boolean()) Fail("has a field that is no boolean", name);
    return field->is_boolean() && field->get<bool>();
  }

  std::string Text(const Json& object, const char* name) {
    const Json* field = Find(object, name);
    if (field == nullptr) return "";
    if (field->is_string()) return field->get<std::string>();
    Fail("has a field that is no string", name);
    return "";
  }

  std::string Bytes(const Json& object, const char* name) {
    std::string bytes;
    if (!absl::Base64Unescape(Text(object, name), &bytes))
      Fail("has a field that is no base64", name);
    return bytes;
  }

  // Empty if it is missing.
  const Json& List(const Json& object, const char* name) {
    static const Json kNone = Json::array();
    const Json* field = Find(object, name);
    if (field == nullptr) return kNone;
    if (field->is_array()) return *field;
    Fail("has a field that is no list", name);
    return kNone;
  }

  const Json& Object(const Json& object, const char* name) {
    static const Json kNone = Json::object();
    const Json* field = Find(object, name);
    if (field != nullptr && field->is_object()) return *field;
    Fail("lacks an object", name);
    return kNone;
  }

  StoreHeader Header() {
    const Json& header = Object(json_, "header");
    StoreHeader result;
    result.cluster_id = Number(header, "cluster_id", kUint64Max);
    result.member_id = Number(header, "member_id", kUint64Max);
    result.revision = Int64(header, "revision");
    if (result.cluster_id == 0) Fail("lacks a field of its header", "cluster_id");
    if (result.member_id == 0) Fail("lacks a field of its header", "member_id");
    if (result.revision == 0) Fail("lacks a field of its header", "revision");
    return result;
  }

  std::vector<StoredKey> Keys(const Json& answer, const StoreRange& range, int64_t revision) {
    std::vector<StoredKey> keys;
    for (const Json& item : List(answer, "kvs")) {
      if (!ok()) return {};
      StoredKey key;
      key.key = Bytes(item, "key");
      key.value = Bytes(item, "value");
      key.create_revision = Int64(item, "create_revision");
      key.mod_revision = Int64(item, "mod_revision");
      key.version = Int64(item, "version");
      if (range.is_prefix ? !absl::StartsWith(key.key, range.key) : key.key != range.key)
        Fail("has a key outside the range", Excerpt(key.key));
      if (key.create_revision < 1 || key.mod_revision < key.create_revision ||
          key.mod_revision > revision || key.mod_revision < range.min_mod_revision ||
          key.version < 1) {
        Fail("has a key with impossible revisions", Excerpt(key.key));
      }
      keys.push_back(std::move(key));
    }
    // etcd sends ranges without a limit whole.
    if (Flag(answer, "more")) Fail("leaves out keys", "more");
    return keys;
  }

 private:
  static bool ParseDigits(const std::string& text, uint64_t& number) {
    return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
           absl::SimpleAtoi(text, &number);
  }

  // nullptr: it is missing.
  const Json* Find(const Json& object, const char* name) {
    if (!object.is_object()) {
      Fail("has something else where an object belongs, with", name);
      return nullptr;
    }
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  const Json json_;
  std::string wrong_;
};

OperationResult ResultOf(AnswerReader& reader, const Json& item, StoreOperation::Kind kind,
                         const StoreRange& range, int64_t revision) {
  OperationResult result;
  switch (kind) {
    case StoreOperation::Kind::kPut:
      (void)reader.Object(item, "response_put");
      break;
    case StoreOperation::Kind::kDelete:
      result.deleted = static_cast<int64_t>(
          reader.Number(reader.Object(item, "response_delete_range"), "deleted", 1));
      break;
    case StoreOperation::Kind::kRange:
      result.keys = reader.Keys(reader.Object(item, "response_range"), range, revision);
      break;
  }
  return result;
}

}  // namespace

std::string Excerpt(absl::string_view text) {
  std::string shown = absl::CEscape(text.substr(0, kExcerptBytesMax));
  if (text.size() > kExcerptBytesMax || shown.size() > kExcerptBytesMax) {
    shown.resize(std::min(shown.size(), kExcerptBytesMax));
    shown += "…";
  }
  return shown;
}

std::string RangeRequest(const StoreRange& range) { return JsonText(RangeJson(range)); }

std::string TransactionRequest(const Transaction& transaction) {
  Json json = {{"compare", Json::array()}, {"success", Json::array()}, {"failure", Json::array()}};
  for (const StoreCompare& compare : transaction.compares)
    json["compare"].push_back(CompareJson(compare));
  for (const StoreOperation& operation : transaction.operations)
    json["success"].push_back(OperationJson(operation));
  for (const StoreRange& range : transaction.otherwise)
    json["failure"].push_back(OperationJson(StoreOperation::Range(range)));
  return JsonText(json);
}

std::string AuthenticateRequest(const std::string& user, const std::string& password) {
  return JsonText({{"name", user}, {"password", password}});
}

absl::StatusOr<RangeAnswer> ParseRangeAnswer(absl::string_view text, const StoreRange& range) {
  AnswerReader reader(text);
  RangeAnswer answer;
  answer.header = reader.Header();
  answer.keys = reader.Keys(reader.json(), range, answer.header.revision);
  if (!reader.ok()) return reader.status();
  return answer;
}

absl::StatusOr<TransactionResult> ParseTransactionAnswer(absl::string_view text,
                                                         const Transaction& transaction) {
  AnswerReader reader(text);
  TransactionResult result;
  result.header = reader.Header();
  const bool succeeded = reader.Flag(reader.json(), "succeeded");
  result.outcome = succeeded ? TransactionOutcome::kApplied : TransactionOutcome::kRefused;
  const Json& items = reader.List(reader.json(), "responses");
  const size_t count = succeeded ? transaction.operations.size() : transaction.otherwise.size();
  if (items.size() != count)
    reader.Fail("has another number of responses than the request", absl::StrCat(items.size()));
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    const auto kind = succeeded ? transaction.operations[i].kind : StoreOperation::Kind::kRange;
    const StoreRange& range =
        succeeded ? transaction.operations[i].range : transaction.otherwise[i];
    result.results.push_back(ResultOf(reader, items[i], kind, range, result.header.revision));
  }
  if (!reader.ok()) return reader.status();
  return result;
}

absl::StatusOr<std::string> ParseToken(absl::string_view text) {
  AnswerReader reader(text);
  std::string token = reader.Text(reader.json(), "token");
  if (token.empty() || token.size() > kTokenBytesMax ||
      !std::all_of(token.begin(), token.end(), absl::ascii_isgraph)) {
    reader.Fail("has no valid field", "token");
  }
  if (!reader.ok()) return reader.status();
  return token;
}

absl::StatusOr<EtcdMemberStatus> ParseMemberStatus(absl::string_view text) {
  AnswerReader reader(text);
  EtcdMemberStatus status;
  status.header = reader.Header();
  status.version = Excerpt(reader.Text(reader.json(), "version"));
  status.leader_id = reader.Number(reader.json(), "leader", kUint64Max);
  status.database_bytes = reader.Number(reader.json(), "dbSize", kInt64Max);
  for (const Json& error : reader.List(reader.json(), "errors")) {
    if (!error.is_string()) reader.Fail("has an error that is no string", "errors");
    if (!reader.ok()) break;
    status.errors.push_back(Excerpt(error.get_ref<const std::string&>()));
  }
  if (!reader.ok()) return reader.status();
  return status;
}

std::optional<EtcdError> ParseEtcdError(absl::string_view text) {
  AnswerReader reader(text);
  EtcdError error;
  error.code = static_cast<int>(reader.Number(reader.json(), "code", kGrpcCodeMax));
  error.message = Excerpt(reader.Text(reader.json(), "error"));
  if (!reader.ok() || error.code == 0 || error.message.empty()) return std::nullopt;
  return error;
}

}  // namespace osprey
