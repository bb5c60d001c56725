// Balanced rows have the same documents and smaller greatest costs.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/check.hpp"
#include "core/packing/row_balance.hpp"

using gristmill::balance_rows;
using gristmill::cost_of_row;
using gristmill::RowExtras;
using Span = gristmill::PackedWindow::Span;
using Rows = std::vector<std::vector<Span>>;

namespace {

std::vector<double> tokens_as_costs(std::uint32_t capacity) {
  std::vector<double> costs(capacity + 1);
  std::iota(costs.begin(), costs.end(), 0.0);
  return costs;
}

void test_room_is_spread_over_the_rows() {
  const auto costs = tokens_as_costs(100);
  Rows rows(5);
  std::uint32_t offset = 0;
  for (std::size_t row = 0; row < 4; ++row) {
    for (int i = 0; i < 20; ++i) rows[row].push_back({0, offset++, 5});
  }
  rows[4].push_back({0, offset++, 5});
  balance_rows(100, costs, rows);
  std::vector<std::uint32_t> offsets;
  for (const auto& row : rows) {
    CHECK(cost_of_row(row, costs) >= 75 && cost_of_row(row, costs) <= 85);
    CHECK(std::ranges::is_sorted(row, {}, &Span::offset));
    for (const auto& span : row) offsets.push_back(span.offset);
  }
  std::ranges::sort(offsets);
  for (std::uint32_t i = 0; i < offset; ++i) CHECK_EQ(offsets[i], i);
}

void test_row_that_cannot_give_does_not_stop_others() {
  const auto costs = tokens_as_costs(100);
  Rows rows{{{0, 0, 100}}, {{0, 1, 45}, {0, 2, 45}}, {{0, 3, 10}}};
  balance_rows(100, costs, rows);
  CHECK_EQ(rows[0].size(), 1U);
  CHECK_EQ(rows[1].size(), 1U);
  CHECK_EQ(rows[2].size(), 2U);
}

void test_few_rows_are_unchanged() {
  const auto costs = tokens_as_costs(10);
  Rows none;
  balance_rows(10, costs, none);
  Rows one{{{0, 0, 10}}};
  balance_rows(10, costs, one);
  CHECK_EQ(one[0].size(), 1U);
}

// Row 1 has room for the extra feature of one more document.
void test_extra_features_stay_within_their_capacity() {
  const auto costs = tokens_as_costs(100);
  const RowExtras extras{
      .capacities = {8},
      .lengths = {{0, {3}}, {1, {3}}, {2, {0}}, {3, {5}}, {4, {0}}}};
  Rows rows{{{0, 0, 30}, {0, 1, 30}, {7, 2, 10}}, {{0, 3, 10}, {0, 4, 10}}};
  balance_rows(100, costs, rows, extras);
  CHECK_EQ(rows[0].size(), 2U);
  CHECK_EQ(rows[1].size(), 3U);
  balance_rows(100, tokens_as_costs(100), rows, extras);
  for (const auto& row : rows) {
    std::uint32_t cells = 0;
    for (const auto& span : row) {
      if (span.begin == 0) cells += extras.lengths.at(span.offset)[0];
    }
    CHECK(cells <= 8);
  }
}

}  // namespace

int main() {
  test_room_is_spread_over_the_rows();
  test_row_that_cannot_give_does_not_stop_others();
  test_few_rows_are_unchanged();
  test_extra_features_stay_within_their_capacity();
}
