// osprey._core: the classes that osprey/__init__.py builds on. osprey/_core.pyi has their types.

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "client/python/arguments.h"
#include "client/python/async_client.h"
#include "client/python/buffers.h"
#include "client/python/errors.h"
#include "client/python/fast_methods.h"
#include "client/python/python_client.h"
#include "client/python/results.h"

namespace osprey::python {
namespace {

namespace py = pybind11;
using py::arg;

std::unique_ptr<PythonClient> MakeClient(const std::string& uri, py::handle connect_timeout,
                                         py::handle deadline, int connections_max,
                                         const std::string& auth_key_file, const Secret& auth_key) {
  Options options;
  if (!connect_timeout.is_none()) options.connect_timeout = DeadlineOf(connect_timeout);
  if (!deadline.is_none()) options.deadline = DeadlineOf(deadline);
  options.auth_key_file = auth_key_file;
  options.auth_key = auth_key.bytes;
  return std::make_unique<PythonClient>(uri, options, connections_max);
}

void DefineClient(py::module_& module) {
  py::class_<Secret>(module, "Secret").def(py::init<py::handle>());
  py::class_<PythonClient> type(module, "Client");
  DefineFastMethods(type);
  type.def(py::init(&MakeClient), arg("uri"), py::kw_only(), arg("connect_timeout") = py::none(),
           arg("deadline") = py::none(), arg("connections_max") = 64, arg("auth_key_file") = "",
           arg("auth_key"))
      .def(
          "put",
          [](PythonClient& self, py::handle key, py::handle value, bool if_absent,
             py::handle if_version, py::handle ttl, py::handle deadline) {
            return self.Put(key, value, WriteOptionsOf(if_absent, if_version, ttl, deadline));
          },
          arg("key"), arg("value"), py::kw_only(), arg("if_absent") = false,
          arg("if_version") = py::none(), arg("ttl") = py::none(), arg("deadline") = py::none(),
          "Stores value under key, and returns the version of the write.\n\n"
          "if_absent: only if the key is absent; else AlreadyExists. if_version: only if the key "
          "has this\n"
          "version; else VersionMismatch, or NotFound. ttl: seconds to live; None: no end. Raises "
          "ServerFull,\n"
          "TimedOut, Unavailable; `maybe_applied` of the error tells whether the write may have "
          "been applied.")
      .def(
          "delete",
          [](PythonClient& self, py::handle key, py::handle if_version, py::handle deadline) {
            return self.Delete(key, WriteOptionsOf(false, if_version, py::none(), deadline));
          },
          arg("key"), py::kw_only(), arg("if_version") = py::none(), arg("deadline") = py::none(),
          "Deletes the key, and returns the version of the deletion; None if the key was "
          "absent.\n\n"
          "if_version: only if the key has this version; else VersionMismatch, or NotFound.")
      .def("exists", &PythonClient::Exists, arg("key"), py::kw_only(), arg("deadline") = py::none(),
           "Whether the key is present. The value is not read.")
      .def(
          "incr",
          [](PythonClient& self, py::handle key, int64_t by, py::handle if_version,
             py::handle deadline) {
            return self.Increment(key, by, WriteOptionsOf(false, if_version, py::none(), deadline));
          },
          arg("key"), arg("by") = 1, py::kw_only(), arg("if_version") = py::none(),
          arg("deadline") = py::none(),
          "Adds `by` to the key's number, and returns the Number after it. An absent key counts as "
          "0.\n\n"
          "The value is decimal text of 64 bits with sign. Raises NotANumber, Overflow, "
          "VersionMismatch.")
      .def(
          "append",
          [](PythonClient& self, py::handle key, py::handle value, py::handle if_version,
             py::handle deadline) {
            return self.Append(key, value, WriteOptionsOf(false, if_version, py::none(), deadline));
          },
          arg("key"), arg("value"), py::kw_only(), arg("if_version") = py::none(),
          arg("deadline") = py::none(),
          "Appends value to the key's value, and returns the version of the write. An absent key "
          "counts as empty.\n\n"
          "if_version: only if the key has this version; else VersionMismatch, or NotFound.")
      .def(
          "expire",
          [](PythonClient& self, py::handle key, py::handle ttl, py::handle if_version,
             py::handle deadline) {
            return self.Expire(key, ttl, WriteOptionsOf(false, if_version, py::none(), deadline));
          },
          arg("key"), arg("ttl"), py::kw_only(), arg("if_version") = py::none(),
          arg("deadline") = py::none(),
          "Sets the key's time to live, in seconds; None: no end. Returns the key's version, which "
          "stays.\n\n"
          "Raises NotFound if the key is absent.")
      .def("ttl", &PythonClient::Ttl, arg("key"), py::kw_only(), arg("deadline") = py::none(),
           "A lower bound of the seconds that the key has to live; None: no end. Raises NotFound "
           "if it is absent.")
      .def(
          "put_many",
          [](PythonClient& self, py::object items, bool if_absent, py::handle ttl,
             py::handle deadline) {
            return self.PutMany(std::move(items),
                                WriteOptionsOf(if_absent, py::none(), ttl, deadline));
          },
          arg("items"), py::kw_only(), arg("if_absent") = false, arg("ttl") = py::none(),
          arg("deadline") = py::none(),
          "Stores the items, a dict or an iterable of (key, value). Returns a list with the result "
          "of each, in\n"
          "their order: the version of the write, or an Error. Conditions and ttl hold for each.")
      .def(
          "delete_many",
          [](PythonClient& self, py::handle keys, py::handle deadline) {
            return self.DeleteMany(keys, WriteOptionsOf(false, py::none(), py::none(), deadline));
          },
          arg("keys"), py::kw_only(), arg("deadline") = py::none(),
          "Deletes the keys. Returns a list with the result of each, in their order: the version "
          "of the\n"
          "deletion, None if the key was absent, or an Error.")
      .def(
          "allocate", &PythonClient::Allocate, arg("size"),
          "A Buffer of `size` bytes, all 0, for get_into and put_from. NumPy and memoryview use it "
          "as it is.\n\n"
          "Over RDMA it is pinned: LimitReached if RLIMIT_MEMLOCK forbids it. It belongs to this "
          "Client.")
      .def("register", &PythonClient::Register, arg("memory"),
           "A Buffer of the memory of a writable bytes-like object, such as a NumPy array.\n\n"
           "The object must stay as it is until the Buffer is released. Over RDMA the memory is "
           "pinned. Over shm\n"
           "the operations copy once: there only allocate() gives Buffers without a copy.")
      .def(
          "put_from",
          [](PythonClient& self, py::handle key, py::handle source, bool if_absent,
             py::handle if_version, py::handle ttl, py::handle deadline) {
            return self.PutFrom(key, source, WriteOptionsOf(if_absent, if_version, ttl, deadline));
          },
          arg("key"), arg("source"), py::kw_only(), arg("if_absent") = false,
          arg("if_version") = py::none(), arg("ttl") = py::none(), arg("deadline") = py::none(),
          "Stores source, a Buffer or a contiguous view of bytes in one, under key. Returns the "
          "version.\n\n"
          "The bytes must not change meanwhile: else ValueChanged. Conditions, ttl and errors as "
          "for put.")
      .def("get_many_into", &PythonClient::GetManyInto, arg("items"), py::kw_only(),
           arg("deadline") = py::none(),
           "get_into for each (key, target) of a dict or an iterable. The targets must not "
           "overlap.\n\n"
           "Returns a list with the result of each, in their order: ValueInfo, None, or an Error.")
      .def(
          "put_many_from",
          [](PythonClient& self, py::object items, bool if_absent, py::handle ttl,
             py::handle deadline) {
            return self.PutManyFrom(std::move(items),
                                    WriteOptionsOf(if_absent, py::none(), ttl, deadline));
          },
          arg("items"), py::kw_only(), arg("if_absent") = false, arg("ttl") = py::none(),
          arg("deadline") = py::none(),
          "put_from for each (key, source) of a dict or an iterable.\n\n"
          "Returns a list with the result of each, in their order: the version, or an Error.")
      .def(
          "scan_page",
          [](PythonClient& self, const std::string& cursor, py::handle prefix, bool values,
             uint64_t value_bytes_max, uint64_t limit, py::handle deadline) {
            return self.ScanPage(cursor,
                                 ScanOptionsOf(prefix, values, value_bytes_max, limit, deadline));
          },
          arg("cursor"), py::kw_only(), arg("prefix") = py::bytes(""), arg("values") = false,
          arg("value_bytes_max") = UINT64_MAX, arg("limit") = 1000, arg("deadline") = py::none(),
          "One page of a scan: (items, the next cursor). The first cursor is \"\"; after the last "
          "page it is again.")
      .def("count", &PythonClient::Count, py::kw_only(), arg("deadline") = py::none(),
           "The number of keys, as the server counts them.")
      .def("stats_text", &PythonClient::Stats, py::kw_only(), arg("deadline") = py::none(),
           "The server's statistics, a line NAME=VALUE each.")
      .def("close", &PythonClient::Close,
           "Closes idle connections at once, others when their operation has ended. May be called "
           "again.")
      .def_property_readonly("connections", &PythonClient::connections);
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  DefineResults(module);
  DefineBuffer(module);
  DefineClient(module);
  DefineAsyncClient(module);
  module.def("reason_names", &ReasonNames);
}

}  // namespace osprey::python
