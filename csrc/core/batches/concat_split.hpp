// A RowFiller decides how much of each element goes into the row being filled.
//
// Elements are laid end to end, in each feature by itself.  The first element
// that does not fit whole is cut where the row ends, and what is left of it
// opens the next row.  A feature may be `whole`: it is never cut, and keeps an
// element out of the row as long as it does not fit.
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

  // What became of an element; unless kAll, the row is complete.
  enum class Taken {
    kAll,
    kPart,     // The rest is for the next row.
    kNothing,  // The element is for the next row as it is.
  };

  // REQUIRES: every length is positive.
  explicit RowFiller(std::vector<Feature> features);

  // Whether some feature alone fills a row, and none is longer than one.
  // REQUIRES: one size per feature.
  [[nodiscard]] bool is_full_row(
      std::span<const CellRange> element) const noexcept;

  // Says how much of an element fits: sets `taken` to what would go into the
  // row, behind the used() cells of each feature.
  // REQUIRES: one range per feature in both.
  [[nodiscard]] Taken plan(std::span<const CellRange> element,
                           std::span<CellRange> taken) const noexcept;

  // Counts in what plan() set.
  void commit(std::span<const CellRange> taken) noexcept;

  // Returns the first whole feature that has no room for the element, or -1.
  [[nodiscard]] std::ptrdiff_t whole_misfit(
      std::span<const CellRange> element) const noexcept;

  // Begins an empty row.
  void clear() noexcept;

  // The number of cells of a feature in the row.
  [[nodiscard]] std::int64_t used(std::size_t feature) const noexcept {
    return used_[feature];
  }

 private:
  const std::vector<Feature> features_;
  std::vector<std::int64_t> used_;
};

}  // namespace gristmill
