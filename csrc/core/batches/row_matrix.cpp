#include "core/batches/row_matrix.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace gristmill {

void RowMatrix::number(std::size_t row, std::size_t begin, std::size_t count,
                       std::int32_t segment) const noexcept {
  if (segment_ids == nullptr) return;
  const auto at = row * length + begin;
  std::fill_n(segment_ids + at, count, segment);
  std::iota(positions + at, positions + at + count, 0);
}

void RowMatrix::copy(std::size_t row, std::size_t begin, std::size_t count,
                     const std::byte* from) const noexcept {
  if (count * cell_bytes == 0) return;
  std::memcpy(values + (row * length + begin) * cell_bytes, from,
              count * cell_bytes);
}

}  // namespace gristmill
