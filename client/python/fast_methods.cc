#include "client/python/fast_methods.h"

#include <array>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/python/errors.h"
#include "client/python/python_client.h"

namespace osprey::python {

namespace py = pybind11;

namespace {

// The arguments of a call by METH_FASTCALL | METH_KEYWORDS, in the order of `names`: the first
// `positional` may be given by position, the first `required` must be given. Null: not given.
template <size_t kCount>
std::array<PyObject*, kCount> ArgumentsOf(const char* method,
                                          const std::array<const char*, kCount>& names,
                                          size_t required, size_t positional,
                                          PyObject* const* given, Py_ssize_t count,
                                          PyObject* keywords) {
  std::array<PyObject*, kCount> found = {};
  if (static_cast<size_t>(count) > positional) {
    throw py::type_error(absl::StrCat(method, "() takes at most ", positional,
                                      " positional arguments, not ", count));
  }
  for (Py_ssize_t i = 0; i < count; ++i) found[static_cast<size_t>(i)] = given[i];
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t k = 0; k < named; ++k) {
    PyObject* name = PyTuple_GET_ITEM(keywords, k);
    size_t i = 0;
    while (i < kCount && PyUnicode_CompareWithASCIIString(name, names[i]) != 0) ++i;
    const std::string text = py::str(py::handle(name));
    if (i == kCount) throw py::type_error(absl::StrCat(method, "() has no argument ", text));
    if (found[i] != nullptr) throw py::type_error(absl::StrCat(method, "() got ", text, " twice"));
    found[i] = given[count + k];
  }
  for (size_t i = 0; i < required; ++i) {
    if (found[i] == nullptr)
      throw py::type_error(absl::StrCat(method, "() needs the argument ", names[i]));
  }
  return found;
}

// The method descriptor has checked the type of `self`.
PythonClient& ClientOf(PyObject* self) {
  auto* instance = reinterpret_cast<py::detail::instance*>(self);
  auto* client = instance->get_value_and_holder().value_ptr<PythonClient>();
  if (client == nullptr) throw py::type_error("Client.__init__() was not called");
  return *client;
}

py::handle OrNone(PyObject* object) { return object == nullptr ? Py_None : object; }

// What `call` returns; an exception is set in Python.
template <typename Call>
PyObject* Guarded(Call call) noexcept {
  try {
    return call().release().ptr();
  } catch (...) {
    SetCaught();
    return nullptr;
  }
}

PyObject* Get(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* keywords) {
  return Guarded([&] {
    const auto [key, default_value, deadline] =
        ArgumentsOf<3>("get", {"key", "default", "deadline"}, 1, 2, given, count, keywords);
    return ClientOf(self).Get(key, OrNone(default_value), OrNone(deadline));
  });
}

PyObject* GetMany(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* keywords) {
  return Guarded([&] {
    const auto [keys, deadline] =
        ArgumentsOf<2>("get_many", {"keys", "deadline"}, 1, 1, given, count, keywords);
    return ClientOf(self).GetMany(keys, OrNone(deadline));
  });
}

PyObject* GetInto(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* keywords) {
  return Guarded([&] {
    const auto [key, target, deadline] =
        ArgumentsOf<3>("get_into", {"key", "target", "deadline"}, 2, 2, given, count, keywords);
    return ClientOf(self).GetInto(key, target, OrNone(deadline));
  });
}

PyCFunction Cast(_PyCFunctionFastWithKeywords function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"get", Cast(Get), METH_FASTCALL | METH_KEYWORDS,
     "get($self, key, default=None, *, deadline=None)\n--\n\n"
     "The Value of the key, or `default` if the key is absent.\n\n"
     "deadline: seconds, up to 60; None: the client's. Raises TimedOut, Unavailable."},
    {"get_many", Cast(GetMany), METH_FASTCALL | METH_KEYWORDS,
     "get_many($self, keys, *, deadline=None)\n--\n\n"
     "A list with the result of each key, in their order: a Value, None if it is absent, or an "
     "Error."},
    {"get_into", Cast(GetInto), METH_FASTCALL | METH_KEYWORDS,
     "get_into($self, key, target, *, deadline=None)\n--\n\n"
     "Reads the value into target, a Buffer or a contiguous view of bytes in one. Returns "
     "ValueInfo, or\n"
     "None if the key is absent. The rest of target is lost in any case.\n\n"
     "Raises BufferTooSmall (bytes_needed is the length), TimedOut, Unavailable."}};

}  // namespace

void DefineFastMethods(py::handle type) {
  for (PyMethodDef& method : methods) {
    const auto descriptor = py::reinterpret_steal<py::object>(
        PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &method));
    if (!descriptor) throw py::error_already_set();
    type.attr(method.ml_name) = descriptor;
  }
}

}  // namespace osprey::python
