// A RowPlacer decides which row of a batch each element is packed into.
//
// Every row has room for Feature::length cells of each feature.  An element
// takes one run of cells of every feature, all in one row, behind what the row
// holds already.  The placer counts cells; it knows nothing of their bytes.
//
// Rows are looked through in blocks that remember the most room any of their
// rows has, so that full blocks cost one comparison per feature.
//
// Thread safety: external synchronization.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace gristmill {

enum class Fit {
  kFirst,  // The first row with room.
  kBest,   // The fullest row with room, by the sum of its used cells; of
           // equally full ones the first.
};

class RowPlacer {
 public:
  static constexpr std::int64_t kUnlimited =
      std::numeric_limits<std::int64_t>::max();

  struct Feature {
    std::int64_t length;     // Cells per row.
    std::int64_t alignment;  // Sequences begin at multiples of it.
  };

  // REQUIRES: rows > 0; no length is negative; alignments and max_sequences,
  // the most elements that a row may hold, are positive.
  RowPlacer(Fit fit, std::size_t rows, std::vector<Feature> features,
            std::int64_t max_sequences = kUnlimited);

  // Returns the row for an element with these lengths, or -1 if none has room.
  // REQUIRES: one length per feature, none of them negative.
  [[nodiscard]] std::ptrdiff_t find(
      std::span<const std::int64_t> lengths) const noexcept;

  // Counts the element in.  REQUIRES: find(lengths) returned `row`.
  void place(std::size_t row, std::span<const std::int64_t> lengths) noexcept;

  // Empties all rows.
  void clear() noexcept;

  // The cell at which the next sequence of a feature begins in a row, behind
  // the row's last cell where there is no room.
  [[nodiscard]] std::int64_t next_cell(std::size_t row,
                                       std::size_t feature) const noexcept {
    return features_[feature].length - room_[feature * rows_ + row];
  }

  // The number of elements in a row.
  [[nodiscard]] std::int64_t sequences(std::size_t row) const noexcept {
    return sequences_[row];
  }

  // The rows that hold an element are the first so many.
  [[nodiscard]] std::size_t rows_in_use() const noexcept {
    return rows_in_use_;
  }

 private:
  static constexpr std::size_t kBlock = 64;

  [[nodiscard]] bool fits(std::size_t row,
                          std::span<const std::int64_t> lengths,
                          bool all_empty) const noexcept;
  [[nodiscard]] bool block_may_fit(
      std::size_t block, std::span<const std::int64_t> lengths) const noexcept;
  void set_room(std::size_t row, std::size_t feature,
                std::int64_t room) noexcept;

  // Fixed after construction.
  const Fit fit_;
  const std::size_t rows_;
  const std::size_t blocks_;
  const std::vector<Feature> features_;
  const std::int64_t max_sequences_;
  const std::int64_t capacity_;  // Cells per row, summed over features.

  // By feature and then by row, and by feature and then by block of rows.
  std::vector<std::int64_t> room_;        // Cells left; negative for none.
  std::vector<std::int64_t> block_room_;  // The most of its rows.
  // By row.
  std::vector<std::int64_t> used_;  // Cells, summed over features.
  std::vector<std::int64_t> sequences_;
  std::size_t rows_in_use_ = 0;
};

}  // namespace gristmill
