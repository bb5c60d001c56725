#include "core/schedule/worker_counts.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>

namespace gristmill {
namespace {

// Reading is retried this many times.  A writer takes a microsecond, but one
// that was killed never completes its text.
constexpr int kMaxSnapshotRetries = 1000;

std::string read_text(const Counts& counts) {
  std::array<std::uint64_t, kTextWords> words{};
  for (int attempt = 0; attempt < kMaxSnapshotRetries; ++attempt) {
    const std::uint32_t sequence =
        counts.text_sequence.load(std::memory_order_acquire);
    if (sequence % 2 != 0) continue;
    // Acquire loads, so that the second read of the sequence comes after them.
    const std::uint32_t length =
        counts.text_len.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < kTextWords; ++i) {
      words[i] = counts.text[i].load(std::memory_order_acquire);
    }
    if (counts.text_sequence.load(std::memory_order_relaxed) != sequence) {
      continue;
    }
    std::string text(std::min<std::size_t>(length, sizeof(words)), '\0');
    std::memcpy(text.data(), words.data(), text.size());
    return text;
  }
  return {};
}

}  // namespace

std::int64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void write_text(Counts& counts, std::string_view text) noexcept {
  std::array<std::uint64_t, kTextWords> words{};
  const std::size_t length = std::min(text.size(), sizeof(words));
  std::memcpy(words.data(), text.data(), length);
  // Odd, even if the previous writer was killed while it wrote.
  const std::uint32_t writing =
      counts.text_sequence.load(std::memory_order_relaxed) | 1U;
  counts.text_sequence.store(writing, std::memory_order_relaxed);
  // Release stores: a reader that sees one of them sees the odd sequence, too.
  counts.text_len.store(static_cast<std::uint32_t>(length),
                        std::memory_order_release);
  for (std::uint32_t i = 0; i < kTextWords; ++i) {
    counts.text[i].store(words[i], std::memory_order_release);
  }
  counts.text_sequence.store(writing + 1, std::memory_order_release);
}

WorkerCounts read_counts(const Counts& counts) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  WorkerCounts snapshot;
  const std::int64_t claimed_ns = counts.claimed_ns.load(kRelaxed);
  snapshot.busy_ns = counts.busy_ns.load(kRelaxed);
  if (claimed_ns != 0) {
    snapshot.busy_ns += std::max<std::int64_t>(monotonic_ns() - claimed_ns, 0);
  }
  snapshot.idle_ns = counts.idle_ns.load(kRelaxed);
  snapshot.outputs = counts.outputs.load(kRelaxed);
  snapshot.bytes = counts.bytes.load(kRelaxed);
  snapshot.text = read_text(counts);
  return snapshot;
}

}  // namespace gristmill
