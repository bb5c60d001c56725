// Compares RowPlacer with a placer that checks every row.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "core/batches/packing.hpp"
#include "core/check.hpp"

namespace {

using gristmill::Fit;
using gristmill::RowPlacer;
using Lengths = std::vector<std::int64_t>;

// Places like RowPlacer, but without blocks and sums.
class PlainPlacer {
 public:
  PlainPlacer(Fit fit, std::size_t rows,
              std::vector<RowPlacer::Feature> features,
              std::int64_t max_sequences)
      : fit_(fit),
        features_(std::move(features)),
        max_sequences_(max_sequences),
        next_(rows, Lengths(features_.size())),
        sequences_(rows) {}

  std::ptrdiff_t find(const Lengths& lengths) const {
    std::ptrdiff_t best = -1;
    std::int64_t most = -1;
    for (std::size_t row = 0; row < next_.size(); ++row) {
      if (!fits(row, lengths)) continue;
      const auto used = fit_ == Fit::kFirst ? 0 : sum(next_[row]);
      if (used <= most) continue;
      most = used;
      best = static_cast<std::ptrdiff_t>(row);
    }
    return best;
  }

  void place(std::size_t row, const Lengths& lengths) {
    for (std::size_t f = 0; f < lengths.size(); ++f) {
      next_[row][f] += lengths[f];
      while (next_[row][f] % features_[f].alignment != 0) ++next_[row][f];
    }
    ++sequences_[row];
  }

 private:
  static std::int64_t sum(const Lengths& lengths) {
    std::int64_t all = 0;
    for (const auto length : lengths) all += length;
    return all;
  }

  bool fits(std::size_t row, const Lengths& lengths) const {
    if (sequences_[row] >= max_sequences_ &&
        (fit_ == Fit::kFirst || sum(lengths) + sum(next_[row]) > 0)) {
      return false;
    }
    for (std::size_t f = 0; f < lengths.size(); ++f) {
      if (next_[row][f] + lengths[f] > features_[f].length) return false;
    }
    return true;
  }

  Fit fit_;
  std::vector<RowPlacer::Feature> features_;
  std::int64_t max_sequences_;
  std::vector<Lengths> next_;
  std::vector<std::int64_t> sequences_;
};

void test_places_equal_linear_search() {
  std::mt19937 random(1);
  const auto draw = [&](std::int64_t below) {
    return static_cast<std::int64_t>(random()) % below;
  };
  for (int round = 0; round < 400; ++round) {
    const auto fit = round % 2 == 0 ? Fit::kFirst : Fit::kBest;
    const auto rows =
        static_cast<std::size_t>(1 + draw(round % 5 == 0 ? 300 : 9));
    std::vector<RowPlacer::Feature> features;
    for (auto n = 1 + draw(3); n > 0; --n) {
      features.push_back({draw(20), round % 3 == 0 ? 1 + draw(5) : 1});
    }
    const auto limit = round % 4 == 0 ? 1 + draw(4) : RowPlacer::kUnlimited;
    RowPlacer placer(fit, rows, features, limit);
    for (int batch = 0; batch < 3; ++batch) {
      PlainPlacer plain(fit, rows, features, limit);
      placer.clear();
      CHECK_EQ(placer.rows_in_use(), std::size_t{0});
      // Elements without cells may always fit.
      for (int element = 0; element < 2000; ++element) {
        Lengths lengths;
        for (const auto& feature : features) {
          lengths.push_back(draw(feature.length + 1));
        }
        const auto row = placer.find(lengths);
        CHECK_EQ(row, plain.find(lengths));
        if (row < 0) break;
        placer.place(static_cast<std::size_t>(row), lengths);
        plain.place(static_cast<std::size_t>(row), lengths);
        CHECK(placer.rows_in_use() > static_cast<std::size_t>(row));
      }
    }
  }
}

void test_place_has_offset_of_sequence() {
  RowPlacer placer(Fit::kFirst, 2, {{10, 4}, {5, 1}});
  placer.place(0, Lengths{3, 2});
  CHECK_EQ(placer.next_cell(0, 0), 4);
  CHECK_EQ(placer.next_cell(0, 1), 2);
  CHECK_EQ(placer.next_cell(1, 0), 0);
  CHECK_EQ(placer.sequences(0), 1);
  CHECK_EQ(placer.find(Lengths{6, 3}), 0);
  CHECK_EQ(placer.find(Lengths{7, 3}), 1);
  CHECK_EQ(placer.find(Lengths{11, 0}), -1);
  CHECK_EQ(placer.rows_in_use(), std::size_t{1});
}

void test_best_fit_takes_first_of_fullest_rows() {
  RowPlacer placer(Fit::kBest, 4, {{10, 1}});
  for (std::size_t row = 0; row < 3; ++row) placer.place(row, Lengths{6});
  CHECK_EQ(placer.find(Lengths{5}), 3);
  CHECK_EQ(placer.find(Lengths{4}), 0);
  placer.place(2, Lengths{1});
  CHECK_EQ(placer.find(Lengths{3}), 2);
  CHECK_EQ(placer.find(Lengths{4}), 0);
}

void test_row_has_at_most_max_sequences() {
  RowPlacer placer(Fit::kFirst, 2, {{10, 1}}, 2);
  placer.place(0, Lengths{1});
  CHECK_EQ(placer.find(Lengths{1}), 0);
  placer.place(0, Lengths{1});
  CHECK_EQ(placer.find(Lengths{1}), 1);
  CHECK_EQ(placer.find(Lengths{0}), 1);
}

}  // namespace

int main() {
  test_places_equal_linear_search();
  test_place_has_offset_of_sequence();
  test_best_fit_takes_first_of_fullest_rows();
  test_row_has_at_most_max_sequences();
}
