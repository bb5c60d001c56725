#include "core/files/replace_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

namespace gristmill {
namespace {

Status write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t num_bytes = ::write(fd, bytes.data(), bytes.size());
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes <= 0) {
      return Status::system(num_bytes < 0 ? errno : EIO, "write failed");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(num_bytes));
  }
  return {};
}

// Returns a random name next to `path`, which no other process or thread uses.
std::string temporary_name(const std::string& path) {
  std::random_device random;
  std::array<char, 24> suffix;
  std::snprintf(suffix.data(), suffix.size(), ".%08x%08x.tmp", random(),
                random());
  return path + suffix.data();
}

// A file that is invisible until make_visible().  If the file system does not
// support unnamed files, it has its temporary name from the start, and a killed
// process leaves it on the disk.
class InvisibleFile {
 public:
  explicit InvisibleFile(const std::string& path)
      : path_(path), temporary_(temporary_name(path)) {
    // The usual permissions: those of any file that this user writes.
    const auto folder = std::filesystem::path(path).parent_path();
    fd_ = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (fd_ >= 0) return;
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                 0666);
    has_name_ = fd_ >= 0;
    error_ = errno;
  }
  ~InvisibleFile() {
    if (fd_ >= 0) ::close(fd_);
    if (has_name_) ::unlink(temporary_.c_str());
  }
  InvisibleFile(const InvisibleFile&) = delete;
  InvisibleFile& operator=(const InvisibleFile&) = delete;

  Status write(std::span<const std::byte> bytes) const {
    if (fd_ < 0) return Status::system(error_, "open failed");
    return write_all(fd_, bytes);
  }

  // Renames the file to `path`, replacing any existing file.
  Status make_visible() {
    const std::string self = concat("/proc/self/fd/", fd_);
    if (!has_name_ && ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD,
                               temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return Status::system(errno, "link failed");
    }
    has_name_ = true;
    if (::close(std::exchange(fd_, -1)) != 0) {
      return Status::system(errno, "close failed");
    }
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
      return Status::system(errno, "rename failed");
    }
    has_name_ = false;
    return {};
  }

 private:
  const std::string path_;
  const std::string temporary_;
  int fd_ = -1;
  int error_ = 0;
  // True if the file has its temporary name, which the destructor removes.
  bool has_name_ = false;
};

Status try_to_replace(const std::string& path,
                      std::initializer_list<std::span<const std::byte>> parts) {
  InvisibleFile file(path);
  for (const auto& part : parts) TRY(file.write(part));
  return file.make_visible();
}

}  // namespace

Status check_free_space(const std::string& path, std::uint64_t bytes) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path folder = fs::path(path).parent_path();
  while (!fs::exists(folder, error) && folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  const fs::space_info space = fs::space(folder, error);
  if (error || bytes <= space.available / 4) return {};
  return Status::system(ENOSPC, path, ": ", space.available,
                        " bytes are free there");
}

Status replace_file(const std::string& path,
                    std::initializer_list<std::span<const std::byte>> parts) {
  // Ignore errors: opening the file reports them.
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(),
                                      ignored);
  const Status status = try_to_replace(path, parts);
  if (status.ok()) return {};
  return Status::system(status.error_number(), path, ": ", status.message());
}

}  // namespace gristmill
