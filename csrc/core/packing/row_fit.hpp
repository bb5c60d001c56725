// Assigns pieces of known lengths to rows of equal capacity.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gristmill {

enum class PackMethod : std::uint8_t {
  // Best-fit decreasing: the longest piece first, each in the fullest row that
  // has room for it.
  kBestFit,
  // The pieces in their order, each in the first row that has room for it.
  kFirstFit,
  // One row at a time: the longest piece left that fits, until none fits.  The
  // rows are those of first-fit decreasing.
  kLongestFirst,
  // The pieces in their order, each cut at the end of its row.
  kSplit,
};

// Sets row_of[i] to the row of the piece with lengths[i] tokens.  Returns the
// number of rows.  Pieces of equal length are assigned in their order.
// REQUIRES: the method is not kSplit; all lengths are in [1, capacity]; there
// are fewer than 2**31 pieces.
std::uint32_t fit_rows(PackMethod method, std::uint32_t capacity,
                       std::span<const std::uint32_t> lengths,
                       std::span<std::uint32_t> row_of);

// Returns the number of rows of fit_rows() from the number of pieces of each
// length: `pieces[n]` pieces have n tokens.
// REQUIRES: the method is kBestFit or kLongestFirst; pieces has capacity + 1
// items.
std::uint64_t count_rows(PackMethod method, std::uint32_t capacity,
                         std::span<std::uint64_t> pieces);

}  // namespace gristmill
