// Binds core/schedule/worker_end.hpp.  A WorkerEnd holds one unit at a time, so that
// Python passes no unit back.
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/schedule/vector.hpp"
#include "core/schedule/worker_end.hpp"

namespace gristmill::bind {
namespace {

struct Desk {
  std::unique_ptr<WorkerEnd> end;
  Work work;
  bool held = false;  // `work` is claimed, and neither committed nor lost
};

void check_held(const Desk& desk) {
  if (!desk.held) throw std::runtime_error("no unit is claimed");
}

std::uintptr_t address_of(const Work& work) {
  return reinterpret_cast<std::uintptr_t>(work.slot);
}

std::optional<Work> claim(Desk& desk) {
  if (desk.held) throw std::runtime_error("the unit before is not committed");
  std::optional<Work> work;
  {
    const Unlocked unlocked;
    work = desk.end->claim();
  }
  desk.held = work.has_value();
  if (work) desk.work = *work;
  return work;
}

std::optional<std::uintptr_t> need(Desk& desk, std::uint64_t bytes) {
  check_held(desk);
  {
    const Unlocked unlocked;
    desk.held = desk.end->need(desk.work, bytes);
  }
  if (!desk.held) return std::nullopt;
  return address_of(desk.work);
}

void commit(Desk& desk, int status, std::uint32_t outputs, std::uint64_t bytes,
            const py::object& vector_out) {
  check_held(desk);
  const Vector vector = to_vector(vector_out);
  if (status < static_cast<int>(UnitStatus::kOk) ||
      status > static_cast<int>(UnitStatus::kMoved)) {
    throw py::value_error("status is none of STATUS_*");
  }
  if (bytes > desk.work.capacity) {
    throw py::value_error("the slot has fewer bytes");
  }
  if (vector.empty() || vector.size() > desk.end->vector_capacity()) {
    throw py::value_error("the position has " + std::to_string(vector.size()) +
                          " integers, expected 1 to " +
                          std::to_string(desk.end->vector_capacity()));
  }
  desk.end->commit(desk.work, static_cast<UnitStatus>(status), outputs, bytes,
                   vector);
  desk.held = false;
}

}  // namespace

void worker_end(py::module_& m) {
  m.attr("STATUS_OK") = static_cast<int>(UnitStatus::kOk);
  m.attr("STATUS_END") = static_cast<int>(UnitStatus::kEnd);
  m.attr("STATUS_ERROR") = static_cast<int>(UnitStatus::kError);
  m.attr("STATUS_MOVED") = static_cast<int>(UnitStatus::kMoved);
  py::class_<Work>(m, "Work", "A claimed unit.")
      .def_readonly("stream", &Work::stream)
      .def_property_readonly(
          "kind", [](const Work& w) { return static_cast<char>(w.kind); })
      .def_readonly("first", &Work::first)
      .def_readonly("count", &Work::count)
      .def_readonly("attempt", &Work::attempt)
      .def_readonly("proceed", &Work::proceed)
      .def_property_readonly(
          "vector_in", [](const Work& w) { return from_vector(w.vector_in); })
      .def_property_readonly("address", &address_of)
      .def_readonly("capacity", &Work::capacity);
  py::class_<Desk>(m, "WorkerEnd", "A worker's end of the shared memory.")
      .def(py::init([](int arena_fd, int knock_fd, std::uint32_t worker,
                       std::uint32_t generation) {
             return Desk{checked(WorkerEnd::open(arena_fd, knock_fd, worker,
                                                 generation)),
                         {}};
           }),
           "arena_fd"_a, "knock_fd"_a, "worker"_a, "generation"_a)
      .def("claim", &claim, "Wait for a unit; None when told to stop.")
      .def("need", &need, "bytes"_a,
           "Wait for a larger slot; returns its address, None if the unit is\n"
           "no longer wanted or there is no memory.  The content of the old "
           "slot is gone.")
      .def("commit", &commit, "status"_a, "outputs"_a, "bytes"_a,
           "vector_out"_a, "Hand the unit to the parent.")
      .def_property_readonly(
          "vector_capacity",
          [](Desk& desk) { return desk.end->vector_capacity(); })
      .def(
          "set_startup_error",
          [](Desk& desk, const std::string& text) {
            desk.end->set_startup_error(text);
          },
          "text"_a, "Say why this worker cannot start.")
      .def_property_readonly("at_address", [](Desk& desk) {
        return reinterpret_cast<std::uintptr_t>(desk.end->at_address());
      });
}

}  // namespace gristmill::bind
