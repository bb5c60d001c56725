#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/check.hpp"
#include "core/indices/random_state.hpp"

namespace gristmill {
namespace {

std::vector<std::uint32_t> numbers(std::size_t count) {
  std::vector<std::uint32_t> values(count);
  std::iota(values.begin(), values.end(), 0U);
  return values;
}

std::vector<std::uint32_t> shuffled(RandomState& random, std::size_t count) {
  auto values = numbers(count);
  random.shuffle(values, [](std::size_t) {});
  return values;
}

// From numpy.random.RandomState(1234), which shuffled np.arange(8) twice.
void test_shuffle_equals_numpys() {
  RandomState random(1234);
  CHECK((shuffled(random, 8) ==
         std::vector<std::uint32_t>{2, 1, 6, 0, 4, 5, 3, 7}));
  CHECK((shuffled(random, 8) ==
         std::vector<std::uint32_t>{5, 0, 3, 4, 2, 6, 1, 7}));
}

void test_every_value_stays(std::size_t count) {
  RandomState random(1);
  auto values = shuffled(random, count);
  CHECK(count < 20 || values != numbers(count));
  std::sort(values.begin(), values.end());
  CHECK(values == numbers(count));
}

void test_final_values_do_not_move() {
  constexpr std::size_t kCount = 20000;
  RandomState random(5);
  const auto expected = shuffled(random, kCount);
  RandomState again(5);
  auto values = numbers(kCount);
  std::size_t moving = kCount;
  again.shuffle(values, [&](std::size_t left) {
    CHECK(left < moving);
    for (std::size_t i = left; i < moving; ++i)
      CHECK_EQ(values[i], expected[i]);
    moving = left;
  });
  CHECK_EQ(moving, 0U);
}

}  // namespace
}  // namespace gristmill

int main() {
  using namespace gristmill;
  test_shuffle_equals_numpys();
  for (const std::size_t count :
       {0, 1, 2, 47, 48, 49, 4096, 4097, 4098, 70000}) {
    test_every_value_stays(count);
  }
  test_final_values_do_not_move();
}
