// Binds core/base/watch.hpp, with a Python function as the callback.
#include <chrono>
#include <memory>
#include <optional>

#include "bindings/base/shared_object.hpp"
#include "bindings/bind.hpp"
#include "bindings/with_python.hpp"
#include "core/base/watch.hpp"

namespace gristmill::bind {
namespace {

using Seconds = std::chrono::duration<double>;

Watch::Duration to_duration(double seconds) {
  return std::chrono::duration_cast<Watch::Duration>(Seconds(seconds));
}

// Calls the function.  An exception is written to stderr, like that of a
// thread.
std::optional<Watch::Duration> call(PyObject* function,
                                    Watch::Duration elapsed) {
  std::optional<Watch::Duration> next_delay;
  static_cast<void>(with_python([&] {
    const double elapsed_s = Seconds(elapsed).count();
    PyObject* const result = PyObject_CallFunction(function, "d", elapsed_s);
    if (result == nullptr) {
      PyErr_WriteUnraisable(function);
      return;
    }
    if (result != Py_None) next_delay = to_duration(PyFloat_AsDouble(result));
    Py_DECREF(result);
  }));
  return next_delay;
}

}  // namespace

void watch(py::module_& m) {
  py::class_<Watch>(m, "Watch",
                    "Calls back while something takes longer than expected.")
      .def(py::init([](const py::function& callback, bool waiting) {
             auto function = share(py::function(callback).release().ptr());
             return std::make_unique<Watch>(
                 waiting ? Watch::Trigger::kWaiting : Watch::Trigger::kTime,
                 [function](Watch::Duration elapsed) {
                   return call(object_of(function), elapsed);
                 });
           }),
           "callback"_a, py::kw_only(), "waiting"_a = false)
      .def(
          "begin",
          [](Watch& watch, double delay_s) {
            watch.begin(to_duration(delay_s));
          },
          "delay_s"_a,
          "Watch this thread, and call back after `delay_s` seconds.")
      .def("end", &Watch::end, "Stop watching.");
}

}  // namespace gristmill::bind
