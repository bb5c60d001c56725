// RowMatrix writes cells, segment numbers and positions to the right places.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/batches/row_matrix.hpp"
#include "core/check.hpp"

namespace {

void test_write_changes_only_its_run() {
  std::vector<std::byte> values(2 * 5 * 3);
  std::vector<std::int32_t> segment_ids(10);
  std::vector<std::int32_t> positions(10);
  const gristmill::RowMatrix matrix{values.data(), segment_ids.data(),
                                    positions.data(), 5, 3};
  const std::vector<std::byte> run(6, std::byte{7});
  matrix.copy(1, 2, 2, run.data());
  matrix.number(1, 2, 2, 9);
  for (std::size_t cell = 0; cell < 10; ++cell) {
    const bool inside = cell == 7 || cell == 8;
    CHECK_EQ(segment_ids[cell], inside ? 9 : 0);
    CHECK_EQ(positions[cell], cell == 8 ? 1 : 0);
    for (std::size_t item = 0; item < 3; ++item) {
      CHECK(values[cell * 3 + item] == (inside ? run[0] : std::byte{0}));
    }
  }
}

void test_empty_run_writes_nothing() {
  std::vector<std::int32_t> numbers(2);
  const gristmill::RowMatrix matrix{nullptr, numbers.data(), numbers.data(), 2,
                                    0};
  matrix.copy(0, 2, 0, nullptr);
  matrix.number(0, 2, 0, 1);
  CHECK_EQ(numbers[0] + numbers[1], 0);
}

void test_feature_without_numbers_gets_none() {
  std::byte value{};
  const gristmill::RowMatrix matrix{&value, nullptr, nullptr, 1, 1};
  matrix.number(0, 0, 1, 1);
}

}  // namespace

int main() {
  test_write_changes_only_its_run();
  test_empty_run_writes_nothing();
  test_feature_without_numbers_gets_none();
}
