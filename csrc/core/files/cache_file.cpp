#include "core/files/cache_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>

namespace gristmill {
namespace {

constexpr std::uint64_t kMagic = 0x3165686361634d47;  // "GMcache1"
constexpr char kPrefix[] = "gristmill-";
constexpr char kSuffix[] = ".cache";

// Other processes may create or remove the file between two attempts.
constexpr int kMaxOpenAttempts = 8;

struct Superblock {
  std::uint64_t magic = kMagic;
  std::uint64_t sets = 0;
};

// Creates the file under a temporary name first, so that other processes never
// see an incomplete file.  Succeeds if another process created it meanwhile.
Status create_cache_file(const std::string& path, std::uint64_t sets,
                         std::uint64_t size) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string temporary_path = concat(path, ".", getpid(), ".", now);
  const int fd =
      ::open(temporary_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
             S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP);
  if (fd < 0) {
    return Status::system(errno, temporary_path,
                          ": cannot create the cache file");
  }
  Superblock superblock;
  superblock.sets = sets;
  Status status;
  if (ftruncate(fd, static_cast<off_t>(size)) != 0 ||
      !pwrite_all(fd, 0, &superblock, sizeof(superblock)) ||
      (::link(temporary_path.c_str(), path.c_str()) != 0 && errno != EEXIST)) {
    status =
        Status::system(errno, temporary_path, ": cannot create the cache file");
  }
  ::close(fd);
  ::unlink(temporary_path.c_str());
  return status;
}

// Returns true if `path` still refers to the open file.
bool refers_to(const std::string& path, int fd) {
  struct stat open_file;
  struct stat file_at_path;
  return fstat(fd, &open_file) == 0 && stat(path.c_str(), &file_at_path) == 0 &&
         open_file.st_dev == file_at_path.st_dev &&
         open_file.st_ino == file_at_path.st_ino;
}

// Returns true if the open file is a cache with `sets` sets and `size` bytes.
bool is_complete(int fd, std::uint64_t sets, std::uint64_t size) {
  struct stat status;
  Superblock superblock;
  return fstat(fd, &status) == 0 &&
         static_cast<std::uint64_t>(status.st_size) == size &&
         pread_all(fd, 0, &superblock, sizeof(superblock)) &&
         superblock.magic == kMagic && superblock.sets == sets;
}

// Removes the caches in `folder` with other names than `name`, and so of other
// sizes, unless a process has them open.
void remove_other_sizes(const std::string& folder, const std::string& name) {
  DIR* const listing = opendir(folder.c_str());
  if (listing == nullptr) return;
  while (const dirent* entry = readdir(listing)) {
    const std::string other = entry->d_name;
    if (other == name || !other.starts_with(kPrefix) ||
        !other.ends_with(kSuffix)) {
      continue;
    }
    const std::string path = folder + "/" + other;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
    ::close(fd);
  }
  closedir(listing);
}

}  // namespace

bool pread_all(int fd, std::uint64_t offset, void* to, std::size_t size) {
  auto* position = static_cast<std::byte*>(to);
  while (size > 0) {
    const ssize_t num_bytes =
        pread(fd, position, size, static_cast<off_t>(offset));
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes <= 0) return false;
    position += num_bytes;
    offset += static_cast<std::uint64_t>(num_bytes);
    size -= static_cast<std::size_t>(num_bytes);
  }
  return true;
}

bool pwrite_all(int fd, std::uint64_t offset, const void* from,
                std::size_t size) {
  const auto* position = static_cast<const std::byte*>(from);
  while (size > 0) {
    const ssize_t num_bytes =
        pwrite(fd, position, size, static_cast<off_t>(offset));
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes <= 0) return false;
    position += num_bytes;
    offset += static_cast<std::uint64_t>(num_bytes);
    size -= static_cast<std::size_t>(num_bytes);
  }
  return true;
}

Result<CacheFile> open_cache_file(const std::string& folder, std::uint64_t sets,
                                  std::uint64_t bytes) {
  const std::string name = concat(kPrefix, sets, kSuffix);
  const std::string path = folder + "/" + name;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  Status last_error;
  for (int i = 0; i < kMaxOpenAttempts; ++i) {
    bool is_writable = true;
    int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT) {
      is_writable = false;
      fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0) {
      if (errno != ENOENT) {
        return Status::system(errno, path, ": cannot open the cache file");
      }
      TRY(create_cache_file(path, sets, bytes));
      continue;
    }
    // The lock is held while the file is open.  A process that gets an
    // exclusive lock may remove the file.
    if (flock(fd, LOCK_SH | LOCK_NB) == 0 && refers_to(path, fd) &&
        is_complete(fd, sets, bytes)) {
      if (is_writable) remove_other_sizes(folder, name);
      return CacheFile{path, fd, is_writable};
    }
    last_error = Status::system(EIO, path, ": expected a cache of ", sets,
                                " sets, found a different or incomplete file; "
                                "delete it");
    if (is_writable && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        refers_to(path, fd)) {
      ::unlink(path.c_str());
    }
    ::close(fd);
  }
  return last_error.ok()
             ? Status::system(EAGAIN, path, ": cannot open the cache file")
             : last_error;
}

}  // namespace gristmill
