// The Supervisor starts worker processes for any number of groups, and reports
// their starts and exits to the WorkerEvents of the group.
//
// It starts one launcher process for each list of modules that groups require.
// Groups without modules share any launcher that is ready.  A launcher imports
// the modules and forks one zygote per group, which forks the group's workers
// (spawn.hpp has the messages).  A process that ends makes its pidfd readable.
// When a zygote ends, its workers end, too, each reported by its own pidfd.
// The supervisor then starts another zygote, and requests all workers again
// that have not started yet.  When a launcher ends, its zygotes end, too.  When
// this process ends, the kernel kills all of them.
//
// Guarantee for a group: each start_worker() is followed by one on_started()
// and, when the worker is gone, one on_exited(), in this order, until
// on_failed() or dismiss().  on_failed() is called at most once, when no more
// workers can be started: the program cannot be loaded, a system call failed,
// the user closed our descriptors, or three zygotes have ended since the last
// start of a worker.
//
// Thread safety: any thread may call the public methods, which post tasks to
// the loop's thread.  All other functions run on that thread.
#pragma once

#include <atomic>
#include <compare>
#include <functional>
#include <map>

#include "core/processes/event_loop.hpp"
#include "core/processes/worker_group.hpp"

namespace gristmill {

class Supervisor {
 public:
  // `command` returns the command for the next launcher.
  explicit Supervisor(std::function<Command()> command);

  // See the functions of worker_group.hpp.
  void start_launcher(const Modules& modules);
  std::unique_ptr<WorkerGroup> open_group(WorkerEvents* events,
                                          const GroupSpec& spec);

  // Ends all processes, then the thread.
  void stop() { loop_.stop(); }
  // Returns false if the thread has ended: after stop(), or because the user
  // closed our descriptors.
  bool is_running() {
    return loop_.post([] {});
  }
  // Called in a forked child, where nothing may use this object from now on.
  void make_inert() noexcept { loop_.make_inert(); }

 private:
  friend class WorkerGroup;
  using Serial = EventLoop::Serial;
  using Shared = Channel::Shared;

  // Identifies a worker process.
  struct Key {
    int worker;
    uint32_t generation;
    auto operator<=>(const Key&) const = default;
  };
  struct Launcher {
    Fd pidfd;
    Channel channel;
    Serial pidfd_watch = 0;
    Serial channel_watch = 0;
    bool ready = false;  // Its modules are imported.
  };
  struct Request {
    Key key;
    bool sent = false;       // To the current zygote.
    bool must_kill = false;  // Kill the worker once it has started.
  };
  struct WorkerProcess {
    Fd pidfd;
    Serial pidfd_watch;
  };
  struct Group {
    WorkerEvents* events = nullptr;
    uint32_t id = 0;
    Modules modules;
    Shared setup, blob, arena, notify_fd;  // See kOpenGroup of spawn.hpp.
    std::vector<Shared> inherited;         // See kInherit.
    Launcher* launcher = nullptr;  // The zygote's; null after it exited.
    Serial notify_watch = 0;
    Channel channel;  // To the zygote.
    Serial channel_watch = 0;
    Fd zygote_pidfd;  // Empty until the launcher has sent it.
    Serial zygote_watch = 0;
    std::vector<Request> requests;  // For workers not started, oldest first.
    std::map<Key, WorkerProcess> workers;
    bool loads_in_workers = false;  // Each worker loads the program.
    // The zygote ends, and its successor lets each worker load the program.
    bool retiring = false;
    bool failed = false;    // on_failed() was called.
    int failed_starts = 0;  // Zygotes that ended since a worker started.
    std::string last_exit;  // How the last zygote ended; empty if unknown.
  };

  // All functions below run on the loop's thread.
  void add_group(std::unique_ptr<Group> new_group);
  Serial watch(Group& group, int fd, EventLoop::Task ready);
  // The last task of the loop: fail_all() if the user has closed our
  // descriptors, end_all() after stop().
  void fail_all();
  void end_all();

  Launcher& launcher_for(const Modules& modules);
  // Handles the messages that have arrived, and sends queued ones.
  void read_launcher_messages(Launcher& launcher);
  void on_launcher_exited(Launcher& launcher);
  void close_launcher(Launcher& launcher);

  void start_zygote(Group& group);
  // Sends queued messages.  If that fails, the group fails.
  void flush(Group& group, Channel& channel);
  // Sends the requests that the zygote has not got yet, once it has started.
  void send_requests(Group& group);
  // Handles the messages that have arrived, and sends queued ones.
  void read_zygote_messages(Group& group);
  void on_zygote_started(Group& group, Packet& packet);
  void on_zygote_exited(Group& group);
  void on_worker_started(Group& group, Key key, Packet& packet);
  void on_worker_exited(Group& group, Key key);
  void on_failed(Group& group, const Packet& packet);
  // Ends the zygote and its workers.
  void end_zygote(Group& group);
  // Ends the zygote and calls on_failed(), unless that was done before.
  void fail(Group& group, std::string why);
  Group* find(uint32_t id);  // Returns nullptr if it was dismissed.
  void drop(uint32_t id, bool may_leave);
  void await_leaving();

  const std::function<Command()> command_;
  std::atomic<uint32_t> last_id_{0};

  // Only the loop's thread touches these three.
  std::map<Modules, Launcher> launchers_;
  std::map<uint32_t, std::unique_ptr<Group>> groups_;
  // The launcher of each dismissed group whose workers may still leave.
  std::map<uint32_t, const Launcher*> leaving_;

  EventLoop loop_;  // Last, since its thread uses the other members.
};

}  // namespace gristmill
