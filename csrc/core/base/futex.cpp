#include "core/base/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace gristmill {
namespace {

// A hundred years; longer times may not fit the kernel's integers.
constexpr double kForEver_s = 3.2e9;

}  // namespace

int futex_wait(const void* word, std::uint32_t seen,
               double timeout_s) noexcept {
  timespec limit{};
  timespec* limit_or_none = nullptr;
  if (timeout_s >= 0.0 && timeout_s < kForEver_s) {
    limit.tv_sec = static_cast<time_t>(timeout_s);
    limit.tv_nsec = static_cast<long>(
        (timeout_s - static_cast<double>(limit.tv_sec)) * 1e9);
    limit_or_none = &limit;
  }
  const long result =
      syscall(SYS_futex, word, FUTEX_WAIT, seen, limit_or_none, nullptr, 0);
  return result == 0 ? 0 : errno;
}

void futex_wake(const void* word, int count) noexcept {
  syscall(SYS_futex, word, FUTEX_WAKE, count, nullptr, nullptr, 0);
}

}  // namespace gristmill
