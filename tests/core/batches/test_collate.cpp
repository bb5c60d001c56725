// Gather and stack, byte for byte against plain loops.
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

void gather_copies_rows_of_every_size() {
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

void gather_names_the_first_bad_row() {
  const auto table = some_bytes(40);
  for (const std::int64_t bad : {-1L, 10L, INT64_MIN, INT64_MAX}) {
    const std::vector<std::int64_t> rows{9, bad, bad};
    Bytes out(12, std::byte{7});
    CHECK_EQ(gristmill::gather(table, 10, rows, 4, out), 1);
    CHECK(out == Bytes(12, std::byte{7}));
  }
}

void stack_lays_parts_end_to_end() {
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

// The rows of large batches are copied another way; they begin and end
// anywhere.
void stack_streams_nothing_beside_its_rows() {
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

}  // namespace

int main() {
  gather_copies_rows_of_every_size();
  gather_names_the_first_bad_row();
  stack_lays_parts_end_to_end();
  stack_streams_nothing_beside_its_rows();
}
