// A Mixture says which component, and which position of it, stands at each
// position of several views mixed by whole proportions.
//
// Among the first k positions each component has had its share of k, to within
// one, by the rule of Grain's mix: the first component takes a position
// whenever its share grows by one there, and leaves the rest to the others,
// which divide it in the same way.  The pattern repeats after as many
// positions as the proportions, divided by what they have in common, sum to.
// Every int64 is a position, negative ones too.
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
  // Fails with kInvalidArgument unless there is a proportion and all are
  // positive, with kOverflow if their sum does not fit.
  static Result<Mixture> of(std::vector<std::int64_t> proportions);

  // As given.  Valid as long as the mixture.
  [[nodiscard]] std::span<const std::int64_t> proportions() const noexcept {
    return proportions_;
  }

  // Sets components[k] to the component at positions[k], and replaces the
  // position by that in the component.  REQUIRES: the spans have one length.
  void take(std::span<std::int64_t> positions,
            std::span<std::int64_t> components) const noexcept;

 private:
  // A component's part in what the components before it leave.
  struct Share {
    std::uint64_t part;  // Its proportion, divided by what all have in common.
    std::uint64_t rest;  // And of all from it on.
  };
  struct Pick {
    std::uint32_t component;
    std::uint64_t position;
  };

  explicit Mixture(std::vector<std::int64_t> proportions);

  [[nodiscard]] std::uint64_t period() const noexcept {
    return shares_.front().rest;
  }
  [[nodiscard]] Pick divide(std::uint64_t offset) const noexcept;

  std::vector<std::int64_t> proportions_;
  std::vector<Share> shares_;
  std::vector<Pick> pattern_;  // One period, or empty if that is long.
};

}  // namespace gristmill
