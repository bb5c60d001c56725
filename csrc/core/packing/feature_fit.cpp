#include "core/packing/feature_fit.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "core/packing/number_tree.hpp"

namespace gristmill {
namespace {

using Numbers = std::vector<std::uint32_t>;

constexpr std::uint32_t kNotAssigned =
    std::numeric_limits<std::uint32_t>::max();

struct FeaturePieces {
  std::span<const std::uint32_t> capacities;
  std::span<const std::uint32_t> lengths;

  [[nodiscard]] std::size_t features() const { return capacities.size(); }
  [[nodiscard]] std::size_t size() const { return lengths.size() / features(); }
  [[nodiscard]] std::span<const std::uint32_t> lengths_of(
      std::size_t piece) const {
    return lengths.subspan(piece * features(), features());
  }
  [[nodiscard]] std::vector<std::uint64_t> totals() const {
    std::vector<std::uint64_t> sums(features());
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      sums[i % features()] += lengths[i];
    }
    return sums;
  }
};

// Sorts pieces by their length in a feature, the longest first, equal ones in
// their order.  Returns the number of longer pieces for each length.
Numbers sort_longest_first(const FeaturePieces& pieces, std::size_t feature,
                           Numbers& order) {
  const auto capacity = pieces.capacities[feature];
  const auto length_of = [&](std::uint32_t piece) {
    return pieces.lengths[piece * pieces.features() + feature];
  };
  Numbers begins(std::size_t{capacity} + 2);
  for (const auto piece : order) ++begins[capacity - length_of(piece) + 1];
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  auto next = begins;
  Numbers sorted(order.size());
  for (const auto piece : order) {
    sorted[next[capacity - length_of(piece)]++] = piece;
  }
  order = std::move(sorted);
  begins.pop_back();
  std::ranges::reverse(begins);
  return begins;
}

// The pieces that are not assigned yet, the longest in a feature first.
class PiecesLeft {
 public:
  PiecesLeft(const FeaturePieces& pieces, std::size_t feature,
             std::span<const std::uint32_t> row_of)
      : feature_(feature),
        capacities_(pieces.capacities),
        order_(unassigned(row_of)),
        places_(pieces.size()),
        fits_(order_.size(), pieces.features() - 1),
        least_(pieces.features() - 1) {
    begins_ = sort_longest_first(pieces, feature, order_);
    for (std::size_t place = 0; place < order_.size(); ++place) {
      places_[order_[place]] = static_cast<std::uint32_t>(place);
      // The most used cells with which the piece fits into a row, plus 1.
      auto most_used = fits_.item(place).begin();
      const auto lengths = pieces.lengths_of(order_[place]);
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        if (i != feature) *most_used++ = capacities_[i] - lengths[i] + 1;
      }
    }
    fits_.build();
  }

  // Returns the longest piece that fits, or nothing.
  std::optional<std::uint32_t> longest(std::span<const std::uint32_t> rooms) {
    const auto first = begins_[rooms[feature_]];
    if (first == order_.size()) return std::nullopt;
    auto least = least_.begin();
    for (std::size_t i = 0; i < rooms.size(); ++i) {
      if (i != feature_) *least++ = capacities_[i] - rooms[i] + 1;
    }
    const auto found = fits_.find(first, least_);
    if (found == NumberTree::kNone) return std::nullopt;
    return order_[found];
  }

  void erase(std::uint32_t piece) {
    std::ranges::fill(fits_.item(places_[piece]), 0);
    fits_.update(places_[piece]);
  }

 private:
  static Numbers unassigned(std::span<const std::uint32_t> row_of) {
    Numbers pieces;
    for (std::uint32_t piece = 0; piece < row_of.size(); ++piece) {
      if (row_of[piece] == kNotAssigned) pieces.push_back(piece);
    }
    return pieces;
  }

  std::size_t feature_;
  std::span<const std::uint32_t> capacities_;
  Numbers order_;
  Numbers places_;   // The index of each piece in order_.
  Numbers begins_;   // The first place of a piece of at most each length.
  NumberTree fits_;  // By place; the numbers of erased pieces are 0.
  Numbers least_;
};

std::uint32_t fit_longest_of_features(const FeaturePieces& pieces,
                                      std::span<std::uint32_t> row_of) {
  std::ranges::fill(row_of, kNotAssigned);
  auto tokens_left = pieces.totals();
  const auto scarcest = [&] {
    std::size_t found = 0;
    double most_rows = -1;
    for (std::size_t i = 0; i < tokens_left.size(); ++i) {
      const auto rows =
          static_cast<double>(tokens_left[i]) / pieces.capacities[i];
      if (rows <= most_rows) continue;
      most_rows = rows;
      found = i;
    }
    return found;
  };
  std::vector<std::optional<PiecesLeft>> left(pieces.features());
  Numbers rooms(pieces.features());
  std::uint32_t row = 0;
  for (auto num_left = pieces.size(); num_left > 0; ++row) {
    std::ranges::copy(pieces.capacities, rooms.begin());
    while (num_left > 0) {
      const auto feature = scarcest();
      if (!left[feature]) left[feature].emplace(pieces, feature, row_of);
      const auto piece = left[feature]->longest(rooms);
      if (!piece) break;
      row_of[*piece] = row;
      --num_left;
      for (auto& each : left) {
        if (each) each->erase(*piece);
      }
      const auto lengths = pieces.lengths_of(*piece);
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        rooms[i] -= lengths[i];
        tokens_left[i] -= lengths[i];
      }
    }
  }
  return row;
}

std::uint32_t fit_first_of_features(const FeaturePieces& pieces,
                                    std::span<std::uint32_t> row_of) {
  // Two consecutive rows have more than a row's cells of a feature.
  std::uint64_t max_rows = 1;
  const auto totals = pieces.totals();
  for (std::size_t i = 0; i < totals.size(); ++i) {
    max_rows += 2 * (totals[i] / pieces.capacities[i] + 1);
  }
  max_rows = std::min<std::uint64_t>(max_rows, pieces.size());
  NumberTree rooms(static_cast<std::size_t>(max_rows), pieces.features());
  for (std::size_t row = 0; row < max_rows; ++row) {
    std::ranges::copy(pieces.capacities, rooms.item(row).begin());
  }
  rooms.build();
  std::size_t rows = 0;
  for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
    const auto lengths = pieces.lengths_of(piece);
    auto row = rooms.find(0, lengths);
    if (row == NumberTree::kNone) {
      const bool fits =
          std::ranges::equal(lengths, rooms.item(rows - 1), std::less_equal{});
      row = fits ? rows - 1 : rows;
    }
    const auto room = rooms.item(row);
    for (std::size_t i = 0; i < lengths.size(); ++i) room[i] -= lengths[i];
    rooms.update(row);
    row_of[piece] = static_cast<std::uint32_t>(row);
    rows = std::max(rows, row + 1);
  }
  return static_cast<std::uint32_t>(rows);
}

}  // namespace

std::uint32_t fit_features(PackMethod method,
                           std::span<const std::uint32_t> capacities,
                           std::span<const std::uint32_t> lengths,
                           std::span<std::uint32_t> row_of) {
  assert(method != PackMethod::kSplit);
  assert(lengths.size() == row_of.size() * capacities.size());
  const FeaturePieces pieces{.capacities = capacities, .lengths = lengths};
  if (row_of.empty()) return 0;
  return method == PackMethod::kFirstFit
             ? fit_first_of_features(pieces, row_of)
             : fit_longest_of_features(pieces, row_of);
}

}  // namespace gristmill
