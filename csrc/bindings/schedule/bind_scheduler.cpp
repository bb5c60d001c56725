// Binds core/schedule/scheduler.hpp, together with the group that brings its
// workers.
#include <pybind11/stl.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/schedule/cursor.hpp"
#include "core/processes/worker_group.hpp"
#include "core/schedule/scheduler.hpp"

namespace gristmill::bind {
namespace {

// A Scheduler and its workers, for as long as Python holds it.
class OwnedScheduler {
 public:
  explicit OwnedScheduler(std::unique_ptr<Scheduler> scheduler)
      : scheduler_(std::move(scheduler)) {}
  ~OwnedScheduler() { close(); }
  OwnedScheduler(const OwnedScheduler&) = delete;
  OwnedScheduler& operator=(const OwnedScheduler&) = delete;

  void start(int blob_fd, const std::string& setup, Modules modules) {
    group_ = open_group(scheduler_.get(), {scheduler_->arena_fd(), blob_fd,
                                           setup, std::move(modules)});
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
  std::unique_ptr<WorkerGroup> group_;  // After what it calls.
};

// Waits for the output due, running Python's signal handlers in between.
Next wait_for_next(OwnedScheduler& owned, double timeout_s) {
  for (;;) {
    Next next;
    {
      const Unlocked unlocked;
      next = (*owned).next(timeout_s);
    }
    if (next.kind != NextKind::kInterrupted) return next;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

const char* name_of(NextKind kind) {
  switch (kind) {
    case NextKind::kOutput:
      return "output";
    case NextKind::kEnd:
      return "end";
    case NextKind::kInterrupted:
      return "interrupted";
    case NextKind::kTimeout:
      return "timeout";
    case NextKind::kExited:
      return "exited";
    case NextKind::kFull:
      return "full";
    case NextKind::kClosed:
      return "closed";
    case NextKind::kForked:
      return "forked";
  }
  return "";
}

std::unique_ptr<OwnedScheduler> make_scheduler(
    std::uint32_t workers, std::uint32_t buffer, UnitKind kind,
    std::int64_t unit_records, std::uint32_t max_restarts,
    std::uint64_t memory_limit, std::vector<std::int64_t> lengths,
    const py::sequence& starts, std::uint32_t next_stream,
    std::vector<bool> ended, std::uint32_t cursor_capacity, bool in_order,
    bool exits_final) {
  SchedulerConfig config;
  config.workers = workers;
  config.buffer = buffer;
  config.kind = kind;
  config.unit_records = unit_records;
  config.max_restarts = max_restarts;
  config.memory_limit = memory_limit;
  config.lengths = std::move(lengths);
  config.starts = to_cursors(starts);
  config.next_stream = next_stream;
  config.ended = std::move(ended);
  config.cursor_capacity = cursor_capacity;
  config.in_order = in_order;
  config.exits_final = exits_final;
  return std::make_unique<OwnedScheduler>(
      checked(Scheduler::create(std::move(config))));
}

py::list processes(OwnedScheduler& owned) {
  py::list all;
  for (const Process& process : (*owned).processes()) {
    all.append(py::make_tuple(process.pid, process.alive, process.wait_status));
  }
  return all;
}

// For workers that somebody else starts and watches, who reports here.
void reports(py::class_<OwnedScheduler>& c) {
  c.def("start_alone", &OwnedScheduler::start_alone, py::call_guard<Unlocked>(),
        "Publish units; the caller starts the workers and reports on them.")
      .def(
          "on_started",
          [](OwnedScheduler& owned, int worker, std::uint32_t generation,
             int pid) { (*owned).on_started(worker, generation, pid); },
          "worker"_a, "generation"_a, "pid"_a,
          "Its exit will be reported: it may be given work.")
      .def(
          "on_exited",
          [](OwnedScheduler& owned, int worker, std::uint32_t generation,
             int wait_status) {
            (*owned).on_exited(worker, generation);
            (*owned).on_exit_status(worker, generation, wait_status);
          },
          "worker"_a, "generation"_a, "wait_status"_a,
          "None of its threads writes any more.")
      .def(
          "on_slot_requested",
          [](OwnedScheduler& owned) { (*owned).on_slot_requested(); },
          "A worker wrote to the eventfd of slot requests.")
      .def(
          "on_failed",
          [](OwnedScheduler& owned, std::string why) {
            (*owned).on_failed(std::move(why));
          },
          "why"_a, "No worker can be had any more.");
}

void due(py::module_& m) {
  py::class_<Next>(m, "Due",
                   "What next() found; `kind` says which fields count.")
      .def_property_readonly("kind",
                             [](const Next& n) { return name_of(n.kind); })
      .def_property_readonly("stream",
                             [](const Next& n) {
                               return n.kind == NextKind::kOutput
                                          ? static_cast<int>(n.output.stream)
                                          : n.report.stream;
                             })
      .def_property_readonly("error",
                             [](const Next& n) { return n.output.error; })
      .def_property_readonly("index",
                             [](const Next& n) { return n.output.index; })
      .def_property_readonly("address",
                             [](const Next& n) { return n.output.address; })
      .def_property_readonly("bytes",
                             [](const Next& n) { return n.output.bytes; })
      .def_property_readonly("worker",
                             [](const Next& n) { return n.report.worker; })
      .def_property_readonly("pid", [](const Next& n) { return n.report.pid; })
      .def_property_readonly("record",
                             [](const Next& n) { return n.report.record; })
      .def_property_readonly("attempts",
                             [](const Next& n) { return n.report.attempts; })
      .def_property_readonly("at_start",
                             [](const Next& n) { return n.report.at_start; })
      .def_property_readonly("idle",
                             [](const Next& n) { return n.report.idle; })
      .def_property_readonly("wait_status",
                             [](const Next& n) { return n.report.wait_status; })
      .def_property_readonly(
          "text",
          [](const Next& n) {
            return py::reinterpret_steal<py::str>(PyUnicode_DecodeUTF8(
                n.report.text.data(),
                static_cast<Py_ssize_t>(n.report.text.size()), "replace"));
          })
      .def_property_readonly("need",
                             [](const Next& n) { return n.shortage.need; })
      .def_property_readonly("limit",
                             [](const Next& n) { return n.shortage.limit; })
      .def_property_readonly("used",
                             [](const Next& n) { return n.shortage.used; })
      .def_property_readonly("kept",
                             [](const Next& n) { return n.shortage.kept; })
      .def_property_readonly(
          "kept_bytes", [](const Next& n) { return n.shortage.kept_bytes; });
}

}  // namespace

void scheduler(py::module_& m) {
  due(m);
  py::class_<OwnedScheduler> c(
      m, "Scheduler", "Publishes units of work and delivers outputs in order.");
  reports(c);
  c.def(py::init(&make_scheduler), py::kw_only(), "workers"_a, "buffer"_a,
        "kind"_a, "unit_records"_a, "max_restarts"_a, "memory_limit"_a,
        "lengths"_a, "starts"_a, "next_stream"_a, "ended"_a,
        "cursor_capacity"_a = kSmallCursor, "in_order"_a = true,
        "exits_final"_a = false)
      .def(
          "start",
          [](OwnedScheduler& owned, int blob_fd, const py::bytes& setup,
             Modules modules) {
            const std::string text = setup;
            const Unlocked unlocked;
            owned.start(blob_fd, text, std::move(modules));
          },
          "blob_fd"_a, "setup"_a, "modules"_a = Modules(),
          "Ask for the workers; modules are what they find imported.")
      .def(
          "ask",
          [](OwnedScheduler& owned, std::uint32_t stream,
             const py::object& request) {
            check((*owned).ask(stream, to_cursor(request)));
          },
          "stream"_a, "request"_a,
          "What the stream's owner is to compute next; only of kind REQUEST.")
      .def("next", &wait_for_next, "timeout_s"_a,
           "Wait for the output due; a negative timeout waits for ever.")
      .def(
          "advance", [](OwnedScheduler& owned) { (*owned).advance(); },
          "The output that next() found is delivered.")
      .def(
          "hold",
          [](OwnedScheduler& owned) {
            ArenaSlot* const slot = (*owned).hold();
            if (slot == nullptr) throw std::runtime_error("nothing is due");
            return reinterpret_cast<std::uintptr_t>(slot);
          },
          "One more view of the slot of the output that next() found; returns\n"
          "the address that _hot.views.SlotView takes.")
      .def(
          "position",
          [](OwnedScheduler& owned) {
            py::list vectors;
            for (const Cursor& cursor : (*owned).cursors()) {
              vectors.append(from_cursor(cursor));
            }
            return py::make_tuple(vectors, (*owned).next_stream(),
                                  (*owned).ended());
          },
          "(vectors, next_stream, ended) after the last output delivered.")
      .def(
          "reset",
          [](OwnedScheduler& owned, const py::sequence& positions,
             std::uint32_t next_stream, const std::vector<bool>& ended) {
            check((*owned).reset(to_cursors(positions), next_stream, ended));
          },
          "positions"_a, "next_stream"_a, "ended"_a,
          "Go on from another position.")
      .def("processes", &processes,
           "(pid, whether it is alive, wait status or None) of each worker.")
      .def("kill", &OwnedScheduler::kill, "worker"_a, "Send a worker SIGKILL.")
      .def("close", &OwnedScheduler::close, py::call_guard<Unlocked>(),
           "End the workers; views stay valid.")
      .def_property_readonly("arena_fd", [](OwnedScheduler& owned) {
        return (*owned).arena_fd();
      });
}

}  // namespace gristmill::bind
