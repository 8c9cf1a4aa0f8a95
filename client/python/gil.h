// The GIL, while a thread waits.

#ifndef OSPREY_CLIENT_PYTHON_GIL_H_
#define OSPREY_CLIENT_PYTHON_GIL_H_

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <utility>

namespace osprey::python {

// Releases the GIL while it lives, in less time than pybind11's form.
//
// Thread rule: that of one thread, which has the GIL at its beginning and at its end.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() {
    if (state_ != nullptr) Take();
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

  // Runs Python's signal handlers, and raises what they raise: with the GIL.
  void CheckSignals() {
    Take();
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
    state_ = PyEval_SaveThread();
  }

 private:
  // After the end of the interpreter Python ends a daemon thread here, by pthread_exit. Its unwinding
  // would abort the process at the first destructor, so the thread sleeps until the process ends.
  void Take() {
    try {
      PyEval_RestoreThread(std::exchange(state_, nullptr));
    } catch (...) {
      for (;;) pause();
    }
  }

  PyThreadState* state_;  // null: this thread has the GIL
};

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_GIL_H_
