// The two futex calls for shared memory.
//
// The words are in memory shared between processes, so these are the
// non-private futexes.  They are not locks: a word is a counter to sleep on.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>

namespace gristmill {

// Sleeps while *word is `expected`, for at most `timeout_s` seconds (forever if
// negative, NaN or above a hundred years).  Returns 0 after a wake-up, else
// EAGAIN (the word had already changed), EINTR (a signal arrived) or ETIMEDOUT.
// May return 0 spuriously.
inline int futex_wait(const void* word, std::uint32_t expected,
                      double timeout_s = -1.0) noexcept {
  // A hundred years; longer times may not fit the kernel's integers.
  const bool has_limit = timeout_s >= 0.0 && timeout_s < 3.2e9;
  timespec limit{};
  if (has_limit) {
    limit.tv_sec = static_cast<time_t>(timeout_s);
    limit.tv_nsec = static_cast<long>(
        (timeout_s - static_cast<double>(limit.tv_sec)) * 1e9);
  }
  const long result = syscall(SYS_futex, word, FUTEX_WAIT, expected,
                              has_limit ? &limit : nullptr, nullptr, 0);
  return result == 0 ? 0 : errno;
}

// Wakes up to `count` sleepers; kAllSleepers wakes all of them.
inline void futex_wake(const void* word, int count) noexcept {
  syscall(SYS_futex, word, FUTEX_WAKE, count, nullptr, nullptr, 0);
}

inline constexpr int kAllSleepers = 0x7fffffff;

}  // namespace gristmill
