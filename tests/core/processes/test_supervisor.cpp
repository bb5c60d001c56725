// Tests core/processes/worker_group.hpp with another launcher: this program
// runs again as the launcher and forks zygotes and workers.  The setup text
// selects their behavior.
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "core/processes/worker_group.hpp"

namespace {

using namespace gristmill;

// The launcher.

struct Child {
  pid_t pid;
  Fd pidfd;
  Message about;
};

void send(Channel& channel, const Message& message, Fd fd = Fd()) {
  std::vector<Channel::Shared> fds;
  if (fd) fds.push_back(Channel::share(std::move(fd)));
  channel.push(message, std::move(fds));
  CHECK_EQ(channel.flush(), 0);
}

// A system call, because the atfork handlers of fork() would close the
// descriptors.
pid_t bare_fork() {
  return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
}

Fd pidfd_of(pid_t pid) {
  constexpr long kPidfdOpen = 434;
  return Fd(static_cast<int>(syscall(kPidfdOpen, pid, 0)));
}

// Forks for every message of kind `order` until the peer is gone.  Reports each
// start and end by messages of the kinds `began` and `ended`.
void fork_on(Message::Kind order, Message::Kind began, Message::Kind ended,
             Channel& channel, const std::function<void(Packet&)>& run) {
  std::vector<Child> children;
  for (;;) {
    std::vector<pollfd> waiting;
    for (const auto& child : children) {
      waiting.push_back({child.pidfd.get(), POLLIN, 0});
    }
    waiting.push_back({channel.fd(), POLLIN, 0});
    poll(waiting.data(), waiting.size(), -1);
    for (std::size_t i = children.size(); i-- > 0;) {
      if (waiting[i].revents == 0) continue;
      Message message = children[i].about;
      message.kind = ended;
      waitpid(children[i].pid, &message.value, 0);
      send(channel, message);
      children.erase(children.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (waiting.back().revents == 0) continue;
    auto packet = channel.receive();
    if (!packet) return;
    if (packet->message.kind == Message::kForget) {
      for (const auto& child : children) {
        if (child.about.group == packet->message.group) {
          kill_process(child.pidfd.get());
        }
      }
    }
    if (packet->message.kind != order) continue;
    const pid_t parent = getpid();
    const pid_t pid = bare_fork();
    if (pid == 0) {
      die_with_parent(parent);
      run(*packet);
      _exit(0);
    }
    children.push_back({pid, pidfd_of(pid), packet->message});
    Message message = packet->message;
    message.kind = began;
    message.value = pid;
    send(channel, message, pidfd_of(pid));
  }
}

// Returns the number of earlier zygotes, which the arena counts.
int count_zygote(int arena) {
  const auto before = text_of(arena).size();
  CHECK_EQ(pwrite(arena, "z", 1, static_cast<off_t>(before)), 1);
  return static_cast<int>(before);
}

void be_zygote(Packet& order) {
  Channel channel(std::move(order.fds[0]));
  const std::string setup = text_of(order.fds[1].get());
  const int before = count_zygote(order.fds[3].get());
  const int notify_fd = order.fds[4].get();
  Message message;
  if (setup == "end") _exit(3);
  if (setup == "end once" && before == 0) {
    pollfd asked{channel.fd(), POLLIN, 0};
    poll(&asked, 1, -1);
    CHECK(channel.receive().has_value());  // This request starts no worker.
    _exit(3);
  }
  if (setup == "fail") {
    message.kind = Message::kFailed;
    message.group = order.message.group;
    send(channel, message, memfd_of("ImportError: no luck"));
    _exit(0);
  }
  if (setup == "threads" && order.message.value == 0) {
    message.kind = Message::kLoadInWorkers;
    send(channel, message);
    _exit(0);
  }
  fork_on(Message::kStartWorker, Message::kStarted, Message::kExited, channel,
          [notify_fd, &setup](Packet&) {
            if (setup == "short") _exit(5);
            signal_eventfd(notify_fd);
            for (;;) pause();
          });
}

int be_launcher(int count, char** arguments) {
  die_with_parent(std::atoi(arguments[count - 1]));
  Channel channel{Fd(std::atoi(arguments[count - 2]))};
  Message ready;
  ready.kind = Message::kReady;
  send(channel, ready);
  fork_on(Message::kOpenGroup, Message::kZygote, Message::kGone, channel,
          be_zygote);
  return 0;
}

// The test.

struct Log final : WorkerEvents {
  std::mutex mutex;
  std::condition_variable changed;
  int starts = 0, exits = 0, statuses = 0, notifications = 0;
  int last_status = -1;
  std::string failure;

  void on_started(int, uint32_t, int) override {
    note([&] { ++starts; });
  }
  void on_exited(int, uint32_t) override {
    note([&] { ++exits; });
  }
  void on_exit_status(int, uint32_t, int wait_status) override {
    note([&] { ++statuses, last_status = wait_status; });
  }
  void on_worker_notified() override {
    note([&] { ++notifications; });
  }
  void on_failed(std::string why) override {
    note([&] { failure = std::move(why); });
  }

  void note(const std::function<void()>& change) {
    const std::lock_guard held(mutex);
    change();
    changed.notify_all();
  }
  void await(const std::function<bool()>& reached) {
    std::unique_lock held(mutex);
    CHECK(changed.wait_for(held, std::chrono::seconds(20), reached));
  }
};

struct Group {
  explicit Group(const std::string& setup, Modules modules = {})
      : arena(memfd_of("")) {
    workers =
        open_group(&log, {arena.get(), arena.get(), setup, std::move(modules)});
  }
  int zygotes() const { return static_cast<int>(text_of(arena.get()).size()); }

  Log log;
  Fd arena;
  std::unique_ptr<WorkerGroup> workers;
};

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file("/proc/" + std::to_string(parent) + "/task/" +
                       (parent == getpid() ? task.path().filename().string()
                                           : std::to_string(parent)) +
                       "/children");
    for (pid_t child = 0; file >> child;) children.push_back(child);
    if (parent != getpid()) break;
  }
  return children;
}

pid_t launcher() { return children_of(getpid()).at(0); }

void test_starts_and_exits_are_reported_in_order() {
  Group group("ok");
  for (int worker = 0; worker < 8; ++worker)
    group.workers->start_worker(worker, 1);
  group.log.await([&] { return group.log.starts == 8; });
  group.log.await([&] { return group.log.notifications > 0; });
  group.workers->kill(3);
  group.log.await(
      [&] { return group.log.exits == 1 && group.log.statuses == 1; });
  CHECK_EQ(group.log.last_status, SIGKILL);
  group.workers->start_worker(3, 2);
  group.log.await([&] { return group.log.starts == 9; });
  CHECK_EQ(group.zygotes(), 1);
}

void test_many_requests_are_all_sent() {
  Group group("short");
  constexpr int kRequests = 600;
  for (int i = 0; i < kRequests; ++i) group.workers->start_worker(i, 1);
  group.log.await([&] { return group.log.statuses == kRequests; });
  CHECK_EQ(group.log.starts, kRequests);
  CHECK_EQ(group.log.exits, kRequests);
  CHECK_EQ(group.log.last_status, 5 << 8);
}

void test_worker_killed_before_start_exits() {
  Group group("ok");
  group.workers->start_worker(0, 1);
  group.workers->kill(0);
  group.log.await(
      [&] { return group.log.starts == 1 && group.log.exits == 1; });
}

void test_ended_zygote_is_replaced() {
  Group group("ok");
  for (int worker = 0; worker < 4; ++worker)
    group.workers->start_worker(worker, 1);
  group.log.await([&] { return group.log.starts == 4; });
  for (const pid_t zygote : children_of(launcher())) ::kill(zygote, SIGKILL);
  group.log.await([&] { return group.log.exits == 4; });
  group.workers->start_worker(0, 2);
  group.log.await([&] { return group.log.starts == 5; });
  CHECK_EQ(group.zygotes(), 2);
}

void test_ended_launcher_is_replaced_for_all_groups() {
  Group one("ok");
  Group two("ok");
  for (int worker = 0; worker < 4; ++worker)
    one.workers->start_worker(worker, 1);
  two.workers->start_worker(0, 1);
  one.log.await([&] { return one.log.starts == 4; });
  two.log.await([&] { return two.log.starts == 1; });
  const pid_t before = launcher();
  ::kill(before, SIGKILL);
  one.log.await([&] { return one.log.exits == 4; });
  two.log.await([&] { return two.log.exits == 1; });
  one.workers->start_worker(0, 2);
  two.workers->start_worker(0, 2);
  one.log.await([&] { return one.log.starts == 5; });
  two.log.await([&] { return two.log.starts == 2; });
  CHECK(launcher() != before);
}

void test_groups_with_same_modules_share_launcher() {
  shutdown_supervisor();
  Group group("ok", {"a", "b"});
  group.workers->start_worker(0, 1);
  group.log.await([&] { return group.log.starts == 1; });
  Group plain("ok");  // Uses a launcher that is ready.
  plain.workers->start_worker(0, 1);
  plain.log.await([&] { return plain.log.starts == 1; });
  CHECK_EQ(children_of(getpid()).size(), std::size_t{1});
  const pid_t first = launcher();
  Group other("ok", {"c"});
  other.workers->start_worker(0, 1);
  other.log.await([&] { return other.log.starts == 1; });
  CHECK_EQ(children_of(getpid()).size(), std::size_t{2});
  // Its groups get another launcher.  The other groups keep theirs.
  ::kill(first, SIGKILL);
  group.log.await([&] { return group.log.exits == 1; });
  plain.log.await([&] { return plain.log.exits == 1; });
  group.workers->start_worker(0, 2);
  group.log.await([&] { return group.log.starts == 2; });
  CHECK_EQ(other.log.exits, 0);
}

void test_launcher_started_early_serves_group() {
  shutdown_supervisor();
  start_launcher({"a"});
  while (children_of(getpid()).empty()) std::this_thread::yield();
  const pid_t early = launcher();
  Group group("ok", {"a"});
  group.workers->start_worker(0, 1);
  group.log.await([&] { return group.log.starts == 1; });
  CHECK(children_of(getpid()) == std::vector{early});
}

void test_lost_request_is_sent_again() {
  Group group("end once");
  group.workers->start_worker(0, 1);
  group.log.await([&] { return group.log.starts == 1; });
  CHECK_EQ(group.zygotes(), 2);
  CHECK_EQ(group.log.failure, "");
}

void test_three_zygotes_without_worker_fail_group() {
  Group group("end");
  group.workers->start_worker(0, 1);
  group.log.await([&] { return !group.log.failure.empty(); });
  CHECK_EQ(group.zygotes(), 3);
  CHECK(group.log.failure.find("3 times") != std::string::npos);
  CHECK(group.log.failure.find("exit code 3") != std::string::npos);
}

void test_failed_load_is_reported_once() {
  Group group("fail");
  group.workers->start_worker(0, 1);
  group.log.await([&] { return !group.log.failure.empty(); });
  CHECK_EQ(group.log.failure, "ImportError: no luck");
  CHECK_EQ(group.zygotes(), 1);
}

void test_threads_make_next_zygote_late() {
  Group group("threads");
  group.workers->start_worker(0, 1);
  group.log.await([&] { return group.log.starts == 1; });
  CHECK_EQ(group.zygotes(), 2);
}

void test_dismissed_group_gets_no_events() {
  for (int i = 0; i < 20; ++i) {
    auto group = std::make_unique<Group>(i % 2 == 0 ? "ok" : "short");
    for (int worker = 0; worker < 4; ++worker) {
      group->workers->start_worker(worker, 1);
    }
    if (i % 3 != 0) group->log.await([&] { return group->log.starts > 0; });
    group->workers->dismiss();
    group.reset();  // A late callback would write to freed memory.
  }
}

void test_forked_child_can_start_new_supervisor() {
  Group group("ok");
  group.workers->start_worker(0, 1);
  group.log.await([&] { return group.log.starts == 1; });
  const pid_t child = fork();
  if (child == 0) {
    group.workers->start_worker(1, 1);
    group.workers->dismiss();
#if !defined(__SANITIZE_THREAD__)  // It cannot start threads after a fork.
    Group own("ok");
    own.workers->start_worker(0, 1);
    own.log.await([&] { return own.log.starts == 1; });
#endif
    shutdown_supervisor();
    _exit(0);
  }
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  group.workers->kill(0);
  group.log.await([&] { return group.log.exits == 1; });
  CHECK_EQ(group.log.starts, 1);
}

void test_open_group_after_shutdown_starts_again() {
  auto group = std::make_unique<Group>("ok");
  group->workers->start_worker(0, 1);
  group->log.await([&] { return group->log.starts == 1; });
  shutdown_supervisor();
  CHECK(children_of(getpid()).empty());
  group.reset();  // The supervisor no longer has its group.
  Group again("ok");
  again.workers->start_worker(0, 1);
  again.log.await([&] { return again.log.starts == 1; });
}

void test_missing_command_fails_group(const Command& good) {
  shutdown_supervisor();
  configure_supervisor({{"/no/such/program"}, {}});
  start_launcher({});
  {
    Group group("ok");
    group.log.await([&] { return !group.log.failure.empty(); });
    CHECK(group.log.failure.find("/no/such/program") != std::string::npos);
  }
  configure_supervisor({{"/bin/false"}, {}});
  {
    Group group("ok");
    group.log.await([&] { return !group.log.failure.empty(); });
    CHECK(group.log.failure.find("3 times") != std::string::npos);
  }
  configure_supervisor(good);
  Group group("ok");
  group.workers->start_worker(0, 1);
  group.log.await([&] { return group.log.starts == 1; });
}

#if !defined(__SANITIZE_THREAD__)  // It cannot start threads after a fork.
// In a separate process, which is killed.
void test_killed_process_ends_its_children() {
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    Group group("ok");
    for (int worker = 0; worker < 4; ++worker)
      group.workers->start_worker(worker, 1);
    group.log.await([&] { return group.log.starts == 4; });
    const pid_t middle = launcher();
    const pid_t zygote = children_of(middle).at(0);
    std::vector<pid_t> all = children_of(zygote);
    all.insert(all.end(), {middle, zygote});
    CHECK(write(ends[1], all.data(), all.size() * sizeof(pid_t)) > 0);
    for (;;) pause();
  }
  close(ends[1]);
  std::vector<pid_t> pids(6);
  CHECK_EQ(read(ends[0], pids.data(), pids.size() * sizeof(pid_t)),
           static_cast<ssize_t>(pids.size() * sizeof(pid_t)));
  close(ends[0]);
  std::vector<Fd> all;
  for (const pid_t pid : pids) all.push_back(pidfd_of(pid));
  ::kill(pids[4], SIGSTOP);  // A stopped launcher is killed, too.
  ::kill(child, SIGKILL);
  for (const auto& fd : all) {
    pollfd ended{fd.get(), POLLIN, 0};
    CHECK_EQ(poll(&ended, 1, 2000), 1);
  }
  waitpid(child, nullptr, 0);
}
#endif

}  // namespace

int main(int count, char** arguments) {
  if (count >= 4 && std::string(arguments[1]) == "launcher") {
    return be_launcher(count, arguments);
  }
  const Command command{{"/proc/self/exe", "launcher"}, {}};
  configure_supervisor(command);
  test_starts_and_exits_are_reported_in_order();
  test_many_requests_are_all_sent();
  test_worker_killed_before_start_exits();
  test_ended_zygote_is_replaced();
  test_ended_launcher_is_replaced_for_all_groups();
  test_groups_with_same_modules_share_launcher();
  test_launcher_started_early_serves_group();
  test_lost_request_is_sent_again();
  test_three_zygotes_without_worker_fail_group();
  test_failed_load_is_reported_once();
  test_threads_make_next_zygote_late();
  test_dismissed_group_gets_no_events();
  test_forked_child_can_start_new_supervisor();
  test_open_group_after_shutdown_starts_again();
  test_missing_command_fails_group(command);
#if !defined(__SANITIZE_THREAD__)
  test_killed_process_ends_its_children();
#endif
  shutdown_supervisor();
}
