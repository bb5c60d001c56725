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
  std::optional<Work> work = {};  // The unit that it holds.
};

Work& held_unit(OwnedWorkerEnd& owned) {
  if (!owned.work) {
    throw std::runtime_error("this worker holds no unit: call claim() first");
  }
  return *owned.work;
}

std::uintptr_t address_of(const Work& work) {
  return reinterpret_cast<std::uintptr_t>(work.slot);
}

std::optional<Work> claim(OwnedWorkerEnd& owned) {
  if (owned.work) {
    throw std::runtime_error(
        "this worker still holds a unit: call commit() before claim()");
  }
  const Unlocked unlocked;
  owned.work = owned.end->claim();
  return owned.work;
}

// Checks the arguments of commit() and offer_part(); returns the position.
Position check_result(OwnedWorkerEnd& owned, std::uint64_t bytes,
                      const py::object& position_after) {
  Position position = to_position(position_after);
  if (bytes > held_unit(owned).capacity) {
    throw py::value_error(
        concat("bytes must be at most the capacity of the "
               "slot, ",
               held_unit(owned).capacity, ", got ", bytes));
  }
  if (position.empty() || position.size() > owned.end->position_capacity()) {
    throw py::value_error(concat("position_after must have 1 to ",
                                 owned.end->position_capacity(),
                                 " integers, got ", position.size()));
  }
  return position;
}

bool offer_part(OwnedWorkerEnd& owned, std::uint32_t outputs,
                std::uint64_t bytes, const py::object& position_after) {
  const Position position = check_result(owned, bytes, position_after);
  const Work& work = held_unit(owned);
  if (work.kind != UnitKind::kRange) {
    throw py::value_error("offer_part() requires a unit of kind RANGE");
  }
  return owned.end->offer_part(work, outputs, bytes, position);
}

std::optional<Work> resume(OwnedWorkerEnd& owned) {
  Work& work = held_unit(owned);
  const Unlocked unlocked;
  if (!owned.end->resume(work)) owned.work.reset();
  return owned.work;
}

std::optional<std::uintptr_t> request_larger_slot(OwnedWorkerEnd& owned,
                                                  std::uint64_t bytes) {
  Work& work = held_unit(owned);
  const Unlocked unlocked;
  if (owned.end->request_larger_slot(work, bytes)) return address_of(work);
  owned.work.reset();
  return std::nullopt;
}

void commit(OwnedWorkerEnd& owned, int status, std::uint32_t outputs,
            std::uint64_t bytes, const py::object& position_after) {
  const Position position = check_result(owned, bytes, position_after);
  if (status < static_cast<int>(UnitStatus::kOk) ||
      status > static_cast<int>(UnitStatus::kMoved)) {
    throw py::value_error(
        concat("status must be one of STATUS_*, got ", status));
  }
  owned.end->commit(held_unit(owned), static_cast<UnitStatus>(status), outputs,
                    bytes, position);
  owned.work.reset();
}

// Makes the allocator keep freed memory, up to 256 MiB at the top of the heap.
// By default it keeps less than the records of a batch need.  It would return
// the memory to the system at each batch and fault it in again for the next.
// Blocks of 32 MiB or more are still mapped, and returned when they are freed.
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
      "Make the allocator of this process keep freed memory.  Only for worker\n"
      "processes, since it would change the user's process.");
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
      .def_readonly("continues_stream", &Work::continues_stream)
      .def_property_readonly(
          "position_before",
          [](const Work& w) { return from_position(w.position_before); })
      .def_property_readonly("address", &address_of)
      .def_readonly("capacity", &Work::capacity);
  py::class_<OwnedWorkerEnd>(m, "WorkerEnd",
                             "A worker's end of the shared memory.")
      .def(py::init([](int arena_fd, int notify_fd, std::uint32_t worker,
                       std::uint32_t generation) {
             return OwnedWorkerEnd{checked(
                 WorkerEnd::open(arena_fd, notify_fd, worker, generation))};
           }),
           "arena_fd"_a, "notify_fd"_a, "worker"_a, "generation"_a)
      .def("claim", &claim,
           "Wait for a unit and return it, or None if the worker must stop.")
      .def(
          "request_larger_slot", &request_larger_slot, "bytes"_a,
          "Wait for a larger slot and return its address, or None if the unit\n"
          "is lost: withdrawn, or without memory.  The contents of the old\n"
          "slot are lost.")
      .def("commit", &commit, "status"_a, "outputs"_a, "bytes"_a,
           "position_after"_a, "Hand the unit to the parent.")
      .def(
          "is_awaited",
          [](OwnedWorkerEnd& owned) {
            return owned.end->is_awaited(held_unit(owned));
          },
          "Return whether the consumer waits for this particular unit.")
      .def("offer_part", &offer_part, "outputs"_a, "bytes"_a,
           "position_after"_a,
           "Offer the unit's first outputs to the parent.  Return False if\n"
           "there is no memory for the position.  The parent owns the slot\n"
           "until resume().")
      .def(
          "can_resume",
          [](OwnedWorkerEnd& owned) {
            held_unit(owned);
            return owned.end->can_resume();
          },
          "Return whether resume() would return without waiting.")
      .def("resume", &resume,
           "Wait for the parent's answer to an offer.  Return the unit, which\n"
           "now begins after the part if the parent took it, or None if the\n"
           "unit is lost.")
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
          "text"_a, "Store the reason why this worker cannot start.")
      .def(
          "publish_status",
          [](OwnedWorkerEnd& owned, const std::string& text) {
            owned.end->publish_status(text);
          },
          "text"_a,
          "Publish a text for other processes, which replaces the previous "
          "one.")
      .def_property_readonly("current_record_address",
                             [](OwnedWorkerEnd& owned) {
                               return reinterpret_cast<std::uintptr_t>(
                                   owned.end->current_record_address());
                             });
}

}  // namespace gristmill::bind
