#include "core/processes/spawn.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>

#include "core/base/at_fork.hpp"

// Older C libraries lack these definitions.
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer treats every clone() as a fork, but does not intercept this
// name.
extern "C" int __clone(int (*)(void*), void*, int, void*, ...);
#define clone __clone
#endif

namespace gristmill {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr int kSocketInChild = 3;
constexpr auto kPidfdIdType = static_cast<idtype_t>(3);  // P_PIDFD

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Every open Fd of this process, so that a forked child can close them.
Mutex open_mutex;
std::set<int>& open_fds() REQUIRES(open_mutex) {
  // Leaked, since Fds may be destroyed at exit.
  static auto* const all = new std::set<int>;
  return *all;
}
// The number of forks between the first process and this one, plus 1.
std::uint64_t fork_count GUARDED_BY(open_mutex) = 1;

void close_in_child() REQUIRES(open_mutex) {
  for (const int fd : open_fds()) ::close(fd);
  open_fds().clear();
  ++fork_count;
}

[[maybe_unused]] const bool kRegistered =
    at_fork(ForkStep::kOpenFds, held_at_fork<open_mutex, close_in_child>());

}  // namespace

Fd::Fd(int fd) : fd_(fd) {
  if (fd < 0) return;
  if (fd <= STDERR_FILENO) {
    const int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (higher >= 0) {
      ::close(fd);
      fd_ = higher;
    }
  }
  const MutexLock lock(open_mutex);
  open_fds().insert(fd_);
  fork_count_ = fork_count;
}

Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(fork_count_, other.fork_count_);
  return *this;
}

Fd::~Fd() {
  if (fd_ < 0) return;
  const MutexLock lock(open_mutex);
  if (fork_count_ != fork_count) return;  // close_in_child() has closed it.
  open_fds().erase(fd_);
  ::close(fd_);
}

Fd copy_of(int fd) {
  // The lowest number above the standard streams.
  Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, kSocketInChild));
  if (!copy) fail("dup");
  return copy;
}

Fd new_eventfd() {
  Fd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) fail("eventfd");
  return fd;
}

Fd memfd_of(std::string_view bytes) {
  Fd fd(memfd_create("gristmill", MFD_CLOEXEC));
  if (!fd) fail("memfd_create");
  while (!bytes.empty()) {
    const ssize_t n = write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) fail("write");
    if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return fd;
}

std::pair<Fd, Fd> new_socket_pair() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    fail("socketpair");
  }
  Fd near(ends[0]);
  Fd far(ends[1]);
  if (fcntl(near.get(), F_SETFL, O_NONBLOCK) != 0) fail("fcntl");
  return {std::move(near), std::move(far)};
}

std::string text_of(int memfd) {
  std::string text;
  std::array<char, 4096> part{};
  for (;;) {
    const ssize_t n =
        pread(memfd, part.data(), part.size(), static_cast<off_t>(text.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(n));
  }
}

bool signal_eventfd(int eventfd) {
  const uint64_t one = 1;
  // EAGAIN: the count is at its maximum, so it is above 0 already.
  return write(eventfd, &one, sizeof one) == sizeof one || errno == EAGAIN;
}

bool drain_eventfd(int eventfd) {
  uint64_t count = 0;
  return read(eventfd, &count, sizeof count) == sizeof count;
}

void kill_process(int pidfd) noexcept {
  syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0);
}

void reap(int pidfd) noexcept {
  siginfo_t info;
  while (waitid(kPidfdIdType, static_cast<id_t>(pidfd), &info, WEXITED) != 0 &&
         errno == EINTR) {
  }
}

std::string describe_wait_status(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    return "killed by signal " + std::to_string(number) + " (" +
           strsignal(number) + ")";
  }
  return "exit code " + std::to_string(WEXITSTATUS(wait_status));
}

void die_with_parent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A parent that ended before the call above sends nothing.
  if (getppid() != parent) ::kill(getpid(), SIGKILL);
}

void Channel::push(const Message& message, std::vector<Shared> fds) {
  pending_.push_back({message, std::move(fds)});
}

