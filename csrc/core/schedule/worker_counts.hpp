// What workers tell of themselves in their Counts: written by one process, read
// by any other while it is written.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/memory/counts.hpp"

namespace gristmill {

// A worker's Counts at a moment, with the time of the unit in hand.
struct WorkerCounts {
  std::int64_t busy_ns = 0;
  std::int64_t idle_ns = 0;
  std::int64_t outputs = 0;
  std::int64_t bytes = 0;
  std::string text;
};

[[nodiscard]] std::int64_t monotonic_ns() noexcept;

// For the one who writes: no other store comes in between.
inline void add(std::atomic<std::int64_t>& word, std::int64_t more) noexcept {
  word.store(word.load(std::memory_order_relaxed) + more,
             std::memory_order_relaxed);
}

void write_text(Counts& counts, std::string_view text) noexcept;

// The text is empty where its writer ended in the middle of it.
[[nodiscard]] WorkerCounts read_counts(const Counts& counts);

}  // namespace gristmill
