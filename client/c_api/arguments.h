// Reads the arguments of a C program: pointers with lengths, and structs of an older or newer
// osprey.h than this library's.
//
//   Arguments arguments;
//   const absl::string_view view = arguments.Bytes("key", key, key_length);
//   const WriteOptions write = arguments.Write(options);
//   if (!arguments.status().ok()) …       the first wrong argument
//
// KeyOf and others do the same later: client.h calls them once the call may proceed.
//
// Thread rule: on the stack of a call.

#ifndef OSPREY_CLIENT_C_API_ARGUMENTS_H_
#define OSPREY_CLIENT_C_API_ARGUMENTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/osprey.h"

namespace osprey::capi {

class Arguments {
 public:
  // NULL is allowed only with length 0.
  absl::string_view Bytes(absl::string_view name, const void* data, size_t length);
  std::vector<absl::string_view> Keys(const osprey_bytes* keys, size_t count);
  std::vector<KeyValue> Items(const osprey_pair* items, size_t count);
  void NotNull(absl::string_view name, const void* pointer);

  // NULL: all defaults. Each returns defaults for a wrong argument.
  absl::Duration Deadline(const osprey_read_options* options);
  WriteOptions Write(const osprey_write_options* options);
  ScanOptions Scan(const osprey_scan_options* options);

  const absl::Status& status() const { return status_; }

 private:
  void Refuse(int code, absl::string_view message);
  // Copies `options` into this library's struct. `first_bytes`: the length of the struct's first
  // version.
  template <typename T>
  T Struct(absl::string_view name, const T* options, size_t first_bytes);

  absl::Status status_;
};

// Each reads one argument, when it is called with the Arguments of a call.
inline auto KeyOf(const void* key, size_t length) {
  return [=](Arguments& arguments) { return arguments.Bytes("key", key, length); };
}
inline auto ValueOf(const void* value, size_t length) {
  return [=](Arguments& arguments) { return arguments.Bytes("value", value, length); };
}
inline auto KeysOf(const osprey_bytes* keys, size_t count) {
  return [=](Arguments& arguments) { return arguments.Keys(keys, count); };
}
inline auto ItemsOf(const osprey_pair* items, size_t count) {
  return [=](Arguments& arguments) { return arguments.Items(items, count); };
}
inline auto DeadlineOf(const osprey_read_options* options) {
  return [=](Arguments& arguments) { return arguments.Deadline(options); };
}
inline auto WriteOf(const osprey_write_options* options) {
  return [=](Arguments& arguments) { return arguments.Write(options); };
}
inline auto ScanOf(const osprey_scan_options* options) {
  return [=](Arguments& arguments) { return arguments.Scan(options); };
}

}  // namespace osprey::capi

#endif  // OSPREY_CLIENT_C_API_ARGUMENTS_H_
