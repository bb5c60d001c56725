#include "core/processes/supervisor.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>

namespace gristmill {
namespace {

constexpr int kMostBarren = 3;

}  // namespace

void Supervisor::run() {
  std::vector<epoll_event> events(64);
  while (!stopping_) {
    const int n = epoll_wait(epoll_.get(), events.data(),
                             static_cast<int>(events.size()), -1);
    const std::lock_guard held(events_mutex_);
    if (abandoned_) return;
    if (n < 0 && errno != EINTR) return abandon();
    for (int i = 0; i < n; ++i) {
      const auto at =
          watches_.find(events[static_cast<std::size_t>(i)].data.u64);
      if (at == watches_.end()) continue;
      const auto kept = at->second;  // It may leave while it runs.
      kept->ready();
    }
  }
  {
    const std::lock_guard held(mutex_);
    stopped_ = true;
  }
  run_tasks();  // Whoever waits for one is released.
  while (!teams_.empty()) drop(teams_.begin()->first);
  for (const auto& [modules, launcher] : launchers_) {
    kill_by(launcher.pidfd.get());
  }
  while (!launchers_.empty()) close_launcher(launchers_.begin()->second);
}

// The user closed our descriptors.  Their numbers may be others' by now, so
// nothing is closed or signalled.
void Supervisor::abandon() {
  for (auto& [id, team] : teams_) {
    if (!std::exchange(team->failed, true)) {
      team->crew->failed("this process has closed the engine's descriptors");
    }
  }
  std::vector<Task> tasks;  // Whoever waits for one is released.
  const std::lock_guard held(mutex_);
  stopped_ = true;
  tasks.swap(tasks_);
}

void Supervisor::run_tasks() {
  silence(control_.get());
  std::vector<Task> tasks;
  {
    const std::lock_guard held(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

Supervisor::Serial Supervisor::watch(int fd, uint32_t events, Task ready) {
  const Serial serial = ++last_serial_;
  epoll_event event{};
  event.events = events;
  event.data.u64 = serial;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }
  watches_.emplace(serial,
                   std::make_shared<const Watch>(Watch{fd, std::move(ready)}));
  return serial;
}

// As watch(), but a failure is the team's.
Supervisor::Serial Supervisor::watch_for(Team& team, int fd, Task ready) {
  try {
    return watch(fd, EPOLLIN, std::move(ready));
  } catch (const std::system_error& error) {
    fail(team, std::string("cannot watch workers: ") + error.what());
    return 0;
  }
}

void Supervisor::unwatch(Serial serial) {
  const auto at = watches_.find(serial);
  if (at == watches_.end()) return;
  // A close alone does not do it: a child the user forked may hold a copy.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, at->second->fd, nullptr);
  watches_.erase(at);
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
    const std::lock_guard held(mutex_);
    command = command_;
  }
  auto [pidfd, channel] = launch(std::move(command), modules);
  Launcher& launcher = launchers_[modules];
  launcher.modules = modules;
  launcher.pidfd = std::move(pidfd);
  launcher.channel = std::move(channel);
  launcher.watch = watch(launcher.pidfd.get(), EPOLLIN,
                         [this, &launcher] { launcher_ended(launcher); });
  launcher.channel_watch =
      watch(launcher.channel.fd(), EPOLLIN | EPOLLOUT | EPOLLET,
            [this, &launcher] { launcher_said(launcher); });
  return launcher;
}

void Supervisor::launcher_said(Launcher& launcher) {
  while (auto packet = launcher.channel.receive()) {
    if (packet->message.kind == Message::kReady) {
      launcher.ready = true;
      continue;
    }
    const auto at = teams_.find(packet->message.crew);
    if (at == teams_.end()) continue;
    Team& team = *at->second;
    switch (packet->message.kind) {
      case Message::kZygote:
        if (!packet->fds.empty()) {
          zygote_began(team, std::move(packet->fds[0]));
        } else {
          fail(team, "this process has no descriptors left (ulimit -n)");
        }
        break;
      case Message::kGone:
        team.last_end = describe_wait_status(packet->message.value);
        break;
      case Message::kFailed:
        if (!packet->fds.empty()) fail(team, text_of(packet->fds[0].get()));
        break;
      default:
        break;
    }
  }
  if (launcher.channel.flush() != 0) kill_by(launcher.pidfd.get());
}

void Supervisor::launcher_ended(Launcher& launcher) {
  launcher_said(launcher);  // Zygotes that it told of.
  // The others have their deaths reported by their own pidfds.
  std::vector<Team*> unanswered;
  for (const auto& [id, team] : teams_) {
    if (team->launcher != &launcher) continue;
    team->launcher = nullptr;
    if (!team->zygote) unanswered.push_back(team.get());
  }
  close_launcher(launcher);
  for (Team* const team : unanswered) {
    team->last_end = "the launcher ended first";
    zygote_ended(*team);
  }
}

void Supervisor::close_launcher(Launcher& launcher) {
  unwatch(launcher.watch);
  unwatch(launcher.channel_watch);
  reap(launcher.pidfd.get());
  const Modules modules = launcher.modules;  // The key outlives its entry.
  launchers_.erase(modules);
}

void Supervisor::open(Team& team) {
  try {
    team.launcher = &launcher_for(team.modules);
    auto [near, far] = new_socket_pair();
    team.channel = Channel(std::move(near));
    team.channel_watch = watch(team.channel.fd(), EPOLLIN | EPOLLOUT | EPOLLET,
                               [this, &team] { team_ready(team); });
    Message message;
    message.kind = Message::kEnlist;
    message.crew = team.id;
    message.value = team.late ? 1 : 0;
    Channel& channel = team.launcher->channel;
    channel.push(message, {Channel::share(std::move(far)), team.setup,
                           team.blob, team.arena, team.knock});
    flush(team, channel);
  } catch (const std::system_error& error) {
    fail(team, std::string("cannot start workers: ") + error.what());
  }
}

void Supervisor::flush(Team& team, Channel& channel) {
  if (const int error = channel.flush(); error != 0) {
    fail(team, std::string("cannot reach the workers' launcher: ") +
                   std::strerror(error));
  }
}

void Supervisor::send_hires(Team& team) {
  if (!team.zygote) return;
  for (Hire& hire : team.hires) {
    if (std::exchange(hire.sent, true)) continue;
    Message message;
    message.kind = Message::kHire;
    message.worker = hire.key.first;
    message.generation = hire.key.second;
    team.channel.push(message);
  }
  flush(team, team.channel);
}

void Supervisor::team_ready(Team& team) {
  while (auto packet = team.channel.receive()) {
    const Message& message = packet->message;
    const Key key{message.worker, message.generation};
    switch (message.kind) {
      case Message::kBorn:
        worker_born(team, key, packet->message.value, packet->fds);
        break;
      case Message::kDied:
        worker_ended(team, key);  // Its pidfd may not have been seen yet.
        team.crew->how(key.first, key.second, message.value);
        break;
      case Message::kThreads:
        team.late = team.retiring = true;
        break;
      case Message::kFailed:
        if (!packet->fds.empty()) fail(team, text_of(packet->fds[0].get()));
        break;
      default:
        break;
    }
  }
  flush(team, team.channel);
}

void Supervisor::zygote_began(Team& team, Fd pidfd) {
  team.zygote = std::move(pidfd);
  team.zygote_watch =
      watch_for(team, team.zygote.get(), [this, &team] { zygote_ended(team); });
  send_hires(team);
}

void Supervisor::zygote_ended(Team& team) {
  team_ready(team);  // What it said last.
  unwatch(team.channel_watch);
  unwatch(team.zygote_watch);
  team.channel = Channel();
  team.zygote = Fd();
  for (Hire& hire : team.hires) hire.sent = false;
  if (team.failed) return;
  if (!std::exchange(team.retiring, false) && ++team.barren >= kMostBarren) {
    fail(team, "the process that starts the workers ended " +
                   std::to_string(team.barren) +
                   " times before a worker had started; last: " +
                   (team.last_end.empty() ? "unknown" : team.last_end) +
                   ". Its own messages are on this process's stderr");
    return;
  }
  open(team);
}

void Supervisor::worker_born(Team& team, Key key, int pid,
                             std::vector<Fd>& fds) {
  const auto hired = std::ranges::find(team.hires, key, &Hire::key);
  if (hired == team.hires.end()) return;
  if (fds.empty()) {
    fail(team, "this process has no descriptors left (ulimit -n)");
    return;
  }
  const bool doomed = hired->doomed;
  team.hires.erase(hired);
  team.barren = 0;
  const int pidfd = fds[0].get();
  const Serial serial =
      watch_for(team, pidfd, [this, &team, key] { worker_ended(team, key); });
  team.workers.emplace(key, Live{std::move(fds[0]), serial});
  team.crew->born(key.first, key.second, pid);
  if (doomed) kill_by(pidfd);
}

void Supervisor::worker_ended(Team& team, Key key) {
  const auto at = team.workers.find(key);
  if (at == team.workers.end()) return;
  unwatch(at->second.watch);
  team.workers.erase(at);
  team.crew->died(key.first, key.second);
}

void Supervisor::end_zygote(Team& team) {
  if (team.zygote) {
    kill_by(team.zygote.get());
  } else if (team.launcher != nullptr) {
    Message message;
    message.kind = Message::kForget;
    message.crew = team.id;
    Launcher& launcher = *team.launcher;
    launcher.channel.push(message);
    if (launcher.channel.flush() != 0) kill_by(launcher.pidfd.get());
  }
}

void Supervisor::fail(Team& team, std::string why) {
  if (std::exchange(team.failed, true)) return;
  team.hires.clear();
  end_zygote(team);
  team.crew->failed(std::move(why));
}

void Supervisor::drop(uint32_t id) {
  const auto at = teams_.find(id);
  if (at == teams_.end()) return;
  Team& team = *at->second;
  end_zygote(team);
  for (auto& [key, live] : team.workers) {
    kill_by(live.pidfd.get());
    unwatch(live.watch);
  }
  unwatch(team.channel_watch);
  unwatch(team.zygote_watch);
  unwatch(team.knock_watch);
  teams_.erase(at);
}

}  // namespace gristmill
