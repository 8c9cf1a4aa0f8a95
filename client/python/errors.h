// Statuses as Python's exceptions: the classes are in osprey/_errors.py.
//
// Thread rule: the caller holds the GIL.

#ifndef OSPREY_CLIENT_PYTHON_ERRORS_H_
#define OSPREY_CLIENT_PYTHON_ERRORS_H_

#include <pybind11/pybind11.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace osprey::python {

// The exception of a failed operation, not raised. Only a write can have been applied.
pybind11::object ErrorOf(const absl::Status& status, bool is_write);
// An exception that the package itself raises, with the given reason.
pybind11::object ErrorOf(const std::string& reason, const std::string& message);

[[noreturn]] void Raise(const pybind11::object& error);
[[noreturn]] inline void Raise(const absl::Status& status, bool is_write) {
  Raise(ErrorOf(status, is_write));
}

// In a catch block: the exception becomes Python's error, as of a function of C.
void SetCaught() noexcept;

// The names of all reasons, as Error.reason has them.
pybind11::list ReasonNames();

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_ERRORS_H_
