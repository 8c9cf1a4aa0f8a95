// Client.get, get_many and get_into as methods of C's calling convention: pybind11's dispatch takes longer than
// a get.

#ifndef OSPREY_CLIENT_PYTHON_FAST_METHODS_H_
#define OSPREY_CLIENT_PYTHON_FAST_METHODS_H_

#include <pybind11/pybind11.h>

namespace osprey::python {

// Adds them to the class of PythonClient.
void DefineFastMethods(pybind11::handle type);

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_FAST_METHODS_H_
