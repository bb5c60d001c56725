// Binds the functions of core/batches/collate.hpp that gather rows from chunks:
// checks the arrays, releases the GIL, passes bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "bindings/batches/batch_arrays.hpp"
#include "bindings/bind.hpp"
#include "core/batches/collate.hpp"

namespace gristmill::bind {
namespace {

std::span<const std::int64_t> numbers_of(const Rows& array, const char* name) {
  if (array.ndim() != 1 || !is_aligned(array)) {
    throw py::value_error(std::string(name) +
                          " must be aligned and have one dimension");
  }
  return {array.data(), static_cast<std::size_t>(array.size())};
}

py::tuple find_chunks(const Rows& bounds, const Rows& rows) {
  const auto chunk_bounds = numbers_of(bounds, "bounds");
  const auto requested_rows = numbers_of(rows, "rows");
  if (chunk_bounds.empty() || chunk_bounds[0] != 0 ||
      !std::ranges::is_sorted(chunk_bounds)) {
    throw py::value_error("bounds must be sorted and start with 0");
  }
  if (const auto bad = first_bad_row(requested_rows, chunk_bounds.back());
      bad >= 0) {
    throw py::index_error(
        concat("rows[", bad, "] must be in [0, ", chunk_bounds.back(),
               "), got ", requested_rows[static_cast<std::size_t>(bad)]));
  }
  Rows chunks(rows.size());
  Rows offsets(rows.size());
  const auto used_chunks =
      gristmill::find_chunks(chunk_bounds, requested_rows,
                             {chunks.mutable_data(), requested_rows.size()},
                             {offsets.mutable_data(), requested_rows.size()});
  return py::make_tuple(
      Rows(static_cast<py::ssize_t>(used_chunks.size()), used_chunks.data()),
      chunks, offsets);
}

// The columns of chunks.  Checks that they have the same kind of rows as
// `outs`.
class ChunkedColumns {
 public:
  ChunkedColumns(const py::list& chunks, const py::list& outs) {
    for (const py::handle out : outs) {
      outs_.push_back(py::cast<py::array>(out));
    }
    for (const py::handle chunk : chunks) {
      columns_.push_back(py::cast<py::tuple>(chunk));
      if (columns_.back().size() != outs_.size()) {
        throw py::value_error(concat("each chunk must have ", outs_.size(),
                                     " columns, one for each of outs, got ",
                                     columns_.back().size()));
      }
    }
    tables_.resize(columns_.size());
  }

  // Returns the addresses of the tables of a column.  Checks that each table
  // has the rows that are needed from its chunk.
  std::span<const std::byte* const> tables(
      std::size_t column, std::span<const std::int64_t> rows_needed) {
    const auto& out = outs_[column];
    const std::size_t row_bytes = row_bytes_of(out);
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const auto* table = exact_array(PyTuple_GET_ITEM(
          columns_[c].ptr(), static_cast<py::ssize_t>(column)));
      if (table == nullptr || table->nd == 0 ||
          !same_dtype(table->descr, out.dtype().ptr()) ||
          !std::ranges::equal(shape_of(*table).subspan(1),
                              shape_of(out).subspan(1))) {
        throw py::value_error(
            concat("column ", column, " of chunk ", c,
                   " must be a C-contiguous array with the dtype and row shape "
                   "of outs[",
                   column, "]"));
      }
      if (table->dimensions[0] < rows_needed[c]) {
        throw py::index_error(concat("column ", column, " of chunk ", c,
                                     " must have at least ", rows_needed[c],
                                     " rows, got ", table->dimensions[0]));
      }
      tables_[c] = reinterpret_cast<const std::byte*>(table->data);
      const auto rows = static_cast<std::size_t>(table->dimensions[0]);
      check_no_overlap({static_cast<const std::byte*>(out.data()),
                        static_cast<std::size_t>(out.nbytes())},
                       {tables_[c], rows * row_bytes}, "a chunk");
    }
    return tables_;
  }

  [[nodiscard]] std::vector<py::array>& outs() { return outs_; }
  [[nodiscard]] std::size_t count() const { return columns_.size(); }

 private:
  std::vector<py::array> outs_;
  std::vector<py::tuple> columns_;
  std::vector<const std::byte*> tables_;
};

// The places of rows: the number of the chunk of each row, and its offset
// there.
struct Places {
  std::span<const std::int64_t> numbers;
  std::span<const std::int64_t> offsets;
  // For each chunk, the minimum number of rows that it must have.
  std::vector<std::int64_t> rows_needed;

  Places(const Rows& numbers_in, const Rows& offsets_in, std::size_t chunks)
      : numbers(numbers_of(numbers_in, "numbers")),
        offsets(numbers_of(offsets_in, "offsets")),
        rows_needed(chunks) {
    if (numbers.size() != offsets.size()) {
      throw py::value_error(
          concat("numbers and offsets must have the same length, got ",
                 numbers.size(), " and ", offsets.size()));
    }
    if (first_bad_row(numbers, static_cast<std::int64_t>(chunks)) >= 0 ||
        first_bad_row(offsets, std::numeric_limits<std::int64_t>::max()) >= 0) {
      throw py::index_error(concat("numbers must be between 0 and ", chunks,
                                   " - 1, and offsets at least 0"));
    }
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      auto& min_rows = rows_needed[static_cast<std::size_t>(numbers[k])];
      min_rows = std::max(min_rows, offsets[k] + 1);
    }
  }
};

