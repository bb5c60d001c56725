// A Mixture mixes several views, its components, by integer proportions.  It
// maps each position to a component and a position in that component.
//
// Among the first k positions, each component has its share of k, rounded up or
// down.  The rule is that of Grain's mix: the first component takes a position
// if its rounded share grows by one there, and leaves the other positions to
// the remaining components, which divide them by the same rule.  The pattern
// has a period: the sum of the proportions, divided by their greatest common
// divisor.  Every int64 is a valid position, including negative ones.
//
// Thread safety: immutable, any thread may call.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/base/status.hpp"

namespace gristmill {

class Mixture {
 public:
  // Fails with kInvalidArgument if there are no proportions or one is not
  // positive, and with kOverflow if their sum does not fit.
  static Result<Mixture> of(std::vector<std::int64_t> proportions);

  // Returns the arguments of of().  Valid while the mixture exists.
  [[nodiscard]] std::span<const std::int64_t> proportions() const noexcept {
    return proportions_;
  }

  // Sets components[k] to the component at positions[k], and replaces
  // positions[k] by the position in that component.
  // REQUIRES: both spans have the same length.
  void take(std::span<std::int64_t> positions,
            std::span<std::int64_t> components) const noexcept;

 private:
  // A component gets proportion / remaining of the positions that the
  // components before it leave.  Both are divided by the greatest common
  // divisor of all proportions.
  struct Share {
    std::uint64_t proportion;  // Of the component.
    std::uint64_t remaining;   // Sum of its proportion and all later ones.
  };
  struct Pick {
    std::uint32_t component;
    std::uint64_t position;
  };

  explicit Mixture(std::vector<std::int64_t> proportions);

  [[nodiscard]] std::uint64_t period() const noexcept {
    return shares_.front().remaining;
  }
  [[nodiscard]] Pick pick_at(std::uint64_t offset) const noexcept;

  std::vector<std::int64_t> proportions_;
  std::vector<Share> shares_;
  std::vector<Pick> pattern_;  // One period, or empty if the period is long.
};

}  // namespace gristmill
