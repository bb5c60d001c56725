// What every binding file shares: pybind11, the check of a Status, and the
// list of the functions that fill the module.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <utility>

#include "core/status.hpp"

namespace gristmill::bind {

namespace py = pybind11;
using namespace py::literals;  // For "name"_a.

// Raises the Python exception that a failed status stands for.
// REQUIRES: the GIL is held.
inline void check(const Status& status) {
  const auto raise = [&](PyObject* type) {
    py::set_error(type, status.message().c_str());
    throw py::error_already_set();
  };
  switch (status.code()) {
    case Code::kOk:
      return;
    case Code::kInvalidArgument:
      return raise(PyExc_ValueError);
    case Code::kOutOfRange:
      return raise(PyExc_IndexError);
    case Code::kOverflow:
      return raise(PyExc_OverflowError);
    case Code::kDivideByZero:
      return raise(PyExc_ZeroDivisionError);
    case Code::kNoMemory:
      return raise(PyExc_MemoryError);
    case Code::kSystem: {
      // OSError picks its subclass from the number when it is called.
      const py::object type = py::reinterpret_borrow<py::object>(PyExc_OSError);
      py::set_error(type,
                    py::make_tuple(status.error_number(), status.message()));
      throw py::error_already_set();
    }
  }
}

// Returns the value of a result, or raises.  REQUIRES: the GIL is held.
template <class T>
T checked(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

// One function for each bind_<concept>.cpp.
void permute(py::module_& m);
void plan(py::module_& m);
void pool(py::module_& m);
void collate(py::module_& m);
void records(py::module_& m);
void worker_end(py::module_& m);
void scheduler(py::module_& m);
void supervise(py::module_& m);

}  // namespace gristmill::bind
