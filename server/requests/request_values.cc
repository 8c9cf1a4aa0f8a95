#include "server/requests/request_values.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/requests/decimal_int.h"

namespace osprey::server {
namespace {

absl::string_view TextOf(rdma::FrameBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// With what is there now.
Answer Refusal(absl::StatusCode code, absl::string_view text, Reason reason,
               const index::Table::View& present) {
  Answer answer = AnswerOf(code, text, reason);
  answer.body.version = present.version;
  return answer;
}

}  // namespace

index::Condition ConditionOn(const absl::StatusOr<index::Table::View>& present) {
  if (!present.ok()) return {index::Condition::Kind::kAbsent, 0};
  return {index::Condition::Kind::kVersionIs, present->version};
}

absl::optional<Answer> RefuseFrom(const absl::StatusOr<index::Table::View>& present,
                                  const index::Condition& condition) {
  if (condition.kind != index::Condition::Kind::kVersionIs) return absl::nullopt;
  if (!present.ok()) return AnswerOf(absl::StatusCode::kNotFound, "no such key");
  if (present->version == condition.version) return absl::nullopt;
  Answer answer =
      AnswerOf(absl::StatusCode::kFailedPrecondition,
               absl::StrCat("the key's version is ", present->version, ", not ", condition.version),
               Reason::kWrongVersion);
  answer.body.version = present->version;
  return answer;
}

Sum64 SumOf(const absl::StatusOr<index::Table::View>& present, const KeyedRequest& request) {
  int64_t number = 0;
  if (present.ok()) {
    const absl::string_view text = TextOf(present->value);
    const absl::optional<int64_t> parsed = ParseNumber(text);
    if (!parsed.has_value()) {
      constexpr size_t kShownBytesMax = 32;
      return {Refusal(absl::StatusCode::kFailedPrecondition,
                      absl::StrCat("the value is no decimal number of 64 bits but '",
                                   absl::CHexEscape(text.substr(0, kShownBytesMax)),
                                   text.size() > kShownBytesMax ? "..." : "",
                                   "'; put a number such as 0 first"),
                      Reason::kNotANumber, *present),
              0};
    }
    number = *parsed;
  }
  const absl::optional<int64_t> sum = Sum(number, request.by);
  if (sum.has_value()) return {absl::nullopt, *sum};
  const std::string text =
      absl::StrCat(number, " and ", request.by, " have a sum that does not fit into 64 bits");
  return {present.ok() ? Refusal(absl::StatusCode::kOutOfRange, text, Reason::kOverflow, *present)
                       : AnswerOf(absl::StatusCode::kOutOfRange, text, Reason::kOverflow),
          0};
}

std::string Appended(const absl::StatusOr<index::Table::View>& present,
                     const KeyedRequest& request) {
  std::string value;
  const size_t old_length = present.ok() ? present->value.size() : 0;
  value.reserve(old_length + request.value.size());
  if (present.ok()) value.append(TextOf(present->value).data(), old_length);
  value.append(TextOf(request.value).data(), request.value.size());
  return value;
}

}  // namespace osprey::server
