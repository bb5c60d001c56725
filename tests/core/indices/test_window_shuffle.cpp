// The window shuffle has Grain's values, permutes each epoch, and does not
// overflow.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "core/check.hpp"
#include "core/indices/permute.hpp"
#include "core/indices/window_shuffle.hpp"

using gristmill::Code;
using gristmill::window_shuffle;

namespace {

using Positions = std::vector<std::int64_t>;

constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
constexpr auto kMost = std::numeric_limits<std::int64_t>::max();

Positions counting(std::int64_t first, std::int64_t count) {
  Positions all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

Positions shuffled(Positions positions, std::int64_t window_size,
                   std::int64_t seed, std::int64_t length) {
  CHECK(window_shuffle(positions, window_size, seed, length).ok());
  return positions;
}

// Values from grain.experimental.WindowShuffleMapDataset 0.2.18.  No window
// ends with its epoch here.
void test_values_equal_grain() {
  const Positions expected{1, 2, 3, 0, 4, 7, 5, 6, 10, 11, 8, 9};
  CHECK(shuffled(counting(0, 12), 4, 1, 12) == expected);
  CHECK(shuffled(counting(0, 12), 4, 1, 4) == expected);
  CHECK(shuffled(counting(0, 8), 4, 1, 9) ==
        Positions(expected.begin(), expected.begin() + 8));
}

void test_every_epoch_is_permuted() {
  for (const std::int64_t length : {1, 10, 64, 1000}) {
    for (const std::int64_t window : {1, 3, 10, 999, 5000}) {
      for (const std::int64_t epoch : {0, 3, -2}) {
        const auto all = counting(epoch * length, length);
        auto sorted = shuffled(all, window, 5000, length);
        std::ranges::sort(sorted);
        CHECK(sorted == all);
      }
    }
  }
}

void test_order_of_positions_does_not_matter() {
  const auto all = counting(-40, 130);
  const auto expected = shuffled(all, 7, 100, 30);
  for (std::size_t k = 0; k < all.size(); ++k) {
    const auto other = (k * 37) % all.size();
    const auto two = shuffled({all[k], all[other]}, 7, 100, 30);
    CHECK_EQ(two[0], expected[k]);
    CHECK_EQ(two[1], expected[other]);
  }
}

void test_windows_are_numbered_across_epochs() {
  // Windows of 4 in epochs of 6: 4, 2, 4, 2.
  const auto all = shuffled(counting(0, 12), 4, 1, 6);
  auto third = counting(0, 4);
  gristmill::Permutation(3, 3).apply(third);
  for (std::size_t k = 0; k < 4; ++k) CHECK_EQ(all[6 + k], 6 + third[k]);
  auto fourth = counting(0, 2);
  gristmill::Permutation(1, 4).apply(fourth);
  CHECK_EQ(all[10], 10 + fourth[0]);
}

void test_overflow_and_bad_arguments_are_errors() {
  const auto code = [](std::int64_t position, std::int64_t window_size,
                       std::int64_t seed, std::int64_t length) {
    Positions one{position};
    return window_shuffle(one, window_size, seed, length).code();
  };
  CHECK(code(0, 0, 1, 5) == Code::kInvalidArgument);
  CHECK(code(0, -1, 1, 5) == Code::kInvalidArgument);
  CHECK(code(0, 1, 1, 0) == Code::kDivideByZero);
  CHECK(code(4, 5, (std::int64_t{1} << 32) - 1, 5) == Code::kOk);
  CHECK(code(5, 5, (std::int64_t{1} << 32) - 1, 5) == Code::kOutOfRange);
  CHECK(code(-1, 5, 0, 5) == Code::kOutOfRange);
  CHECK(code(-1, 5, 1, 5) == Code::kOk);
  CHECK(code(kMost, 1, kLeast, 1) == Code::kOutOfRange);
  CHECK(code(kMost, 1, kMost, 1) == Code::kOutOfRange);
  CHECK(code(kLeast, 1, kLeast, 1) == Code::kOutOfRange);
  CHECK(code(kLeast, 1, 7, kMost) == Code::kOutOfRange);
  // The only window of an epoch in which one position is an int64.
  CHECK(code(kMost, kMost, 0, kMost) == Code::kOverflow);
  CHECK(code(kLeast, kMost, 9, kMost) == Code::kOverflow);
  CHECK(code(kMost - 1, kMost, 0, kMost) == Code::kOk);
}

}  // namespace

int main() {
  test_values_equal_grain();
  test_every_epoch_is_permuted();
  test_order_of_positions_does_not_matter();
  test_windows_are_numbered_across_epochs();
  test_overflow_and_bad_arguments_are_errors();
}
