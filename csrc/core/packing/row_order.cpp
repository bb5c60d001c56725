#include "core/packing/row_order.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <queue>
#include <tuple>

#include "core/packing/random_order.hpp"

namespace gristmill {

std::vector<std::uint32_t> sort_by_cost(std::span<const double> costs) {
  std::vector<std::uint32_t> rows(costs.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::ranges::stable_sort(rows, std::greater<>{},
                           [&](std::uint32_t row) { return costs[row]; });
  return rows;
}

std::vector<std::uint32_t> group_rows_by_cost(std::span<const double> costs,
                                              std::int64_t first_row,
                                              std::int64_t group_rows,
                                              std::uint64_t seed) {
  const auto sorted = sort_by_cost(costs);
  const auto rows = static_cast<std::int64_t>(sorted.size());
  // The rows that complete the last group of the previous window.
  const auto head =
      std::min(rows, (group_rows - first_row % group_rows) % group_rows);
  const auto num_groups = (rows - head) / group_rows;
  const auto size = static_cast<std::size_t>(group_rows);
  std::vector<std::uint32_t> order;
  order.reserve(sorted.size());
  // `middle` has the rows of the incomplete groups at both ends.
  const auto num_middle =
      static_cast<std::size_t>(rows - num_groups * group_rows);
  const auto middle_begin = static_cast<std::size_t>(num_groups / 2) * size;
  std::vector<std::uint32_t> middle(
      sorted.begin() + static_cast<std::ptrdiff_t>(middle_begin),
      sorted.begin() + static_cast<std::ptrdiff_t>(middle_begin + num_middle));
  shuffle_items(std::span(middle), random_bits(seed, 0));
  const auto middle_head = middle.begin() + head;
  order.insert(order.end(), middle.begin(), middle_head);
  std::vector<std::uint32_t> groups(static_cast<std::size_t>(num_groups));
  std::iota(groups.begin(), groups.end(), 0);
  shuffle_items(std::span(groups), random_bits(seed, 1));
  for (const auto group : groups) {
    auto begin = group * size;
    if (begin >= middle_begin) begin += num_middle;
    const auto at = order.size();
    const auto first = sorted.begin() + static_cast<std::ptrdiff_t>(begin);
    order.insert(order.end(), first, first + static_cast<std::ptrdiff_t>(size));
    shuffle_items(std::span(order).subspan(at),
                  random_bits(seed, std::uint64_t{group} + 2));
  }
  order.insert(order.end(), middle_head, middle.end());
  return order;
}

std::vector<std::uint32_t> deal_rows(std::span<const double> costs,
                                     std::size_t ranks) {
  assert(ranks > 0 && costs.size() % ranks == 0);
  const auto rows_per_rank = costs.size() / ranks;
  struct Rank {
    double cost;
    std::size_t number;
    std::size_t rows;
  };
  const auto is_later = [](const Rank& left, const Rank& right) {
    return std::tie(left.cost, left.number) >
           std::tie(right.cost, right.number);
  };
  std::vector<Rank> all;
  all.reserve(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) all.push_back({0, rank, 0});
  std::priority_queue<Rank, std::vector<Rank>, decltype(is_later)> next(
      is_later, std::move(all));
  std::vector<std::uint32_t> dealt(costs.size());
  for (const auto row : sort_by_cost(costs)) {
    Rank rank = next.top();
    next.pop();
    dealt[rank.number * rows_per_rank + rank.rows] = row;
    rank.cost += costs[row];
    if (++rank.rows < rows_per_rank) next.push(rank);
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::ranges::sort(
        std::span(dealt).subspan(rank * rows_per_rank, rows_per_rank));
  }
  return dealt;
}

}  // namespace gristmill
