// What every binding file shares: pybind11, the check of a Status, and the
// list of the functions that fill the module.
#pragma once

#include <cxxabi.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

#include "core/base/status.hpp"

namespace gristmill::bind {

namespace py = pybind11;
using namespace py::literals;  // For "name"_a.

// Gives up the GIL for as long as it lives.
//
// A daemon thread that wants it back while the interpreter ends is ended by
// Python, which unwinds its stack: through destructors without the GIL, and to
// std::terminate.  Such a thread waits here for the end of the process instead,
// as all do from Python 3.14 on.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      for (;;) pause();
    }
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* const state_;
};

// Returns what `call` returns without the GIL.
template <class Call>
auto unlocked(Call&& call) {
  const Unlocked without;
  return call();
}

// As unlocked(), but keeps the GIL for less than `least` of the work's `size`:
// giving it back would cost more than it frees.
template <class Call>
auto unlocked_from(std::size_t least, std::size_t size, Call&& call) {
  return size < least ? call() : unlocked(call);
}

// Raises an exception again that came by way of the core, with a note of what
// it kept from being done.  REQUIRES: the GIL is held; the status is kRaised.
[[noreturn]] inline void raise_again(const Status& status) {
  const auto error = py::reinterpret_borrow<py::object>(
      static_cast<PyObject*>(const_cast<void*>(status.cause().get())));
  const py::str note("while reading " + status.message());
  const py::object notes = py::getattr(error, "__notes__", py::tuple());
  if (!status.message().empty() && !notes.contains(note)) {
    error.attr("add_note")(note);
  }
  PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
  throw py::error_already_set();
}

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
      const py::object error = type(status.error_number(), status.message());
      py::set_error(py::type::of(error), error);
      throw py::error_already_set();
    }
    case Code::kRaised:
      raise_again(status);
  }
}

// Whether the items lie where the processor wants them.  REQUIRES of every
// array that is read or written as numbers and not as bytes.
inline bool is_aligned(const py::array& array) {
  return (array.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_) != 0;
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
void mixture(py::module_& m);
void window_shuffle(py::module_& m);
void pool(py::module_& m);
void watch(py::module_& m);
void collate(py::module_& m);
void chunks(py::module_& m);
void example(py::module_& m);
void images(py::module_& m);
void range_cache(py::module_& m);
void record_reader(py::module_& m);
void record_file(py::module_& m);
void record_set(py::module_& m);
void replace_file(py::module_& m);
void tf_record_file(py::module_& m);
void tf_record_stream(py::module_& m);
void tar_file(py::module_& m);
void bag_file(py::module_& m);
void worker_end(py::module_& m);
void scheduler(py::module_& m);
void supervise(py::module_& m);

}  // namespace gristmill::bind
