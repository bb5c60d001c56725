#include "core/processes/supervisor.hpp"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace gristmill {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::duration_cast;
using std::chrono::milliseconds;

// A group fails after this many zygotes in a row that end before a worker has
// started.
constexpr int kMaxFailedStarts = 3;
// A little longer than the time that zygotes wait for workers to leave.
constexpr milliseconds kMaxLeaveTime{1200};
// Edge-triggered, since a socket is almost always writable: each event is
// handled until receive() and flush() have nothing left to do.
constexpr uint32_t kBothWays = EPOLLIN | EPOLLOUT | EPOLLET;
constexpr auto kNoDescriptors =
    "this process has no file descriptors left; raise its limit (ulimit -n) or "
    "close files";

}  // namespace

Supervisor::Supervisor(std::function<Command()> command)
    : command_(std::move(command)),
      loop_([this] { end_all(); }, [this] { fail_all(); }) {}

void Supervisor::start_launcher(const Modules& modules) {
  loop_.post([this, modules] {
    try {
      launcher_for(modules);
    } catch (const std::system_error&) {
      // The group that needs the launcher tries again and reports the error.
    }
  });
}

std::unique_ptr<WorkerGroup> Supervisor::open_group(WorkerEvents* events,
                                                    const GroupSpec& spec) {
  // Shared, since tasks must be copyable.
  const auto owned = std::make_shared<std::unique_ptr<Group>>(new Group);
  Group& group = **owned;
  group.events = events;
  group.id = ++last_id_;
  group.modules = spec.modules;
  group.setup = Channel::share(memfd_of(spec.setup));
  group.blob = Channel::share(copy_of(spec.blob_fd));
  group.arena = Channel::share(copy_of(spec.arena_fd));
  group.notify_fd = Channel::share(new_eventfd());
  for (const int fd : spec.inherited) {
    group.inherited.push_back(Channel::share(copy_of(fd)));
  }
  std::unique_ptr<WorkerGroup> workers(
      new WorkerGroup(this, group.id, group.notify_fd->get()));
  if (!loop_.post([this, owned] { add_group(std::move(*owned)); })) {
    throw std::logic_error(
        "the supervisor was stopped while it started workers; start no workers "
        "while this process exits");
  }
  return workers;
}

void Supervisor::add_group(std::unique_ptr<Group> new_group) {
  Group& group = *new_group;
  groups_.emplace(group.id, std::move(new_group));
  const int fd = group.notify_fd->get();
  group.notify_watch = watch(group, fd, [&group, fd] {
    if (drain_eventfd(fd)) group.events->on_worker_notified();
  });
  if (!group.failed) start_zygote(group);
}

// WorkerGroup is defined here because it uses private parts of the Supervisor.
void WorkerGroup::start_worker(int worker, uint32_t generation) {
  supervisor_->loop_.post(
      [supervisor = supervisor_, id = id_, worker, generation] {
        Supervisor::Group* const group = supervisor->find(id);
        if (group == nullptr || group->failed) return;
        group->requests.push_back({{worker, generation}});
        supervisor->send_requests(*group);
      });
}

void WorkerGroup::kill(int worker) {
  supervisor_->loop_.post([supervisor = supervisor_, id = id_, worker] {
    Supervisor::Group* const group = supervisor->find(id);
    if (group == nullptr) return;
    for (auto& [key, process] : group->workers) {
      if (key.worker == worker) kill_process(process.pidfd.get());
    }
    for (auto& request : group->requests) {
      request.must_kill |= request.key.worker == worker;
    }
  });
}

void WorkerGroup::dismiss() {
  if (std::exchange(dismissed_, true)) return;
  supervisor_->loop_.call(
      [supervisor = supervisor_, id = id_] { supervisor->drop(id, true); });
}

// Fails all groups after the user has closed our descriptors.  Their numbers
// may have been reused, so this closes and signals nothing.
void Supervisor::fail_all() {
  for (auto& [id, group] : groups_) {
    if (std::exchange(group->failed, true)) continue;
    group->events->on_failed(
        "this process closed the engine's file descriptors; close only those "
        "that your code opened (os.closerange() closes all)");
  }
}

void Supervisor::end_all() {
  while (!groups_.empty()) drop(groups_.begin()->first, false);
  await_leaving();
  for (const auto& [modules, launcher] : launchers_) {
    kill_process(launcher.pidfd.get());
  }
  while (!launchers_.empty()) close_launcher(launchers_.begin()->second);
}

