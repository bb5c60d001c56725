#include "core/local_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace gristmill {
namespace {

// Closes the descriptor of an open() that came to nothing.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  int release() { return std::exchange(fd, -1); }
};

// Not blocking: opening a pipe would wait for somebody to write to it.
int open_to_read(const char* path) {
  return ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

// Lets this process open as many files as it may at all.
void raise_file_limit() {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Result<File::Ptr> LocalFile::open(std::string path, Access access) {
  Descriptor descriptor{open_to_read(path.c_str())};
  if (descriptor.fd < 0 && errno == EMFILE) {
    raise_file_limit();
    descriptor.fd = open_to_read(path.c_str());
  }
  if (descriptor.fd < 0) return Status::system(errno, path + ": open failed");
  struct stat status;
  if (fstat(descriptor.fd, &status) != 0) {
    return Status::system(errno, path + ": fstat failed");
  }
  if (S_ISDIR(status.st_mode)) {
    return Status::system(EISDIR,
                          path + ": found a directory, expected a file");
  }
  if (!S_ISREG(status.st_mode)) {
    return Status::system(EINVAL, path + ": not a regular file");
  }
  std::unique_ptr<LocalFile> file(
      new LocalFile(std::move(path), descriptor.release(), status));
  if (access == Access::kMmap && file->size() > 0) {
    Status mapped = file->map();
    if (!mapped.ok()) return mapped;
  }
  return File::Ptr(std::move(file));
}

LocalFile::LocalFile(std::string path, int fd, const struct stat& status)
    : File(std::move(path), static_cast<std::uint64_t>(status.st_size), {}),
      fd_(fd),
      modified_(status.st_mtim) {}

LocalFile::~LocalFile() {
  if (map_ != nullptr) munmap(const_cast<std::byte*>(map_), size());
  ::close(fd_);
}

// Records are read in any order: the kernel would read ahead in vain.
Status LocalFile::map() {
  void* const at = mmap(nullptr, size(), PROT_READ, MAP_SHARED, fd_, 0);
  if (at == MAP_FAILED) return Status::system(errno, path() + ": mmap failed");
  map_ = static_cast<const std::byte*>(at);
  madvise(at, size(), MADV_RANDOM);
  return {};
}

std::uint64_t LocalFile::version() const noexcept {
  return static_cast<std::uint64_t>(modified_.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(modified_.tv_nsec);
}

Status LocalFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  std::size_t done = 0;
  while (done < to.size()) {
    const std::uint64_t at = offset + done;
    const ssize_t got =
        pread(fd_, to.data() + done, to.size() - done, static_cast<off_t>(at));
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (got == 0) {
      const std::string changed = change();
      return Status(Code::kInvalidArgument,
                    "the file ends at offset " + std::to_string(at) + ", " +
                        std::to_string(to.size() - done) +
                        " more bytes were expected" +
                        (changed.empty() ? "" : "; " + changed));
    } else if (errno != EINTR) {
      const int error = errno;
      return Status::system(
          error, path() + ": reading " + std::to_string(to.size() - done) +
                     " bytes at offset " + std::to_string(at) + " failed");
    }
  }
  return {};
}

// What one system call does not fill, as when the file ends, is left to read().
Status LocalFile::read_parts(
    std::uint64_t offset, std::span<const std::span<std::byte>> parts) const {
  std::array<struct iovec, 64> vectors;
  while (!parts.empty()) {
    const auto now = parts.first(std::min(parts.size(), vectors.size()));
    std::uint64_t size = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      vectors[i] = {now[i].data(), now[i].size()};
      size += now[i].size();
    }
    const ssize_t got =
        preadv(fd_, vectors.data(), static_cast<int>(now.size()),
               static_cast<off_t>(offset));
    if (got < 0 || static_cast<std::uint64_t>(got) < size) {
      std::uint64_t at = offset;
      for (const auto part : now) {
        Status status = read(at, part);
        if (!status.ok()) return status;
        at += part.size();
      }
    }
    offset += size;
    parts = parts.subspan(now.size());
  }
  return {};
}

void LocalFile::will_need(std::uint64_t offset,
                          std::uint64_t size) const noexcept {
  if (map_ == nullptr) return;
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t first = offset / page * page;
  madvise(const_cast<std::byte*>(map_) + first, size + (offset - first),
          MADV_WILLNEED);
}

bool LocalFile::shrunk() const noexcept {
  struct stat now;
  return fstat(fd_, &now) == 0 &&
         static_cast<std::uint64_t>(now.st_size) < size();
}

std::string LocalFile::change() const {
  struct stat now;
  if (fstat(fd_, &now) != 0) return "";
  const auto size = static_cast<std::uint64_t>(now.st_size);
  if (size != this->size()) {
    return "the file changed while it was open: it has " +
           std::to_string(size) + " bytes now, " +
           std::to_string(this->size()) + " when it was opened";
  }
  if (now.st_mtim.tv_sec != modified_.tv_sec ||
      now.st_mtim.tv_nsec != modified_.tv_nsec) {
    return "the file was written to while it was open";
  }
  return "";
}

}  // namespace gristmill
