// Binds core/worker_end.hpp.  A WorkerEnd holds one unit at a time, so that
// Python passes no unit back.
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "core/worker_end.hpp"

namespace gristmill::bind {
namespace {

struct Desk {
  std::unique_ptr<WorkerEnd> end;
  Work work;
};

// A worker's signal handlers run between two waits.
std::optional<Work> claim(Desk& desk) {
  std::optional<Work> work;
  {
    const Unlocked unlocked;
    work = desk.end->claim();
  }
  if (work) desk.work = *work;
  return work;
}

std::uintptr_t address_of(const Work& work) {
  return reinterpret_cast<std::uintptr_t>(work.slot);
}

}  // namespace

void worker_end(py::module_& m) {
  m.attr("STATUS_OK") = static_cast<int>(UnitStatus::kOk);
  m.attr("STATUS_END") = static_cast<int>(UnitStatus::kEnd);
  m.attr("STATUS_ERROR") = static_cast<int>(UnitStatus::kError);
  py::class_<Work>(m, "Work", "A claimed unit.")
      .def_readonly("stream", &Work::stream)
      .def_property_readonly(
          "kind", [](const Work& w) { return static_cast<char>(w.kind); })
      .def_readonly("first", &Work::first)
      .def_readonly("count", &Work::count)
      .def_readonly("proceed", &Work::proceed)
      .def_readonly("vector_in", &Work::vector_in)
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
      .def(
          "need",
          [](Desk& desk, std::uint64_t bytes) -> std::optional<std::uintptr_t> {
            const Unlocked unlocked;
            if (!desk.end->need(desk.work, bytes)) return std::nullopt;
            return address_of(desk.work);
          },
          "bytes"_a,
          "Wait for a larger slot; returns its address, None if the unit is\n"
          "no longer wanted or there is no memory.  The content of the old "
          "slot is gone.")
      .def(
          "commit",
          [](Desk& desk, int status, std::uint32_t outputs, std::uint64_t bytes,
             const std::vector<std::int64_t>& vector) {
            const Unlocked unlocked;
            desk.end->commit(desk.work, static_cast<UnitStatus>(status),
                             outputs, bytes, vector);
          },
          "status"_a, "outputs"_a, "bytes"_a, "vector_out"_a,
          "Hand the unit to the parent.")
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
