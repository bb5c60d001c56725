// A Permutation maps the indices in [0, max_index] to each other by a formula.
//
// It is Grain's keyed shuffle: a Feistel network on blocks of at least
// max_index + 1 values.  It is applied again while the result is outside the
// range.  Only the round keys are stored, so an index of 10**12 takes as long
// as one of 10**6.  The smallest block has 2**16 values, so an index of a small
// range takes about 2**16 / (max_index + 1) passes.
//
// Thread safety: immutable after construction, any thread may call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/status.hpp"

namespace gristmill {

// The width of the Feistel block.  Grain uses ceil(log2(max_index)) bits.  This
// is one bit too few if max_index is a power of four from 4**8 on: the largest
// index is then lost, and another index occurs twice.
enum class Block {
  kGrain,  // Grain's width, including its defect.
  kWhole,  // The next larger width if Grain's is too small for max_index.
};

class Permutation {
 public:
  // The number of rounds that Grain's datasets and samplers use.
  static constexpr std::uint32_t kRounds = 4;
  static constexpr std::uint32_t kMaxRounds = 1024;

  // REQUIRES: max_index >= 0; rounds is even, positive and at most kMaxRounds.
  Permutation(std::int64_t max_index, std::uint32_t seed,
              std::uint32_t rounds = kRounds, Block block = Block::kWhole);

  // Replaces each index by its position.  Many indices at once are several
  // times faster.  REQUIRES: every index is in [0, max_index].
  void apply(std::span<std::int64_t> indices) const noexcept;

 private:
  [[nodiscard]] std::uint64_t permute_one(std::uint64_t index) const noexcept;
  template <class Word>
  void permute_chunk(std::span<std::int64_t> indices) const noexcept;

  unsigned half_bits_;  // W: the block has 2 * W bits.
  // The largest index, or one less if a block of Grain's width excludes it.
  std::uint64_t last_;
  std::size_t rounds_;
  // A key less than 2**W for each round; the others are not set.  This is not a
  // vector, because an allocation takes longer than permuting an index.
  std::array<std::uint32_t, kMaxRounds> keys_;
};

// Returns the position of `index`.  Results and error texts equal those of
// grain.experimental.index_shuffle.
Result<std::int64_t> index_shuffle(std::int64_t index, std::int64_t max_index,
                                   std::uint32_t seed, std::uint32_t rounds);

}  // namespace gristmill
