// A File reads ranges of bytes of one file that nobody should be changing.
//
// It notices a file that became shorter as far as it can: pread() meets the
// end and says so.  Reading a mapped file that was truncated after change()
// last looked raises SIGBUS; that is why mapping is the caller's choice.
//
// Thread safety: const methods may overlap.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/status.hpp"

namespace gristmill {

class File {
 public:
  // How bytes are had: copied by pread(), or mapped into memory.
  enum class Access { kPread, kMmap };

  // Opens a regular file for reading.
  static Result<File> open(std::string path, Access access);

  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  // Its size when it was opened.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  // When it had last been written to, in nanoseconds since 1970.
  [[nodiscard]] std::int64_t modified_ns() const noexcept {
    return std::int64_t{modified_.tv_sec} * 1'000'000'000 + modified_.tv_nsec;
  }

  // Fills `to` with the bytes from `offset` on.
  Status read(std::uint64_t offset, std::span<std::byte> to) const;

  // Fills each of `parts` in turn, with bytes that follow each other.
  Status read_parts(std::uint64_t offset,
                    std::span<const std::span<std::byte>> parts) const;

  // All bytes of a mapped file; empty for any other.
  [[nodiscard]] std::span<const std::byte> mapped() const noexcept {
    return {map_, map_ == nullptr ? 0 : static_cast<std::size_t>(size_)};
  }

  // Asks the system to fetch a range of a mapped file.
  // REQUIRES: the range lies in the file.
  void will_need(std::uint64_t offset, std::uint64_t size) const noexcept;

  // True if the file has become shorter: what is mapped must not be touched.
  [[nodiscard]] bool shrunk() const noexcept;

  // Says how the file differs from the one that was opened; empty if it does
  // not, as far as size and time of change tell.
  [[nodiscard]] std::string change() const;

 private:
  File(std::string path, int fd, const struct stat& status);
  Status map();

  const std::string path_;
  int fd_;
  const std::uint64_t size_;
  const struct timespec modified_;
  const std::byte* map_ = nullptr;
};

}  // namespace gristmill
