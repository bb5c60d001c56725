#include "core/files/descriptor.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/at_fork.hpp"

namespace gristmill {

Mutex Descriptor::open_descriptors_mutex_;

// Lists the Descriptors of this process that hold a file descriptor, and closes
// some if there are too many.  The only instance is leaked, because files may
// be closed during process exit.
class OpenDescriptors {
 public:
  static OpenDescriptors& get() {
    static OpenDescriptors* const instance = new OpenDescriptors;
    return *instance;
  }

  void add(const Descriptor& file) {
    const MutexLock lock(Descriptor::open_descriptors_mutex_);
    if (file.is_listed_) return;
    file.list_position_ = open_.insert(open_.end(), &file);
    file.is_listed_ = true;
    close_down_to(limit_);
  }

  void remove(const Descriptor& file) {
    const MutexLock lock(Descriptor::open_descriptors_mutex_);
    if (file.is_listed_) open_.erase(file.list_position_);
    file.is_listed_ = false;
  }

  // Closes about half of the file descriptors.
  void make_room() {
    const MutexLock lock(Descriptor::open_descriptors_mutex_);
    close_down_to(open_.size() / 2);
  }

  std::size_t count() {
    const MutexLock lock(Descriptor::open_descriptors_mutex_);
    return open_.size();
  }

  void set_limit(std::size_t limit) {
    const MutexLock lock(Descriptor::open_descriptors_mutex_);
    limit_ = limit;
    close_down_to(limit_);
  }

 private:
  static const bool kHeldAtFork;

  OpenDescriptors() {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY) {
      limit_ = std::clamp<std::size_t>(limit.rlim_cur / 2, 16, kMaxOpen);
    }
  }

  // Closes file descriptors until `max_open` are open.  Gives a second chance
  // to each one that was used since the last check.
  void close_down_to(std::size_t max_open)
      REQUIRES(Descriptor::open_descriptors_mutex_) {
    std::size_t checks_left = 2 * open_.size();
    while (open_.size() > max_open && checks_left-- > 0) {
      const Descriptor& oldest = *open_.front();
      const bool was_used =
          oldest.was_used_.exchange(false, std::memory_order_relaxed);
      if (!was_used && oldest.close_if_unused()) {
        open_.pop_front();
        oldest.is_listed_ = false;
      } else {
        open_.splice(open_.end(), open_, open_.begin());
      }
    }
  }

  static constexpr std::size_t kMaxOpen = 4096;

  std::list<const Descriptor*> open_
      GUARDED_BY(Descriptor::open_descriptors_mutex_);
  std::size_t limit_ GUARDED_BY(Descriptor::open_descriptors_mutex_) = kMaxOpen;
};

const bool OpenDescriptors::kHeldAtFork =
    at_fork(ForkStep::kDescriptors,
            held_at_fork<Descriptor::open_descriptors_mutex_>());

Result<int> Descriptor::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe would otherwise wait for a writer.
  const auto attempt = [&] {
    return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  };
  int fd = attempt();
  if (fd < 0 && errno == EMFILE) {
    OpenDescriptors::get().make_room();
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
      state_(static_cast<PackedState>(fd) + 1) {
  OpenDescriptors::get().add(*this);
}

Descriptor::~Descriptor() {
  OpenDescriptors::get().remove(*this);
  const PackedState descriptor_plus_one =
      state_.load(std::memory_order_acquire) & kDescriptorMask;
  if (descriptor_plus_one != 0) {
    ::close(static_cast<int>(descriptor_plus_one - 1));
  }
}

// Inode numbers are not enough, because the system reuses those of removed
// files.
bool Descriptor::is_same(const struct stat& current) const {
  return current.st_dev == device_ && current.st_ino == inode_ &&
         current.st_size == size_ &&
         current.st_mtim.tv_sec == modified_.tv_sec &&
         current.st_mtim.tv_nsec == modified_.tv_nsec;
}

// Closes the file unless it is in use.  Returns whether it did.
bool Descriptor::close_if_unused() const {
  PackedState state = state_.load(std::memory_order_relaxed);
  if (state == 0 || state >= kOneUser) return false;
  // Synchronizes with the release by the last user, whose reads are finished.
  if (!state_.compare_exchange_strong(state, 0, std::memory_order_acquire)) {
    return false;
  }
  ::close(static_cast<int>(state - 1));
  return true;
}

Result<Descriptor::Use> Descriptor::use() const {
  was_used_.store(true, std::memory_order_relaxed);
  for (;;) {
    PackedState state = state_.load(std::memory_order_relaxed);
    while ((state & kDescriptorMask) != 0) {
      if (state_.compare_exchange_weak(state, state + kOneUser,
                                       std::memory_order_acquire)) {
        return Use(this, static_cast<int>((state & kDescriptorMask) - 1));
      }
    }
    const int fd = TRY(open(path_));
    struct stat current;
    if (fstat(fd, &current) != 0 || !is_same(current)) {
      ::close(fd);
      return Status(Code::kInvalidArgument,
                    "the file at this path was replaced after it was opened");
    }
    PackedState expected = 0;
    if (state_.compare_exchange_strong(expected, kOneUser + PackedState(fd) + 1,
                                       std::memory_order_acq_rel)) {
      OpenDescriptors::get().add(*this);
      return Use(this, fd);
    }
    ::close(fd);  // Another thread opened the file first.
  }
}

std::size_t Descriptor::open_count() { return OpenDescriptors::get().count(); }

void Descriptor::set_limit(std::size_t limit) {
  OpenDescriptors::get().set_limit(limit);
}

}  // namespace gristmill
