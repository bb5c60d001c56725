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

// For the only writer; it is not an atomic increment.
inline void add(std::atomic<std::int64_t>& word, std::int64_t more) noexcept {
  word.store(word.load(std::memory_order_relaxed) + more,
             std::memory_order_relaxed);
}

void write_text(Counts& counts, std::string_view text) noexcept;

// The text is empty if its writer was killed while it wrote the text.
[[nodiscard]] WorkerCounts read_counts(const Counts& counts);

}  // namespace gristmill
