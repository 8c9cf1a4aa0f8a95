// What a broken etcd answers, and the URI of one. Any bytes, and answers with the right form whose
// parts are any. What is taken keeps to its bounds and to the request. An error says what is wrong,
// and is short and printable. Requests of any keys and values are JSON.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/cluster/etcd/etcd_messages.h"
#include "server/cluster/etcd/etcd_uri.h"
#include "tests/fuzz/support/input.h"

namespace osprey {
namespace {

using fuzz::Input;

bool IsShown(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isprint(static_cast<unsigned char>(c)) ||
           absl::string_view("\xe2\x80\xa6").find(c) != absl::string_view::npos;  // the ellipsis
  });
}

void MustBeError(const absl::Status& status, absl::StatusCode code) {
  OSPREY_MUST(status.code() == code, "an error of another kind");
  OSPREY_MUST(!status.message().empty() && status.message().size() < 800, "an error of no use");
  OSPREY_MUST(IsShown(status.message()), "an error that is no text");
}

// --- Requests

std::string AnyKey(Input& input) { return "k" + input.Text(4); }

StoreRange AnyRange(Input& input) {
  StoreRange range{AnyKey(input), input.Flag()};
  if (input.OneIn(4)) range.min_mod_revision = static_cast<int64_t>(input.Number() >> 1);
  return range;
}

Transaction AnyTransaction(Input& input) {
  Transaction transaction;
  for (uint32_t left = input.Choice(3); left > 0; --left) {
    switch (input.Choice(3)) {
      case 0:
        transaction.operations.push_back(StoreOperation::Put(AnyKey(input), input.Text(9)));
        break;
      case 1:
        transaction.operations.push_back(StoreOperation::Delete(AnyKey(input)));
        break;
      default:
        transaction.operations.push_back(StoreOperation::Range(AnyRange(input)));
        break;
    }
  }
  for (uint32_t left = input.Choice(3); left > 0; --left)
    transaction.otherwise.push_back(AnyRange(input));
  transaction.compares = {StoreCompare::Value(AnyKey(input), input.Text(9))};
  return transaction;
}

// --- Answers

// A value as the gateway sends it, as it does not, or any bytes.
std::string AnyValue(Input& input) {
  switch (input.Choice(8)) {
    case 0:
      return absl::StrCat("\"", input.Number(), "\"");
    case 1:
      return absl::StrCat(input.Number());
    case 2:
      return absl::StrCat("\"", absl::Base64Escape("k" + input.Text(6)), "\"");
    case 3:
      return absl::StrCat("\"", input.Text(6), "\"");
    case 4:
      return input.Flag() ? "true" : "null";
    case 5:
      return "{}";
    case 6:
      return "[{}]";
    default:
      return input.Text(8);
  }
}

std::string Field(Input& input, absl::string_view name, absl::string_view usual) {
  if (input.OneIn(8)) return absl::StrCat(",\"", name, "\":", AnyValue(input));
  return usual.empty() ? "" : absl::StrCat(",\"", name, "\":", usual);
}

// The fields of an object, made of Field.
std::string Object(std::string fields) { return absl::StrCat("{", fields.substr(1), "}"); }

std::string KeyJson(Input& input, const StoreRange& range) {
  const std::string key = range.is_prefix ? range.key + input.Text(3) : range.key;
  return Object(absl::StrCat(Field(input, "key", absl::StrCat("\"", absl::Base64Escape(key), "\"")),
                             Field(input, "create_revision", "\"3\""),
                             Field(input, "mod_revision", "\"5\""),
                             Field(input, "version", "\"2\""), Field(input, "value", "\"dg==\"")));
}

std::string KeysJson(Input& input, const StoreRange& range) {
  std::string keys;
  for (uint32_t left = input.Choice(3); left > 0; --left)
    absl::StrAppend(&keys, keys.empty() ? "" : ",", KeyJson(input, range));
  return absl::StrCat(Field(input, "kvs", absl::StrCat("[", keys, "]")), Field(input, "more", ""),
                      Field(input, "count", "\"1\""));
}

std::string HeaderField(Input& input) {
  const std::string header =
      Object(absl::StrCat(Field(input, "cluster_id", "\"14841639068965178418\""),
                          Field(input, "member_id", "\"1\""), Field(input, "revision", "\"9\"")));
  return Field(input, "header", header);
}

std::string ResponseJson(Input& input, const StoreOperation& operation) {
  switch (operation.kind) {
    case StoreOperation::Kind::kPut:
      return Object(Field(input, "response_put", "{}"));
    case StoreOperation::Kind::kDelete:
      return Object(Field(input, "response_delete_range", R"({"deleted":"1"})"));
    case StoreOperation::Kind::kRange:
      break;
  }
  return Object(Field(input, "response_range", Object(KeysJson(input, operation.range))));
}

std::string AnyTransactionAnswer(Input& input, const Transaction& transaction) {
  const bool succeeded = input.Flag();
  std::string responses;
  const auto add = [&](const StoreOperation& operation) {
    absl::StrAppend(&responses, responses.empty() ? "" : ",", ResponseJson(input, operation));
  };
  if (succeeded) {
    for (const StoreOperation& operation : transaction.operations) add(operation);
  } else {
    for (const StoreRange& range : transaction.otherwise) add(StoreOperation::Range(range));
  }
  return Object(absl::StrCat(HeaderField(input), Field(input, "succeeded", succeeded ? "true" : ""),
                             Field(input, "responses", absl::StrCat("[", responses, "]"))));
}

