// The permutation has Grain's values and loses none; batches equal single
// calls.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "core/check.hpp"
#include "core/indices/permute.hpp"

using gristmill::Block;
using gristmill::Code;
using gristmill::Permutation;

namespace {

std::vector<std::int64_t> counting(std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Returns the number of different positions in [0, count) in the permutation.
std::int64_t produced(std::int64_t count, Block block) {
  auto all = counting(count);
  Permutation(count - 1, 7, 4, block).apply(all);
  std::vector<bool> seen(all.size());
  for (const auto position : all) {
    CHECK(position >= 0 && position < count);
    seen[static_cast<std::size_t>(position)] = true;
  }
  std::int64_t distinct = 0;
  for (const bool one : seen) distinct += one ? 1 : 0;
  return distinct;
}

void test_permutation_has_every_position() {
  for (const std::int64_t count : {1, 2, 3, 100, 257, 65536, 65538, 262145}) {
    CHECK_EQ(produced(count, Block::kWhole), count);
  }
}

void test_grain_block_loses_a_position() {
  CHECK_EQ(produced(65537, Block::kGrain), 65536);
  CHECK_EQ(produced(65537, Block::kWhole), 65537);
}

void test_batch_equals_single_indices() {
  const std::int64_t large = std::int64_t{1} << 40;
  for (const std::int64_t count : {std::int64_t{700}, std::int64_t{65537},
                                   std::int64_t{100000}, large, large + 1}) {
    for (const auto block : {Block::kGrain, Block::kWhole}) {
      const Permutation permutation(count - 1, 3, 4, block);
      auto batch = counting(600);
      batch.back() = count - 1;
      auto singles = batch;
      for (auto& index : singles) permutation.apply({&index, 1});
      permutation.apply(batch);
      CHECK(batch == singles);
    }
  }
}

void test_invalid_arguments_are_errors() {
  CHECK_EQ(gristmill::index_shuffle(9, 8, 1, 4).status().message(),
           "index must be in [0, max_index], but got index = 9 and "
           "max_index = 8");
  CHECK_EQ(gristmill::index_shuffle(0, 8, 1, 5).status().message(),
           "rounds must be an even integer between 4 and 1024, but got "
           "rounds = 5");
  CHECK(gristmill::index_shuffle(-1, 8, 1, 4).status().code() ==
        Code::kInvalidArgument);
}

void test_values_equal_grain() {
  // From grain.experimental.index_shuffle 0.2.18.
  const std::int64_t last = std::numeric_limits<std::int64_t>::max();
  CHECK_EQ(gristmill::index_shuffle(0, last, 1, 4).value(),
           std::int64_t{3989469772979767726});
  CHECK_EQ(gristmill::index_shuffle(last, last, 1, 4).value(),
           std::int64_t{7617385238556483762});
  CHECK_EQ(gristmill::index_shuffle(0, 5, 1, 4).value(), std::int64_t{5});
  CHECK_EQ(gristmill::index_shuffle(0, 0, 1, 4).value(), std::int64_t{0});
}

}  // namespace

int main() {
  test_permutation_has_every_position();
  test_grain_block_loses_a_position();
  test_batch_equals_single_indices();
  test_invalid_arguments_are_errors();
  test_values_equal_grain();
}
