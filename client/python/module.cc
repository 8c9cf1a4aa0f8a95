// osprey._core: the classes that osprey/__init__.py builds on. osprey/_core.pyi has their types.

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "client/python/arguments.h"
#include "client/python/errors.h"
#include "client/python/python_client.h"

namespace osprey::python {
namespace {

namespace py = pybind11;
using py::arg;

std::unique_ptr<PythonClient> MakeClient(const std::string& uri, py::handle connect_timeout,
                                         py::handle deadline, int connections_max,
                                         const std::string& auth_key_file,
                                         const py::bytes& auth_key) {
  PoolOptions options;
  if (!connect_timeout.is_none()) options.client.connect_timeout = DeadlineOf(connect_timeout);
  if (!deadline.is_none()) options.client.deadline = DeadlineOf(deadline);
  options.lanes_max = connections_max;
  options.client.auth_key_file = auth_key_file;
  options.client.auth_key = auth_key;
  return std::make_unique<PythonClient>(uri, options);
}

void DefineResults(py::module_& module) {
  py::class_<ValueResult>(module, "Value")
      .def_property_readonly("value", [](const ValueResult& self) { return self.value; })
      .def_readonly("version", &ValueResult::version)
      .def_property_readonly("ttl", [](const ValueResult& self) { return self.ttl; })
      .def("__bytes__", [](const ValueResult& self) { return self.value; })
      .def("__repr__", [](const ValueResult& self) {
        return py::str("Value(value={!r}, version={}, ttl={})")
            .format(self.value, self.version, self.ttl);
      });
  py::class_<Number>(module, "Number")
      .def_readonly("value", &Number::value)
      .def_readonly("version", &Number::version)
      .def("__int__", [](const Number& self) { return self.value; })
      .def("__repr__", [](const Number& self) {
        return py::str("Number(value={}, version={})").format(self.value, self.version);
      });
  py::class_<ItemResult>(module, "Item")
      .def_property_readonly("key", [](const ItemResult& self) { return self.key; })
      .def_property_readonly("value", [](const ItemResult& self) { return self.value; })
      .def_readonly("value_length", &ItemResult::value_length)
      .def_readonly("version", &ItemResult::version)
      .def_property_readonly("ttl", [](const ItemResult& self) { return self.ttl; })
      .def("__repr__", [](const ItemResult& self) {
        return py::str("Item(key={!r}, value_length={}, version={}, ttl={})")
            .format(self.key, self.value_length, self.version, self.ttl);
      });
}

void DefineClient(py::module_& module) {
  py::class_<PythonClient>(module, "Client")
      .def(py::init(&MakeClient), arg("uri"), py::kw_only(), arg("connect_timeout") = py::none(),
           arg("deadline") = py::none(), arg("connections_max") = 64, arg("auth_key_file") = "",
           arg("auth_key") = py::bytes(""))
      .def("get", &PythonClient::Get, arg("key"), arg("default") = py::none(), py::kw_only(),
           arg("deadline") = py::none(),
           "The Value of the key, or `default` if the key is absent.\n\n"
           "deadline: seconds, up to 60; None: the client's. Raises TimedOut, Unavailable.")
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
      .def("get_many", &PythonClient::GetMany, arg("keys"), py::kw_only(),
           arg("deadline") = py::none(),
           "A list with the result of each key, in their order: a Value, None if it is absent, or "
           "an Error.")
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
          [](PythonClient& self, py::iterable keys, py::handle deadline) {
            return self.DeleteMany(std::move(keys),
                                   WriteOptionsOf(false, py::none(), py::none(), deadline));
          },
          arg("keys"), py::kw_only(), arg("deadline") = py::none(),
          "Deletes the keys. Returns a list with the result of each, in their order: the version "
          "of the\n"
          "deletion, None if the key was absent, or an Error.")
      .def(
          "scan_page",
          [](PythonClient& self, const std::string& cursor, py::handle prefix, bool values,
             uint64_t value_bytes_max, uint64_t limit, py::handle deadline) {
            ScanOptions options;
            options.prefix = std::string(Bytes::Key(prefix).view());
            options.values = values;
            options.value_bytes_max = value_bytes_max;
            options.limit = limit;
            options.deadline = DeadlineOf(deadline);
            return self.ScanPage(cursor, options);
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
  DefineClient(module);
  module.def("reason_names", &ReasonNames);
}

}  // namespace osprey::python
