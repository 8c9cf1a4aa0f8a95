// Python's arguments as the client's. What is wrong is raised, with its name and the fix.
//
// Thread rule: the caller holds the GIL.

#ifndef OSPREY_CLIENT_PYTHON_ARGUMENTS_H_
#define OSPREY_CLIENT_PYTHON_ARGUMENTS_H_

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/client.h"

namespace osprey::python {

// The bytes of a Python object, which it keeps from moving. Move-only.
class Bytes {
 public:
  // A key: bytes-like, or a str, which is encoded as UTF-8.
  static Bytes Key(pybind11::handle object);
  // A value: bytes-like. TypeError for a str, whose encoding the caller chooses.
  static Bytes Value(pybind11::handle object);
  // Bytes to write to: a writable bytes-like object.
  static Bytes Target(pybind11::handle object);
  Bytes(Bytes&&) noexcept = default;
  Bytes& operator=(Bytes&&) = delete;

  absl::string_view view() const { return view_; }

 private:
  Bytes() = default;
  void Hold(pybind11::handle object, const char* what, int flags = PyBUF_SIMPLE);

  struct Release {
    void operator()(Py_buffer* buffer) const;
  };
  pybind11::object object_;                     // a str or bytes, which do not change
  std::unique_ptr<Py_buffer, Release> buffer_;  // of other objects
  absl::string_view view_;
};

// Options::auth_key. A message of pybind11 has the repr of all arguments, and this one's shows nothing.
struct Secret {
  explicit Secret(pybind11::handle bytes);
  std::string bytes;
};

// Many keys from an iterable. A str or bytes is iterable too, but never meant.
struct Keys {
  explicit Keys(pybind11::handle keys);
  std::vector<Bytes> bytes;
  std::vector<absl::string_view> views;
};

// Keys and values, from a dict or an iterable of tuples.
struct Items {
  explicit Items(pybind11::object items);
  std::vector<std::pair<Bytes, Bytes>> bytes;
  std::vector<KeyValue> pairs;
};

// Seconds, as int or float. None: ZeroDuration, which means the default.
absl::Duration DeadlineOf(pybind11::handle seconds);
// None: InfiniteDuration, no end.
absl::Duration TtlOf(pybind11::handle seconds);
// None for InfiniteDuration, else float seconds.
pybind11::object SecondsOf(absl::Duration ttl);

// None: no condition.
uint64_t VersionOf(pybind11::handle version);

ScanOptions ScanOptionsOf(pybind11::handle prefix, bool values, uint64_t value_bytes_max,
                          uint64_t limit, pybind11::handle deadline);
WriteOptions WriteOptionsOf(bool if_absent, pybind11::handle if_version, pybind11::handle ttl,
                            pybind11::handle deadline);

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_ARGUMENTS_H_
