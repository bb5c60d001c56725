#include "core/processes/worker_group.hpp"

#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/base/at_fork.hpp"
#include "core/processes/supervisor.hpp"

namespace gristmill {
namespace {

Mutex mutex;

// The supervisors of this process.
struct Supervisors {
  Supervisor* running = nullptr;
  // Leaked, since WorkerGroups may point to them.
  std::vector<Supervisor*> retired;
  std::optional<Command> command;

  // Returns the running supervisor, which gets no new groups from now on.
  Supervisor* retire() {
    if (running != nullptr) retired.push_back(running);
    return std::exchange(running, nullptr);
  }
};

Supervisors& supervisors() REQUIRES(mutex) {
  static auto* const all = new Supervisors;  // Leaked: threads outlive main.
  return *all;
}

void enter_child() REQUIRES(mutex) {
  Supervisor* const parent_supervisor = supervisors().retire();
  if (parent_supervisor != nullptr) parent_supervisor->make_inert();
}

[[maybe_unused]] const bool kSupervisorHandlerRegistered =
    at_fork(ForkStep::kSupervisor, held_at_fork<mutex, enter_child>());

Command command() {
  const MutexLock lock(mutex);
  return *supervisors().command;
}

// Returns the supervisor of this process, after starting it if necessary.
Supervisor& running_supervisor() REQUIRES(mutex) {
  Supervisors& ours = supervisors();
  if (!ours.command) {
    throw std::logic_error(
        "call configure_supervisor() before starting workers");
  }
  if (ours.running != nullptr && !ours.running->is_running()) ours.retire();
  if (ours.running == nullptr) ours.running = new Supervisor(command);
  return *ours.running;
}

}  // namespace

void configure_supervisor(Command command) {
  const MutexLock lock(mutex);
  supervisors().command = std::move(command);
}

void start_launcher(const Modules& modules) {
  const MutexLock lock(mutex);
  running_supervisor().start_launcher(modules);
}

std::unique_ptr<WorkerGroup> open_group(WorkerEvents* events,
                                        const GroupSpec& spec) {
  const MutexLock lock(mutex);
  return running_supervisor().open_group(events, spec);
}

void shutdown_supervisor() {
  Supervisor* supervisor = nullptr;
  {
    const MutexLock lock(mutex);
    supervisor = supervisors().retire();
  }
  if (supervisor != nullptr) supervisor->stop();
}

}  // namespace gristmill
