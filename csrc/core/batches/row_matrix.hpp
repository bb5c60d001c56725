// A RowMatrix is a view of the packed rows of one feature.
//
// Row r holds `length` cells of cell_bytes bytes, C-contiguous.  A cell is one
// position of a sequence.  Each cell has the number of its sequence, counted
// from 1 in each row, and its position in the part of the sequence that the row
// holds.  Both stay 0 for empty cells.
//
// Thread safety: a plain view; the caller keeps the memory alive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>

namespace gristmill {

struct RowMatrix {
  std::byte* values = nullptr;
  std::int32_t* segment_ids = nullptr;  // Null if the feature has none.
  std::int32_t* positions = nullptr;    // Null if segment_ids is null.
  std::size_t length = 0;               // Cells per row.
  std::size_t cell_bytes = 0;

  // Sets segment_ids and positions of `count` cells of a row, starting at cell
  // `begin`.
  // REQUIRES: begin + count <= length.
  void number(std::size_t row, std::size_t begin, std::size_t count,
              std::int32_t segment) const noexcept {
    if (segment_ids == nullptr) return;
    const auto at = row * length + begin;
    std::fill_n(segment_ids + at, count, segment);
    std::iota(positions + at, positions + at + count, 0);
  }

  // Copies `count` cells to a row, starting at cell `begin`.
  // REQUIRES: begin + count <= length; `from` has count * cell_bytes bytes.
  void copy(std::size_t row, std::size_t begin, std::size_t count,
            const std::byte* from) const noexcept {
    if (count * cell_bytes == 0) return;
    std::memcpy(values + (row * length + begin) * cell_bytes, from,
                count * cell_bytes);
  }
};

}  // namespace gristmill
