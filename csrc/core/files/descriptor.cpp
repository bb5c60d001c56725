#include "core/files/descriptor.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/at_fork.hpp"

namespace gristmill {

Mutex Descriptor::lender_mutex_;

// Lists the Descriptors that hold a file descriptor, and closes some if there
// are too many.  Leaked, because files may be closed during process exit.
class Lender {
 public:
  static Lender& get() {
    static Lender* const lender = new Lender;
    return *lender;
  }

  void add(const Descriptor& file) {
    const MutexLock lock(Descriptor::lender_mutex_);
    if (file.listed_) return;
    file.place_ = open_.insert(open_.end(), &file);
    file.listed_ = true;
    keep(limit_);
  }

  void remove(const Descriptor& file) {
    const MutexLock lock(Descriptor::lender_mutex_);
    if (file.listed_) open_.erase(file.place_);
    file.listed_ = false;
  }

  // Closes about half of the file descriptors.
  void make_room() {
    const MutexLock lock(Descriptor::lender_mutex_);
    keep(open_.size() / 2);
  }

  std::size_t count() {
    const MutexLock lock(Descriptor::lender_mutex_);
    return open_.size();
  }

  void set_limit(std::size_t limit) {
    const MutexLock lock(Descriptor::lender_mutex_);
    limit_ = limit;
    keep(limit_);
  }

 private:
  static const bool kHeldAtFork;

  Lender() {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY) {
      limit_ = std::clamp<std::size_t>(limit.rlim_cur / 2, 16, kMost);
    }
  }

  // Closes file descriptors until `most` are open.  Gives a second chance to
  // each one that was used since the last check.
  void keep(std::size_t most) REQUIRES(Descriptor::lender_mutex_) {
    std::size_t looks = 2 * open_.size();
    while (open_.size() > most && looks-- > 0) {
      const Descriptor& oldest = *open_.front();
      const bool used = oldest.used_.exchange(false, std::memory_order_relaxed);
      if (!used && oldest.give_up()) {
        open_.pop_front();
        oldest.listed_ = false;
      } else {
        open_.splice(open_.end(), open_, open_.begin());
      }
    }
  }

  static constexpr std::size_t kMost = 4096;

  std::list<const Descriptor*> open_ GUARDED_BY(Descriptor::lender_mutex_);
  std::size_t limit_ GUARDED_BY(Descriptor::lender_mutex_) = kMost;
};

const bool Lender::kHeldAtFork =
    at_fork(ForkStep::kDescriptors, held_at_fork<Descriptor::lender_mutex_>());

Result<int> Descriptor::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe would otherwise wait for a writer.
  const auto attempt = [&] {
    return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  };
  int fd = attempt();
  if (fd < 0 && errno == EMFILE) {
    Lender::get().make_room();
    fd = attempt();
  }
  if (fd < 0) {
    const int error = errno;
    const char* const advice =
        error == EMFILE ? "; allow more by ulimit -n" : "";
    return Status::system(error, path, ": open failed: ", std::strerror(error),
                          advice);
  }
  return fd;
}

Descriptor::Descriptor(std::string path, int fd, const struct stat& status)
    : path_(std::move(path)),
      device_(status.st_dev),
      inode_(status.st_ino),
      size_(status.st_size),
      modified_(status.st_mtim),
      state_(static_cast<State>(fd) + 1) {
  Lender::get().add(*this);
}

Descriptor::~Descriptor() {
  Lender::get().remove(*this);
  const State number = state_.load(std::memory_order_acquire) & kNumber;
  if (number != 0) ::close(static_cast<int>(number - 1));
}

// Inode numbers are not enough, because the system reuses those of removed
// files.
bool Descriptor::is_same(const struct stat& now) const {
  return now.st_dev == device_ && now.st_ino == inode_ &&
         now.st_size == size_ && now.st_mtim.tv_sec == modified_.tv_sec &&
         now.st_mtim.tv_nsec == modified_.tv_nsec;
}

// Closes the file unless it is in use.  Returns whether it did.
bool Descriptor::give_up() const {
  State state = state_.load(std::memory_order_relaxed);
  if (state == 0 || state >= kUser) return false;
  // Synchronizes with the release by the last user, whose reads are finished.
  if (!state_.compare_exchange_strong(state, 0, std::memory_order_acquire)) {
    return false;
  }
  ::close(static_cast<int>(state - 1));
  return true;
}

Result<Descriptor::Use> Descriptor::use() const {
  used_.store(true, std::memory_order_relaxed);
  for (;;) {
    State state = state_.load(std::memory_order_relaxed);
    while ((state & kNumber) != 0) {
      if (state_.compare_exchange_weak(state, state + kUser,
                                       std::memory_order_acquire)) {
        return Use(this, static_cast<int>((state & kNumber) - 1));
      }
    }
    const int fd = TRY(open(path_));
    struct stat now;
    if (fstat(fd, &now) != 0 || !is_same(now)) {
      ::close(fd);
      return Status(Code::kInvalidArgument,
                    "the file at this path was replaced after it was opened");
    }
    State none = 0;
    if (state_.compare_exchange_strong(none, kUser + State(fd) + 1,
                                       std::memory_order_acq_rel)) {
      Lender::get().add(*this);
      return Use(this, fd);
    }
    ::close(fd);  // Another thread opened the file first.
  }
}

std::size_t Descriptor::open_count() { return Lender::get().count(); }

void Descriptor::set_limit(std::size_t limit) {
  Lender::get().set_limit(limit);
}

}  // namespace gristmill
