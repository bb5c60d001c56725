// A FileLock prevents two processes from doing the same work for a file.
//
// It is a system lock on the file itself.  It writes nothing, and the system
// releases it when the process ends.  If the lock is not available, as on some
// network storage or after `max_wait`, both processes do the work.
//
// Thread safety: none; a lock belongs to one thread.  It also excludes the
// other threads of the process.
#pragma once

#include <chrono>
#include <string>

namespace gristmill {

class FileLock {
 public:
  // Waits at most `max_wait` for the lock of the file at `path`.
  FileLock(const std::string& path, std::chrono::milliseconds max_wait);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Returns true if another process or thread held the lock meanwhile.  It may
  // have done the work.
  [[nodiscard]] bool was_contended() const noexcept { return was_contended_; }

 private:
  int fd_;  // -1 if the file cannot be opened.
  bool was_contended_ = false;
};

}  // namespace gristmill
