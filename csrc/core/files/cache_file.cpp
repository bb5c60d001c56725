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

// Attempts to open a file that other processes create or remove meanwhile.
constexpr int kMaxOpenAttempts = 8;

struct Superblock {
  std::uint64_t magic = kMagic;
  std::uint64_t sets = 0;
};

// Creates the cache under a temporary name first, so that other processes never
// see an incomplete file.
Status make(const std::string& path, std::uint64_t sets, std::uint64_t size) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string half = concat(path, ".", getpid(), ".", now);
  const int fd = ::open(half.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                        S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP);
  if (fd < 0) return Status::system(errno, half, ": cannot be created");
  Superblock block;
  block.sets = sets;
  Status status;
  if (ftruncate(fd, static_cast<off_t>(size)) != 0 ||
      !pwrite_all(fd, 0, &block, sizeof(block)) ||
      (::link(half.c_str(), path.c_str()) != 0 && errno != EEXIST)) {
    status = Status::system(errno, half, ": cannot be created");
  }
  ::close(fd);
  ::unlink(half.c_str());
  return status;
}

// Returns true if `path` still refers to the open file.
bool leads_to(const std::string& path, int fd) {
  struct stat here;
  struct stat there;
  return fstat(fd, &here) == 0 && stat(path.c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

bool is_whole(int fd, std::uint64_t sets, std::uint64_t size) {
  struct stat status;
  Superblock block;
  return fstat(fd, &status) == 0 &&
         static_cast<std::uint64_t>(status.st_size) == size &&
         pread_all(fd, 0, &block, sizeof(block)) && block.magic == kMagic &&
         block.sets == sets;
}

// Removes the caches of other sizes in a folder unless they are in use.
void remove_others(const std::string& folder, const std::string& name) {
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

bool pread_all(int fd, std::uint64_t at, void* to, std::size_t size) {
  auto* next = static_cast<std::byte*>(to);
  while (size > 0) {
    const ssize_t got = pread(fd, next, size, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    at += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

bool pwrite_all(int fd, std::uint64_t at, const void* from, std::size_t size) {
  const auto* next = static_cast<const std::byte*>(from);
  while (size > 0) {
    const ssize_t put = pwrite(fd, next, size, static_cast<off_t>(at));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    next += put;
    at += static_cast<std::uint64_t>(put);
    size -= static_cast<std::size_t>(put);
  }
  return true;
}

Result<CacheFile> open_cache_file(const std::string& folder, std::uint64_t sets,
                                  std::uint64_t bytes) {
  const std::string name = concat(kPrefix, sets, kSuffix);
  const std::string path = folder + "/" + name;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  Status problem;
  for (int i = 0; i < kMaxOpenAttempts; ++i) {
    bool writes = true;
    int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT) {
      writes = false;
      fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0) {
      if (errno != ENOENT) {
        return Status::system(errno, path, ": cannot be opened");
      }
      TRY(make(path, sets, bytes));
      continue;
    }
    // The lock is held while the file is open.  A process that gets an
    // exclusive lock may remove the file.
    if (flock(fd, LOCK_SH | LOCK_NB) == 0 && leads_to(path, fd) &&
        is_whole(fd, sets, bytes)) {
      if (writes) remove_others(folder, name);
      return CacheFile{path, fd, writes};
    }
    problem = Status::system(EIO, path, ": not a cache of ", sets, " sets");
    if (writes && flock(fd, LOCK_EX | LOCK_NB) == 0 && leads_to(path, fd)) {
      ::unlink(path.c_str());
    }
    ::close(fd);
  }
  return problem.ok() ? Status::system(EAGAIN, path, ": cannot be opened")
                      : problem;
}

}  // namespace gristmill
