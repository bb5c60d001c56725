// Descriptors, messages and the start of the launcher, for supervisor.hpp.
//
// Processes exchange Messages of fixed size over SOCK_SEQPACKET sockets, with
// descriptors by SCM_RIGHTS.  Longer data are sent in a memfd.  The other end
// of every socket is pkg/gristmill/_workers/processes.py, which must match this
// table:
//
//   kind             from -> to              value        descriptors
//   kOpenGroup       supervisor -> launcher  see below    zygote's socket,
//                                                         setup, blob, arena,
//                                                         eventfd
//   kForget          supervisor -> launcher
//   kZygote          launcher -> supervisor  pid          pidfd
//   kGone            launcher -> supervisor  wait status
//   kStartWorker     supervisor -> zygote
//   kStarted         zygote -> supervisor    pid          pidfd
//   kExited          zygote -> supervisor    wait status
//   kLoadInWorkers   zygote -> supervisor
//   kFailed          any -> supervisor                    memfd of UTF-8 text
//   kReady           launcher -> supervisor
//   kInherit         supervisor -> launcher               up to kMaxFds
//
// The value of kOpenGroup is 1 if each worker loads the program, and 0 if the
// zygote loads it.  A zygote asks with kLoadInWorkers for a successor that gets
// 1.  Workers write to the eventfd to notify the parent.
//
// kInherit is sent any number of times before kOpenGroup.  Its descriptors are
// the program's.  The group's zygote gets all of them, in order, after its own.
//
// `group` is set in kFailed and in all messages from and to the launcher except
// kReady.  `worker` and `generation` are set in kStartWorker, kStarted and
// kExited.  Other fields are 0.
// Setup is a pickled dict.  The supervisor sends kStartWorker to a zygote only
// after it has read the zygote's kZygote.  So the zygote forks nothing before
// the supervisor can detect its end.
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

// Owns a descriptor that is closed immediately in a child which this process
// forks (by fork, not by vfork), since an engine's descriptors are useless
// there.
//
// The number is never that of a standard stream.  These numbers are free if the
// user closed the streams, and printed text would then be sent to the engine.
class Fd {
 public:
  Fd() = default;
  // Takes ownership of `fd`, and replaces it by a copy if it has the number of
  // a standard stream.  -1 owns nothing.
  explicit Fd(int fd);
  Fd(Fd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), fork_count_(other.fork_count_) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
  uint64_t fork_count_ = 0;  // The value of `fork_count` at the constructor.
};

// Each throws std::system_error if the system has no descriptor left.
[[nodiscard]] Fd copy_of(int fd);
[[nodiscard]] Fd new_eventfd();
[[nodiscard]] Fd memfd_of(std::string_view bytes);
// Exec closes both ends.  The first one does not block.
[[nodiscard]] std::pair<Fd, Fd> new_socket_pair();

// Returns the contents of a memfd.
[[nodiscard]] std::string text_of(int memfd);

// Adds 1 to an eventfd; returns false if the user has closed it.
bool signal_eventfd(int eventfd);
// Sets an eventfd to 0; returns whether it was above 0.
bool drain_eventfd(int eventfd);

// Sends SIGKILL through a pidfd.  Does nothing if the process is gone.
void kill_process(int pidfd) noexcept;

// Waits for the end of a child and reaps it.  Does nothing if it was reaped
// elsewhere.
void reap(int pidfd) noexcept;

// Returns a text such as "exit code 3" or "killed by signal 9 (Killed)".
[[nodiscard]] std::string describe_wait_status(int wait_status);

// Makes the kernel kill this process when the thread that forked it ends.
// Kills it now if `parent` is no longer its parent.
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
    kLoadInWorkers,
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
static_assert(sizeof(Message) == 20, "must match _workers/processes.py");

// The maximum number of descriptors in one message.
inline constexpr std::size_t kMaxFds = 8;

struct Packet {
  Message message;
  std::vector<Fd> fds;
};

// One end of a socket.  It never blocks: messages that do not fit are queued.
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

  // Queues a message.  The descriptors stay open until the message is sent.
  void push(const Message& message, std::vector<Shared> fds = {});

  // Sends as many messages as fit.  Call this after push() and whenever the
  // socket becomes writable.  Returns 0 or an errno.  Returns 0 if the peer is
  // gone, since its pidfd reports that.
  [[nodiscard]] int flush();

  // Returns the next message, or nullopt if none is ready, the peer is gone, or
  // this object is empty.
  [[nodiscard]] std::optional<Packet> receive();

 private:
  struct Pending {
    Message message;
    std::vector<Shared> fds;
  };
  Fd socket_;
  std::deque<Pending> pending_;
};

// The command that starts the launcher.  More arguments are appended to `argv`:
// the modules to import, the number of the launcher's socket, and the pid of
// this process.  The launcher sends kReady after importing the modules.
struct Command {
  std::vector<std::string> argv;
  std::vector<std::string> environ;  // "NAME=value"
};

// Runs a command without the side effects of fork: no atfork handler runs, and
// the caller's memory is not copied.  The child has these descriptors only:
// /dev/null as 0, this process's 1 and 2, and `socket` as 3.  It has default
// signal handlers; SIGINT and SIGTERM are blocked, all others are unblocked.
// Returns the child's pidfd.  Throws std::system_error if the command cannot be
// started.
// REQUIRES: all signals are blocked in the calling thread, which outlives the
// child if the child calls die_with_parent().
[[nodiscard]] Fd run(const Command& command, int socket);

}  // namespace gristmill
