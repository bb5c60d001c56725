// The two futex calls that shared memory needs, and a wait with a deadline.
//
// Words lie in memory shared between processes, so these are the non-private
// futexes.  Nobody ever holds one: a word is a counter to sleep on.
#pragma once

#include <atomic>
#include <cstdint>

namespace gristmill {

// Sleeps while *word is `seen`, at most `timeout_s` seconds (negative, NaN or
// a hundred years: for ever).  Returns 0 when woken, else EAGAIN (the word had
// changed already), EINTR (a signal came) or ETIMEDOUT.  May return 0 for no
// reason.
int futex_wait(const void* word, std::uint32_t seen,
               double timeout_s = -1.0) noexcept;

// Wakes up to `count` sleepers.
void futex_wake(const void* word, int count) noexcept;

inline constexpr int kEverybody = 0x7fffffff;

}  // namespace gristmill
