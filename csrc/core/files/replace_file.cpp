#include "core/files/replace_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>

namespace gristmill {
namespace {

Status write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return Status::system(put < 0 ? errno : EIO, "write failed");
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

// A name beside `path` that no other process or thread comes upon.
std::string temporary_name(const std::string& path) {
  std::random_device random;
  std::array<char, 24> suffix;
  std::snprintf(suffix.data(), suffix.size(), ".%08x%08x.tmp", random(),
                random());
  return path + suffix.data();
}

}  // namespace

Status replace_file(const std::string& path,
                    std::initializer_list<std::span<const std::byte>> parts) {
  std::error_code none;  // Then opening the file says what is wrong.
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(),
                                      none);
  const std::string temporary = temporary_name(path);
  // As readable for others as any file that this user writes.
  const int fd =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return Status::system(errno, temporary, ": open failed");
  Status status;
  for (const auto& part : parts) {
    if (status.ok()) status = write_all(fd, part);
  }
  if (::close(fd) != 0 && status.ok()) {
    status = Status::system(errno, "close failed");
  }
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = Status::system(errno, "rename failed");
  }
  if (status.ok()) return {};
  ::unlink(temporary.c_str());
  return Status::system(status.error_number(), path, ": ", status.message());
}

}  // namespace gristmill
