#include "core/processes/supervisor.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace gristmill {
namespace {

// Zygotes in a row that end before a worker has started.
constexpr int kMostFailedStarts = 3;
constexpr uint32_t kBothWays = EPOLLIN | EPOLLOUT | EPOLLET;
constexpr auto kNoDescriptors =
    "this process has no descriptors left (ulimit -n)";

}  // namespace

Supervisor::Supervisor(Command command)
    : command_(std::move(command)),
      loop_([this] { end_all(); }, [this] { lose_all(); }) {}

std::unique_ptr<WorkerGroup> Supervisor::open_group(WorkerEvents* events,
                                                    const GroupSpec& spec) {
  // Shared, since a task can be copied.
  const auto made = std::make_shared<std::unique_ptr<Group>>(new Group);
  Group& group = **made;
  group.events = events;
  group.modules = spec.modules;
  group.setup = Channel::share(memfd_of(spec.setup));
  group.blob = Channel::share(copy_of(spec.blob_fd));
  group.arena = Channel::share(copy_of(spec.arena_fd));
  group.slot_requests = Channel::share(new_eventfd());
  const int slot_request_fd = group.slot_requests->get();
  {
    const MutexLock lock(mutex_);
    group.id = ++last_id_;
  }
  const uint32_t id = group.id;
  const bool posted = loop_.post([this, made] {
    Group& entered = **made;
    groups_.emplace(entered.id, std::move(*made));
    const int fd = entered.slot_requests->get();
    entered.slot_watch = watch(entered, fd, [&entered, fd] {
      if (silence(fd)) entered.events->on_slot_requested();
    });
    if (!entered.failed) start_zygote(entered);
  });
  if (!posted) throw std::logic_error("the supervisor was stopped meanwhile");
  return std::unique_ptr<WorkerGroup>(
      new WorkerGroup(this, id, slot_request_fd));
}

void Supervisor::start_worker(uint32_t id, int worker, uint32_t generation) {
  loop_.post([this, id, worker, generation] {
    const auto at = groups_.find(id);
    if (at == groups_.end() || at->second->failed) return;
    at->second->requests.push_back({{worker, generation}});
    send_requests(*at->second);
  });
}

void Supervisor::kill(uint32_t id, int worker) {
  loop_.post([this, id, worker] {
    const auto at = groups_.find(id);
    if (at == groups_.end()) return;
    for (auto& [key, live] : at->second->workers) {
      if (key.first == worker) kill_by(live.pidfd.get());
    }
    for (Request& request : at->second->requests) {
      if (request.key.first == worker) request.killed = true;
    }
  });
}

void Supervisor::dismiss(uint32_t id) {
  loop_.call([this, id] { drop(id); });
}

void Supervisor::set_command(Command command) {
  const MutexLock lock(mutex_);
  command_ = std::move(command);
}

// The user closed our descriptors.  Their numbers may be others' by now, so
// nothing is closed or signalled.
void Supervisor::lose_all() {
  for (auto& [id, group] : groups_) {
    if (std::exchange(group->failed, true)) continue;
    group->events->on_failed(
        "this process has closed the engine's descriptors");
  }
}

void Supervisor::end_all() {
  while (!groups_.empty()) drop(groups_.begin()->first);
  for (const auto& [modules, launcher] : launchers_) {
    kill_by(launcher.pidfd.get());
  }
  while (!launchers_.empty()) close_launcher(launchers_.begin()->second);
}

// Watches for input; a failure is the group's.
Supervisor::Serial Supervisor::watch(Group& group, int fd,
                                     EventLoop::Task ready) {
  try {
    return loop_.watch(fd, EPOLLIN, std::move(ready));
  } catch (const std::system_error& error) {
    fail(group, std::string("cannot watch workers: ") + error.what());
    return 0;
  }
}

// The launcher that has these modules, or will; it is started if there is none.
Supervisor::Launcher& Supervisor::launcher_for(const Modules& modules) {
  const auto at = launchers_.find(modules);
  if (at != launchers_.end()) return at->second;
  if (modules.empty()) {
    for (auto& [its_modules, launcher] : launchers_) {
      if (launcher.ready) return launcher;
    }
  }
  Command command;
  {
    const MutexLock lock(mutex_);
    command = command_;
  }
  auto [pidfd, channel] = launch(std::move(command), modules);
  Launcher& launcher = launchers_[modules];
  launcher.modules = modules;
  launcher.pidfd = std::move(pidfd);
  launcher.channel = std::move(channel);
  launcher.watch =
      loop_.watch(launcher.pidfd.get(), EPOLLIN,
                  [this, &launcher] { on_launcher_exited(launcher); });
  launcher.channel_watch =
      loop_.watch(launcher.channel.fd(), kBothWays,
                  [this, &launcher] { on_launcher_ready(launcher); });
  return launcher;
}

void Supervisor::on_launcher_ready(Launcher& launcher) {
  while (auto packet = launcher.channel.receive()) {
    if (packet->message.kind == Message::kReady) {
      launcher.ready = true;
      continue;
    }
    const auto at = groups_.find(packet->message.group);
    if (at != groups_.end()) on_launcher_message(*at->second, *packet);
  }
  if (launcher.channel.flush() != 0) kill_by(launcher.pidfd.get());
}

void Supervisor::on_launcher_message(Group& group, Packet& packet) {
  switch (packet.message.kind) {
    case Message::kZygote:
      on_zygote_started(group, packet);
      break;
    case Message::kGone:
      group.last_end = describe_wait_status(packet.message.value);
      break;
    case Message::kFailed:
      on_failed(group, packet);
      break;
    default:
      break;
  }
}

