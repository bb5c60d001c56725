#include "core/indices/permute.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>

namespace gristmill {
namespace {

// Number of indices that pass the network together: small enough for the L1
// cache, large enough to use the vector units.
constexpr std::size_t kChunkSize = 256;

unsigned block_bits(std::int64_t max_index, Block block) {
  if (max_index == 0) return 16;
  // Doubles, because the rounding must equal that of Grain's computation.
  const auto ceiling = std::ceil(std::log2(static_cast<double>(max_index)));
  auto bits = static_cast<unsigned>(ceiling);
  bits = std::clamp(bits + bits % 2, 16U, 64U);
  const auto max_value = static_cast<std::uint64_t>(max_index);
  if (block == Block::kWhole && bits < 64 && (max_value >> bits) != 0) {
    bits += 2;
  }
  return bits;
}

// The round function on words of `half_bits` bits.  Higher bits are undefined.
template <class Word>
inline Word mix(Word value, unsigned half_bits) noexcept {
  const Word by1 = (value << 1) | (value >> (half_bits - 1));
  const Word by8 = (value << 8) | (value >> (half_bits - 8));
  const Word by2 = (value << 2) | (value >> (half_bits - 2));
  return (by1 & by8) ^ by2;
}

template <class Word>
inline Word low_bits(unsigned half_bits) noexcept {
  return static_cast<Word>((std::uint64_t{1} << half_bits) - 1);
}

// Returns the largest value of a block of two halves.
inline std::uint64_t max_block_value(unsigned half_bits) noexcept {
  const auto mask = low_bits<std::uint64_t>(half_bits);
  return (mask << half_bits) | mask;
}

}  // namespace

Permutation::Permutation(std::int64_t max_index, std::uint32_t seed,
                         std::uint32_t rounds, Block block)
    : half_bits_(block_bits(max_index, block) / 2),
      last_(std::min(static_cast<std::uint64_t>(max_index),
                     max_block_value(half_bits_))),
      rounds_(rounds) {
  assert(max_index >= 0 && rounds > 0 && rounds % 2 == 0);
  assert(rounds <= kMaxRounds);
  std::seed_seq sequence{seed};
  const std::span keys(keys_.data(), rounds_);
  sequence.generate(keys.begin(), keys.end());
  const auto mask = low_bits<std::uint32_t>(half_bits_);
  for (auto& key : keys) key &= mask;
}

void Permutation::apply(std::span<std::int64_t> indices) const noexcept {
  if (last_ == 0) return;
  if (indices.size() == 1) {
    indices[0] = static_cast<std::int64_t>(
        permute_one(static_cast<std::uint64_t>(indices[0])));
    return;
  }
  while (!indices.empty()) {
    const auto chunk = indices.first(std::min(kChunkSize, indices.size()));
    if (half_bits_ <= 16) {  // A value of the block fits into 32 bits.
      permute_chunk<std::uint32_t>(chunk);
    } else {
      permute_chunk<std::uint64_t>(chunk);
    }
    indices = indices.subspan(chunk.size());
  }
}

std::uint64_t Permutation::permute_one(std::uint64_t index) const noexcept {
  const auto mask = low_bits<std::uint64_t>(half_bits_);
  do {
    auto left = (index >> half_bits_) & mask;
    auto right = index & mask;
    for (std::size_t round = 0; round < rounds_; round += 2) {
      left ^= (mix(right, half_bits_) & mask) ^ keys_[round];
      right ^= (mix(left, half_bits_) & mask) ^ keys_[round + 1];
    }
    index = (left << half_bits_) | right;
  } while (index > last_);
  return index;
}

// `left` and `right` contain the halves of the `pending` indices that need
// another pass.  Each pass stores all results and keeps the ones outside the
// range for the next pass, without a branch.  A later pass overwrites results
// that were stored too early.
template <class Word>
void Permutation::permute_chunk(
    std::span<std::int64_t> indices) const noexcept {
  std::array<Word, kChunkSize> left;
  std::array<Word, kChunkSize> right;
  std::array<std::uint16_t, kChunkSize> output_index;
  const unsigned half = half_bits_;
  const auto mask = low_bits<Word>(half);
  const auto last = static_cast<Word>(last_);
  std::size_t pending = indices.size();
  for (std::size_t i = 0; i < pending; ++i) {
    const auto value = static_cast<std::uint64_t>(indices[i]);
    left[i] = static_cast<Word>(value >> half) & mask;
    right[i] = static_cast<Word>(value) & mask;
    output_index[i] = static_cast<std::uint16_t>(i);
  }
  while (pending > 0) {
    for (std::size_t round = 0; round < rounds_; round += 2) {
      const Word key0 = keys_[round];
      const Word key1 = keys_[round + 1];
      for (std::size_t i = 0; i < pending; ++i) {
        left[i] ^= (mix(right[i], half) & mask) ^ key0;
        right[i] ^= (mix(left[i], half) & mask) ^ key1;
      }
    }
    std::size_t num_outside = 0;
    for (std::size_t i = 0; i < pending; ++i) {
      const Word value = static_cast<Word>(left[i] << half) | right[i];
      indices[output_index[i]] = static_cast<std::int64_t>(value);
      left[num_outside] = left[i];
      right[num_outside] = right[i];
      output_index[num_outside] = output_index[i];
      num_outside += value > last ? 1 : 0;
    }
    pending = num_outside;
  }
}

Result<std::int64_t> index_shuffle(std::int64_t index, std::int64_t max_index,
                                   std::uint32_t seed, std::uint32_t rounds) {
  if (rounds < 4 || rounds > Permutation::kMaxRounds || rounds % 2 != 0) {
    return Status(Code::kInvalidArgument,
                  "rounds must be an even integer between 4 and 1024, but "
                  "got rounds = ",
                  rounds);
  }
  if (index < 0 || index > max_index) {
    return Status(Code::kInvalidArgument,
                  "index must be in [0, max_index], but got index = ", index,
                  " and max_index = ", max_index);
  }
  Permutation(max_index, seed, rounds, Block::kGrain).apply({&index, 1});
  return index;
}

}  // namespace gristmill
