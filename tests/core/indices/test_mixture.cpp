// Compares the mixture with Grain's rule, computed literally in 128 bits.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/check.hpp"
#include "core/indices/mixture.hpp"

using gristmill::Code;
using gristmill::Mixture;

namespace {

__extension__ using Wide = __int128;

constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
constexpr auto kMost = std::numeric_limits<std::int64_t>::max();

struct Pick {
  std::int64_t component;
  std::int64_t position;
};

Wide floor_div(Wide left, Wide right) {
  return left / right - (left % right < 0 ? 1 : 0);
}

Pick model(const std::vector<std::int64_t>& proportions, Wide position) {
  Wide rest = 0;
  for (const auto proportion : proportions) rest += proportion;
  Wide first = position;
  Wide second = position + 1;
  for (std::size_t i = 0;; ++i) {
    const Wide others = rest - proportions[i];
    const auto first_left = floor_div(first * others, rest);
    const auto second_left = floor_div(second * others, rest);
    if (first - first_left != second - second_left) {
      return {static_cast<std::int64_t>(i),
              static_cast<std::int64_t>(second - second_left - 1)};
    }
    rest = others;
    first = first_left;
    second = second_left;
  }
}

// From proportions with a stored pattern to those that need 128 bits.
const std::vector<std::vector<std::int64_t>> kProportions = {
    {1},
    {70, 30},
    {1, 2, 3},
    {100, 100, 100, 100, 100, 100, 100, 100},
    {997, 100, 333, 100, 5003},
    {100, 1'000'003, 65'537, 999'999'937},
    {100, std::int64_t{1} << 40, 12'345'678'901},
    {3, kMost / 2, 1, kMost / 2 - 3},
    {kMost},
};

void test_picks_equal_rule_of_grain() {
  for (const auto& proportions : kProportions) {
    const auto mixture = Mixture::of(proportions).value();
    std::vector<std::int64_t> positions{kLeast, kMost, 0, -1, kMost, kLeast};
    for (std::int64_t k = 0; k < 500; ++k) {
      positions.push_back(k - 250);
      positions.push_back(kLeast / 500 * k + k);
      positions.push_back(kMost - k);
      positions.push_back(kLeast + k);
    }
    auto taken = positions;
    std::vector<std::int64_t> components(positions.size());
    mixture.take(taken, components);
    for (std::size_t k = 0; k < positions.size(); ++k) {
      const auto [component, position] = model(proportions, positions[k]);
      CHECK_EQ(components[k], component);
      CHECK_EQ(taken[k], position);
    }
  }
}

void test_common_factor_changes_nothing() {
  const auto small = Mixture::of({2, 3}).value();
  const auto large = Mixture::of({200, 300}).value();
  std::vector<std::int64_t> one{-7, 0, 11, 12, 13};
  auto two = one;
  std::vector<std::int64_t> from_one(5);
  std::vector<std::int64_t> from_two(5);
  small.take(one, from_one);
  large.take(two, from_two);
  CHECK(one == two && from_one == from_two);
}

void test_invalid_proportions_are_errors() {
  const auto code = [](std::vector<std::int64_t> proportions) {
    return Mixture::of(std::move(proportions)).status().code();
  };
  CHECK(code({}) == Code::kInvalidArgument);
  CHECK(code({1, 0}) == Code::kInvalidArgument);
  CHECK(code({1, -2}) == Code::kInvalidArgument);
  CHECK(code({kMost, 1}) == Code::kOverflow);
}

}  // namespace

int main() {
  test_picks_equal_rule_of_grain();
  test_common_factor_changes_nothing();
  test_invalid_proportions_are_errors();
}