void Supervisor::on_launcher_exited(Launcher& launcher) {
  on_launcher_ready(launcher);  // Zygotes that it told of.
  // The others have their ends reported by their own pidfds.
  std::vector<Group*> unanswered;
  for (const auto& [id, group] : groups_) {
    if (group->launcher != &launcher) continue;
    group->launcher = nullptr;
    if (!group->zygote) unanswered.push_back(group.get());
  }
  close_launcher(launcher);
  for (Group* const group : unanswered) {
    group->last_end = "the launcher ended first";
    on_zygote_exited(*group);
  }
}

void Supervisor::close_launcher(Launcher& launcher) {
  loop_.unwatch(launcher.watch);
  loop_.unwatch(launcher.channel_watch);
  reap(launcher.pidfd.get());
  const Modules modules = launcher.modules;  // The key outlives its entry.
  launchers_.erase(modules);
}

void Supervisor::start_zygote(Group& group) {
  try {
    group.launcher = &launcher_for(group.modules);
    auto [near, far] = new_socket_pair();
    group.channel = Channel(std::move(near));
    group.channel_watch =
        loop_.watch(group.channel.fd(), kBothWays,
                    [this, &group] { on_zygote_ready(group); });
    Message message;
    message.kind = Message::kOpenGroup;
    message.group = group.id;
    message.value = group.late ? 1 : 0;
    Channel& channel = group.launcher->channel;
    channel.push(message, {Channel::share(std::move(far)), group.setup,
                           group.blob, group.arena, group.slot_requests});
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
  if (!group.zygote) return;
  for (Request& request : group.requests) {
    if (std::exchange(request.sent, true)) continue;
    Message message;
    message.kind = Message::kStartWorker;
    message.worker = request.key.first;
    message.generation = request.key.second;
    group.channel.push(message);
  }
  flush(group, group.channel);
}

void Supervisor::on_zygote_ready(Group& group) {
  while (auto packet = group.channel.receive()) {
    const Message& message = packet->message;
    const Key key{message.worker, message.generation};
    switch (message.kind) {
      case Message::kStarted:
        on_worker_started(group, key, *packet);
        break;
      case Message::kExited:
        on_worker_exited(group, key);  // Its pidfd may not have been seen yet.
        group.events->on_exit_status(key.first, key.second, message.value);
        break;
      case Message::kThreads:
        group.late = group.retiring = true;
        break;
      case Message::kFailed:
        on_failed(group, *packet);
        break;
      default:
        break;
    }
  }
  flush(group, group.channel);
}

void Supervisor::on_zygote_started(Group& group, Packet& packet) {
  if (packet.fds.empty()) return fail(group, kNoDescriptors);
  group.zygote = std::move(packet.fds[0]);
  group.zygote_watch = watch(group, group.zygote.get(),
                             [this, &group] { on_zygote_exited(group); });
  send_requests(group);
}

void Supervisor::on_zygote_exited(Group& group) {
  on_zygote_ready(group);  // What it said last.
  loop_.unwatch(group.channel_watch);
  loop_.unwatch(group.zygote_watch);
  group.channel = Channel();
  group.zygote = Fd();
  for (Request& request : group.requests) request.sent = false;
  if (group.failed) return;
  if (!std::exchange(group.retiring, false) &&
      ++group.failed_starts >= kMostFailedStarts) {
    fail(group, "the process that starts the workers ended " +
                    std::to_string(group.failed_starts) +
                    " times before a worker had started; last: " +
                    (group.last_end.empty() ? "unknown" : group.last_end) +
                    ". Its own messages are on this process's stderr");
    return;
  }
  start_zygote(group);
}

void Supervisor::on_worker_started(Group& group, Key key, Packet& packet) {
  const auto asked = std::ranges::find(group.requests, key, &Request::key);
  if (asked == group.requests.end()) return;
  if (packet.fds.empty()) return fail(group, kNoDescriptors);
  const bool killed = asked->killed;
  group.requests.erase(asked);
  group.failed_starts = 0;
  const int pidfd = packet.fds[0].get();
  const Serial serial = watch(
      group, pidfd, [this, &group, key] { on_worker_exited(group, key); });
  group.workers.emplace(key, Live{std::move(packet.fds[0]), serial});
  group.events->on_started(key.first, key.second, packet.message.value);
  if (killed) kill_by(pidfd);
}

void Supervisor::on_worker_exited(Group& group, Key key) {
  const auto at = group.workers.find(key);
  if (at == group.workers.end()) return;
  loop_.unwatch(at->second.watch);
  group.workers.erase(at);
  group.events->on_exited(key.first, key.second);
}

void Supervisor::on_failed(Group& group, const Packet& packet) {
  if (!packet.fds.empty()) fail(group, text_of(packet.fds[0].get()));
}

void Supervisor::end_zygote(Group& group) {
  if (group.zygote) {
    kill_by(group.zygote.get());
  } else if (group.launcher != nullptr) {
    Message message;
    message.kind = Message::kForget;
    message.group = group.id;
    Launcher& launcher = *group.launcher;
    launcher.channel.push(message);
    if (launcher.channel.flush() != 0) kill_by(launcher.pidfd.get());
  }
}

void Supervisor::fail(Group& group, std::string why) {
  if (std::exchange(group.failed, true)) return;
  group.requests.clear();
  end_zygote(group);
  group.events->on_failed(std::move(why));
}

void Supervisor::drop(uint32_t id) {
  const auto at = groups_.find(id);
  if (at == groups_.end()) return;
  Group& group = *at->second;
  end_zygote(group);
  for (auto& [key, live] : group.workers) {
    kill_by(live.pidfd.get());
    loop_.unwatch(live.watch);
  }
  loop_.unwatch(group.channel_watch);
  loop_.unwatch(group.zygote_watch);
  loop_.unwatch(group.slot_watch);
  groups_.erase(at);
}

}  // namespace gristmill
