// What operations return, in Python's types.
//
// Thread rule: the caller holds the GIL.

#ifndef OSPREY_CLIENT_PYTHON_RESULTS_H_
#define OSPREY_CLIENT_PYTHON_RESULTS_H_

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/python/errors.h"

namespace osprey::python {

// osprey.Item of a scan.
struct ItemResult {
  pybind11::bytes key;
  pybind11::object value;  // None: not asked for, or too long
  uint64_t value_length = 0;
  uint64_t version = 0;
  pybind11::object ttl;
};

pybind11::object ResultOf(const Value& value);
pybind11::object ResultOf(const ValueInfo& info);

// What a list of results has for one key that was read: the result, None, or an Error.
template <typename T>
pybind11::object ItemOf(const absl::StatusOr<T>& result) {
  if (result.ok()) return ResultOf(*result);
  if (absl::IsNotFound(result.status())) return pybind11::none();
  return ErrorOf(result.status(), /*is_write=*/false);
}
// For one that was written.
pybind11::object ItemOf(const absl::StatusOr<uint64_t>& result, bool absent_is_none);

template <typename T>
pybind11::list ListOf(const std::vector<absl::StatusOr<T>>& results) {
  pybind11::list list(results.size());
  for (size_t i = 0; i < results.size(); ++i)
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), ItemOf(results[i]).release().ptr());
  return list;
}
pybind11::list ListOf(const std::vector<absl::StatusOr<uint64_t>>& results, bool absent_is_none);

// The items of a page of a scan, and the cursor of the next one.
pybind11::tuple PageOf(const ScanPage& page);

void DefineResults(pybind11::module_& module);

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_RESULTS_H_
