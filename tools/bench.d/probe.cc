#include "tools/bench.d/probe.h"

#include <chrono>
#include <iostream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace osprey::bench {

absl::StatusOr<Request> Request::Parse(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  if (words.empty()) return absl::InvalidArgumentError("an empty line");
  Request request;
  request.what_ = std::string(words[0]);
  for (size_t i = 1; i < words.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    if (pair.first.empty() || pair.second.empty())
      return absl::InvalidArgumentError(absl::StrCat("'", words[i], "' is not NAME=VALUE"));
    request.given_[std::string(pair.first)] = std::string(pair.second);
  }
  return request;
}

std::string Request::Text(const std::string& name, absl::string_view fallback) {
  const auto found = given_.find(name);
  if (found == given_.end()) return std::string(fallback);
  std::string text = std::move(found->second);
  given_.erase(found);
  return text;
}

uint64_t Request::Number(const std::string& name, uint64_t fallback, uint64_t most) {
  const std::string text = Text(name, "");
  if (text.empty()) return fallback;
  uint64_t number = 0;
  if (absl::SimpleAtoi(text, &number) && number <= most) return number;
  error_ = absl::InvalidArgumentError(absl::StrCat(name, "=", text, " is not from 0 to ", most));
  return fallback;
}

absl::Status Request::error() const {
  if (!error_.ok() || given_.empty()) return error_;
  return absl::InvalidArgumentError(
      absl::StrCat(what_, " has no '", given_.begin()->first, "', or not once more"));
}

Json Summary(const Histogram& ns) {
  const auto us = [](double value) { return value / 1e3; };
  const auto at = [&](double q) { return us(static_cast<double>(ns.ValueAt(q))); };
  return {{"count", ns.count()},     {"min_us", us(static_cast<double>(ns.min()))},
          {"p50_us", at(.5)},        {"p90_us", at(.9)},
          {"p99_us", at(.99)},       {"max_us", us(static_cast<double>(ns.max()))},
          {"mean_us", us(ns.mean())}};
}

int Serve(const std::function<absl::StatusOr<Json>(Request&)>& answer) {
  for (std::string line; std::getline(std::cin, line);) {
    absl::StatusOr<Request> request = Request::Parse(line);
    absl::StatusOr<Json> result = request.ok() ? answer(*request) : request.status();
    if (!result.ok()) {
      const Json error = {{"error", absl::StrCat(line, ": ", result.status().message())}};
      std::cout << error.dump() << std::endl;
      return 1;
    }
    std::cout << result->dump() << std::endl;
  }
  return 0;
}

uint64_t NowNs() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(since).count());
}

std::string KeyOf(absl::string_view set, uint64_t i) {
  constexpr uint64_t kKeysOfLetter = 10'000'000;
  constexpr size_t kKeyBytes = 8;
  // By hand: where the CPU is emulated, a formatter takes as long as a GET does.
  std::string key(kKeyBytes, '0');
  key[0] = static_cast<char>(set[0] + i / kKeysOfLetter);
  uint64_t rest = i % kKeysOfLetter;
  for (size_t digit = kKeyBytes - 1; rest != 0; --digit, rest /= 10)
    key[digit] = static_cast<char>('0' + rest % 10);
  return key;
}

std::string ValueOf(absl::string_view key, uint64_t size) {
  std::string value;
  value.reserve(size + key.size());
  while (value.size() < size) value.append(key.data(), key.size());
  value.resize(size);
  return value;
}

}  // namespace osprey::bench
