#include "client/python/arguments.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/python/errors.h"

namespace osprey::python {

namespace py = pybind11;

namespace {

[[noreturn]] void RaiseType(const std::string& text) { throw py::type_error(text); }

std::string TypeOf(py::handle object) { return Py_TYPE(object.ptr())->tp_name; }

double NumberOf(py::handle object, const char* what) {
  if (PyBool_Check(object.ptr()) || !PyNumber_Check(object.ptr()))
    RaiseType(absl::StrCat(what, " must be a number of seconds, not ", TypeOf(object)));
  const double number = PyFloat_AsDouble(object.ptr());
  if (number == -1 && PyErr_Occurred()) throw py::error_already_set();
  return number;
}

// Zero has another meaning, so no positive number is rounded to it.
absl::Duration AtLeastATick(double seconds) {
  return std::max(absl::Seconds(seconds), absl::Nanoseconds(1));
}

}  // namespace

Bytes Bytes::Key(py::handle object) {
  Bytes bytes;
  if (PyUnicode_Check(object.ptr())) {
    Py_ssize_t length = 0;
    const char* data = PyUnicode_AsUTF8AndSize(object.ptr(), &length);
    if (data == nullptr) throw py::error_already_set();
    bytes.object_ = py::reinterpret_borrow<py::object>(object);
    bytes.view_ = {data, static_cast<size_t>(length)};
    return bytes;
  }
  bytes.Hold(object, "a key must be bytes-like or str");
  return bytes;
}

Bytes Bytes::Value(py::handle object) {
  if (PyUnicode_Check(object.ptr()))
    RaiseType("a value must be bytes-like, not str: encode it, as in text.encode()");
  Bytes bytes;
  bytes.Hold(object, "a value must be bytes-like");
  return bytes;
}

Bytes Bytes::Target(py::handle object) {
  Bytes bytes;
  bytes.Hold(object, "a target must be writable and bytes-like", PyBUF_WRITABLE);
  return bytes;
}

void Bytes::Hold(py::handle object, const char* what, int flags) {
  if (!PyObject_CheckBuffer(object.ptr())) RaiseType(absl::StrCat(what, ", not ", TypeOf(object)));
  if (PyBytes_CheckExact(object.ptr()) && flags == PyBUF_SIMPLE) {
    object_ = py::reinterpret_borrow<py::object>(object);
    view_ = {PyBytes_AS_STRING(object.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(object.ptr()))};
    return;
  }
  auto buffer = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object.ptr(), buffer.get(), flags) != 0) throw py::error_already_set();
  view_ = {static_cast<const char*>(buffer->buf), static_cast<size_t>(buffer->len)};
  buffer_.reset(buffer.release());
}

void Bytes::Release::operator()(Py_buffer* buffer) const {
  PyBuffer_Release(buffer);
  delete buffer;
}

Secret::Secret(py::handle key) {
  if (!PyBytes_Check(key.ptr()))
    RaiseType(absl::StrCat("auth_key must be bytes, not ", TypeOf(key)));
  bytes = key.cast<std::string>();
}

Keys::Keys(py::handle keys) {
  if (py::isinstance<py::str>(keys) || PyObject_CheckBuffer(keys.ptr()))
    RaiseType("keys must be an iterable of keys, not one key: write [key]");
  const auto all = py::reinterpret_steal<py::object>(
      PySequence_Fast(keys.ptr(), "keys must be an iterable of keys"));
  if (!all) throw py::error_already_set();
  // (The buffer protocol may call code of Python, which may change a list.)
  bytes.reserve(static_cast<size_t>(PySequence_Fast_GET_SIZE(all.ptr())));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(all.ptr()); ++i) {
    const auto key = py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(all.ptr(), i));
    bytes.push_back(Bytes::Key(key));
  }
  views.reserve(bytes.size());
  for (const Bytes& key : bytes) views.push_back(key.view());
}

Items::Items(py::object items) {
  if (py::isinstance<py::dict>(items)) items = items.attr("items")();
  for (py::handle item : items) {
    if (!PyTuple_Check(item.ptr()) || PyTuple_GET_SIZE(item.ptr()) != 2)
      RaiseType("items must be a dict, or an iterable of tuples (key, value)");
    Bytes key = Bytes::Key(PyTuple_GET_ITEM(item.ptr(), 0));
    bytes.emplace_back(std::move(key), Bytes::Value(PyTuple_GET_ITEM(item.ptr(), 1)));
  }
  for (const auto& [key, value] : bytes) pairs.push_back({key.view(), value.view()});
}

absl::Duration DeadlineOf(py::handle seconds) {
  if (seconds.is_none()) return absl::ZeroDuration();
  const double number = NumberOf(seconds, "deadline");
  if (!(number > 0 && number <= absl::ToDoubleSeconds(kDeadlineMax()))) {
    Raise(MakeError(Reason::kBadDeadline,
                    absl::StrCat("deadline is ", number, " s; it must be above 0 and at most ",
                                 absl::ToInt64Seconds(kDeadlineMax()), " s")),
          false);
  }
  return AtLeastATick(number);
}

absl::Duration TtlOf(py::handle seconds) {
  if (seconds.is_none()) return absl::InfiniteDuration();
  const double number = NumberOf(seconds, "ttl");
  if (std::isinf(number) && number > 0) return absl::InfiniteDuration();
  if (!(number > 0 && number <= absl::ToDoubleSeconds(kTtlMax()))) {
    Raise(MakeError(Reason::kBadTtl,
                    absl::StrCat("ttl is ", number, " s; it must be above 0 and at most ",
                                 absl::ToInt64Seconds(kTtlMax()), " s, or None for no end")),
          false);
  }
  return AtLeastATick(number);
}

py::object SecondsOf(absl::Duration ttl) {
  if (ttl == absl::InfiniteDuration()) return py::none();
  return py::float_(absl::ToDoubleSeconds(ttl));
}

uint64_t VersionOf(py::handle version) {
  if (version.is_none()) return 0;
  if (!PyLong_Check(version.ptr()))
    RaiseType(absl::StrCat("if_version must be an int, not ", TypeOf(version)));
  const uint64_t number = PyLong_AsUnsignedLongLong(version.ptr());
  if (PyErr_Occurred() || number == 0) {
    PyErr_Clear();
    Raise(MakeError(Reason::kBadCondition,
                    "if_version is no version: use that of a result, or None for no condition"),
          false);
  }
  return number;
}

ScanOptions ScanOptionsOf(py::handle prefix, bool values, uint64_t value_bytes_max, uint64_t limit,
                          py::handle deadline) {
  ScanOptions options;
  options.prefix = std::string(Bytes::Key(prefix).view());
  options.values = values;
  options.value_bytes_max = value_bytes_max;
  options.limit = limit;
  options.deadline = DeadlineOf(deadline);
  return options;
}

WriteOptions WriteOptionsOf(bool if_absent, py::handle if_version, py::handle ttl,
                            py::handle deadline) {
  WriteOptions options;
  options.if_absent = if_absent;
  options.if_version = VersionOf(if_version);
  options.ttl = ttl.is_none() ? absl::ZeroDuration() : TtlOf(ttl);
  options.deadline = DeadlineOf(deadline);
  return options;
}

}  // namespace osprey::python