void gather_chunks(const py::list& chunks, const Rows& numbers,
                   const Rows& offsets, const py::list& outs) {
  ChunkedColumns columns(chunks, outs);
  const Places places(numbers, offsets, columns.count());
  const std::size_t count = places.numbers.size();
  for (std::size_t c = 0; c < columns.outs().size(); ++c) {
    auto& out = columns.outs()[c];
    check_batch(out, count);
    const auto tables = columns.tables(c, places.rows_needed);
    auto* const to = static_cast<std::byte*>(out.mutable_data());
    const std::size_t row_bytes = row_bytes_of(out);
    unlocked_from(kUnlockBytes, count * row_bytes, [&] {
      gristmill::gather_chunks(tables, places.numbers, places.offsets,
                               row_bytes, to);
    });
  }
}

// Columns of items; a row is the concatenation of their items.
struct Items {
  std::vector<py::array> arrays;
  std::vector<std::size_t> item_bytes;
  std::size_t row_bytes = 0;

  Items(const py::sequence& columns, std::size_t rows, const char* name) {
    for (const py::handle column : columns) {
      arrays.push_back(py::cast<py::array>(column));
      const auto& array = arrays.back();
      check_plain(array, name);
      if (array.ndim() != 1 || static_cast<std::size_t>(array.size()) != rows) {
        throw py::value_error(
            concat(name, " must each have shape (", rows, ",)"));
      }
      item_bytes.push_back(static_cast<std::size_t>(array.itemsize()));
      row_bytes += item_bytes.back();
    }
  }
};

// Returns a table for interleave().  Checks that its rows have row_bytes bytes.
py::array table_of(const py::handle& object, std::size_t row_bytes) {
  auto table = py::cast<py::array>(object);
  check_plain(table, "table");
  if (table.ndim() != 2 || table.itemsize() != 1 ||
      static_cast<std::size_t>(table.shape(1)) != row_bytes) {
    throw py::value_error(concat(
        "a table must have items of 1 byte and shape (N, ", row_bytes, ")"));
  }
  return table;
}

void interleave(const py::sequence& columns, const py::array& out) {
  if (out.ndim() != 2) throw py::value_error("out must have two dimensions");
  const auto rows = static_cast<std::size_t>(out.shape(0));
  const Items items(columns, rows, "columns");
  auto table = table_of(out, items.row_bytes);
  auto* const to = static_cast<std::byte*>(table.mutable_data());
  std::vector<const std::byte*> addresses;
  for (const auto& array : items.arrays) {
    check_no_overlap(
        {to, rows * items.row_bytes},
        {bytes_of(array), static_cast<std::size_t>(array.nbytes())}, "columns");
    addresses.push_back(bytes_of(array));
  }
  unlocked_from(kUnlockBytes, rows * items.row_bytes, [&] {
    gristmill::interleave(addresses, items.item_bytes, rows, to);
  });
}

void gather_interleaved(const py::list& tables, const Rows& numbers,
                        const Rows& offsets, const py::list& outs) {
  const Places places(numbers, offsets, tables.size());
  const std::size_t count = places.numbers.size();
  Items items(outs, count, "outs");
  std::vector<py::array> checked_tables;
  std::vector<const std::byte*> addresses;
  for (const py::handle table : tables) {
    checked_tables.push_back(table_of(table, items.row_bytes));
    const auto min_rows = places.rows_needed[addresses.size()];
    if (checked_tables.back().shape(0) < min_rows) {
      throw py::index_error(concat("a table must have at least ", min_rows,
                                   " rows, got ",
                                   checked_tables.back().shape(0)));
    }
    addresses.push_back(bytes_of(checked_tables.back()));
  }
  std::vector<std::byte*> to;
  for (auto& out : items.arrays) {
    check_batch(out, count);
    to.push_back(static_cast<std::byte*>(out.mutable_data()));
    for (const auto& table : checked_tables) {
      check_no_overlap(
          {to.back(), static_cast<std::size_t>(out.nbytes())},
          {bytes_of(table), static_cast<std::size_t>(table.nbytes())},
          "a table");
    }
  }
  unlocked_from(kUnlockBytes, count * items.row_bytes, [&] {
    gristmill::gather_interleaved(addresses, places.numbers, places.offsets,
                                  items.item_bytes, to);
  });
}

}  // namespace

void chunks(py::module_& m) {
  m.def("find_chunks", &find_chunks, "bounds"_a.noconvert(),
        "rows"_a.noconvert(),
        "Return (chunks, numbers, offsets): the chunks that contain rows, and\n"
        "for each row the index of its chunk in them and its offset there.");
  m.def("gather_chunks", &gather_chunks, "chunks"_a, "numbers"_a.noconvert(),
        "offsets"_a.noconvert(), "outs"_a,
        "Write row offsets[k] of chunk numbers[k] to row k of the columns\n"
        "`outs`.  Each chunk is a tuple of columns.");
  m.def("interleave", &interleave, "columns"_a, "out"_a.noconvert(),
        "Write K columns of N items to the bytes of N rows.");
  m.def("gather_interleaved", &gather_interleaved, "tables"_a,
        "numbers"_a.noconvert(), "offsets"_a.noconvert(), "outs"_a,
        "Do the same as gather_chunks() for tables that interleave() filled.");
}

}  // namespace gristmill::bind
