// The Supervisor itself; supervise.hpp is what others see of it.
//
// Thread safety: the public methods may be called from any thread and hand over
// to the supervisor thread, on which all else runs.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/processes/spawn.hpp"
#include "core/processes/supervise.hpp"
#include "core/schedule/crew.hpp"

namespace gristmill {

class Supervisor {
 public:
  explicit Supervisor(Command command);

  std::unique_ptr<Enlistment> enlist(Crew* crew, const CrewSpec& spec);
  void hire(uint32_t id, int worker, uint32_t generation);
  void kill(uint32_t id, int worker);
  void dismiss(uint32_t id);
  void set_command(Command command);
  void stop();

  // Has the supervisor thread run a task; false if there is no such thread.
  bool post(std::function<void()> task);

  // In a forked child: nothing of this object may be touched from now on.
  void make_inert() noexcept { inert_.store(true, std::memory_order_relaxed); }

 private:
  using Task = std::function<void()>;
  using Key = std::pair<int, uint32_t>;  // Worker, generation.
  using Shared = Channel::Shared;

  struct Watch {
    int fd;
    Task ready;
  };
  // A descriptor in epoll.  Serials are never used twice, so an event that was
  // fetched before its descriptor left finds nothing.
  using Serial = uint64_t;

  struct Launcher {
    Modules modules;
    Fd pidfd;
    Channel channel;
    Serial watch = 0;
    Serial channel_watch = 0;
    bool ready = false;  // Its modules are imported.
  };
  struct Hire {
    Key key;
    bool sent = false;    // To the zygote there is now.
    bool doomed = false;  // To be killed once born.
  };
  struct Live {
    Fd pidfd;
    Serial watch;
  };
  struct Team {
    uint32_t id = 0;
    Crew* crew = nullptr;
    Modules modules;
    Launcher* launcher = nullptr;  // That of the zygote, while it lives.
    Shared setup, blob, arena, knock;
    Serial knock_watch = 0;
    Channel channel;
    Serial channel_watch = 0;
    Fd zygote;  // Its pidfd, once the launcher has sent it.
    Serial zygote_watch = 0;
    std::vector<Hire> hires;  // That have borne no worker, oldest first.
    std::map<Key, Live> workers;
    bool late = false;      // Workers load after their own fork.
    bool retiring = false;  // The zygote ends because it was not late.
    bool failed = false;
    int barren = 0;  // Zygotes that ended since the last birth.
    std::string last_end;
  };

  // Runs on any thread.
  void call(Task task);
  void forsake();

  // All below runs on the supervisor thread.
  void run();
  void abandon();
  void run_tasks();
  Serial watch(int fd, uint32_t events, Task ready);
  Serial watch_for(Team& team, int fd, Task ready);
  void unwatch(Serial serial);

  Launcher& launcher_for(const Modules& modules);
  void launcher_said(Launcher& launcher);
  void launcher_ended(Launcher& launcher);
  void close_launcher(Launcher& launcher);

  void open(Team& team);
  void flush(Team& team, Channel& channel);
  void send_hires(Team& team);
  void team_ready(Team& team);
  void zygote_began(Team& team, Fd pidfd);
  void zygote_ended(Team& team);
  void worker_born(Team& team, Key key, int pid, std::vector<Fd>& fds);
  void worker_ended(Team& team, Key key);
  void end_zygote(Team& team);
  void fail(Team& team, std::string why);
  void drop(uint32_t id);

  std::atomic<bool> inert_{false};
  const Fd epoll_;
  const Fd control_;
  pthread_t thread_{};

  std::mutex mutex_;  // Guards the five below.
  std::vector<Task> tasks_;
  bool stopped_ = false;
  bool closed_ = false;  // The user closed control_.
  Command command_;
  uint32_t last_id_ = 0;

  std::mutex events_mutex_;  // Held while events are dealt with.
  bool abandoned_ = false;   // Guarded by it: no event is dealt with any more.

  // Touched by the supervisor thread only.
  std::unordered_map<Serial, std::shared_ptr<const Watch>> watches_;
  Serial last_serial_ = 0;
  bool stopping_ = false;
  std::map<Modules, Launcher> launchers_;
  std::map<uint32_t, std::unique_ptr<Team>> teams_;
};

}  // namespace gristmill