// --- What must hold

void MustFit(const StoreHeader& header) {
  OSPREY_MUST(header.cluster_id != 0 && header.member_id != 0 && header.revision >= 1,
              "a header without an origin");
}

void MustFit(const std::vector<StoredKey>& keys, const StoreRange& range, int64_t revision) {
  for (const StoredKey& key : keys) {
    OSPREY_MUST(range.is_prefix ? absl::StartsWith(key.key, range.key) : key.key == range.key,
                "a key outside the range");
    OSPREY_MUST(1 <= key.create_revision && key.create_revision <= key.mod_revision &&
                    key.mod_revision <= revision && key.mod_revision >= range.min_mod_revision &&
                    key.version >= 1,
                "impossible revisions");
  }
}

void TakeRange(Input& input) {
  const StoreRange range = AnyRange(input);
  OSPREY_MUST(nlohmann::json::accept(RangeRequest(range)), "a request that is no JSON");
  const std::string text =
      input.Flag() ? Object(HeaderField(input) + KeysJson(input, range)) : input.Rest();
  const auto answer = ParseRangeAnswer(text, range);
  if (!answer.ok()) return MustBeError(answer.status(), absl::StatusCode::kDataLoss);
  MustFit(answer->header);
  MustFit(answer->keys, range, answer->header.revision);
}

void TakeTransaction(Input& input) {
  const Transaction transaction = AnyTransaction(input);
  OSPREY_MUST(nlohmann::json::accept(TransactionRequest(transaction)), "a request that is no JSON");
  const std::string text = input.Flag() ? AnyTransactionAnswer(input, transaction) : input.Rest();
  const auto result = ParseTransactionAnswer(text, transaction);
  if (!result.ok()) return MustBeError(result.status(), absl::StatusCode::kDataLoss);
  MustFit(result->header);
  const bool applied = result->outcome == TransactionOutcome::kApplied;
  OSPREY_MUST(applied || result->outcome == TransactionOutcome::kRefused, "no outcome");
  const size_t count = applied ? transaction.operations.size() : transaction.otherwise.size();
  OSPREY_MUST(result->results.size() == count, "another number of results");
  for (size_t i = 0; i < count; ++i) {
    const OperationResult& one = result->results[i];
    const StoreRange& range = applied ? transaction.operations[i].range : transaction.otherwise[i];
    MustFit(one.keys, range, result->header.revision);
    OSPREY_MUST(one.deleted == 0 || one.deleted == 1, "one key that was deleted twice");
  }
}

void TakeOther(Input& input) {
  const std::string header = HeaderField(input);
  const std::string form = Object(
      absl::StrCat(header, Field(input, "token", "\"a.1\""), Field(input, "version", "\"3.4.23\""),
                   Field(input, "leader", "\"1\""), Field(input, "errors", "[\"alarm\"]"),
                   Field(input, "members", R"([{"ID":"1","clientURLs":["http://a"]}])"),
                   Field(input, "error", "\"etcdserver: no leader\""), Field(input, "code", "14")));
  const std::string text = input.Flag() ? form : input.Rest();
  const auto token = ParseToken(text);
  if (token.ok()) {
    OSPREY_MUST(!token->empty() && std::all_of(token->begin(), token->end(), absl::ascii_isgraph),
                "a token that is more than one word");
  }
  const auto status = ParseMemberStatus(text);
  if (status.ok()) MustFit(status->header);
  for (const absl::Status& error : {token.status(), status.status()})
    if (!error.ok()) MustBeError(error, absl::StatusCode::kDataLoss);
  const auto error = ParseEtcdError(text);
  if (error.has_value()) {
    OSPREY_MUST(1 <= error->code && error->code <= 16, "a code that gRPC lacks");
    OSPREY_MUST(!error->message.empty() && IsShown(error->message), "an error without a message");
  }
}

void TakeUri(Input& input) {
  const std::string text = (input.Flag() ? "etcd://" : "") + input.Rest();
  const auto uri = ParseEtcdUri(text);
  if (!uri.ok()) return MustBeError(uri.status(), absl::StatusCode::kInvalidArgument);
  OSPREY_MUST(!uri->endpoints.empty() && uri->endpoints.size() <= kEtcdEndpointsMax,
              "another number of hosts");
  OSPREY_MUST(!uri->name.empty() && uri->name.size() <= kClusterNameBytesMax, "a wrong name");
  const auto again = ParseEtcdUri(uri->ToString());
  OSPREY_MUST(again.ok() && again->endpoints == uri->endpoints && again->name == uri->name &&
                  again->is_tls == uri->is_tls,
              "another URI when it is written again");
}

}  // namespace
}  // namespace osprey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  osprey::fuzz::Input input(data, size);
  switch (input.Choice(4)) {
    case 0:
      osprey::TakeRange(input);
      break;
    case 1:
      osprey::TakeTransaction(input);
      break;
    case 2:
      osprey::TakeOther(input);
      break;
    default:
      osprey::TakeUri(input);
      break;
  }
  return 0;
}
