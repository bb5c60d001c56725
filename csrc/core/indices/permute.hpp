// A Permutation maps each index in [0, max_index] to another, by formula.
//
// It is Grain's keyed shuffle: a Feistel network over a block of at least
// max_index + 1 values, applied again while the result lies outside the
// range.  Nothing is stored but the round keys, so a permutation of 10**12
// indices costs as much as one of 10**6.  A range far smaller than its block
// of 2**16 values walks about 2**16 / (max_index + 1) times per index.
//
// Thread safety: immutable after construction, any thread may call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/status.hpp"

namespace gristmill {

// How wide the Feistel block is.  Grain takes ceil(log2(max_index)) bits, one
// too few where max_index is a power of four from 4**8 on: its largest index
// is then lost and another one produced twice.
enum class Block {
  kGrain,  // Grain's width, its defect included.
  kWhole,  // The next wider block where Grain's does not hold max_index.
};

class Permutation {
 public:
  // The number of rounds that Grain's datasets and samplers use.
  static constexpr std::uint32_t kRounds = 4;
  static constexpr std::uint32_t kMostRounds = 1024;

  // REQUIRES: max_index >= 0; rounds is even, positive and at most kMostRounds.
  Permutation(std::int64_t max_index, std::uint32_t seed,
              std::uint32_t rounds = kRounds, Block block = Block::kWhole);

  // Replaces each index by its position, many at a time because that is several
  // times faster.  REQUIRES: every index is in [0, max_index].
  void apply(std::span<std::int64_t> indices) const noexcept;

 private:
  [[nodiscard]] std::uint64_t of(std::uint64_t index) const noexcept;
  template <class Word>
  void apply_to_chunk(std::span<std::int64_t> indices) const noexcept;

  unsigned half_bits_;  // W: the block has 2 * W bits.
  // The largest index, less one if a block of Grain's width lacks it.
  std::uint64_t last_;
  std::size_t rounds_;
  // One per round, each below 2**W; the others are not set.  Not a vector: its
  // allocation takes longer than an index.
  std::array<std::uint32_t, kMostRounds> keys_;
};

// Returns the position of `index` as grain.experimental.index_shuffle does,
// bit for bit and with its error texts.
Result<std::int64_t> index_shuffle(std::int64_t index, std::int64_t max_index,
                                   std::uint32_t seed, std::uint32_t rounds);

}  // namespace gristmill
