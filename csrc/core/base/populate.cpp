#include "core/base/populate.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>

namespace gristmill {
namespace {

constexpr std::uint64_t kPage = 4096;

// The kernel's number; older headers do not have it.
constexpr int kPopulateWrite = 23;

}  // namespace

bool populate(std::byte* base, int fd, std::uint64_t offset,
              std::uint64_t bytes) noexcept {
  const std::uint64_t from = offset & ~(kPage - 1);
  const std::uint64_t length = offset + bytes - from;
  while (madvise(base + from, length, kPopulateWrite) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    // Before Linux 5.14 there is no such advice.
    return errno == EINVAL && fd >= 0 &&
           fallocate(fd, 0, static_cast<off_t>(from),
                     static_cast<off_t>(length)) == 0;
  }
  return true;
}

}  // namespace gristmill
