// Reads and writes the Counts of workers.  One process writes them; others may
// read them at the same time.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/memory/counts.hpp"

namespace gristmill {

// A snapshot of a worker's Counts, including the time of the current unit.
struct WorkerCounts {
  std::int64_t busy_ns = 0;
  std::int64_t idle_ns = 0;
  std::int64_t outputs = 0;
  std::int64_t bytes = 0;
  std::string text;
};

[[nodiscard]] std::int64_t monotonic_ns() noexcept;

// Adds to a count.  REQUIRES: no other thread or process writes it.
inline void add(std::atomic<std::int64_t>& count,
                std::int64_t increment) noexcept {
  count.store(count.load(std::memory_order_relaxed) + increment,
              std::memory_order_relaxed);
}

// Replaces the published text.  Truncated to kTextWords * 8 bytes.
void write_text(Counts& counts, std::string_view text) noexcept;

// Returns a snapshot of the counts.  The text is empty if its writer was killed
// while it wrote the text.
[[nodiscard]] WorkerCounts read_counts(const Counts& counts);

}  // namespace gristmill