// Waits a limited time for the workers of dismissed groups to leave.
void Supervisor::await_leaving() {
  const auto deadline = Clock::now() + kMaxLeaveTime;
  while (!leaving_.empty()) {
    std::vector<pollfd> channels;
    for (const auto& [modules, launcher] : launchers_) {
      channels.push_back({launcher.channel.fd(), POLLIN, 0});
    }
    const auto remaining = duration_cast<milliseconds>(deadline - Clock::now());
    if (remaining.count() <= 0) return;
    poll(channels.data(), channels.size(), static_cast<int>(remaining.count()));
    for (auto& [modules, launcher] : launchers_) {
      read_launcher_messages(launcher);
    }
    const auto is_closed = [](const pollfd& channel) {
      return (channel.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
    };
    if (std::ranges::any_of(channels, is_closed)) return;
  }
}

// Watches a descriptor for input.  If that fails, the group fails.
Supervisor::Serial Supervisor::watch(Group& group, int fd,
                                     EventLoop::Task ready) {
  try {
    return loop_.watch(fd, EPOLLIN, std::move(ready));
  } catch (const std::system_error& error) {
    fail(group, std::string("cannot watch workers: ") + error.what());
    return 0;
  }
}

// Returns the launcher that has imported these modules or will import them.
// Starts one if necessary.
Supervisor::Launcher& Supervisor::launcher_for(const Modules& modules) {
  const auto at = launchers_.find(modules);
  if (at != launchers_.end()) return at->second;
  if (modules.empty()) {
    for (auto& [its_modules, launcher] : launchers_) {
      if (launcher.ready) return launcher;
    }
  }
  Command command = command_();
  command.argv.insert(command.argv.end(), modules.begin(), modules.end());
  auto [near, far] = new_socket_pair();
  Fd pidfd = run(command, far.get());
  Launcher& launcher = launchers_[modules];
  launcher.pidfd = std::move(pidfd);
  launcher.channel = Channel(std::move(near));
  launcher.pidfd_watch =
      loop_.watch(launcher.pidfd.get(), EPOLLIN,
                  [this, &launcher] { on_launcher_exited(launcher); });
  launcher.channel_watch =
      loop_.watch(launcher.channel.fd(), kBothWays,
                  [this, &launcher] { read_launcher_messages(launcher); });
  return launcher;
}

void Supervisor::read_launcher_messages(Launcher& launcher) {
  while (auto packet = launcher.channel.receive()) {
    const Message& message = packet->message;
    if (message.kind == Message::kReady) launcher.ready = true;
    if (message.kind == Message::kGone) leaving_.erase(message.group);
    Group* const group = find(message.group);
    if (group == nullptr) continue;
    if (message.kind == Message::kZygote) {
      on_zygote_started(*group, *packet);
    } else if (message.kind == Message::kGone) {
      group->last_exit = describe_wait_status(message.value);
    } else if (message.kind == Message::kFailed) {
      on_failed(*group, *packet);
    }
  }
  if (launcher.channel.flush() != 0) kill_process(launcher.pidfd.get());
}

void Supervisor::on_launcher_exited(Launcher& launcher) {
  read_launcher_messages(launcher);  // The last ones, about zygotes.
  // Zygotes with a pidfd report their own ends.
  std::vector<Group*> without_zygote;
  for (const auto& [id, group] : groups_) {
    if (group->launcher != &launcher) continue;
    group->launcher = nullptr;
    if (!group->zygote_pidfd) without_zygote.push_back(group.get());
  }
  std::erase_if(leaving_,
                [&](const auto& entry) { return entry.second == &launcher; });
  close_launcher(launcher);
  for (Group* const group : without_zygote) {
    group->last_exit = "the launcher exited before the process started";
    on_zygote_exited(*group);
  }
}

void Supervisor::close_launcher(Launcher& launcher) {
  loop_.unwatch(launcher.pidfd_watch);
  loop_.unwatch(launcher.channel_watch);
  reap(launcher.pidfd.get());
  std::erase_if(launchers_,
                [&](auto& entry) { return &entry.second == &launcher; });
}

void Supervisor::start_zygote(Group& group) {
  try {
    group.launcher = &launcher_for(group.modules);
    auto [near, far] = new_socket_pair();
    group.channel = Channel(std::move(near));
    group.channel_watch =
        loop_.watch(group.channel.fd(), kBothWays,
                    [this, &group] { read_zygote_messages(group); });
    Channel& channel = group.launcher->channel;
    for (auto at = group.inherited.begin(); at != group.inherited.end();) {
      const auto remaining =
          static_cast<std::size_t>(group.inherited.end() - at);
      const auto end = at + static_cast<long>(std::min(remaining, kMaxFds));
      channel.push({.kind = Message::kInherit, .group = group.id}, {at, end});
      at = end;
    }
    channel.push({.kind = Message::kOpenGroup,
                  .group = group.id,
                  .value = group.loads_in_workers ? 1 : 0},
                 {Channel::share(std::move(far)), group.setup, group.blob,
                  group.arena, group.notify_fd});
    flush(group, channel);
  } catch (const std::system_error& error) {
    fail(group, std::string("cannot start workers: ") + error.what());
  }
}

void Supervisor::flush(Group& group, Channel& channel) {
  if (const int error = channel.flush(); error != 0) {
    fail(group, std::string("cannot reach the workers' launcher: ") +
                    std::strerror(error));
  }
}

void Supervisor::send_requests(Group& group) {
  if (!group.zygote_pidfd) return;
  for (Request& request : group.requests) {
    if (std::exchange(request.sent, true)) continue;
    group.channel.push({.kind = Message::kStartWorker,
                        .worker = request.key.worker,
                        .generation = request.key.generation});
  }
  flush(group, group.channel);
}

void Supervisor::read_zygote_messages(Group& group) {
  while (auto packet = group.channel.receive()) {
    const Message& message = packet->message;
    const Key key{message.worker, message.generation};
    if (message.kind == Message::kStarted) {
      on_worker_started(group, key, *packet);
    } else if (message.kind == Message::kExited) {
      on_worker_exited(group, key);  // Its pidfd's event may come later.
      group.events->on_exit_status(key.worker, key.generation, message.value);
    } else if (message.kind == Message::kLoadInWorkers) {
      group.loads_in_workers = group.retiring = true;
    } else if (message.kind == Message::kFailed) {
      on_failed(group, *packet);
    }
  }
  flush(group, group.channel);
}

void Supervisor::on_zygote_started(Group& group, Packet& packet) {
  if (packet.fds.empty()) return fail(group, kNoDescriptors);
  group.zygote_pidfd = std::move(packet.fds[0]);
  group.zygote_watch = watch(group, group.zygote_pidfd.get(),
                             [this, &group] { on_zygote_exited(group); });
  send_requests(group);
}

void Supervisor::on_zygote_exited(Group& group) {
  read_zygote_messages(group);  // The last ones.
  loop_.unwatch(group.channel_watch);
  loop_.unwatch(group.zygote_watch);
  group.channel = Channel();
  group.zygote_pidfd = Fd();
  for (Request& request : group.requests) request.sent = false;
  if (group.failed) return;
  if (!std::exchange(group.retiring, false) &&
      ++group.failed_starts >= kMaxFailedStarts) {
    fail(group, "the process that starts the workers ended " +
                    std::to_string(group.failed_starts) +
                    " times before a worker had started; last: " +
                    (group.last_exit.empty() ? "unknown" : group.last_exit) +
                    ". Its own messages are on this process's stderr; if there "
                    "are none, the system may have killed it for memory");
    return;
  }
  start_zygote(group);
}

void Supervisor::on_worker_started(Group& group, Key key, Packet& packet) {
  const auto request = std::ranges::find(group.requests, key, &Request::key);
  // fail() has removed the request and ended the zygote, and so this worker.
  if (request == group.requests.end()) return;
  if (packet.fds.empty()) return fail(group, kNoDescriptors);
  const bool must_kill = request->must_kill;
  group.requests.erase(request);
  group.failed_starts = 0;
  const int pidfd = packet.fds[0].get();
  const Serial serial = watch(
      group, pidfd, [this, &group, key] { on_worker_exited(group, key); });
  group.workers.emplace(key, WorkerProcess{std::move(packet.fds[0]), serial});
  group.events->on_started(key.worker, key.generation, packet.message.value);
  if (must_kill) kill_process(pidfd);
}

void Supervisor::on_worker_exited(Group& group, Key key) {
  const auto at = group.workers.find(key);
  if (at == group.workers.end()) return;
  loop_.unwatch(at->second.pidfd_watch);
  group.workers.erase(at);
  group.events->on_exited(key.worker, key.generation);
}

void Supervisor::on_failed(Group& group, const Packet& packet) {
  if (!packet.fds.empty()) fail(group, text_of(packet.fds[0].get()));
}

void Supervisor::end_zygote(Group& group) {
  if (group.zygote_pidfd) {
    kill_process(group.zygote_pidfd.get());
  } else if (group.launcher != nullptr) {
    Launcher& launcher = *group.launcher;
    launcher.channel.push({.kind = Message::kForget, .group = group.id});
    if (launcher.channel.flush() != 0) kill_process(launcher.pidfd.get());
  }
}

void Supervisor::fail(Group& group, std::string why) {
  if (std::exchange(group.failed, true)) return;
  group.requests.clear();
  end_zygote(group);
  group.events->on_failed(std::move(why));
}

Supervisor::Group* Supervisor::find(uint32_t id) {
  const auto at = groups_.find(id);
  return at != groups_.end() ? at->second.get() : nullptr;
}

// Removes a group.  `may_leave` is true if its workers were asked to leave, so
// that they need not be killed immediately.
void Supervisor::drop(uint32_t id, bool may_leave) {
  Group* const group = find(id);
  if (group == nullptr) return;
  loop_.unwatch(group->channel_watch);
  loop_.unwatch(group->zygote_watch);
  loop_.unwatch(group->notify_watch);
  for (auto& [key, process] : group->workers)
    loop_.unwatch(process.pidfd_watch);
  may_leave &=
      group->zygote_pidfd && group->launcher != nullptr && !group->failed;
  if (may_leave && !group->workers.empty()) {
    // The zygote detects that its channel is closed, and waits for its workers.
    leaving_.emplace(id, group->launcher);
  } else {
    end_zygote(*group);
    for (auto& [key, process] : group->workers) {
      kill_process(process.pidfd.get());
    }
  }
  groups_.erase(id);
}

}  // namespace gristmill
