// Replaces a file that other processes may be reading.
//
// Thread safety: pure functions; one thread uses a ReplacementFile at a time.
// If several processes replace the same file at the same time, the last one
// wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "core/base/status.hpp"

namespace gristmill {

// The new contents of a file, invisible until make_visible().  If the file
// system does not support unnamed files, they have a temporary name from the
// start, and a killed process leaves them on the disk.
class ReplacementFile {
 public:
  // Creates an empty file in the folder of `path`, and the folder if necessary.
  static Result<std::unique_ptr<ReplacementFile>> create(
      const std::string& path);

  // Removes the file unless it is visible.
  ~ReplacementFile();
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;

  // Appends bytes.
  Status write(std::span<const std::byte> bytes) const;

  // Closes the file and renames it to `path`, replacing any existing file.
  Status make_visible();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  // Returns the descriptor, which can also read.  REQUIRES: the file is open.
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  explicit ReplacementFile(const std::string& path);
  [[nodiscard]] Status open();
  [[nodiscard]] Status failure(int error, const char* operation) const;

  const std::string path_;
  const std::string temporary_;
  int fd_ = -1;
  // True if the file has its temporary name, which the destructor removes.
  bool has_name_ = false;
};

// Writes the parts to a temporary file in the same folder and renames it to
// `path`, so that readers never see an incomplete file.  Creates the folder if
// necessary.
Status replace_file(const std::string& path,
                    std::initializer_list<std::span<const std::byte>> parts);

// Fails if a file of `bytes` bytes would take more than a quarter of the free
// space.  For files that can be computed again.
Status check_free_space(const std::string& path, std::uint64_t bytes);

}  // namespace gristmill
