// A Descriptor is a file that stays open for its users, although its file
// descriptor may be closed between reads.
//
// A process may have about a thousand open files, but data sets have more
// shards than that.  The Descriptors of a process therefore hold at most half
// of RLIMIT_NOFILE file descriptors at a time (16 to 4096), or more while more
// are in use.  The others reopen their file for the next read, and the path
// must still lead to the same file.
//
// Thread safety: const methods may overlap.
//
// Fork: a child may continue to use it, because the forking thread holds
// open_descriptors_mutex_.  Users in other threads of the parent stay counted
// in the child, which then keeps those file descriptors open.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <utility>

#include "core/base/mutex.hpp"
#include "core/base/status.hpp"

namespace gristmill {

class Descriptor {
 public:
  // Keeps the file descriptor open during its lifetime.  Must not outlive the
  // Descriptor.
  class Use {
   public:
    Use(Use&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), fd_(other.fd_) {}
    Use& operator=(Use&&) = delete;
    ~Use() {
      if (owner_ != nullptr) owner_->release();
    }
    [[nodiscard]] int fd() const { return fd_; }

   private:
    friend class Descriptor;
    Use(const Descriptor* owner, int fd) : owner_(owner), fd_(fd) {}

    const Descriptor* owner_;
    int fd_;
  };

  // Opens a file for reading.
  static Result<int> open(const std::string& path);

  // Takes ownership of `fd`, which open() returned for `path`.  `status` is the
  // result of fstat().
  Descriptor(std::string path, int fd, const struct stat& status);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  // Returns the file descriptor.  Reopens the file if necessary.
  [[nodiscard]] Result<Use> use() const;

  // Return the number of Descriptors that hold a file descriptor, and set the
  // maximum of that number.  For tests.
  static std::size_t open_count();
  static void set_limit(std::size_t limit);

 private:
  friend class OpenDescriptors;

  // The low half is the file descriptor plus one, or 0 for none.  The high half
  // counts its users.
  using PackedState = std::uint64_t;
  static constexpr PackedState kOneUser = PackedState{1} << 32;
  static constexpr PackedState kDescriptorMask = kOneUser - 1;

  void release() const {
    state_.fetch_sub(kOneUser, std::memory_order_release);
  }
  [[nodiscard]] bool is_same(const struct stat& current) const;
  bool close_if_unused() const;  // Called with open_descriptors_mutex_ held.

  const std::string path_;
  const dev_t device_;
  const ino_t inode_;
  const off_t size_;
  const struct timespec modified_;
  mutable std::atomic<PackedState> state_;
  // True if use() was called after OpenDescriptors last checked this file.
  mutable std::atomic<bool> was_used_{true};

  static Mutex open_descriptors_mutex_;
  // Whether it is in the list of OpenDescriptors, and if so, where.
  mutable bool is_listed_ GUARDED_BY(open_descriptors_mutex_) = false;
  mutable std::list<const Descriptor*>::iterator list_position_
      GUARDED_BY(open_descriptors_mutex_);
};

}  // namespace gristmill
