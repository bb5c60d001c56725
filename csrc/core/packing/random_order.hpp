// Random orders that are equal on all machines.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace gristmill {

// Returns 64 bits that look random, a function of `seed` and `counter`.  This
// is the output function of SplitMix64.
constexpr std::uint64_t random_bits(std::uint64_t seed,
                                    std::uint64_t counter) noexcept {
  auto bits = seed + (counter + 1) * 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

// Shuffles at most 2**32 items.
template <class Item>
void shuffle_items(std::span<Item> items, std::uint64_t seed) noexcept {
  for (auto left = items.size(); left > 1; --left) {
    const auto bits = random_bits(seed, left) >> 32;
    std::swap(items[left - 1], items[bits * left >> 32]);
  }
}

}  // namespace gristmill
