// The results of osprey.h, made from the library's answers and errors.

#ifndef OSPREY_CLIENT_C_API_RESULT_H_
#define OSPREY_CLIENT_C_API_RESULT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/osprey.h"

struct osprey_result {
  int code = OSPREY_OK;
  bool may_be_applied = false;
  bool has_data = false;  // `data` has a value
  uint64_t length = 0;
  uint64_t version = 0;
  int64_t ttl_us = -1;  // none
  int64_t number = 0;
  std::string message;
  std::string key;
  std::string data;
  std::string cursor;
  std::vector<osprey_result> items;
};

namespace osprey::capi {

// An error of the C API alone, or one that it detects before the library does.
absl::Status Error(int code, absl::string_view message);

// The error number of any status; OSPREY_OK for OK.
int CodeOf(const absl::Status& status);

// The one result that needs no memory. osprey_result_free ignores it.
osprey_result* OutOfMemory();

// Distinct types for the answers that share a C++ type with another: counts and versions are
// uint64_t, round trips and times to live are durations.
struct KeyCount {
  uint64_t keys = 0;
};
struct TimeToLive {
  absl::Duration left;
};
inline absl::StatusOr<KeyCount> Counted(const absl::StatusOr<uint64_t>& keys) {
  if (!keys.ok()) return keys.status();
  return KeyCount{*keys};
}
inline absl::StatusOr<TimeToLive> Left(const absl::StatusOr<absl::Duration>& ttl) {
  if (!ttl.ok()) return ttl.status();
  return TimeToLive{*ttl};
}

// Each makes a result from an answer. REQUIRES: the result is as constructed.
void Take(osprey_result& result, const absl::Status& error);  // REQUIRES: not OK
void Take(osprey_result& result, Value value);
void Take(osprey_result& result, const ValueInfo& info);
void Take(osprey_result& result, const Number& number);
void Take(osprey_result& result, uint64_t version);
void Take(osprey_result& result, bool exists);
void Take(osprey_result& result, KeyCount count);
void Take(osprey_result& result, TimeToLive ttl);
void Take(osprey_result& result, absl::Duration round_trip);
void Take(osprey_result& result, std::string text);
void Take(osprey_result& result, ScanPage page);

template <typename T>
void Take(osprey_result& result, absl::StatusOr<T> answer) {
  if (!answer.ok()) return Take(result, answer.status());
  Take(result, *std::move(answer));
}

// Sets the code and the message of the whole from those of its items.
void SumUp(osprey_result& result);

template <typename T>
void Take(osprey_result& result, std::vector<absl::StatusOr<T>> answers) {
  result.items.resize(answers.size());
  for (size_t i = 0; i < answers.size(); ++i) Take(result.items[i], std::move(answers[i]));
  SumUp(result);
}

}  // namespace osprey::capi

#endif  // OSPREY_CLIENT_C_API_RESULT_H_
