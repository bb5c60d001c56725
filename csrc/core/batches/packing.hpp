// A RowPlacer chooses the row of a batch for each element.
//
// Every row has Feature::length cells of each feature.  An element takes one
// run of cells of every feature, all in the same row, after the cells already
// used.  The placer only counts cells and does not access their bytes.
//
// Rows are searched in blocks.  Each block stores the most room of any of its
// rows, so a full block costs one comparison per feature.
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
  kBest,   // The fullest row with room, by the sum of its used cells; the first
           // of equally full ones.
};

class RowPlacer {
 public:
  static constexpr std::int64_t kUnlimited =
      std::numeric_limits<std::int64_t>::max();

  struct Feature {
    std::int64_t length;     // Cells per row.
    std::int64_t alignment;  // Sequences start at multiples of this.
  };

  // max_sequences is the maximum number of elements per row.
  // REQUIRES: rows > 0; no length is negative; alignments and max_sequences are
  // positive.
  RowPlacer(Fit fit, std::size_t rows, std::vector<Feature> features,
            std::int64_t max_sequences = kUnlimited);

  // Returns the row for an element with these lengths, or -1 if no row has
  // room.
  // REQUIRES: one length per feature, none of them negative.
  [[nodiscard]] std::ptrdiff_t find(
      std::span<const std::int64_t> lengths) const noexcept;

  // Adds the element to the row.  REQUIRES: find(lengths) returned `row`.
  void place(std::size_t row, std::span<const std::int64_t> lengths) noexcept;

  // Empties all rows.
  void clear() noexcept;

  // Returns the cell at which the next sequence of a feature starts in a row.
  // Returns a cell after the end of the row if there is no room.
  [[nodiscard]] std::int64_t next_cell(std::size_t row,
                                       std::size_t feature) const noexcept {
    return features_[feature].length - room_[feature * rows_ + row];
  }

  // Returns the number of elements in a row.
  [[nodiscard]] std::int64_t sequences(std::size_t row) const noexcept {
    return sequences_[row];
  }

  // Returns the number of rows with elements; they are the first rows.
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

  // Indexed by feature and then by row, and by feature and then by block of
  // rows.
  std::vector<std::int64_t> room_;        // Free; negative in closed rows.
  std::vector<std::int64_t> block_room_;  // The maximum over its rows.
  // Indexed by row.
  std::vector<std::int64_t> used_;  // Used cells, summed over features.
  std::vector<std::int64_t> sequences_;
  std::size_t rows_in_use_ = 0;
};

}  // namespace gristmill
