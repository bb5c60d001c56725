#include "core/batches/packing.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

namespace gristmill {

RowPlacer::RowPlacer(Fit fit, std::size_t rows, std::vector<Feature> features,
                     std::int64_t max_sequences)
    : fit_(fit),
      rows_(rows),
      blocks_((rows + kBlock - 1) / kBlock),
      features_(std::move(features)),
      max_sequences_(max_sequences),
      capacity_(std::accumulate(
          features_.begin(), features_.end(), std::int64_t{0},
          [](auto sum, const Feature& f) { return sum + f.length; })),
      room_(features_.size() * rows_),
      block_room_(features_.size() * blocks_),
      used_(rows_),
      sequences_(rows_) {
  assert(rows > 0 && max_sequences > 0);
  clear();
}

void RowPlacer::clear() noexcept {
  for (std::size_t f = 0; f < features_.size(); ++f) {
    const auto length = features_[f].length;
    assert(length >= 0 && features_[f].alignment > 0);
    std::fill_n(room_.data() + f * rows_, rows_, length);
    std::fill_n(block_room_.data() + f * blocks_, blocks_, length);
  }
  std::ranges::fill(used_, 0);
  std::ranges::fill(sequences_, 0);
  rows_in_use_ = 0;
}

bool RowPlacer::fits(std::size_t row, std::span<const std::int64_t> lengths,
                     bool all_empty) const noexcept {
  // Grain's best fit puts elements without cells into any row without used
  // cells, no matter how many elements the row holds.
  if (sequences_[row] >= max_sequences_ &&
      !(fit_ == Fit::kBest && all_empty && used_[row] == 0)) {
    return false;
  }
  for (std::size_t f = 0; f < lengths.size(); ++f) {
    if (room_[f * rows_ + row] < lengths[f]) return false;
  }
  return true;
}

bool RowPlacer::block_may_fit(
    std::size_t block, std::span<const std::int64_t> lengths) const noexcept {
  for (std::size_t f = 0; f < lengths.size(); ++f) {
    if (block_room_[f * blocks_ + block] < lengths[f]) return false;
  }
  return true;
}

std::ptrdiff_t RowPlacer::find(
    std::span<const std::int64_t> lengths) const noexcept {
  assert(lengths.size() == features_.size());
  const auto cells =
      std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  // No fitting row can be fuller: the element would fill it completely.  With
  // kFirst, the first fitting row is enough.
  const auto max_used = fit_ == Fit::kFirst ? 0 : capacity_ - cells;
  std::ptrdiff_t best = -1;
  std::int64_t best_used = -1;
  for (std::size_t block = 0; block < blocks_; ++block) {
    if (!block_may_fit(block, lengths)) continue;
    const auto last = std::min(rows_, (block + 1) * kBlock);
    for (auto row = block * kBlock; row < last; ++row) {
      if (used_[row] <= best_used || !fits(row, lengths, cells == 0)) continue;
      best = static_cast<std::ptrdiff_t>(row);
      best_used = used_[row];
      if (best_used >= max_used) return best;
    }
  }
  return best;
}

void RowPlacer::set_room(std::size_t row, std::size_t feature,
                         std::int64_t room) noexcept {
  const auto block = row / kBlock;
  auto* const feature_room = &room_[feature * rows_];
  auto& block_max = block_room_[feature * blocks_ + block];
  const bool was_max = feature_room[row] == block_max;
  feature_room[row] = room;
  if (!was_max) return;
  const auto first = block * kBlock;
  block_max = *std::max_element(feature_room + first,
                                feature_room + std::min(rows_, first + kBlock));
}

void RowPlacer::place(std::size_t row,
                      std::span<const std::int64_t> lengths) noexcept {
  for (std::size_t f = 0; f < lengths.size(); ++f) {
    const auto alignment = features_[f].alignment;
    const auto begin = next_cell(row, f);
    const auto end =
        (begin + lengths[f] + alignment - 1) / alignment * alignment;
    used_[row] += end - begin;
    set_room(row, f, features_[f].length - end);
  }
  rows_in_use_ = std::max(rows_in_use_, row + 1);
  // Close a row that has all its sequences, so that find() skips it.  A row
  // without used cells stays open, see fits().
  if (++sequences_[row] < max_sequences_ || used_[row] == 0) return;
  for (std::size_t f = 0; f < lengths.size(); ++f) set_room(row, f, -1);
}

}  // namespace gristmill
