#include "core/files/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace gristmill {
namespace {

constexpr std::chrono::milliseconds kPollInterval{2};

}  // namespace

FileLock::FileLock(const std::string& path, std::chrono::milliseconds max_wait)
    : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  const auto deadline = std::chrono::steady_clock::now() + max_wait;
  while (fd_ >= 0 && flock(fd_, LOCK_EX | LOCK_NB) != 0 &&
         errno == EWOULDBLOCK && std::chrono::steady_clock::now() < deadline) {
    was_contended_ = true;
    std::this_thread::sleep_for(kPollInterval);
  }
}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  // A child that was forked meanwhile has the file open, too.
  flock(fd_, LOCK_UN);
  ::close(fd_);
}

}  // namespace gristmill
