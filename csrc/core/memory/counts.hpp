// What a worker tells of itself in shared memory.  `schedule/worker_counts.hpp`
// writes and reads it.
#pragma once

#include <atomic>
#include <cstdint>

namespace gristmill {

// Words of the text that a worker tells of itself.
inline constexpr std::uint32_t kTextWords = 255;

// What a worker has done since the first one of its number began, for whoever
// wants to know; times are CLOCK_MONOTONIC's.  The worker alone writes it, and
// nobody's progress depends on it.
struct Counts {
  std::atomic<std::int64_t>
      claimed_ns;                     // when it took its unit; 0: it has none
  std::atomic<std::int64_t> busy_ns;  // with units, the one in hand left out
  std::atomic<std::int64_t> idle_ns;  // waiting for one
  std::atomic<std::int64_t> outputs;
  std::atomic<std::int64_t> bytes;
  // A text in words: odd while it is written, so that a reader looks again.
  std::atomic<std::uint32_t> text_sequence;
  std::atomic<std::uint32_t> text_len;
  std::atomic<std::uint64_t> text[kTextWords];
};

}  // namespace gristmill
