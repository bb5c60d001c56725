// Assigns pieces with lengths in several features to rows that have a capacity
// for each.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "core/packing/row_fit.hpp"

namespace gristmill {

// Sets row_of[i] to the row of piece i, whose length in feature f is
// lengths[i * capacities.size() + f].  Returns the number of rows.
//
// kFirstFit assigns the pieces in their order, each to the first row that has
// room in all features.  The other methods fill one row at a time with the
// longest piece left that fits.  Lengths are compared in the scarcest feature:
// the one in which the pieces left need the most rows.
//
// A search that fails often gives up: kFirstFit then uses the last row if it
// has room, and otherwise a new one.  The other methods then start the next
// row, but only if there are three features or more. REQUIRES: the method is
// not kSplit; lengths are at most the capacities, which are at least 1; there
// are fewer than 2**31 pieces.
std::uint32_t fit_features(PackMethod method,
                           std::span<const std::uint32_t> capacities,
                           std::span<const std::uint32_t> lengths,
                           std::span<std::uint32_t> row_of);

}  // namespace gristmill
