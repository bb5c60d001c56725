#include "core/indices/mixture.hpp"

#include <cassert>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string>

#include "core/indices/epoch_cursor.hpp"

namespace gristmill {
namespace {

__extension__ using Unsigned128 = unsigned __int128;

// Maximum length of a stored pattern, which takes 1 MiB.
constexpr std::uint64_t kMaxPatternLength = std::uint64_t{1} << 16;

}  // namespace

Result<Mixture> Mixture::of(std::vector<std::int64_t> proportions) {
  if (proportions.empty()) {
    return Status(Code::kInvalidArgument,
                  "proportions must have at least one item, got none");
  }
  if (proportions.size() > std::numeric_limits<std::uint32_t>::max()) {
    return Status(Code::kInvalidArgument,
                  "proportions must have at most 2**32 - 1 items, got ",
                  proportions.size());
  }
  std::int64_t sum = 0;
  for (const auto proportion : proportions) {
    if (proportion <= 0) {
      return Status(Code::kInvalidArgument,
                    "proportions must be positive, got ", proportion);
    }
    if (__builtin_add_overflow(sum, proportion, &sum)) {
      return Status(Code::kOverflow,
                    "the sum of proportions must fit into 64 bits");
    }
  }
  return Mixture(std::move(proportions));
}

Mixture::Mixture(std::vector<std::int64_t> proportions)
    : proportions_(std::move(proportions)), shares_(proportions_.size()) {
  std::int64_t divisor = 0;
  for (const auto proportion : proportions_) {
    divisor = std::gcd(divisor, proportion);
  }
  std::uint64_t remaining = 0;
  for (std::size_t i = proportions_.size(); i-- > 0;) {
    const auto proportion =
        static_cast<std::uint64_t>(proportions_[i] / divisor);
    remaining += proportion;
    shares_[i] = {proportion, remaining};
  }
  if (period() > kMaxPatternLength) return;
  pattern_.reserve(period());
  for (std::uint64_t offset = 0; offset < period(); ++offset) {
    pattern_.push_back(pick_at(offset));
  }
}

// A component leaves floor(n * (remaining - proportion) / remaining) of the
// first n positions that it shares with the later ones.  It takes position n if
// it leaves the same number of the first n + 1, which is true if the remainder
// of that division is less than proportion.
Mixture::Pick Mixture::pick_at(std::uint64_t offset) const noexcept {
  std::uint32_t component = 0;
  for (const auto [proportion, remaining] : shares_) {
    // The last component takes all other positions.
    if (proportion == remaining) break;
    const auto product = Unsigned128{offset} * (remaining - proportion);
    const auto left_over = static_cast<std::uint64_t>(product / remaining);
    if (product - Unsigned128{left_over} * remaining < proportion) {
      return {component, offset - left_over};
    }
    offset = left_over;
    ++component;
  }
  return {component, offset};
}

void Mixture::take(std::span<std::int64_t> positions,
                   std::span<std::int64_t> components) const noexcept {
  assert(positions.size() == components.size());
  EpochCursor cursor(static_cast<std::int64_t>(period()));
  for (std::size_t k = 0; k < positions.size(); ++k) {
    const auto position = positions[k];
    if (!cursor.contains(position)) cursor.move_to(position);
    const auto offset = static_cast<std::uint64_t>(cursor.offset(position));
    const Pick pick = pattern_.empty() ? pick_at(offset) : pattern_[offset];
    components[k] = pick.component;
    // Unsigned, because the first position of a period may be out of range.
    positions[k] =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(cursor.epoch()) *
                                      shares_[pick.component].proportion +
                                  pick.position);
  }
}

}  // namespace gristmill
