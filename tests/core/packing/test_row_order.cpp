// Groups have adjacent costs, and dealt rows have similar sums.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "core/check.hpp"
#include "core/packing/row_order.hpp"

using gristmill::deal_rows;
using gristmill::group_rows_by_cost;

namespace {

using Order = std::vector<std::uint32_t>;

std::vector<double> random_costs(std::size_t count) {
  std::mt19937 random(static_cast<std::uint32_t>(count));
  std::vector<double> costs(count);
  for (auto& cost : costs) cost = static_cast<double>(random() % 1000);
  return costs;
}

bool is_permutation_of_rows(Order order, std::size_t rows) {
  std::ranges::sort(order);
  Order all(rows);
  std::iota(all.begin(), all.end(), 0);
  return order == all;
}

void test_order_has_every_row_once() {
  for (const std::size_t rows : {0, 1, 2, 3, 7, 64, 100}) {
    for (const std::int64_t first_row : {0, 1, 5, 100}) {
      for (const std::int64_t group_rows : {1, 2, 7, 64, 1000}) {
        const auto order =
            group_rows_by_cost(random_costs(rows), first_row, group_rows, 3);
        CHECK(is_permutation_of_rows(order, rows));
      }
    }
  }
}

// Rows 0 to 99 have the costs 0 to 99.  The window begins at row 3, so its
// first group begins at offset 5.
void test_groups_have_adjacent_costs() {
  std::vector<double> costs(100);
  std::iota(costs.begin(), costs.end(), 0.0);
  const auto order = group_rows_by_cost(costs, 3, 8, 1);
  for (std::size_t begin = 5; begin + 8 <= 100; begin += 8) {
    const auto group = std::span(order).subspan(begin, 8);
    const auto [least, greatest] = std::ranges::minmax(group);
    CHECK_EQ(greatest - least, 7U);
  }
  // The 5 rows at the beginning and the 7 at the end are near the median.
  for (const std::size_t i : {0, 4, 93, 99}) {
    CHECK(order[i] >= 40 && order[i] < 60);
  }
}

void test_rank_has_its_share_of_rows() {
  for (const std::size_t ranks : {1, 2, 3, 8}) {
    const auto dealt = deal_rows(random_costs(ranks * 5), ranks);
    CHECK(is_permutation_of_rows(dealt, ranks * 5));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      CHECK(std::ranges::is_sorted(std::span(dealt).subspan(rank * 5, 5)));
    }
  }
}

void test_expensive_rows_go_to_different_ranks() {
  const std::vector<double> costs{1, 9, 1, 2, 9, 2};
  CHECK(deal_rows(costs, 2) == Order({0, 1, 3, 2, 4, 5}) ||
        deal_rows(costs, 2) == Order({1, 2, 3, 0, 4, 5}));
  const std::vector<double> equal(6, 1.0);
  CHECK(deal_rows(equal, 3) == Order({0, 3, 1, 4, 2, 5}));
}

}  // namespace

int main() {
  test_order_has_every_row_once();
  test_groups_have_adjacent_costs();
  test_rank_has_its_share_of_rows();
  test_expensive_rows_go_to_different_ranks();
}
