// A NumberTree is a sequence of items with several numbers each.  It finds the
// first item whose numbers are all large enough.
//
// Each node of the binary tree has the greatest of each of the numbers below
// it.  A search takes O(log n) steps if items have one number.  With several, a
// node may have large numbers of different items, so a search that fails often
// gives up.
//
// Thread safety: external synchronization.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gristmill {

class NumberTree {
 public:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  // The nodes without a suitable item after which a search gives up.
  static constexpr int kMaxFailures = 1024;

  // Creates items whose numbers are all 0.  REQUIRES: items > 0; width > 0.
  NumberTree(std::size_t items, std::size_t width)
      : leaves_(std::bit_ceil(items)),
        width_(width),
        numbers_(2 * leaves_ * width) {}

  // Returns the numbers of an item, in order to change them.  Call update() or
  // build() afterwards.
  [[nodiscard]] std::span<std::uint32_t> item(std::size_t number) noexcept {
    return node(leaves_ + number);
  }

  // Updates the tree after changes of any items.
  void build() noexcept {
    for (auto at = leaves_ - 1; at > 0; --at) join(at);
  }

  // Updates the tree after a change of one item.
  void update(std::size_t number) noexcept {
    for (auto at = (leaves_ + number) / 2; at > 0 && join(at); at /= 2) {
    }
  }

  // Returns the first item that is not before `from` and whose numbers are at
  // least `least`, or kNone if it finds none or gives up.
  // REQUIRES: `from` is an item.
  [[nodiscard]] std::size_t find(
      std::size_t from, std::span<const std::uint32_t> least) const noexcept {
    auto at = from == 0 ? 1 : leaves_ + from;
    for (int failures = 0; failures < kMaxFailures;) {
      if (has_at_least(at, least)) {
        if (at >= leaves_) return at - leaves_;
        at *= 2;
        continue;
      }
      ++failures;
      at >>= std::countr_one(at);  // Up from all right children.
      if (at == 0) return kNone;
      ++at;
    }
    return kNone;
  }

 private:
  std::span<std::uint32_t> node(std::size_t at) noexcept {
    return std::span(numbers_).subspan(at * width_, width_);
  }

  // Sets the numbers of a node from those of its children.  Returns whether
  // they changed.
  bool join(std::size_t at) noexcept {
    auto* numbers = numbers_.data() + at * width_;
    const auto* left = numbers_.data() + 2 * at * width_;
    const auto* right = left + width_;
    bool changed = false;
    for (std::size_t i = 0; i < width_; ++i) {
      const auto greatest = std::max(left[i], right[i]);
      changed |= numbers[i] != greatest;
      numbers[i] = greatest;
    }
    return changed;
  }

  [[nodiscard]] bool has_at_least(
      std::size_t at, std::span<const std::uint32_t> least) const noexcept {
    const auto* numbers = numbers_.data() + at * width_;
    for (std::size_t i = 0; i < width_; ++i) {
      if (numbers[i] < least[i]) return false;
    }
    return true;
  }

  std::size_t leaves_;
  std::size_t width_;
  std::vector<std::uint32_t> numbers_;  // Node 1 is the root.
};

}  // namespace gristmill
