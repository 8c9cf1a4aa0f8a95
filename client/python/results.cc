#include "client/python/results.h"

#include <utility>

#include "client/python/arguments.h"
#include "client/python/errors.h"

namespace osprey::python {

namespace py = pybind11;

py::object ResultOf(const Value& value) {
  return py::cast(ValueResult{py::bytes(value.bytes), value.version, SecondsOf(value.ttl)});
}

py::object ResultOf(const ValueInfo& info) {
  return py::cast(InfoResult{info.length, info.version, SecondsOf(info.ttl)});
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
  py::class_<ValueResult>(module, "Value")
      .def_property_readonly("value", [](const ValueResult& self) { return self.value; })
      .def_readonly("version", &ValueResult::version)
      .def_property_readonly("ttl", [](const ValueResult& self) { return self.ttl; })
      .def("__bytes__", [](const ValueResult& self) { return self.value; })
      .def("__repr__", [](const ValueResult& self) {
        return py::str("Value(value={!r}, version={}, ttl={})")
            .format(self.value, self.version, self.ttl);
      });
  py::class_<InfoResult>(module, "ValueInfo")
      .def_readonly("length", &InfoResult::length)
      .def_readonly("version", &InfoResult::version)
      .def_property_readonly("ttl", [](const InfoResult& self) { return self.ttl; })
      .def("__repr__", [](const InfoResult& self) {
        return py::str("ValueInfo(length={}, version={}, ttl={})")
            .format(self.length, self.version, self.ttl);
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

}  // namespace osprey::python
