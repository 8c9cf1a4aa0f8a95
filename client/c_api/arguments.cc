#include "client/c_api/arguments.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/c_api/result.h"

namespace osprey::capi {

namespace {

// The structs' sizes in their first version: programs compiled then pass these sizes for ever.
constexpr size_t kReadOptionsFirstBytes = 16;
constexpr size_t kWriteOptionsFirstBytes = 40;
constexpr size_t kScanOptionsFirstBytes = 48;
// No version of a struct will be longer: a larger size is a mistake, and its bytes must not be
// read.
constexpr size_t kOptionsBytesMax = 1024;

// The layout of arguments must not change between versions of the header.
static_assert(sizeof(osprey_read_options) == 16);
static_assert(offsetof(osprey_read_options, deadline_us) == 8);
static_assert(sizeof(osprey_write_options) == 40);
static_assert(offsetof(osprey_write_options, deadline_us) == 8);
static_assert(offsetof(osprey_write_options, if_version) == 16);
static_assert(offsetof(osprey_write_options, ttl_us) == 24);
static_assert(offsetof(osprey_write_options, if_absent) == 32);
static_assert(offsetof(osprey_write_options, reserved) == 36);
static_assert(sizeof(osprey_scan_options) == 48);
static_assert(offsetof(osprey_scan_options, deadline_us) == 8);
static_assert(offsetof(osprey_scan_options, prefix) == 16);
static_assert(offsetof(osprey_scan_options, prefix_length) == 24);
static_assert(offsetof(osprey_scan_options, limit) == 32);
static_assert(offsetof(osprey_scan_options, values) == 40);
static_assert(offsetof(osprey_scan_options, reserved) == 44);
static_assert(sizeof(osprey_bytes) == 16 && sizeof(osprey_pair) == 32);

}  // namespace

void Arguments::Refuse(int code, absl::string_view message) {
  if (status_.ok()) status_ = Error(code, message);
}

void Arguments::NotNull(absl::string_view name, const void* pointer) {
  if (pointer == nullptr)
    Refuse(OSPREY_ERROR_NULL_ARGUMENT, absl::StrCat("`", name, "` must not be NULL"));
}

absl::string_view Arguments::Bytes(absl::string_view name, const void* data, size_t length) {
  if (length == 0) return absl::string_view();
  if (data == nullptr) {
    Refuse(OSPREY_ERROR_NULL_ARGUMENT,
           absl::StrCat("`", name, "` is NULL, and its length ", length));
    return absl::string_view();
  }
  return absl::string_view(static_cast<const char*>(data), length);
}

std::vector<absl::string_view> Arguments::Keys(const osprey_bytes* keys, size_t count) {
  std::vector<absl::string_view> views;
  if (count == 0) return views;
  NotNull("keys", keys);
  if (!status_.ok()) return views;
  views.reserve(count);
  for (size_t i = 0; i < count; ++i) views.push_back(Bytes("key", keys[i].data, keys[i].length));
  return views;
}

std::vector<KeyValue> Arguments::Items(const osprey_pair* items, size_t count) {
  std::vector<KeyValue> pairs;
  if (count == 0) return pairs;
  NotNull("items", items);
  if (!status_.ok()) return pairs;
  pairs.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    pairs.push_back({Bytes("key", items[i].key.data, items[i].key.length),
                     Bytes("value", items[i].value.data, items[i].value.length)});
  }
  return pairs;
}

template <typename T>
T Arguments::Struct(absl::string_view name, const T* options, size_t first_bytes) {
  T known = {};
  if (options == nullptr) return known;
  const size_t size = options->size;
  if (size < first_bytes || size > kOptionsBytesMax) {
    Refuse(OSPREY_ERROR_BAD_OPTION, absl::StrCat(name, ".size is ", size, "; set it to sizeof(",
                                                 name, "), which is ", sizeof(T)));
    return known;
  }
  const char* bytes = reinterpret_cast<const char*>(options);
  if (std::any_of(bytes + std::min(size, sizeof(T)), bytes + size,
                  [](char byte) { return byte != 0; })) {
    Refuse(OSPREY_ERROR_BAD_OPTION,
           absl::StrCat(name, " has fields that this library does not know; it is of version ",
                        OSPREY_API_MAJOR, ".", OSPREY_API_MINOR, ", use a newer one"));
    return known;
  }
  std::memcpy(&known, options, std::min(size, sizeof(T)));
  return known;
}

absl::Duration Arguments::Deadline(const osprey_read_options* options) {
  return absl::Microseconds(
      Struct("osprey_read_options", options, kReadOptionsFirstBytes).deadline_us);
}

WriteOptions Arguments::Write(const osprey_write_options* options) {
  const osprey_write_options known =
      Struct("osprey_write_options", options, kWriteOptionsFirstBytes);
  if (known.reserved != 0)
    Refuse(OSPREY_ERROR_BAD_OPTION,
           "osprey_write_options.reserved is not 0; set all that is unused to 0");
  WriteOptions write;
  write.deadline = absl::Microseconds(known.deadline_us);
  write.if_version = known.if_version;
  write.ttl = absl::Microseconds(known.ttl_us);
  write.if_absent = known.if_absent != 0;
  return write;
}

ScanOptions Arguments::Scan(const osprey_scan_options* options) {
  const osprey_scan_options known = Struct("osprey_scan_options", options, kScanOptionsFirstBytes);
  if (known.reserved != 0)
    Refuse(OSPREY_ERROR_BAD_OPTION,
           "osprey_scan_options.reserved is not 0; set all that is unused to 0");
  ScanOptions scan;
  scan.deadline = absl::Microseconds(known.deadline_us);
  scan.prefix = std::string(Bytes("prefix", known.prefix, known.prefix_length));
  if (known.limit != 0) scan.limit = known.limit;
  scan.values = known.values != 0;
  return scan;
}

}  // namespace osprey::capi
