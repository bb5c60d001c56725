// A RowFiller decides how many cells of each element go into the current row.
//
// Each feature concatenates the elements separately.  The first element that
// does not fit is cut at the end of the row, and its remainder starts the next
// row.  A `whole` feature is never cut: an element stays out of the row as long
// as the feature does not fit.
//
// Thread safety: external synchronization.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gristmill {

// A run of cells of one feature of an element.
struct CellRange {
  std::int64_t begin;
  std::int64_t end;

  [[nodiscard]] std::int64_t size() const noexcept { return end - begin; }
};

class RowFiller {
 public:
  struct Feature {
    std::int64_t length;  // Cells per row.
    bool whole;
  };

  // The part of an element that was taken.  Unless it is kAll, the row is
  // complete.
  enum class Taken {
    kAll,
    kPart,     // The remainder is for the next row.
    kNothing,  // The whole element is for the next row.
  };

  // REQUIRES: every length is positive.
  explicit RowFiller(std::vector<Feature> features);

  // Returns whether at least one feature exactly fills a row and no feature is
  // longer than a row.
  // REQUIRES: one range per feature.
  [[nodiscard]] bool is_full_row(
      std::span<const CellRange> element) const noexcept;

  // Returns how much of an element fits.  Sets `taken` to the cells that would
  // go into the row, after the used() cells of each feature.
  // REQUIRES: one range per feature in both.
  [[nodiscard]] Taken plan(std::span<const CellRange> element,
                           std::span<CellRange> taken) const noexcept;

  // Adds the cells that plan() set to the row.
  void commit(std::span<const CellRange> taken) noexcept;

  // Returns the first `whole` feature without room for the element, or -1.
  [[nodiscard]] std::ptrdiff_t whole_misfit(
      std::span<const CellRange> element) const noexcept;

  // Starts an empty row.
  void clear() noexcept;

  // Returns the number of cells of a feature in the row.
  [[nodiscard]] std::int64_t used(std::size_t feature) const noexcept {
    return used_[feature];
  }

 private:
  const std::vector<Feature> features_;
  std::vector<std::int64_t> used_;
};

}  // namespace gristmill
