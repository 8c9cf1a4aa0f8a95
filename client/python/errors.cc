#include "client/python/errors.h"

#include <exception>
#include <new>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "client/buffer.h"
#include "client/reasons.h"

namespace osprey::python {

namespace py = pybind11;

namespace {

std::string NameOf(const ReasonRow& row) {
  return absl::AsciiStrToLower(absl::StripPrefix(row.c_name, "OSPREY_ERROR_"));
}

std::string NameOf(Reason reason) {
  for (const ReasonRow& row : ReasonRows()) {
    if (row.reason == reason && reason != Reason::kNone) return NameOf(row);
  }
  return "other";
}

py::object Make(const std::string& reason, absl::string_view message, bool maybe_applied,
                uint64_t bytes_needed) {
  // (It may have a path, or a server's text.)
  const auto text = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
      message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
  if (!text) throw py::error_already_set();
  return py::module_::import("osprey._errors")
      .attr("make")(reason, text, maybe_applied, bytes_needed);
}

}  // namespace

py::object ErrorOf(const absl::Status& status, bool is_write) {
  const Reason reason = ReasonOf(status);
  // The one error of an argument that has no Reason, as in C (client/osprey.h).
  const bool is_address = reason == Reason::kNone && absl::IsInvalidArgument(status);
  return Make(is_address ? "bad_address" : NameOf(reason), status.message(),
              is_write && MayBeApplied(status), BytesNeeded(status));
}

py::object ErrorOf(const std::string& reason, const std::string& message) {
  return Make(reason, message, false, 0);
}

void Raise(const py::object& error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

void SetCaught() noexcept {
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

py::list ReasonNames() {
  py::list names;
  for (const ReasonRow& row : ReasonRows()) {
    if (row.reason != Reason::kNone) names.append(NameOf(row));
  }
  return names;
}

}  // namespace osprey::python
