// Compares the methods with models that search all rows and pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "core/check.hpp"
#include "core/packing/feature_fit.hpp"

using gristmill::fit_features;
using gristmill::PackMethod;

namespace {

using Numbers = std::vector<std::uint32_t>;

constexpr std::uint32_t kNoRow = 0xffffffff;

// The lengths of each piece.
using Pieces = std::vector<Numbers>;

bool fits(const Numbers& lengths, const Numbers& rooms) {
  return std::ranges::equal(lengths, rooms, std::less_equal{});
}

void take(const Numbers& lengths, Numbers& rooms) {
  for (std::size_t i = 0; i < rooms.size(); ++i) rooms[i] -= lengths[i];
}

Numbers first_fit(const Numbers& capacities, const Pieces& pieces) {
  std::vector<Numbers> rooms;
  Numbers row_of;
  for (const auto& lengths : pieces) {
    std::uint32_t row = 0;
    while (row < rooms.size() && !fits(lengths, rooms[row])) ++row;
    if (row == rooms.size()) rooms.push_back(capacities);
    take(lengths, rooms[row]);
    row_of.push_back(row);
  }
  return row_of;
}

// Returns the feature that needs the most rows for the pieces without a row.
std::size_t scarcest(const Numbers& capacities, const Pieces& pieces,
                     const Numbers& row_of) {
  std::vector<double> rows(capacities.size());
  for (std::size_t feature = 0; feature < rows.size(); ++feature) {
    double left = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (row_of[i] == kNoRow) left += pieces[i][feature];
    }
    rows[feature] = left / capacities[feature];
  }
  return static_cast<std::size_t>(std::ranges::max_element(rows) -
                                  rows.begin());
}

Numbers longest_that_fits(const Numbers& capacities, const Pieces& pieces) {
  Numbers row_of(pieces.size(), kNoRow);
  for (std::uint32_t row = 0; std::ranges::count(row_of, kNoRow) > 0; ++row) {
    auto rooms = capacities;
    for (;;) {
      const auto feature = scarcest(capacities, pieces, row_of);
      auto found = pieces.size();
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (row_of[i] != kNoRow || !fits(pieces[i], rooms)) continue;
        if (found == pieces.size() ||
            pieces[i][feature] > pieces[found][feature]) {
          found = i;
        }
      }
      if (found == pieces.size()) break;
      row_of[found] = row;
      take(pieces[found], rooms);
    }
  }
  return row_of;
}

void check_methods(const Numbers& capacities, const Pieces& pieces) {
  Numbers lengths;
  for (const auto& each : pieces) {
    lengths.insert(lengths.end(), each.begin(), each.end());
  }
  Numbers row_of(pieces.size());
  const auto rows_of = [&](PackMethod method) {
    return fit_features(method, capacities, lengths, row_of);
  };
  const auto last_row = [](const Numbers& rows) {
    return rows.empty() ? 0 : *std::ranges::max_element(rows) + 1;
  };
  const auto first = first_fit(capacities, pieces);
  CHECK_EQ(rows_of(PackMethod::kFirstFit), last_row(first));
  CHECK(row_of == first);
  const auto longest = longest_that_fits(capacities, pieces);
  for (const auto method : {PackMethod::kBestFit, PackMethod::kLongestFirst}) {
    CHECK_EQ(rows_of(method), last_row(longest));
    CHECK(row_of == longest);
  }
}

void test_rows_equal_those_of_a_full_search() {
  std::mt19937 random(1);
  for (const auto& capacities :
       {Numbers{10, 10}, Numbers{1, 3}, Numbers{64, 5}, Numbers{9, 30, 7}}) {
    for (const std::size_t count : {0, 1, 2, 7, 100}) {
      for (int i = 0; i < 10; ++i) {
        Pieces pieces(count, Numbers(capacities.size()));
        for (auto& lengths : pieces) {
          for (std::size_t f = 0; f < lengths.size(); ++f) {
            if (random() % 3 == 0) continue;
            lengths[f] =
                static_cast<std::uint32_t>(random() % (capacities[f] + 1));
          }
        }
        check_methods(capacities, pieces);
      }
    }
  }
}

// Rows have room in one feature only, so that no search finds one for both.
void test_many_rows_with_room_in_one_feature_end_soon() {
  const Numbers capacities{10, 10};
  const std::uint32_t count = 60000;
  Numbers lengths;
  for (std::uint32_t i = 0; i < count; ++i) {
    lengths.push_back(i % 2 == 0 ? 10 : 1);
    lengths.push_back(i % 2 == 0 ? 1 : 10);
  }
  for (std::uint32_t i = 0; i < count; ++i) lengths.insert(lengths.end(), 2, 1);
  Numbers row_of(2 * count);
  for (const auto method : {PackMethod::kFirstFit, PackMethod::kBestFit}) {
    CHECK_EQ(fit_features(method, capacities, lengths, row_of),
             count + count / 10);
  }
}

}  // namespace

int main() {
  test_rows_equal_those_of_a_full_search();
  test_many_rows_with_room_in_one_feature_end_soon();
}
