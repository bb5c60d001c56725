// Compares the set with std::set, across the boundaries of words.
#include <cstddef>
#include <random>
#include <set>

#include "core/check.hpp"
#include "core/packing/ordered_bits.hpp"

using gristmill::OrderedBits;

namespace {

void check_equal(const OrderedBits& bits, const std::set<std::size_t>& model,
                 std::size_t number) {
  const auto next = model.lower_bound(number);
  CHECK_EQ(bits.at_least(number),
           next == model.end() ? OrderedBits::kNone : *next);
  const auto after = model.upper_bound(number);
  CHECK_EQ(bits.at_most(number),
           after == model.begin() ? OrderedBits::kNone : *std::prev(after));
}

void test_neighbors_equal_those_of_a_sorted_set() {
  std::mt19937 random(1);
  for (const std::size_t size : {1, 63, 64, 65, 4095, 4096, 4097, 300000}) {
    OrderedBits bits(size);
    std::set<std::size_t> model;
    for (int i = 0; i < 2000; ++i) {
      const auto number = random() % size;
      if (random() % 3 == 0) {
        bits.erase(number);
        model.erase(number);
      } else if (model.insert(number).second) {
        bits.insert(number);
      }
      check_equal(bits, model, random() % size);
      check_equal(bits, model, 0);
      check_equal(bits, model, size - 1);
    }
  }
}

}  // namespace

int main() { test_neighbors_equal_those_of_a_sorted_set(); }
