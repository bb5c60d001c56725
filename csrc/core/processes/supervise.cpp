#include "core/processes/supervise.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

#include <cerrno>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/at_fork.hpp"
#include "core/processes/supervisor.hpp"

namespace gristmill {
namespace {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Supervisor::Supervisor(Command command)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)),
      control_(new_eventfd()),
      command_(std::move(command)) {
  if (!epoll_) {
    throw std::system_error(errno, std::generic_category(), "epoll_create1");
  }
  watch(control_.get(), EPOLLIN, [this] { run_tasks(); });
  const SignalsBlocked blocked;  // The thread inherits the mask.
  const int error = pthread_create(
      &thread_, nullptr,
      [](void* self) -> void* {
        pthread_setname_np(pthread_self(), "gristmill");
        static_cast<Supervisor*>(self)->run();
        return nullptr;
      },
      this);
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), "pthread_create");
  }
}

bool Supervisor::post(Task task) {
  if (inert_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard held(mutex_);
  if (stopped_) return false;
  if (!ring(control_.get())) {
    // The user closed what was not theirs: the thread sleeps for ever.
    stopped_ = closed_ = true;
    return false;
  }
  tasks_.push_back(std::move(task));
  return true;
}

void Supervisor::call(Task task) {
  auto done = std::make_shared<std::promise<void>>();
  auto ended = done->get_future();
  if (!post([done, task = std::move(task)] {
        task();
        done->set_value();
      })) {
    return forsake();
  }
  ended.wait();
}

// Makes sure that a thread which cannot be told anything does nothing more.
void Supervisor::forsake() {
  if (inert_.load(std::memory_order_relaxed)) return;
  {
    const std::lock_guard held(mutex_);
    if (!closed_) return;
  }
  const std::lock_guard held(events_mutex_);
  abandoned_ = true;
}

std::unique_ptr<Enlistment> Supervisor::enlist(Crew* crew,
                                               const CrewSpec& spec) {
  auto team = std::make_shared<std::unique_ptr<Team>>(std::make_unique<Team>());
  Team& made = **team;
  made.crew = crew;
  made.modules = spec.modules;
  made.setup = Channel::share(memfd_of(spec.setup));
  made.blob = Channel::share(copy_of(spec.blob_fd));
  made.arena = Channel::share(copy_of(spec.arena_fd));
  made.knock = Channel::share(new_eventfd());
  const int knock_fd = made.knock->get();
  {
    const std::lock_guard held(mutex_);
    made.id = ++last_id_;
  }
  const uint32_t id = made.id;
  const bool posted = post([this, team] {
    Team& entered = **team;
    teams_.emplace(entered.id, std::move(*team));
    entered.knock_watch = watch_for(entered, entered.knock->get(), [&entered] {
      if (silence(entered.knock->get())) entered.crew->knocked();
    });
    if (!entered.failed) open(entered);
  });
  if (!posted) throw std::logic_error("the supervisor was stopped meanwhile");
  return std::unique_ptr<Enlistment>(new Enlistment(this, id, knock_fd));
}

void Supervisor::hire(uint32_t id, int worker, uint32_t generation) {
  post([this, id, worker, generation] {
    const auto at = teams_.find(id);
    if (at == teams_.end() || at->second->failed) return;
    at->second->hires.push_back({{worker, generation}});
    send_hires(*at->second);
  });
}

void Supervisor::kill(uint32_t id, int worker) {
  post([this, id, worker] {
    const auto at = teams_.find(id);
    if (at == teams_.end()) return;
    for (auto& [key, live] : at->second->workers) {
      if (key.first == worker) kill_by(live.pidfd.get());
    }
    for (Hire& hire : at->second->hires) {
      if (hire.key.first == worker) hire.doomed = true;
    }
  });
}

void Supervisor::dismiss(uint32_t id) {
  call([this, id] { drop(id); });
}

void Supervisor::set_command(Command command) {
  const std::lock_guard held(mutex_);
  command_ = std::move(command);
}

void Supervisor::stop() {
  if (!post([this] { stopping_ = true; })) return;
  pthread_join(thread_, nullptr);
}

namespace {

Mutex process_mutex;

struct Process {
  Supervisor* supervisor = nullptr;
  std::vector<Supervisor*>
      past;  // For ever: Enlistments may still point there.
  std::optional<Command> command;
};

Process& this_process() REQUIRES(process_mutex) {
  static auto* const process = new Process;  // Leaked: threads outlive main.
  return *process;
}

void enter_child() REQUIRES(process_mutex) {
  Process& process = this_process();
  if (process.supervisor == nullptr) return;
  process.supervisor->make_inert();
  process.past.push_back(std::exchange(process.supervisor, nullptr));
}

[[maybe_unused]] const bool kHeldAtFork =
    at_fork(ForkStep::kSupervisor, held_at_fork<process_mutex, enter_child>());

Supervisor& running_supervisor(Process& process) REQUIRES(process_mutex) {
  if (!process.command) {
    throw std::logic_error("configure_supervisor() comes first");
  }
  if (process.supervisor != nullptr && !process.supervisor->post([] {})) {
    process.past.push_back(std::exchange(process.supervisor, nullptr));
  }
  if (process.supervisor == nullptr) {
    process.supervisor = new Supervisor(*process.command);
  }
  return *process.supervisor;
}

}  // namespace

void configure_supervisor(Command command) {
  const MutexLock held(process_mutex);
  Process& process = this_process();
  if (process.supervisor != nullptr) process.supervisor->set_command(command);
  process.command = std::move(command);
}

std::unique_ptr<Enlistment> enlist(Crew* crew, const CrewSpec& spec) {
  const MutexLock held(process_mutex);
  Process& process = this_process();
  return running_supervisor(process).enlist(crew, spec);
}

void shutdown_supervisor() {
  Supervisor* supervisor = nullptr;
  {
    const MutexLock held(process_mutex);
    Process& process = this_process();
    supervisor = std::exchange(process.supervisor, nullptr);
    if (supervisor == nullptr) return;
    process.past.push_back(supervisor);
  }
  supervisor->stop();
}

Enlistment::~Enlistment() { dismiss(); }

void Enlistment::hire(int worker, uint32_t generation) {
  supervisor_->hire(id_, worker, generation);
}

void Enlistment::kill(int worker) { supervisor_->kill(id_, worker); }

void Enlistment::dismiss() {
  if (!std::exchange(dismissed_, true)) supervisor_->dismiss(id_);
}

}  // namespace gristmill
