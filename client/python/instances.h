// Instances of which __init__ was not called: pybind11 hands them to methods, as memory that no
// constructor has seen.
//
// Thread rule: the caller holds the GIL.

#ifndef OSPREY_CLIENT_PYTHON_INSTANCES_H_
#define OSPREY_CLIENT_PYTHON_INSTANCES_H_

#include <pybind11/pybind11.h>

namespace osprey::python {

// A class without __init__: Python cannot make instances, nor copy them.
inline void ForbidInstances(PyHeapTypeObject* type) {
  type->ht_type.tp_flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION;
}

// For classes with __init__: methods raise TypeError before it was called.
template <typename T>
class InitializedCaster : public pybind11::detail::type_caster_base<T> {
 public:
  bool load(pybind11::handle source, bool convert) {
    namespace detail = pybind11::detail;
    const detail::type_info* info = detail::get_type_info(typeid(T));
    return PyObject_TypeCheck(source.ptr(), info->type) != 0 &&
           reinterpret_cast<detail::instance*>(source.ptr())
               ->get_value_and_holder(info)
               .holder_constructed() &&
           detail::type_caster_base<T>::load(source, convert);
  }
};

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_INSTANCES_H_
