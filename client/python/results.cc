#include "client/python/results.h"

#include <structmember.h>

#include <cstddef>
#include <new>
#include <utility>

#include "client/python/arguments.h"
#include "client/python/errors.h"
#include "client/python/instances.h"

namespace osprey::python {

namespace py = pybind11;

namespace {

// osprey.Value and osprey.ValueInfo. They are types of C, because a get_many makes many: one of
// pybind11 takes five times as long.
struct ResultObject {
  PyObject_HEAD PyObject* value;  // of a ValueInfo: null
  unsigned long long length;      // NOLINT(runtime/int): T_ULONGLONG
  unsigned long long version;     // NOLINT(runtime/int): T_ULONGLONG
  absl::Duration ttl;
};

ResultObject* SelfOf(PyObject* self) { return reinterpret_cast<ResultObject*>(self); }

void FreeResult(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(SelfOf(self)->value);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyObject* TtlOf(PyObject* self, void* /*closure*/) {
  return SecondsOf(SelfOf(self)->ttl).release().ptr();
}

PyObject* BytesOfValue(PyObject* self, PyObject* /*none*/) {
  Py_INCREF(SelfOf(self)->value);
  return SelfOf(self)->value;
}

PyObject* ReprOfValue(PyObject* self) {
  const py::object ttl = SecondsOf(SelfOf(self)->ttl);
  return PyUnicode_FromFormat("Value(value=%R, version=%llu, ttl=%R)", SelfOf(self)->value,
                              SelfOf(self)->version, ttl.ptr());
}

PyObject* ReprOfInfo(PyObject* self) {
  const py::object ttl = SecondsOf(SelfOf(self)->ttl);
  return PyUnicode_FromFormat("ValueInfo(length=%llu, version=%llu, ttl=%R)", SelfOf(self)->length,
                              SelfOf(self)->version, ttl.ptr());
}

PyMemberDef value_members[] = {
    {"value", T_OBJECT_EX, offsetof(ResultObject, value), READONLY, "The bytes."},
    {"version", T_ULONGLONG, offsetof(ResultObject, version), READONLY,
     "Of the write that made the value."},
    {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef getters[] = {
    {"ttl", TtlOf, nullptr, "A lower bound of the seconds to live; None: no end.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef value_methods[] = {{"__bytes__", BytesOfValue, METH_NOARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};
PyType_Slot value_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(FreeResult)},
                             {Py_tp_repr, reinterpret_cast<void*>(ReprOfValue)},
                             {Py_tp_members, value_members},
                             {Py_tp_getset, getters},
                             {Py_tp_methods, value_methods},
                             {0, nullptr}};
PyType_Spec value_spec = {"osprey._core.Value", sizeof(ResultObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, value_slots};

PyMemberDef info_members[] = {
    {"length", T_ULONGLONG, offsetof(ResultObject, length), READONLY, "Of the value, in bytes."},
    {"version", T_ULONGLONG, offsetof(ResultObject, version), READONLY,
     "Of the write that made the value."},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot info_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(FreeResult)},
                            {Py_tp_repr, reinterpret_cast<void*>(ReprOfInfo)},
                            {Py_tp_members, info_members},
                            {Py_tp_getset, getters},
                            {0, nullptr}};
PyType_Spec info_spec = {"osprey._core.ValueInfo", sizeof(ResultObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, info_slots};

// They live as long as the process.
PyObject* value_type = nullptr;
PyObject* info_type = nullptr;

void DefineType(py::module_& module, const char* name, PyType_Spec& spec, PyObject*& type) {
  type = PyType_FromSpec(&spec);
  if (type == nullptr) throw py::error_already_set();
  module.attr(name) = py::handle(type);
}

// Takes over the reference to `value`.
py::object Make(PyObject* type, PyObject* value, uint64_t length, uint64_t version,
                absl::Duration ttl) {
  auto* made = PyObject_New(ResultObject, reinterpret_cast<PyTypeObject*>(type));
  if (made == nullptr) {
    Py_XDECREF(value);
    throw py::error_already_set();
  }
  made->value = value;
  made->length = length;
  made->version = version;
  new (&made->ttl) absl::Duration(ttl);
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(made));
}

}  // namespace

py::object ResultOf(const Value& value) {
  PyObject* bytes =
      PyBytes_FromStringAndSize(value.bytes.data(), static_cast<Py_ssize_t>(value.bytes.size()));
  if (bytes == nullptr) throw py::error_already_set();
  return Make(value_type, bytes, value.bytes.size(), value.version, value.ttl);
}

py::object ResultOf(const ValueInfo& info) {
  return Make(info_type, nullptr, info.length, info.version, info.ttl);
}

py::object ItemOf(const absl::StatusOr<uint64_t>& result, bool absent_is_none) {
  if (result.ok()) return py::int_(*result);
  if (absent_is_none && absl::IsNotFound(result.status())) return py::none();
  return ErrorOf(result.status(), true);
}

py::list ListOf(const std::vector<absl::StatusOr<uint64_t>>& results, bool absent_is_none) {
  py::list list;
  for (const absl::StatusOr<uint64_t>& result : results)
    list.append(ItemOf(result, absent_is_none));
  return list;
}

py::tuple PageOf(const ScanPage& page) {
  py::list items;
  for (const ScanItem& item : page.items) {
    py::object value = py::none();
    if (item.has_value) value = py::bytes(item.value);
    items.append(py::cast(ItemResult{py::bytes(item.key), std::move(value), item.value_length,
                                     item.version, SecondsOf(item.ttl)}));
  }
  return py::make_tuple(items, page.cursor);
}

void DefineResults(py::module_& module) {
  DefineType(module, "Value", value_spec, value_type);
  DefineType(module, "ValueInfo", info_spec, info_type);
  py::class_<Number>(module, "Number", py::custom_type_setup(ForbidInstances))
      .def_readonly("value", &Number::value)
      .def_readonly("version", &Number::version)
      .def("__int__", [](const Number& self) { return self.value; })
      .def("__repr__", [](const Number& self) {
        return py::str("Number(value={}, version={})").format(self.value, self.version);
      });
  py::class_<ItemResult>(module, "Item", py::custom_type_setup(ForbidInstances))
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

}  // namespace osprey::python
