#include "core/batches/concat_split.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace gristmill {

RowFiller::RowFiller(std::vector<Feature> features)
    : features_(std::move(features)), used_(features_.size()) {
  assert(std::ranges::all_of(
      features_, [](const Feature& feature) { return feature.length > 0; }));
}

bool RowFiller::is_full_row(std::span<const CellRange> element) const noexcept {
  bool full = false;
  for (std::size_t f = 0; f < features_.size(); ++f) {
    if (element[f].size() > features_[f].length) return false;
    full |= element[f].size() == features_[f].length;
  }
  return full;
}

std::ptrdiff_t RowFiller::whole_misfit(
    std::span<const CellRange> element) const noexcept {
  for (std::size_t f = 0; f < features_.size(); ++f) {
    if (features_[f].whole &&
        element[f].size() > features_[f].length - used_[f]) {
      return static_cast<std::ptrdiff_t>(f);
    }
  }
  return -1;
}

RowFiller::Taken RowFiller::plan(std::span<const CellRange> element,
                                 std::span<CellRange> taken) const noexcept {
  if (whole_misfit(element) >= 0) return Taken::kNothing;
  bool is_cut = false;
  bool takes_any = false;
  for (std::size_t f = 0; f < features_.size(); ++f) {
    const auto room = features_[f].length - used_[f];
    const auto count = std::min(element[f].size(), room);
    taken[f] = {element[f].begin, element[f].begin + count};
    if (features_[f].whole) continue;
    is_cut |= count < element[f].size();
    takes_any |= count > 0;
  }
  if (!is_cut) return Taken::kAll;
  // An element of which only `whole` features have room stays out of the row.
  return takes_any ? Taken::kPart : Taken::kNothing;
}

void RowFiller::commit(std::span<const CellRange> taken) noexcept {
  for (std::size_t f = 0; f < features_.size(); ++f) {
    used_[f] += taken[f].size();
    assert(used_[f] <= features_[f].length);
  }
}

void RowFiller::clear() noexcept { std::ranges::fill(used_, 0); }

}  // namespace gristmill
