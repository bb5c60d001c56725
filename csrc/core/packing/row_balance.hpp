// Moves documents between rows, so that the rows have similar costs.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/packing/document_windows.hpp"
#include "core/packing/extra_features.hpp"
#include "core/packing/packed_window.hpp"

namespace gristmill {

// Returns the sum of the costs of the spans of a row.  `span_costs` has the
// cost of each length.
inline double cost_of_row(std::span<const PackedWindow::Span> row,
                          std::span<const double> span_costs) {
  double cost = 0;
  for (const auto& span : row) cost += span_costs[span.length];
  return cost;
}

// The lengths of extra features, and their capacities.
struct RowExtras {
  std::vector<std::uint32_t> capacities;
  // By offset of the document in its window.
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> lengths;
};

// Returns the extra features of the documents of some rows of a window; nothing
// without extra features.
RowExtras extras_of_rows(std::span<const ExtraFeature> extras,
                         const DocumentWindows& windows,
                         const DocumentWindows::Window& window,
                         std::span<const std::vector<PackedWindow::Span>> rows);

// Moves spans one by one from the most expensive row to the one with the most
// room, if this decreases the greatest cost of the two; otherwise from the next
// row.  Spans stay in the order of the documents, and no row becomes empty.
// REQUIRES: every row has at least one span and at most `capacity` tokens; each
// extra feature fits into its row, too, and `extras` has the documents of all
// spans.
void balance_rows(std::uint32_t capacity, std::span<const double> span_costs,
                  std::span<std::vector<PackedWindow::Span>> rows,
                  const RowExtras& extras = {});

}  // namespace gristmill
