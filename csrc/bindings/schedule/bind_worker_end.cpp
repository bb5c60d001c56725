// Binds core/schedule/worker_end.hpp.  A WorkerEnd holds one unit at a time, so
// that Python need not pass units back.
#include <malloc.h>
#include <pybind11/native_enum.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/schedule/position.hpp"
#include "core/schedule/worker_end.hpp"

namespace gristmill::bind {
namespace {

struct OwnedWorkerEnd {
  std::unique_ptr<WorkerEnd> end;
  std::optional<Work> work = {};  // claimed, and neither committed nor lost
};

Work& held(OwnedWorkerEnd& owned) {
  if (!owned.work) throw std::runtime_error("no unit is claimed");
  return *owned.work;
}

std::uintptr_t address_of(const Work& work) {
  return reinterpret_cast<std::uintptr_t>(work.slot);
}

std::optional<Work> claim(OwnedWorkerEnd& owned) {
  if (owned.work) throw std::runtime_error("the unit before is not committed");
  const Unlocked unlocked;
  owned.work = owned.end->claim();
  return owned.work;
}

// Checks the arguments of commit() and offer_part(); returns the position.
Position check_result(OwnedWorkerEnd& owned, std::uint64_t bytes,
                      const py::object& position_after) {
  Position position = to_position(position_after);
  if (bytes > held(owned).capacity) {
    throw py::value_error("the slot has fewer bytes");
  }
  if (position.empty() || position.size() > owned.end->position_capacity()) {
    throw py::value_error("the position has " +
                          std::to_string(position.size()) +
                          " integers, expected 1 to " +
                          std::to_string(owned.end->position_capacity()));
  }
  return position;
}

bool offer_part(OwnedWorkerEnd& owned, std::uint32_t outputs,
                std::uint64_t bytes, const py::object& position_after) {
  const Position position = check_result(owned, bytes, position_after);
  const Work& work = held(owned);
  if (work.kind != UnitKind::kRange) {
    throw py::value_error("only a range has parts");
  }
  return owned.end->offer_part(work, outputs, bytes, position);
}

std::optional<Work> resume(OwnedWorkerEnd& owned) {
  Work& work = held(owned);
  const Unlocked unlocked;
  if (!owned.end->resume(work)) owned.work.reset();
  return owned.work;
}

std::optional<std::uintptr_t> need(OwnedWorkerEnd& owned, std::uint64_t bytes) {
  Work& work = held(owned);
  const Unlocked unlocked;
  if (owned.end->need(work, bytes)) return address_of(work);
  owned.work.reset();
  return std::nullopt;
}

void commit(OwnedWorkerEnd& owned, int status, std::uint32_t outputs,
            std::uint64_t bytes, const py::object& position_after) {
  const Position position = check_result(owned, bytes, position_after);
  if (status < static_cast<int>(UnitStatus::kOk) ||
      status > static_cast<int>(UnitStatus::kMoved)) {
    throw py::value_error("status is none of STATUS_*");
  }
  owned.end->commit(held(owned), static_cast<UnitStatus>(status), outputs,
                    bytes, position);
  owned.work.reset();
}

// Makes the allocator keep freed memory, up to 256 MiB at the top of the heap.
// By default it keeps less than the records of a batch need.  It would return
// the memory to the system at each batch and fault it in again for the next.
void keep_freed_memory() {
#ifdef M_TRIM_THRESHOLD
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}

}  // namespace

void worker_end(py::module_& m) {
  m.def(
      "keep_freed_memory", &keep_freed_memory,
      "Keeps memory that was freed for what is allocated next: for processes\n"
      "of our own, a user's process is the user's.");
  m.attr("STATUS_OK") = static_cast<int>(UnitStatus::kOk);
  m.attr("STATUS_END") = static_cast<int>(UnitStatus::kEnd);
  m.attr("STATUS_ERROR") = static_cast<int>(UnitStatus::kError);
  m.attr("STATUS_MOVED") = static_cast<int>(UnitStatus::kMoved);
  py::native_enum<UnitKind>(m, "UnitKind", "enum.Enum")
      .value("RANGE", UnitKind::kRange)
      .value("SEQUENTIAL", UnitKind::kSequential)
      .value("REQUEST", UnitKind::kRequest)
      .finalize();
  py::class_<Work>(m, "Work", "A claimed unit.")
      .def_readonly("id", &Work::id)
      .def_readonly("stream", &Work::stream)
      .def_readonly("kind", &Work::kind)
      .def_readonly("first", &Work::first)
      .def_readonly("count", &Work::count)
      .def_readonly("attempt", &Work::attempt)
      .def_readonly("proceed", &Work::proceed)
      .def_property_readonly(
          "position_before",
          [](const Work& w) { return from_position(w.position_before); })
      .def_property_readonly("address", &address_of)
      .def_readonly("capacity", &Work::capacity);
  py::class_<OwnedWorkerEnd>(m, "WorkerEnd",
                             "A worker's end of the shared memory.")
      .def(py::init([](int arena_fd, int slot_request_fd, std::uint32_t worker,
                       std::uint32_t generation) {
             return OwnedWorkerEnd{checked(WorkerEnd::open(
                 arena_fd, slot_request_fd, worker, generation))};
           }),
           "arena_fd"_a, "slot_request_fd"_a, "worker"_a, "generation"_a)
      .def("claim", &claim, "Wait for a unit; None when told to stop.")
      .def("need", &need, "bytes"_a,
           "Wait for a larger slot; returns its address, None if the unit is\n"
           "no longer wanted or there is no memory.  The content of the old "
           "slot is gone.")
      .def("commit", &commit, "status"_a, "outputs"_a, "bytes"_a,
           "position_after"_a, "Hand the unit to the parent.")
      .def(
          "is_awaited",
          [](OwnedWorkerEnd& owned) {
            return owned.end->is_awaited(held(owned));
          },
          "Whether the consumer waits for the unit.")
      .def("offer_part", &offer_part, "outputs"_a, "bytes"_a,
           "position_after"_a,
           "Offer the unit's first outputs to the parent; false if it cannot.\n"
           "The slot is the parent's until resume().")
      .def(
          "can_resume",
          [](OwnedWorkerEnd& owned) {
            held(owned);
            return owned.end->can_resume();
          },
          "Whether resume() returns at once.")
      .def("resume", &resume,
           "Wait for the answer to an offer; returns the unit as it is now,\n"
           "None if it is no longer wanted.")
      .def_property_readonly(
          "position_capacity",
          [](OwnedWorkerEnd& owned) { return owned.end->position_capacity(); })
      .def_property_readonly(
          "workers", [](OwnedWorkerEnd& owned) { return owned.end->workers(); })
      .def_property_readonly(
          "max_unit_bytes",
          [](OwnedWorkerEnd& owned) { return owned.end->max_unit_bytes(); })
      .def(
          "set_startup_error",
          [](OwnedWorkerEnd& owned, const std::string& text) {
            owned.end->set_startup_error(text);
          },
          "text"_a, "Say why this worker cannot start.")
      .def(
          "tell",
          [](OwnedWorkerEnd& owned, const std::string& text) {
            owned.end->tell(text);
          },
          "text"_a, "Let others read a text in the place of the one before.")
      .def_property_readonly("at_address", [](OwnedWorkerEnd& owned) {
        return reinterpret_cast<std::uintptr_t>(owned.end->at_address());
      });
}

}  // namespace gristmill::bind
