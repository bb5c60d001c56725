// Compares gather and stack with simple loops, byte by byte.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/batches/collate.hpp"
#include "core/check.hpp"

namespace {

using Bytes = std::vector<std::byte>;

Bytes some_bytes(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  }
  return bytes;
}

void test_gather_copies_rows_of_any_size() {
  for (const std::size_t row_bytes : {0, 1, 2, 3, 4, 8, 12, 16, 32, 64, 999}) {
    const std::int64_t table_rows = 2100;  // Large rows reach the prefetch.
    const auto table = some_bytes(row_bytes * 2100);
    std::vector<std::int64_t> rows;
    for (std::int64_t k = 0; k < 70; ++k) rows.push_back(k * 997 % table_rows);
    Bytes out(rows.size() * row_bytes);
    CHECK_EQ(gristmill::gather(table, table_rows, rows, row_bytes, out), -1);
    for (std::size_t k = 0; k < out.size(); ++k) {
      const auto row = static_cast<std::size_t>(rows[k / row_bytes]);
      CHECK(out[k] == table[row * row_bytes + k % row_bytes]);
    }
  }
}

void test_gather_returns_first_bad_row() {
  const auto table = some_bytes(40);
  for (const std::int64_t bad : {-1L, 10L, INT64_MIN, INT64_MAX}) {
    const std::vector<std::int64_t> rows{9, bad, bad};
    Bytes out(12, std::byte{7});
    CHECK_EQ(gristmill::gather(table, 10, rows, 4, out), 1);
    CHECK(out == Bytes(12, std::byte{7}));
  }
}

void test_stack_concatenates_parts() {
  for (const std::size_t row_bytes : {0, 1, 5, 8, 64, 100}) {
    const auto all = some_bytes(row_bytes * 3);
    const std::vector<const std::byte*> parts{
        all.data() + 2 * row_bytes, all.data(), all.data() + row_bytes};
    Bytes out(all.size());
    gristmill::stack(parts, row_bytes, out.data(), false);
    Bytes expected(all.begin() + static_cast<std::ptrdiff_t>(2 * row_bytes),
                   all.end());
    expected.insert(expected.end(), all.begin(),
                    all.end() - static_cast<std::ptrdiff_t>(row_bytes));
    CHECK(out == expected);
  }
}

// The rows of large batches are copied by another function.  They may begin and
// end at any address.
void test_streaming_stack_writes_only_its_rows() {
  for (const std::size_t row_bytes : {4096, 4097, 5000, 100'000}) {
    const auto row = some_bytes(row_bytes + 64);
    for (std::size_t shift = 0; shift < 64; shift += 7) {
      const std::vector<const std::byte*> parts{row.data() + shift, row.data()};
      Bytes expected(shift + 2 * row_bytes + 64, std::byte{7});
      Bytes out = expected;
      std::copy_n(parts[0], row_bytes, expected.data() + shift);
      std::copy_n(parts[1], row_bytes, expected.data() + shift + row_bytes);
      gristmill::stack(parts, row_bytes, out.data() + shift, true);
      CHECK(out == expected);
    }
  }
}

// Two columns with items of 3 and 8 bytes, in chunks of 2, 0 and 150 rows.
void test_rows_are_found_in_chunks_and_gathered() {
  const std::vector<std::int64_t> bounds{0, 2, 2, 152};
  const auto narrow = some_bytes(std::size_t{3} * 152);
  const auto wide = some_bytes(std::size_t{8} * 152);
  const std::vector<std::size_t> item_bytes{3, 8};
  std::vector<std::int64_t> rows;
  for (std::int64_t k = 0; k < 100; ++k) rows.push_back(151 - k * 37 % 152);
  std::vector<std::int64_t> chunks(rows.size());
  std::vector<std::int64_t> offsets(rows.size());
  CHECK((gristmill::find_chunks(bounds, rows, chunks, offsets) ==
         std::vector<std::int64_t>{2, 0}));
  Bytes first(std::size_t{11} * 150);
  Bytes second(std::size_t{11} * 2);
  gristmill::interleave(
      std::vector<const std::byte*>{narrow.data() + 6, wide.data() + 16},
      item_bytes, 150, first.data());
  gristmill::interleave(
      std::vector<const std::byte*>{narrow.data(), wide.data()}, item_bytes, 2,
      second.data());
  Bytes threes(3 * rows.size());
  Bytes eights(8 * rows.size());
  gristmill::gather_interleaved(
      std::vector<const std::byte*>{first.data(), second.data()}, chunks,
      offsets, item_bytes,
      std::vector<std::byte*>{threes.data(), eights.data()});
  Bytes again(8 * rows.size());
  gristmill::gather_chunks(
      std::vector<const std::byte*>{wide.data() + 16, wide.data()}, chunks,
      offsets, 8, again.data());
  CHECK(again == eights);
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const auto row = static_cast<std::size_t>(rows[k]);
    for (std::size_t i = 0; i < 8; ++i) {
      CHECK(eights[8 * k + i] == wide[8 * row + i]);
      CHECK(i > 2 || threes[3 * k + i] == narrow[3 * row + i]);
    }
  }
}

}  // namespace

int main() {
  test_rows_are_found_in_chunks_and_gathered();
  test_gather_copies_rows_of_any_size();
  test_gather_returns_first_bad_row();
  test_stack_concatenates_parts();
  test_streaming_stack_writes_only_its_rows();
}
