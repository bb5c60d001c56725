// Descriptors, messages and the start of the launcher: what supervisor.hpp
// stands on.
//
// Processes talk in Messages of fixed size over SOCK_SEQPACKET sockets, with
// descriptors by SCM_RIGHTS; anything longer travels in a memfd.  The other end
// of every socket is pkg/gristmill/_workers/processes.py, which must agree with
// this:
//
//   kind          from -> to              value        descriptors
//   kOpenGroup    supervisor -> launcher  1: late      zygote's socket, setup,
//                                                      blob, arena,
//                                                      slot requests
//   kForget       supervisor -> launcher
//   kZygote       launcher -> supervisor  pid          pidfd
//   kGone         launcher -> supervisor  wait status
//   kStartWorker  supervisor -> zygote
//   kStarted      zygote -> supervisor    pid          pidfd
//   kExited       zygote -> supervisor    wait status
//   kThreads      zygote -> supervisor
//   kFailed       any -> supervisor                    memfd of UTF-8 text
//   kReady        launcher -> supervisor
//   kInherit      supervisor -> launcher               at most kMostFds of the
//                                                      program's
//
// kInherit comes any number of times before kOpenGroup, whose zygote gets all
// their descriptors, in order, after its own.
// `group` is set in messages of the launcher and in kFailed, `worker` and
// `generation` in kStartWorker, kStarted and kExited; what is not set is 0.
// Setup is a pickled dict.  A zygote is sent kStartWorker only after its
// kZygote was read, so that it forks nothing before the supervisor can see it
// die.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gristmill {

// Owns a descriptor that is closed at once in a child which this process forks
// (by fork, not by vfork): an engine's descriptors mean nothing there.
//
// It is never a standard stream's, which are free where the user closed them:
// whatever is printed would go to the engine.
class Fd {
 public:
  Fd() = default;
  // Takes ownership of `fd`, or of a copy in its place; -1 owns nothing.
  explicit Fd(int fd);
  Fd(Fd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), forks_(other.forks_) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
  uint64_t forks_ = 0;  // Before this process, and one.
};

// Each throws std::system_error where the system has no descriptor left.
[[nodiscard]] Fd copy_of(int fd);
[[nodiscard]] Fd new_eventfd();
[[nodiscard]] Fd memfd_of(std::string_view bytes);
// Both ends are closed by exec; the first does not block.
[[nodiscard]] std::pair<Fd, Fd> new_socket_pair();

// The whole of a memfd.
[[nodiscard]] std::string text_of(int memfd);

// Adds 1 to an eventfd; false if that is none, since the user closed it.
bool ring(int eventfd);
// Returns whether an eventfd was above 0, and zeroes it.
bool silence(int eventfd);

// Signals a process through its pidfd; a process that is gone is no error.
void kill_by(int pidfd) noexcept;

// Collects a child that ended; one that somebody else collected is no error.
void reap(int pidfd) noexcept;

// "exit code 3", "killed by signal 9 (Killed)".
[[nodiscard]] std::string describe_wait_status(int wait_status);

// Makes the kernel kill this process when the thread that forked it ends, and
// ends it now when `parent` is no longer its parent.
void die_with_parent(pid_t parent);

struct Message {
  enum Kind : uint32_t {
    kOpenGroup = 1,
    kForget,
    kZygote,
    kGone,
    kStartWorker,
    kStarted,
    kExited,
    kThreads,
    kFailed,
    kReady,
    kInherit,
  };
  uint32_t kind = 0;
  uint32_t group = 0;
  int32_t worker = 0;
  uint32_t generation = 0;
  int32_t value = 0;
};
static_assert(sizeof(Message) == 20, "_processes.py packs the same");

// Descriptors that one message has, at most.
inline constexpr std::size_t kMostFds = 8;

struct Packet {
  Message message;
  std::vector<Fd> fds;
};

// One end of a socket, which never blocks: what does not fit waits in a queue.
//
// Thread safety: external synchronization.
class Channel {
 public:
  using Shared = std::shared_ptr<const Fd>;
  static Shared share(Fd fd) {
    return std::make_shared<const Fd>(std::move(fd));
  }

  Channel() = default;
  explicit Channel(Fd socket) : socket_(std::move(socket)) {}

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

  // Queues a message.  The descriptors stay open until it is sent.
  void push(const Message& message, std::vector<Shared> fds = {});

  // Sends what fits; to be called after push() and whenever the socket becomes
  // writable.  Returns 0 or an errno.  A peer that is gone is no error, since
  // its pidfd tells.
  [[nodiscard]] int flush();

  // The next message, or nothing where none waits or the peer is gone.
  [[nodiscard]] std::optional<Packet> receive();

 private:
  struct Pending {
    Message message;
    std::vector<Shared> fds;
  };
  Fd socket_;
  std::deque<Pending> pending_;
};

// How to start the launcher.  `argv` gets more arguments: the modules that it
// imports first, after which it says kReady, the number of its socket and the
// pid of this process.
struct Command {
  std::vector<std::string> argv;
  std::vector<std::string> environ;  // "NAME=value"
};

// Runs a command without the side effects of fork: no atfork handler runs, the
// caller's memory is not copied.  The child has `socket` as descriptor 3,
// /dev/null as 0, this process's 1 and 2, and no other; default signal
// handlers; SIGINT and SIGTERM blocked, all else unblocked.  Returns its pidfd;
// throws std::system_error if the command cannot be started. REQUIRES: all
// signals are blocked in the calling thread, which outlives the child if the
// child calls die_with_parent().
[[nodiscard]] Fd run(const Command& command, int socket);

}  // namespace gristmill
