// Orders the rows of a window by their costs, and deals rows to ranks.
//
// Costs are sums of the costs of spans, in any unit.  All results are equal on
// all machines: costs are only added and compared, in a fixed order.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gristmill {

// Returns the rows, the most expensive first, equally expensive ones in their
// order.
// REQUIRES: there are at most 2**31 costs, none of them NaN.
std::vector<std::uint32_t> sort_by_cost(std::span<const double> costs);

// Returns an order of rows in which each group has rows of similar costs.
//
// Groups of `group_rows` consecutive rows are counted through all windows, and
// the window starts at row `first_row`.  A group that belongs to two windows
// has rows with costs near the median of each.  The groups and the rows of each
// group are shuffled.
// REQUIRES: first_row >= 0; group_rows > 0; there are at most 2**31 costs, none
// of them NaN.
std::vector<std::uint32_t> group_rows_by_cost(std::span<const double> costs,
                                              std::int64_t first_row,
                                              std::int64_t group_rows,
                                              std::uint64_t seed);

// Deals rows to ranks, so that the sums of costs are similar: the most
// expensive row first, each to the rank with the smallest sum that has fewer
// rows than its share.  Returns the rows of rank 0, then those of rank 1, and
// so on; the rows of a rank are in ascending order.
// REQUIRES: ranks > 0 divides the number of costs, none of which is NaN.
std::vector<std::uint32_t> deal_rows(std::span<const double> costs,
                                     std::size_t ranks);

}  // namespace gristmill
