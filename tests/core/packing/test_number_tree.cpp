// Compares searches with a scan of all items.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "core/check.hpp"
#include "core/packing/number_tree.hpp"

using gristmill::NumberTree;

namespace {

using Numbers = std::vector<std::uint32_t>;

std::size_t scan(const std::vector<Numbers>& items, std::size_t from,
                 const Numbers& least) {
  for (auto i = from; i < items.size(); ++i) {
    if (std::ranges::equal(items[i], least, std::greater_equal{})) return i;
  }
  return NumberTree::kNone;
}

void test_found_items_equal_those_of_a_scan() {
  std::mt19937 generator(1);
  const auto random = [&](std::size_t end) {
    return static_cast<std::uint32_t>(generator() % end);
  };
  for (const std::size_t width : {1, 2, 3}) {
    for (const std::size_t size : {1, 2, 3, 64, 100}) {
      std::vector<Numbers> items(size, Numbers(width));
      NumberTree tree(size, width);
      for (std::size_t i = 0; i < size; ++i) {
        for (auto& number : items[i]) number = random(20);
        std::ranges::copy(items[i], tree.item(i).begin());
      }
      tree.build();
      for (int i = 0; i < 500; ++i) {
        const auto changed = random(size);
        items[changed].assign(width, random(20));
        std::ranges::copy(items[changed], tree.item(changed).begin());
        tree.update(changed);
        Numbers least(width);
        for (auto& number : least) number = 1 + random(20);
        const auto from = random(size);
        CHECK_EQ(tree.find(from, least), scan(items, from, least));
      }
    }
  }
}

// Every node has large numbers, but no item has two of them.
void test_search_that_fails_often_gives_up() {
  const std::size_t size = 1 << 16;
  NumberTree tree(size, 2);
  for (std::size_t i = 0; i < size; ++i) tree.item(i)[i % 2] = 9;
  std::ranges::fill(tree.item(size - 1), 9);
  tree.build();
  CHECK_EQ(tree.find(0, Numbers{9, 9}), NumberTree::kNone);
  CHECK_EQ(tree.find(size - 100, Numbers{9, 9}), size - 1);
}

}  // namespace

int main() {
  test_found_items_equal_those_of_a_scan();
  test_search_that_fails_often_gives_up();
}
