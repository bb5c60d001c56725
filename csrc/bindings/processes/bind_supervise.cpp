// Binds core/processes/supervise.hpp: how the launcher starts, what its processes need,
// and EventCrew, a crew that only writes down what it hears.
#include <pybind11/stl.h>

#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "core/processes/spawn.hpp"
#include "core/processes/supervise.hpp"

namespace gristmill::bind {
namespace {

class EventCrew final : public Crew {
 public:
  EventCrew(int arena_fd, int blob_fd, const py::bytes& setup, Modules modules)
      : happened_(new_eventfd()),
        enlistment_(
            enlist(this, {arena_fd, blob_fd, setup, std::move(modules)})) {}

  ~EventCrew() override { dismiss(); }

  void born(int worker, uint32_t generation, int) override {
    add({"born", worker, generation, 0, ""});
  }
  void died(int worker, uint32_t generation) override {
    add({"died", worker, generation, 0, ""});
  }
  void how(int worker, uint32_t generation, int wait_status) override {
    add({"how", worker, generation, wait_status, ""});
  }
  void knocked() override { add({"knocked", 0, 0, 0, ""}); }
  void failed(std::string why) override {
    add({"failed", 0, 0, 0, std::move(why)});
  }

  [[nodiscard]] int fileno() const { return happened_.get(); }

  std::vector<py::tuple> events() {
    std::vector<Event> taken;
    {
      const std::lock_guard held(mutex_);
      silence(happened_.get());
      taken.swap(events_);
    }
    std::vector<py::tuple> tuples;
    for (const auto& event : taken) {
      tuples.push_back(py::make_tuple(event.what, event.worker,
                                      event.generation, event.wait_status,
                                      event.why));
    }
    return tuples;
  }

  Enlistment& enlistment() { return *enlistment_; }

  void dismiss() {
    const Unlocked unlocked;
    enlistment_->dismiss();
  }

 private:
  struct Event {
    const char* what;
    int worker;
    uint32_t generation;
    int wait_status;
    std::string why;
  };

  void add(Event event) {
    const std::lock_guard held(mutex_);
    events_.push_back(std::move(event));
    ring(happened_.get());
  }

  const Fd happened_;
  std::mutex mutex_;  // Guards the next one.
  std::vector<Event> events_;
  const std::unique_ptr<Enlistment> enlistment_;  // Last: it calls the above.
};

void event_crew(py::module_& m) {
  py::class_<EventCrew>(
      m, "EventCrew",
      "A crew of workers whose births and deaths can be read: a diagnostic\n"
      "tool, which computes nothing.")
      .def(py::init<int, int, const py::bytes&, Modules>(), "arena_fd"_a,
           "blob_fd"_a, "setup"_a, "modules"_a = Modules(),
           "Enlist with the supervisor; setup comes from _launcher.setup(), "
           "and\n"
           "modules are what the workers' zygote finds imported.")
      .def("fileno", &EventCrew::fileno,
           "A descriptor that is readable while events wait.")
      .def("events", &EventCrew::events,
           "Take what happened since the last call, as a list of (what,\n"
           "worker, generation, wait_status, why); what is 'born', 'died',\n"
           "'how', 'knocked' or 'failed'.")
      .def(
          "hire",
          [](EventCrew& crew, int worker, uint32_t generation) {
            crew.enlistment().hire(worker, generation);
          },
          "worker"_a, "generation"_a, "Ask for a worker process.")
      .def(
          "kill",
          [](EventCrew& crew, int worker) { crew.enlistment().kill(worker); },
          "worker"_a, "Send SIGKILL to a worker.")
      .def(
          "knock_fd",
          [](EventCrew& crew) { return crew.enlistment().knock_fd(); },
          "The eventfd whose writing is the event 'knocked'.")
      .def("dismiss", &EventCrew::dismiss,
           "Kill all processes of the crew; no event comes after it.");
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
      "Say how the launcher starts: its command, to which two arguments are\n"
      "added, and its environment as b'NAME=value'.");
  m.def("shutdown_supervisor", &shutdown_supervisor, py::call_guard<Unlocked>(),
        "Kill all workers, end the launcher and join the supervisor's thread.");
  m.def(
      "die_with_parent", [](int parent) { die_with_parent(parent); },
      "parent"_a,
      "Have this process killed when the thread that forked it ends; kill it\n"
      "now unless `parent` is the pid of its parent.");
  event_crew(m);
}

}  // namespace gristmill::bind
