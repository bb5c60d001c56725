// A Descriptor is a file that stays open, except that its number is lent to
// other files while nobody reads it.
//
// A process may have about a thousand files open, and data sets have more
// shards than that.  So of all Descriptors of a process only some hundred have
// a number of the system's at a time; the others are opened again when they are
// read, and must still be the same file then.
//
// Thread safety: const methods may overlap.
//
// Fork: a child may go on, too.
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
  // The number, which is not lent as long as this lives.
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

  // Takes over `fd`, which open() returned for `path` and of which `status` is
  // what fstat() says.
  Descriptor(std::string path, int fd, const struct stat& status);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  // Returns the number, after opening the file again if need be.
  [[nodiscard]] Result<Use> use() const;

  // How many have a number now, and how many may; for tests.
  static std::size_t open_count();
  static void set_limit(std::size_t limit);

 private:
  friend class Lender;

  // The number plus one, 0 for none; above it, how many use it.
  using State = std::uint64_t;
  static constexpr State kUser = State{1} << 32;
  static constexpr State kNumber = kUser - 1;

  void release() const { state_.fetch_sub(kUser, std::memory_order_release); }
  [[nodiscard]] bool is_same(const struct stat& now) const;
  bool give_up() const;

  const std::string path_;
  const dev_t device_;
  const ino_t inode_;
  const off_t size_;
  const struct timespec modified_;
  mutable std::atomic<State> state_;
  mutable std::atomic<bool> used_{true};  // Since the lender looked last.

  static Mutex lender_mutex_;
  mutable bool listed_ GUARDED_BY(lender_mutex_) = false;
  mutable std::list<const Descriptor*>::iterator place_
      GUARDED_BY(lender_mutex_);
};

}  // namespace gristmill
