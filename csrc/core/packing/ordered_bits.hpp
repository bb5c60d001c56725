// OrderedBits is a set of small numbers that finds the next larger and the next
// smaller number in a few steps.
//
// Each level has a bit for each 64-bit word of the level below: it is set if
// the word is not 0.
//
// Thread safety: external synchronization.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gristmill {

class OrderedBits {
 public:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  // Creates an empty set of numbers less than `size`.
  explicit OrderedBits(std::size_t size) {
    do {
      size = size / kBits + 1;
      levels_.emplace_back(size);
    } while (size > 1);
  }

  void insert(std::size_t number) noexcept {
    for (auto& level : levels_) {
      level[number / kBits] |= bit(number);
      number /= kBits;
    }
  }

  void erase(std::size_t number) noexcept {
    for (auto& level : levels_) {
      if ((level[number / kBits] &= ~bit(number)) != 0) return;
      number /= kBits;
    }
  }

  // Returns the smallest number that is at least `from`, or kNone.
  [[nodiscard]] std::size_t at_least(std::size_t from) const noexcept {
    for (std::size_t depth = 0; depth < levels_.size(); ++depth) {
      if (from / kBits >= levels_[depth].size()) return kNone;
      const auto word = levels_[depth][from / kBits] & (kAll << from % kBits);
      if (word == 0) {
        from = from / kBits + 1;
        continue;
      }
      auto found = from / kBits * kBits + lowest(word);
      while (depth-- > 0) found = found * kBits + lowest(levels_[depth][found]);
      return found;
    }
    return kNone;
  }

  // Returns the largest number that is at most `to`, or kNone.
  [[nodiscard]] std::size_t at_most(std::size_t to) const noexcept {
    for (std::size_t depth = 0; depth < levels_.size(); ++depth) {
      const auto word =
          levels_[depth][to / kBits] & (kAll >> (kBits - 1 - to % kBits));
      if (word == 0) {
        if (to < kBits) return kNone;
        to = to / kBits - 1;
        continue;
      }
      auto found = to / kBits * kBits + highest(word);
      while (depth-- > 0) {
        found = found * kBits + highest(levels_[depth][found]);
      }
      return found;
    }
    return kNone;
  }

 private:
  static constexpr std::size_t kBits = 64;
  static constexpr std::uint64_t kAll = ~std::uint64_t{0};

  static std::uint64_t bit(std::size_t number) noexcept {
    return std::uint64_t{1} << number % kBits;
  }
  static std::size_t lowest(std::uint64_t word) noexcept {
    return static_cast<std::size_t>(std::countr_zero(word));
  }
  static std::size_t highest(std::uint64_t word) noexcept {
    return kBits - 1 - static_cast<std::size_t>(std::countl_zero(word));
  }

  std::vector<std::vector<std::uint64_t>> levels_;  // The lowest level first.
};

}  // namespace gristmill
