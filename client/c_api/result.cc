#include "client/c_api/result.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <new>

namespace osprey::capi {

namespace {

int64_t TtlUs(absl::Duration left) {
  return left == absl::InfiniteDuration() ? -1 : absl::ToInt64Microseconds(left);
}

}  // namespace

osprey_result* OutOfMemory() {
  // Never destroyed; it takes no memory from the heap.
  alignas(osprey_result) static std::byte space[sizeof(osprey_result)];
  static osprey_result* const result = [] {
    auto* made = new (space) osprey_result;
    made->code = OSPREY_ERROR_OUT_OF_MEMORY;
    return made;
  }();
  return result;
}

void Take(osprey_result& result, const absl::Status& error) {
  assert(!error.ok());
  result.code = CodeOf(error);
  result.may_be_applied = MayBeApplied(error);
  result.length = BytesNeeded(error);
  result.message = std::string(error.message());
}

void Take(osprey_result& result, Value value) {
  result.version = value.version;
  result.ttl_us = TtlUs(value.ttl);
  Take(result, std::move(value.bytes));
}

void Take(osprey_result& result, const ValueInfo& info) {
  result.length = info.length;
  result.version = info.version;
  result.ttl_us = TtlUs(info.ttl);
}

void Take(osprey_result& result, const Number& number) {
  result.number = number.value;
  result.version = number.version;
}

void Take(osprey_result& result, uint64_t version) { result.version = version; }
void Take(osprey_result& result, bool exists) { result.number = exists ? 1 : 0; }
void Take(osprey_result& result, KeyCount count) {
  result.number = static_cast<int64_t>(count.keys);
}
void Take(osprey_result& result, TimeToLive ttl) { result.ttl_us = TtlUs(ttl.left); }
void Take(osprey_result& result, absl::Duration round_trip) {
  result.number = absl::ToInt64Nanoseconds(round_trip);
}

void Take(osprey_result& result, std::string text) {
  result.has_data = true;
  result.length = text.size();
  result.data = std::move(text);
}

void Take(osprey_result& result, ScanPage page) {
  result.cursor = std::move(page.cursor);
  result.items.resize(page.items.size());
  for (size_t i = 0; i < page.items.size(); ++i) {
    osprey_result& item = result.items[i];
    ScanItem& found = page.items[i];
    item.has_data = found.has_value;
    item.length = found.value_length;
    item.version = found.version;
    item.ttl_us = TtlUs(found.ttl);
    item.key = std::move(found.key);
    item.data = std::move(found.value);
  }
}

void SumUp(osprey_result& result) {
  const auto failed = [](const osprey_result& item) {
    return item.code != OSPREY_OK && item.code != OSPREY_ERROR_ABSENT;
  };
  const auto absent = [](const osprey_result& item) { return item.code == OSPREY_ERROR_ABSENT; };
  auto chosen = std::find_if(result.items.begin(), result.items.end(), failed);
  if (chosen == result.items.end())
    chosen = std::find_if(result.items.begin(), result.items.end(), absent);
  if (chosen == result.items.end()) return;
  result.code = chosen->code;
  result.message = chosen->message;
  result.may_be_applied =
      std::any_of(result.items.begin(), result.items.end(),
                  [](const osprey_result& item) { return item.may_be_applied; });
}

}  // namespace osprey::capi

using osprey::capi::OutOfMemory;

void osprey_result_free(osprey_result* result) {
  if (result != OutOfMemory()) delete result;
}

int osprey_result_code(const osprey_result* result) {
  return result == nullptr ? static_cast<int>(OSPREY_ERROR_NULL_ARGUMENT) : result->code;
}

const char* osprey_result_message(const osprey_result* result) {
  if (result != nullptr && result->code == OSPREY_OK) return "";
  // Not every error has its own text.
  if (result == nullptr || result->message.empty())
    return osprey_error_text(osprey_result_code(result));
  return result->message.c_str();
}

int osprey_result_may_be_applied(const osprey_result* result) {
  return result != nullptr && result->may_be_applied ? 1 : 0;
}

const char* osprey_result_data(const osprey_result* result) {
  return result != nullptr && result->has_data ? result->data.c_str() : nullptr;
}

size_t osprey_result_length(const osprey_result* result) {
  return result == nullptr ? 0 : result->length;
}

uint64_t osprey_result_version(const osprey_result* result) {
  return result == nullptr ? 0 : result->version;
}

int64_t osprey_result_ttl_us(const osprey_result* result) {
  return result == nullptr ? -1 : result->ttl_us;
}

int64_t osprey_result_number(const osprey_result* result) {
  return result == nullptr ? 0 : result->number;
}

size_t osprey_result_count(const osprey_result* result) {
  return result == nullptr ? 0 : result->items.size();
}

const osprey_result* osprey_result_item(const osprey_result* result, size_t i) {
  return i < osprey_result_count(result) ? &result->items[i] : nullptr;
}

const char* osprey_result_key(const osprey_result* result) {
  return result == nullptr ? "" : result->key.c_str();
}

size_t osprey_result_key_length(const osprey_result* result) {
  return result == nullptr ? 0 : result->key.size();
}

const char* osprey_result_cursor(const osprey_result* result) {
  return result == nullptr ? "" : result->cursor.c_str();
}
