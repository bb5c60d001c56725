#include "core/files/local_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/files/verify.hpp"

namespace gristmill {
namespace {

// One call of madvise() loads at most as much as the system reads ahead, which
// is this much by default.
constexpr std::uint64_t kReadAheadBytes = std::uint64_t{128} << 10;

}  // namespace

Result<File::Ptr> LocalFile::open(std::string path, Access access) {
  const int fd = TRY(Descriptor::open(path));
  struct stat status;
  Status failure;
  if (fstat(fd, &status) != 0) {
    failure = Status::system(errno, path, ": fstat failed");
  } else if (S_ISDIR(status.st_mode)) {
    failure =
        Status::system(EISDIR, path, ": found a directory, expected a file");
  } else if (!S_ISREG(status.st_mode)) {
    failure = Status::system(EINVAL, path, ": not a regular file");
  }
  if (!failure.ok()) {
    ::close(fd);
    return failure;
  }
  std::unique_ptr<LocalFile> file(new LocalFile(std::move(path), fd, status));
  if (access != Access::kPread && file->size() > 0) {
    Status mapped = file->map(access);
    if (!mapped.ok()) return mapped;
  }
  return File::Ptr(std::move(file));
}

LocalFile::LocalFile(std::string path, int fd, const struct stat& status)
    : File(path, static_cast<std::uint64_t>(status.st_size), {}),
      descriptor_(std::move(path), fd, status),
      modified_(status.st_mtim) {}

LocalFile::~LocalFile() {
  if (map_ != nullptr) munmap(const_cast<std::byte*>(map_), size());
}

Status LocalFile::map(Access access) {
  auto use = TRY(descriptor_.use());
  const bool all = access == Access::kMmapAll;
  const int flags = MAP_SHARED | (all ? MAP_POPULATE : 0);
  void* const at = mmap(nullptr, size(), PROT_READ, flags, use.fd(), 0);
  if (at == MAP_FAILED) return Status::system(errno, path(), ": mmap failed");
  map_ = static_cast<const std::byte*>(at);
  // Records are read in any order, so readahead by the kernel would be wasted.
  if (!all) madvise(at, size(), MADV_RANDOM);
  return {};
}

std::uint64_t LocalFile::version() const noexcept {
  return static_cast<std::uint64_t>(modified_.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(modified_.tv_nsec);
}

Status LocalFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  auto use = TRY(descriptor_.use());
  const int fd = use.fd();
  std::size_t done = 0;
  while (done < to.size()) {
    const std::uint64_t at = offset + done;
    const ssize_t num_bytes =
        pread(fd, to.data() + done, to.size() - done, static_cast<off_t>(at));
    if (num_bytes > 0) {
      done += static_cast<std::size_t>(num_bytes);
    } else if (num_bytes == 0) {
      const std::string changed = describe_change();
      return damaged("the file ends at offset ", at, ", ", to.size() - done,
                     " more bytes were expected",
                     changed.empty() ? "" : "; " + changed);
    } else if (errno != EINTR) {
      const int error = errno;
      return Status::system(error, path(), ": reading ", to.size() - done,
                            " bytes at offset ", at, " failed");
    }
  }
  return {};
}

void LocalFile::will_need(std::uint64_t offset,
                          std::uint64_t size) const noexcept {
  if (map_ == nullptr) return;
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::uint64_t begin = offset / page * page;
  while (begin < offset + size) {
    const std::uint64_t end = std::min(begin + kReadAheadBytes, offset + size);
    madvise(const_cast<std::byte*>(map_) + begin, end - begin, MADV_WILLNEED);
    begin = end;
  }
}

bool LocalFile::has_shrunk() const noexcept {
  struct stat current;
  auto use = descriptor_.use();
  return use.ok() && fstat(use.value().fd(), &current) == 0 &&
         static_cast<std::uint64_t>(current.st_size) < size();
}

std::string LocalFile::describe_change() const {
  struct stat current;
  auto use = descriptor_.use();
  if (!use.ok() || fstat(use.value().fd(), &current) != 0) return "";
  const auto size = static_cast<std::uint64_t>(current.st_size);
  if (size != this->size()) {
    return concat("the file changed while it was open: it has ", size,
                  " bytes now, ", this->size(), " when it was opened");
  }
  if (current.st_mtim.tv_sec != modified_.tv_sec ||
      current.st_mtim.tv_nsec != modified_.tv_nsec) {
    return "the file was written to while it was open";
  }
  return "";
}

}  // namespace gristmill
