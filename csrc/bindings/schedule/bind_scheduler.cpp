// Binds core/schedule/scheduler.hpp, together with the group of its workers,
// and core/memory/pinned_slot.hpp.
#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/schedule/position.hpp"
#include "core/memory/pinned_slot.hpp"
#include "core/processes/worker_group.hpp"
#include "core/schedule/scheduler.hpp"

namespace gristmill::bind {
namespace {

// A Scheduler and its workers, owned by a Python object.  The destructor may
// wait with the GIL, because the supervisor's thread never needs the GIL.
//
// REQUIRES: calls of start(), kill() and close() do not overlap.
class OwnedScheduler {
 public:
  explicit OwnedScheduler(std::unique_ptr<Scheduler> scheduler)
      : scheduler_(std::move(scheduler)) {}
  ~OwnedScheduler() { close(); }
  OwnedScheduler(const OwnedScheduler&) = delete;
  OwnedScheduler& operator=(const OwnedScheduler&) = delete;

  void start(int blob_fd, const py::bytes& setup, Modules modules,
             std::vector<int> inherited) {
    GroupSpec spec{scheduler_->arena_fd(), blob_fd, setup, std::move(modules),
                   std::move(inherited)};
    const Unlocked unlocked;
    group_ = open_group(scheduler_.get(), spec);
    scheduler_->start(group_.get());
  }

  void start_alone() { scheduler_->start(nullptr); }

  void kill(int worker) {
    if (group_ != nullptr) group_->kill(worker);
  }

  void close() {
    scheduler_->close();
    if (group_ != nullptr) group_->dismiss();
  }

  Scheduler& operator*() { return *scheduler_; }

