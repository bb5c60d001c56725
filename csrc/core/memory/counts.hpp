// Statistics that a worker publishes in shared memory.
// `schedule/worker_counts.hpp` writes and reads them.
#pragma once

#include <atomic>
#include <cstdint>

namespace gristmill {

// Words of the text that a worker publishes.
inline constexpr std::uint32_t kTextWords = 255;

// Totals of a worker number since its first worker started.  They are only for
// observers.  Times are of CLOCK_MONOTONIC.  Only the worker writes them, and
// no other process waits for them.
struct Counts {
  // when it claimed its unit; 0 without a unit
  std::atomic<std::int64_t> claimed_ns;
  std::atomic<std::int64_t> busy_ns;  // with units, except the current one
  std::atomic<std::int64_t> idle_ns;  // waiting for a unit
  std::atomic<std::int64_t> outputs;
  std::atomic<std::int64_t> bytes;
  // The sequence number is odd while the text is written, so that a reader
  // retries.
  std::atomic<std::uint32_t> text_sequence;
  std::atomic<std::uint32_t> text_len;
  std::atomic<std::uint64_t> text[kTextWords];
};

}  // namespace gristmill
