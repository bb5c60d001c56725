// A RandomState draws and shuffles as numpy.random.RandomState does.
//
// Megatron's orders of documents and samples come from it.  It is the generator
// MT19937.  A number in [0, max] is the first draw that is at most `max` after
// the bits above those of `max` are cleared.
//
// Thread safety: none; one thread uses an object at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace gristmill {

class RandomState {
 public:
  // Called with the number of values at the beginning that may still move.
  using OnFinal = std::function<void(std::size_t)>;

  explicit RandomState(std::uint32_t seed) noexcept;

  // Shuffles the values.  The last ones get their final values first; calls
  // `on_final` after every few thousand, and at the end with 0.
  // REQUIRES: at most 2**32 values.
  void shuffle(std::span<std::uint32_t> values, const OnFinal& on_final);

 private:
  static constexpr std::size_t kStateWords = 624;

  // Draws the next kStateWords numbers.
  void refill() noexcept;
#if defined(__x86_64__)
  void refill_avx2() noexcept;
#endif
  void refill_portable() noexcept;

  // Draws targets[k] in [0, first - k] for each k.
  // REQUIRES: first >= targets.size(); `targets` has room for kBatch more.
  void draw_targets(std::uint32_t first, std::span<std::uint32_t> targets);

  std::array<std::uint32_t, kStateWords> state_;
  std::array<std::uint32_t, kStateWords> draws_;
  std::size_t next_ = kStateWords;  // The first unused one of draws_.
};

}  // namespace gristmill
