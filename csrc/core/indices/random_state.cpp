#include "core/indices/random_state.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace gristmill {
namespace {

constexpr std::size_t kLag = 397;  // MT19937's recurrence.

// Swap targets that are drawn at once.
constexpr std::size_t kBlock = 4096;
// Memory that is requested ahead.  Fewer requests do not hide the time of a
// cache miss.
constexpr std::size_t kAhead = 128;
// Draws that are compared with one limit.
constexpr std::uint32_t kBatch = 48;

[[gnu::always_inline]] inline std::uint32_t twist(std::uint32_t high,
                                                  std::uint32_t low) noexcept {
  const std::uint32_t bits = (high & 0x80000000U) | (low & 0x7fffffffU);
  return (bits >> 1U) ^ ((0U - (bits & 1U)) & 0x9908b0dfU);
}

// Draws the next numbers.  Each loop reads only words that it does not write,
// or wrote long before, so that a compiler can use vectors.
[[gnu::always_inline]] inline void refill_words(std::uint32_t* state,
                                                std::uint32_t* draws,
                                                std::size_t count) noexcept {
  const std::size_t lead = count - kLag;
  for (std::size_t i = 0; i < lead; ++i) {
    state[i] = state[i + kLag] ^ twist(state[i], state[i + 1]);
  }
  for (std::size_t i = lead; i < 2 * lead; ++i) {
    state[i] = state[i - lead] ^ twist(state[i], state[i + 1]);
  }
  for (std::size_t i = 2 * lead; i < count - 1; ++i) {
    state[i] = state[i - lead] ^ twist(state[i], state[i + 1]);
  }
  state[count - 1] = state[kLag - 1] ^ twist(state[count - 1], state[0]);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits = state[i];
    bits ^= bits >> 11U;
    bits ^= (bits << 7U) & 0x9d2c5680U;
    bits ^= (bits << 15U) & 0xefc60000U;
    draws[i] = bits ^ (bits >> 18U);
  }
}

}  // namespace

RandomState::RandomState(std::uint32_t seed) noexcept {
  for (std::uint32_t i = 0; i < kStateWords; ++i) {
    state_[i] = seed;
    seed = 1812433253U * (seed ^ (seed >> 30U)) + i + 1;
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void RandomState::refill_avx2() noexcept {
  refill_words(state_.data(), draws_.data(), kStateWords);
}
#endif

void RandomState::refill_portable() noexcept {
  refill_words(state_.data(), draws_.data(), kStateWords);
}

void RandomState::refill() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    refill_avx2();
  } else {
    refill_portable();
  }
#else
  refill_portable();
#endif
  next_ = 0;
}

void RandomState::draw_targets(std::uint32_t first,
                               std::span<std::uint32_t> targets) {
  std::size_t k = 0;
  while (k < targets.size()) {
    if (next_ == kStateWords) refill();
    const auto limit = first - static_cast<std::uint32_t>(k);
    const std::uint32_t mask = ~0U >> std::countl_zero(limit);
    // The next targets with the same mask.
    const std::size_t count =
        std::min<std::size_t>(targets.size() - k, limit - (mask >> 1U));
    if (count >= kBatch && kStateWords - next_ >= kBatch) {
      // The limits of these draws are in (limit - kBatch, limit].  A draw in
      // that range, which is rare, needs its exact limit.
      std::uint32_t needs_exact_limit = 0;
      std::size_t end = k;
      for (std::size_t i = next_; i < next_ + kBatch; ++i) {
        const std::uint32_t draw = draws_[i] & mask;
        targets.data()[end] = draw;
        end += std::size_t{draw <= limit};
        needs_exact_limit |= std::uint32_t{draw - (limit - kBatch) <= kBatch};
      }
      if (needs_exact_limit == 0) {
        next_ += kBatch;
        k = end;
        continue;
      }
    }
    const std::size_t draws_end =
        std::min<std::size_t>(next_ + kBatch, kStateWords);
    const std::size_t end = k + count;
    while (next_ < draws_end && k < end) {
      const std::uint32_t draw = draws_[next_++] & mask;
      targets.data()[k] = draw;
      k += std::size_t{draw <= first - static_cast<std::uint32_t>(k)};
    }
  }
}

void RandomState::shuffle(std::span<std::uint32_t> values,
                          const OnFinal& on_final) {
  // Room for the draws after the last target, and for prefetching.
  std::array<std::uint32_t, kBlock + kAhead> targets{};
  std::uint32_t* const all = values.data();
  std::size_t last = values.empty() ? 0 : values.size() - 1;
  while (last > 0) {
    const std::size_t count = std::min(last, kBlock);
    draw_targets(static_cast<std::uint32_t>(last), {targets.data(), count});
    // The targets after these are those of the previous block: requesting them
    // is useless, but harmless.
    for (std::size_t k = 0; k < std::min(count, kAhead); ++k) {
      __builtin_prefetch(all + targets[k], 1);
    }
    for (std::size_t k = 0; k < count; ++k) {
      __builtin_prefetch(all + targets[k + kAhead], 1);
      std::swap(all[last - k], all[targets[k]]);
    }
    last -= count;
    on_final(last == 0 ? 0 : last + 1);
  }
  if (values.size() <= 1) on_final(0);
}

}  // namespace gristmill