int Channel::flush() {
  while (!pending_.empty()) {
    auto& [message, fds] = pending_.front();
    iovec part{&message, sizeof message};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> room{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!fds.empty()) {
      header.msg_control = room.data();
      header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* const control = CMSG_FIRSTHDR(&header);
      control->cmsg_level = SOL_SOCKET;
      control->cmsg_type = SCM_RIGHTS;
      control->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      for (std::size_t i = 0; i < fds.size(); ++i) {
        const int fd = fds[i]->get();
        std::memcpy(CMSG_DATA(control) + i * sizeof fd, &fd, sizeof fd);
      }
    }
    if (sendmsg(socket_.get(), &header, MSG_NOSIGNAL) < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return 0;
      const int error = errno;
      pending_.clear();
      return error == EPIPE || error == ECONNRESET ? 0 : error;
    }
    pending_.pop_front();
  }
  return 0;
}

std::optional<Packet> Channel::receive() {
  if (!socket_) return std::nullopt;
  Packet packet;
  iovec part{&packet.message, sizeof packet.message};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> room{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = room.data();
  header.msg_controllen = room.size();
  ssize_t n = 0;
  do {
    n = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n != sizeof packet.message) return std::nullopt;
  cmsghdr* const control = CMSG_FIRSTHDR(&header);
  if (control != nullptr && control->cmsg_type == SCM_RIGHTS) {
    const std::size_t bytes = control->cmsg_len - CMSG_LEN(0);
    for (std::size_t at = 0; at < bytes; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + at, sizeof fd);
      packet.fds.emplace_back(fd);
    }
  }
  return packet;
}

namespace {

// The argument of start_in_child().
struct Start {
  char* const* argv;
  char* const* environ;
  int socket;
  rlim_t max_fds;
  int error = 0;  // Set by the child: the errno of execve.
};

// Runs in the child, on the parent's memory.  It uses bare system calls, since
// the C library, above all a sanitizer's, would change the parent's state.
int start_in_child(void* argument) {
  auto* const start = static_cast<Start*>(argument);
  // A sigaction in the kernel's layout; all zeros mean the default action.  The
  // last argument below is the size of a set of signals.
  const std::array<uint64_t, 4> default_action{};
  for (int number = 1; number < NSIG; ++number) {
    syscall(SYS_rt_sigaction, number, default_action.data(), nullptr,
            sizeof(uint64_t));
  }
  // The launcher unblocks these two once it has its own handlers.
  const uint64_t blocked = uint64_t{1} << (SIGINT - 1) | uint64_t{1}
                                                             << (SIGTERM - 1);
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, nullptr, sizeof blocked);
  // For the case that the parent ends before the launcher calls
  // die_with_parent().
  syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  const auto null = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
  if (null != 0) syscall(SYS_dup3, null, 0, 0);
  // If one of these were closed, the next opened file would get its number and
  // any error messages.
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (syscall(SYS_fcntl, fd, F_GETFD) < 0) syscall(SYS_dup3, null, fd, 0);
  }
  if (start->socket == kSocketInChild) {
    syscall(SYS_fcntl, kSocketInChild, F_SETFD, 0);
  } else {
    syscall(SYS_dup3, start->socket, kSocketInChild, 0);
  }
  if (syscall(SYS_close_range, kSocketInChild + 1, ~0U, 0) != 0) {
    for (rlim_t fd = kSocketInChild + 1; fd < start->max_fds; ++fd) {
      syscall(SYS_close, fd);
    }
  }
  syscall(SYS_execve, start->argv[0], start->argv, start->environ);
  start->error = errno;
  syscall(SYS_exit_group, 127);
  return 0;
}

std::vector<char*> pointers_of(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const auto& string : strings) {
    pointers.push_back(const_cast<char*>(string.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Fd run(const Command& command, int socket) {
  auto arguments = command.argv;
  arguments.push_back(std::to_string(kSocketInChild));
  arguments.push_back(std::to_string(getpid()));
  const auto argv = pointers_of(arguments);
  const auto environ = pointers_of(command.environ);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  // A copy whose number is not that of a standard stream.
  const Fd high_socket = copy_of(socket);
  Start start{argv.data(), environ.data(), high_socket.get(), limit.rlim_cur};
  constexpr std::size_t kStackBytes = std::size_t{256} << 10;
  std::vector<std::byte> stack(kStackBytes);
  // Like vfork, but with a separate stack, and with a pidfd from the start.
  int pidfd = -1;
  const int pid =
      clone(start_in_child, stack.data() + kStackBytes,
            CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &start, &pidfd);
  if (pid < 0) fail("clone");
  Fd child(pidfd);
  if (start.error != 0) {
    reap(child.get());
    errno = start.error;
    fail(command.argv.front().c_str());
  }
  return child;
}

}  // namespace gristmill
