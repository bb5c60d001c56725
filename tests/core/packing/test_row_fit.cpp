// Compares the methods with models that search all rows.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "core/check.hpp"
#include "core/packing/row_fit.hpp"

using gristmill::PackMethod;

namespace {

using Numbers = std::vector<std::uint32_t>;

Numbers longest_first(const Numbers& lengths) {
  Numbers order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>{},
                           [&](auto i) { return lengths[i]; });
  return order;
}

// Returns the tokens of each row, in ascending order.
Numbers sorted_fills(const Numbers& lengths, const Numbers& row_of,
                     std::uint32_t rows) {
  Numbers fills(rows);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    fills[row_of[i]] += lengths[i];
  }
  std::ranges::sort(fills);
  return fills;
}

// Assigns the pieces in `order`, each to the first row with room, or to the
// fullest one.
Numbers model_fills(std::uint32_t capacity, const Numbers& lengths,
                    const Numbers& order, bool fullest) {
  Numbers fills;
  for (const auto i : order) {
    auto best = fills.size();
    for (std::size_t row = 0; row < fills.size(); ++row) {
      if (fills[row] + lengths[i] > capacity) continue;
      if (best == fills.size() || (fullest && fills[row] > fills[best])) {
        best = row;
      }
    }
    if (best == fills.size()) fills.push_back(0);
    fills[best] += lengths[i];
  }
  std::ranges::sort(fills);
  return fills;
}

Numbers model(PackMethod method, std::uint32_t capacity,
              const Numbers& lengths) {
  Numbers in_order(lengths.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  switch (method) {
    case PackMethod::kBestFit:
      return model_fills(capacity, lengths, longest_first(lengths), true);
    case PackMethod::kLongestFirst:
      return model_fills(capacity, lengths, longest_first(lengths), false);
    default:
      return model_fills(capacity, lengths, in_order, false);
  }
}

void check_method(PackMethod method, std::uint32_t capacity,
                  const Numbers& lengths) {
  Numbers row_of(lengths.size());
  const auto rows = gristmill::fit_rows(method, capacity, lengths, row_of);
  const auto fills = sorted_fills(lengths, row_of, rows);
  CHECK(fills == model(method, capacity, lengths));
  if (method == PackMethod::kFirstFit) return;
  std::vector<std::uint64_t> pieces(capacity + 1);
  for (const auto length : lengths) ++pieces[length];
  CHECK_EQ(gristmill::count_rows(method, capacity, pieces),
           std::uint64_t{rows});
}

void test_rows_equal_those_of_a_full_search() {
  std::mt19937 random(1);
  for (const std::uint32_t capacity : {1, 2, 10, 64, 65, 1000}) {
    for (const std::size_t count : {0, 1, 2, 7, 100, 700}) {
      for (const std::uint32_t longest : {3U, capacity / 3 + 1, capacity}) {
        Numbers lengths(count);
        for (auto& length : lengths) {
          length = static_cast<std::uint32_t>(
              1 + random() % std::min(capacity, longest));
        }
        for (const auto method : {PackMethod::kBestFit, PackMethod::kFirstFit,
                                  PackMethod::kLongestFirst}) {
          check_method(method, capacity, lengths);
        }
      }
    }
  }
}

void test_many_full_pieces_are_counted_at_once() {
  std::vector<std::uint64_t> pieces{0, 0, std::uint64_t{1} << 50};
  CHECK_EQ(gristmill::count_rows(PackMethod::kBestFit, 2, pieces),
           std::uint64_t{1} << 50);
  CHECK_EQ(gristmill::count_rows(PackMethod::kLongestFirst, 2, pieces),
           std::uint64_t{1} << 50);
}

}  // namespace

int main() {
  test_rows_equal_those_of_a_full_search();
  test_many_full_pieces_are_counted_at_once();
}
