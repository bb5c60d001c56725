// What the fuzz targets write their inputs to.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

namespace gristmill {

// A file in memory that is written over again and again.
class MemoryFile {
 public:
  static constexpr std::uint64_t kVersion = 1'000'000'000;

  MemoryFile()
      : fd_(memfd_create("fuzz", 0)),
        path_("/proc/self/fd/" + std::to_string(fd_)) {}

  void write(std::span<const std::byte> bytes) const {
    const struct timespec time = {1, 0};  // As kVersion says.
    const struct timespec times[2] = {time, time};
    if (ftruncate(fd_, 0) != 0 ||
        pwrite(fd_, bytes.data(), bytes.size(), 0) !=
            static_cast<ssize_t>(bytes.size()) ||
        futimens(fd_, times) != 0) {
      abort();
    }
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

}  // namespace gristmill
