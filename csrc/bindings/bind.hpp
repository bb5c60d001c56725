// Declarations for all binding files: pybind11, conversion of a Status to an
// exception, and the functions that fill the module.
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

// Releases the GIL until it is destroyed.
//
// If a daemon thread reacquires the GIL while the interpreter shuts down,
// Python before 3.14 unwinds the thread's stack.  That would run destructors
// without the GIL and end in std::terminate.  Therefore such a thread waits
// here until the process ends, which Python 3.14 does by itself.
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

// Calls `call` without the GIL and returns its result.
template <class Call>
auto unlocked(Call&& call) {
  const Unlocked without;
  return call();
}

// Like unlocked(), but keeps the GIL if `size` is less than `min_size`, because
// releasing it would take longer than the work.
template <class Call>
auto unlocked_from(std::size_t min_size, std::size_t size, Call&& call) {
  return size < min_size ? call() : unlocked(call);
}

// Raises a Python exception again that the core passed on.  Adds a note that
// names what was being read.
// REQUIRES: the GIL is held; the status is kRaised.
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

// Raises the Python exception for a status, unless it is kOk.
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

// Returns true if the addresses of the items are multiples of their alignment.
// Arrays whose items are accessed as numbers, not as bytes, must be aligned.
inline bool is_aligned(const py::array& array) {
  return (array.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_) != 0;
}

// Returns the value of a result, or raises the exception for its status.
// REQUIRES: the GIL is held.
template <class T>
T checked(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

// One function for each bind_<concept>.cpp.
void permute(py::module_& m);
void plan(py::module_& m);
void mixture(py::module_& m);
void pack_plan(py::module_& m);
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
void codec(py::module_& m);
void record_set(py::module_& m);
void replace_file(py::module_& m);
void file_lock(py::module_& m);
void tf_record_file(py::module_& m);
void tf_record_stream(py::module_& m);
void tar_file(py::module_& m);
void bag_file(py::module_& m);
void span_file(py::module_& m);
void frame_stream(py::module_& m);
void line_file(py::module_& m);
void document_index(py::module_& m);
void megatron_index(py::module_& m);
void array_file(py::module_& m);
void token_rows(py::module_& m);
void mds_index(py::module_& m);
void blend(py::module_& m);
void arena(py::module_& m);
void worker_end(py::module_& m);
void pool_lane(py::module_& m);
void scheduler(py::module_& m);
void supervise(py::module_& m);

}  // namespace gristmill::bind
