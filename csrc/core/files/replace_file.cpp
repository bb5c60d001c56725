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

// Returns a random name next to `path`, which no other process or thread uses.
std::string temporary_name(const std::string& path) {
  std::random_device random;
  std::array<char, 24> suffix;
  std::snprintf(suffix.data(), suffix.size(), ".%08x%08x.tmp", random(),
                random());
  return path + suffix.data();
}

}  // namespace

ReplacementFile::ReplacementFile(const std::string& path)
    : path_(path), temporary_(temporary_name(path)) {}

ReplacementFile::~ReplacementFile() {
  if (fd_ >= 0) ::close(fd_);
  if (has_name_) ::unlink(temporary_.c_str());
}

Result<std::unique_ptr<ReplacementFile>> ReplacementFile::create(
    const std::string& path) {
  // Ignore errors: opening the file reports them.
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(),
                                      ignored);
  std::unique_ptr<ReplacementFile> file(new ReplacementFile(path));
  TRY(file->open());
  return file;
}

Status ReplacementFile::failure(int error, const char* operation) const {
  return Status::system(error, path_, ": ", operation, " failed");
}

Status ReplacementFile::open() {
  // The usual permissions: those of any file that this user writes.
  const auto folder = std::filesystem::path(path_).parent_path();
  fd_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (fd_ >= 0) return {};
  fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  has_name_ = fd_ >= 0;
  return has_name_ ? Status() : failure(errno, "open");
}

Status ReplacementFile::write(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t num_bytes = ::write(fd_, bytes.data(), bytes.size());
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes <= 0) return failure(num_bytes < 0 ? errno : EIO, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(num_bytes));
  }
  return {};
}

Status ReplacementFile::make_visible() {
  const std::string self = concat("/proc/self/fd/", fd_);
  if (!has_name_ && ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD,
                             temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    return failure(errno, "link");
  }
  has_name_ = true;
  if (::close(std::exchange(fd_, -1)) != 0) return failure(errno, "close");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return failure(errno, "rename");
  }
  has_name_ = false;
  return {};
}

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
  const auto file = TRY(ReplacementFile::create(path));
  for (const auto& part : parts) TRY(file->write(part));
  return file->make_visible();
}

}  // namespace gristmill
