// A FileLock keeps processes from doing the same work for a file twice.
//
// It is a lock of the system's on the file itself: nothing is written, and it
// ends with the process that has it.  Where there is none to be had, such as on
// some network storage or after `longest`, the work is done twice instead.
//
// Thread safety: none; a lock belongs to one thread.  Other threads of the
// process are locked out, too.
#pragma once

#include <chrono>
#include <string>

namespace gristmill {

class FileLock {
 public:
  FileLock(const std::string& path, std::chrono::milliseconds longest);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // True if another had it meanwhile, who may have done the work.
  [[nodiscard]] bool waited() const noexcept { return waited_; }

 private:
  int fd_;  // -1 if the file cannot be opened.
  bool waited_ = false;
};

}  // namespace gristmill
