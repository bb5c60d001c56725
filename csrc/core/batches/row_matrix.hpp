// A RowMatrix is where the packed rows of one feature lie.
//
// Row r holds `length` cells of cell_bytes bytes, C-contiguous; a cell is one
// position of a sequence.  Beside each cell stand the number of the sequence
// that it belongs to, counted from 1 in each row, and its position in the part
// of the sequence that the row holds; both stay 0 where nothing is packed.
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
  std::int32_t* segment_ids = nullptr;  // Null for features that have none.
  std::int32_t* positions = nullptr;    // Null with segment_ids.
  std::size_t length = 0;               // Cells per row.
  std::size_t cell_bytes = 0;

  // Numbers `count` cells of a row, from cell `begin` on.
  // REQUIRES: begin + count <= length.
  void number(std::size_t row, std::size_t begin, std::size_t count,
              std::int32_t segment) const noexcept {
    if (segment_ids == nullptr) return;
    const auto at = row * length + begin;
    std::fill_n(segment_ids + at, count, segment);
    std::iota(positions + at, positions + at + count, 0);
  }

  // Copies `count` cells to a row, from cell `begin` on.
  // REQUIRES: begin + count <= length; `from` has count * cell_bytes bytes.
  void copy(std::size_t row, std::size_t begin, std::size_t count,
            const std::byte* from) const noexcept {
    if (count * cell_bytes == 0) return;
    std::memcpy(values + (row * length + begin) * cell_bytes, from,
                count * cell_bytes);
  }
};

}  // namespace gristmill
