// Reads the arguments of a C program: pointers with lengths, and structs of an older or newer
// osprey.h than this library's.
//
//   Arguments arguments;
//   const absl::string_view view = arguments.Bytes("key", key, key_length);
//   const WriteOptions write = arguments.Write(options);
//   if (!arguments.status().ok()) …       the first wrong argument
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

}  // namespace osprey::capi

#endif  // OSPREY_CLIENT_C_API_ARGUMENTS_H_