 private:
  const std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<WorkerGroup> group_;  // After the scheduler, which it calls.
};

// Waits for the output due, running Python's signal handlers in between.
NextResult wait_for_next(OwnedScheduler& owned, double timeout_s) {
  for (;;) {
    NextResult next;
    {
      const Unlocked unlocked;
      next = (*owned).next(timeout_s);
    }
    if (next.kind != NextKind::kInterrupted) return next;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

// Converts a method of Scheduler to a function of OwnedScheduler.
template <class... Args>
auto core(void (Scheduler::*method)(Args...)) {
  return [method](OwnedScheduler& owned, Args... args) {
    ((*owned).*method)(std::move(args)...);
  };
}

// Binds the reports about workers that the caller starts and watches.
void reports(py::class_<OwnedScheduler>& c) {
  c.def("start_alone", &OwnedScheduler::start_alone, py::call_guard<Unlocked>(),
        "Publish units.  The caller starts the workers and reports on them.")
      .def("on_started", core(&Scheduler::on_started), "worker"_a,
           "generation"_a, "pid"_a,
           "Report that a worker has started.  Its exit must be reported, too.")
      .def(
          "on_exited",
          [](OwnedScheduler& owned, int worker, std::uint32_t generation,
             int wait_status) {
            (*owned).on_exited(worker, generation);
            (*owned).on_exit_status(worker, generation, wait_status);
          },
          "worker"_a, "generation"_a, "wait_status"_a,
          "Report that a worker has exited, so that none of its threads\n"
          "writes to the arena.")
      .def(
          "on_worker_notified", core(&Scheduler::on_worker_notified),
          "Report that a worker wrote to the eventfd that notifies the parent.")
      .def("on_failed", core(&Scheduler::on_failed), "why"_a,
           "Report that no more workers can be started.");
}

// Returns a getter for a field of a part of a NextResult.
template <class Part, class Field>
auto of(Part NextResult::* part, Field Part::* field) {
  return [part, field](const NextResult& next) { return next.*part.*field; };
}

const char* kind_of(const NextResult& next) {
  // In the order of NextKind.
  constexpr std::array kNames = {"output",  "end",    "interrupted",
                                 "timeout", "exited", "full",
                                 "closed",  "forked", "slow"};
  return kNames.at(static_cast<std::size_t>(next.kind));
}

int stream_of(const NextResult& next) {
  return next.kind == NextKind::kOutput ? static_cast<int>(next.output.stream)
                                        : next.report.stream;
}

py::str text_of(const NextResult& next) {
  const std::string& text = next.report.text;
  return py::reinterpret_steal<py::str>(PyUnicode_DecodeUTF8(
      text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

void next_result(py::module_& m) {
  constexpr auto output = &NextResult::output;
  constexpr auto report = &NextResult::report;
  constexpr auto shortage = &NextResult::shortage;
  py::class_<NextResult>(
      m, "NextResult",
      "The result of next().  `kind` determines which fields "
      "are valid.")
      .def_property_readonly("kind", &kind_of)
      .def_property_readonly("stream", &stream_of)
      .def_property_readonly("error", of(output, &Output::error))
      .def_property_readonly("index", of(output, &Output::index))
      .def_property_readonly("address", of(output, &Output::address))
      .def_property_readonly("bytes", of(output, &Output::bytes))
      .def_property_readonly("worker", of(report, &WorkerReport::worker))
      .def_property_readonly("pid", of(report, &WorkerReport::pid))
      .def_property_readonly("record", of(report, &WorkerReport::record))
      .def_property_readonly("attempts", of(report, &WorkerReport::attempts))
      .def_property_readonly("at_start", of(report, &WorkerReport::at_start))
      .def_property_readonly("idle", of(report, &WorkerReport::idle))
      .def_property_readonly("busy_s", of(report, &WorkerReport::busy_s))
      .def_property_readonly("usual_s", of(report, &WorkerReport::usual_s))
      .def_readonly("waited_s", &NextResult::waited_s)
      .def_property_readonly("wait_status",
                             of(report, &WorkerReport::wait_status))
      .def_property_readonly("text", &text_of)
      .def_property_readonly("needed_bytes",
                             of(shortage, &Shortage::needed_bytes))
      .def_property_readonly("limit_bytes",
                             of(shortage, &Shortage::limit_bytes))
      .def_property_readonly("used_bytes", of(shortage, &Shortage::used_bytes))
      .def_property_readonly("viewed_slots",
                             of(shortage, &Shortage::viewed_slots))
      .def_property_readonly("viewed_bytes",
                             of(shortage, &Shortage::viewed_bytes));
}

std::unique_ptr<PinnedSlot> pin_slot(std::uintptr_t address) {
  const Unlocked unlocked;
  ArenaSlot* const slot = Scheduler::slot_at(address);
  return slot != nullptr ? PinnedSlot::pin(slot) : nullptr;
}

void pinned_slot(py::module_& m) {
  py::class_<PinnedSlot>(m, "PinnedSlot",
                         "Keeps the pages of a slot in place while it exists.")
      .def_property_readonly("address", &PinnedSlot::address)
      .def_property_readonly("nbytes", &PinnedSlot::bytes);
  m.def("pin_slot", &pin_slot, "address"_a,
        "Pin the slot that contains an address, if it belongs to a scheduler\n"
        "that exists.  Returns None if there is no such slot or if it is\n"
        "already pinned.  The caller must keep an array of the slot alive.");
}

}  // namespace

void scheduler(py::module_& m) {
  next_result(m);
  pinned_slot(m);
  py::class_<OwnedScheduler> c(
      m, "Scheduler", "Publishes units of work and delivers outputs in order.");
  reports(c);
  // The arguments are the fields of SchedulerConfig, and of its `start`.
  c.def(
       py::init([](std::uint32_t workers, std::uint32_t buffer, UnitKind kind,
                   std::int64_t unit_records, std::uint32_t max_restarts,
                   std::uint64_t memory_limit,
                   std::vector<std::int64_t> lengths,
                   const py::sequence& positions, std::uint32_t next_stream,
                   std::vector<bool> ended, std::uint32_t position_capacity,
                   bool in_order, bool exits_final, double slow_s) {
         return std::make_unique<OwnedScheduler>(checked(Scheduler::create(
             {.workers = workers,
              .buffer = buffer,
              .kind = kind,
              .unit_records = unit_records,
              .max_restarts = max_restarts,
              .memory_limit = memory_limit,
              .lengths = std::move(lengths),
              .position_capacity = position_capacity,
              .start = {to_positions(positions), next_stream, std::move(ended)},
              .in_order = in_order,
              .exits_final = exits_final,
              .slow_s = slow_s})));
       }),
       py::kw_only(), "workers"_a, "buffer"_a, "kind"_a, "unit_records"_a,
       "max_restarts"_a, "memory_limit"_a, "lengths"_a, "positions"_a,
       "next_stream"_a, "ended"_a, "position_capacity"_a = kSmallPosition,
       "in_order"_a = true, "exits_final"_a = false, "slow_s"_a = -1.0)
      .def("start", &OwnedScheduler::start, "blob_fd"_a, "setup"_a,
           "modules"_a = Modules(), "inherited"_a = std::vector<int>(),
           "Start the workers.  Their launcher imports `modules`.  The\n"
           "descriptors in `inherited` belong to the program and are copied.")
      .def(
          "add_request",
          [](OwnedScheduler& owned, std::uint32_t stream,
             const py::object& request) {
            check((*owned).add_request(stream, to_position(request)));
          },
          "stream"_a, "request"_a,
          "Queue a request for the owner of the stream.  Raises ValueError if\n"
          "kind is not REQUEST.")
      .def(
          "next", &wait_for_next, "timeout_s"_a,
          "Wait for the next output and return it, or the reason why there is\n"
          "none.  A negative timeout waits forever.")
      .def("advance", core(&Scheduler::advance),
           "Mark the output that next() returned as delivered.")
      .def(
          "add_view",
          [](OwnedScheduler& owned) {
            ArenaSlot* const slot = (*owned).add_view();
            if (slot == nullptr) {
              throw std::runtime_error(
                  "add_view() must be called between a next() that returned an "
                  "output and its advance(), before close(), and in the "
                  "process that made the scheduler");
            }
            return reinterpret_cast<std::uintptr_t>(slot);
          },
          "Add a view to the slot of the output that next() returned.  Return\n"
          "its address for _hot.views.SlotView.")
      .def(
          "position",
          [](OwnedScheduler& owned) {
            const RunPosition run = (*owned).position();
            py::list positions;
            for (const Position& position : run.positions) {
              positions.append(from_position(position));
            }
            return py::make_tuple(positions, run.next_stream, run.ended);
          },
          "Return (positions, next_stream, ended) after the last delivered\n"
          "output.")
      .def(
          "reset",
          [](OwnedScheduler& owned, const py::sequence& positions,
             std::uint32_t next_stream, const std::vector<bool>& ended) {
            check(
                (*owned).reset({to_positions(positions), next_stream, ended}));
          },
          "positions"_a, "next_stream"_a, "ended"_a,
          "Withdraw all units and continue from another position.")
      .def(
          "processes",
          [](OwnedScheduler& owned) {
            py::list all;
            for (const Process& process : (*owned).processes()) {
              all.append(py::make_tuple(process.pid, process.alive,
                                        process.wait_status));
            }
            return all;
          },
          "Return (pid, alive, wait status or None) of each worker.")
      .def(
          "counts",
          [](OwnedScheduler& owned) {
            py::list all;
            for (const WorkerCounts& counts : (*owned).counts()) {
              all.append(py::make_tuple(counts.busy_ns, counts.idle_ns,
                                        counts.outputs, counts.bytes,
                                        py::bytes(counts.text)));
            }
            return all;
          },
          "Return (busy_ns, idle_ns, outputs, bytes, text) of each worker.")
      .def("kill", &OwnedScheduler::kill, "worker"_a,
           "Send SIGKILL to a worker.")
      .def("close", &OwnedScheduler::close, py::call_guard<Unlocked>(),
           "End the workers.  Views stay valid.")
      .def_property_readonly("arena_fd", [](OwnedScheduler& owned) {
        return (*owned).arena_fd();
      });
}

}  // namespace gristmill::bind
