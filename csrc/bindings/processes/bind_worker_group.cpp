// Binds core/processes/worker_group.hpp: the configuration of the launcher,
// die_with_parent(), and WorkerLog, which only records the reported events.
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "core/base/mutex.hpp"
#include "core/processes/spawn.hpp"
#include "core/processes/worker_group.hpp"

namespace gristmill::bind {
namespace {

// The kind of the event, worker, generation, wait status, reason.
using Event = std::tuple<const char*, int, uint32_t, int, std::string>;

// The supervisor's thread calls the functions of WorkerEvents; Python threads
// call the others.
class WorkerLog final : public WorkerEvents {
 public:
  WorkerLog(int arena_fd, int blob_fd, const py::bytes& setup, Modules modules)
      : happened_(new_eventfd()),
        group_(
            open_group(this, {arena_fd, blob_fd, setup, std::move(modules)})) {}

  ~WorkerLog() override { dismiss(); }

  void on_started(int worker, uint32_t generation, int) override {
    add({"started", worker, generation, 0, ""});
  }
  void on_exited(int worker, uint32_t generation) override {
    add({"exited", worker, generation, 0, ""});
  }
  void on_exit_status(int worker, uint32_t generation,
                      int wait_status) override {
    add({"exit_status", worker, generation, wait_status, ""});
  }
  void on_worker_notified() override { add({"worker_notified", 0, 0, 0, ""}); }
  void on_failed(std::string why) override {
    add({"failed", 0, 0, 0, std::move(why)});
  }

  [[nodiscard]] int fileno() const { return happened_.get(); }

  std::vector<Event> events() {
    const MutexLock lock(mutex_);
    drain_eventfd(happened_.get());
    return std::exchange(events_, {});
  }

  WorkerGroup& group() { return *group_; }

  void dismiss() {
    const Unlocked unlocked;
    group_->dismiss();
  }

 private:
  void add(Event event) {
    const MutexLock lock(mutex_);
    events_.push_back(std::move(event));
    signal_eventfd(happened_.get());
  }

  const Fd happened_;
  Mutex mutex_;
  std::vector<Event> events_ GUARDED_BY(mutex_);
  const std::unique_ptr<WorkerGroup> group_;  // Last: calls the above.
};

void worker_log(py::module_& m) {
  py::class_<WorkerLog>(
      m, "WorkerLog",
      "A group of workers that records their starts and exits, for tests.  It\n"
      "gives them no work.")
      .def(py::init<int, int, const py::bytes&, Modules>(), "arena_fd"_a,
           "blob_fd"_a, "setup"_a, "modules"_a = Modules(),
           "Open a group of workers.  _workers.parent.setup() returns `setup`.")
      .def("fileno", &WorkerLog::fileno,
           "Return a descriptor that is readable while there are new events.")
      .def("events", &WorkerLog::events,
           "Return the events since the last call, as a list of (event, "
           "worker,\n"
           "generation, wait_status, reason).  event is 'started', 'exited',\n"
           "'exit_status', 'worker_notified' or 'failed'.")
      .def(
          "start_worker",
          [](WorkerLog& log, int worker, uint32_t generation) {
            log.group().start_worker(worker, generation);
          },
          "worker"_a, "generation"_a, "Request a worker process.")
      .def(
          "kill", [](WorkerLog& log, int worker) { log.group().kill(worker); },
          "worker"_a, "Send SIGKILL to a worker.")
      .def(
          "notify_fd", [](WorkerLog& log) { return log.group().notify_fd(); },
          "Return the eventfd.  A write to it is the event 'worker_notified'.")
      .def("dismiss", &WorkerLog::dismiss,
           "End all processes of the group.  No events are recorded "
           "afterwards.");
}

}  // namespace

void supervise(py::module_& m) {
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const std::system_error& error) {
      py::set_error(PyExc_OSError,
                    py::make_tuple(error.code().value(), error.what()));
    }
  });
  m.def(
      "configure_supervisor",
      [](std::vector<std::string> argv, const std::vector<py::bytes>& environ) {
        Command command{std::move(argv), {environ.begin(), environ.end()}};
        const Unlocked unlocked;
        configure_supervisor(std::move(command));
      },
      "argv"_a, "environ"_a,
      "Set the command of the launcher and its environment, as b'NAME=value'.\n"
      "Command::argv in spawn.hpp lists the arguments that are appended.");
  m.def("start_launcher", &start_launcher, "modules"_a,
        py::call_guard<Unlocked>(),
        "Start the launcher that imports these modules, if it does not run.");
  m.def("shutdown_supervisor", &shutdown_supervisor, py::call_guard<Unlocked>(),
        "Kill all workers, end the launchers and join the supervisor's "
        "thread.");
  m.def(
      "die_with_parent", &die_with_parent, "parent"_a,
      "Make the kernel kill this process when the thread that forked it ends.\n"
      "Kill it now if `parent` is not the pid of its parent.");
  worker_log(m);
}

}  // namespace gristmill::bind
