// Binds the gathering of rows from chunks of core/batches/collate.hpp: checks
// the arrays, drops the GIL, passes bytes.
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

// Finds the first of some rows that is not in [0, count), or returns -1.
std::ptrdiff_t first_outside(std::span<const std::int64_t> rows,
                             std::int64_t count) {
  const auto bad = std::ranges::find_if(
      rows, [&](auto row) { return row < 0 || row >= count; });
  return bad == rows.end() ? -1 : bad - rows.begin();
}

std::span<const std::int64_t> numbers_of(const Rows& array, const char* name) {
  if (array.ndim() != 1 || !is_aligned(array)) {
    throw py::value_error(std::string(name) +
                          " must be aligned and have one dimension");
  }
  return {array.data(), static_cast<std::size_t>(array.size())};
}

py::tuple find_chunks(const Rows& bounds, const Rows& rows) {
  const auto limits = numbers_of(bounds, "bounds");
  const auto wanted = numbers_of(rows, "rows");
  if (limits.empty() || limits[0] != 0 || !std::ranges::is_sorted(limits)) {
    throw py::value_error("bounds must ascend from 0");
  }
  if (const auto bad = first_outside(wanted, limits.back()); bad >= 0) {
    throw py::index_error(concat("rows[", bad, "] is ",
                                 wanted[static_cast<std::size_t>(bad)],
                                 ", but there are ", limits.back(), " rows"));
  }
  Rows chunks(rows.size());
  Rows offsets(rows.size());
  const auto found = gristmill::find_chunks(
      limits, wanted, {chunks.mutable_data(), wanted.size()},
      {offsets.mutable_data(), wanted.size()});
  return py::make_tuple(
      Rows(static_cast<py::ssize_t>(found.size()), found.data()), chunks,
      offsets);
}

// The columns of some chunks, checked to be tables of the rows that `outs` are
// made of.
class ChunkedColumns {
 public:
  ChunkedColumns(const py::list& chunks, const py::list& outs) {
    for (const py::handle out : outs) {
      outs_.push_back(py::cast<py::array>(out));
    }
    for (const py::handle chunk : chunks) {
      columns_.push_back(py::cast<py::tuple>(chunk));
      if (columns_.back().size() != outs_.size()) {
        throw py::value_error("each chunk must have as many columns as outs");
      }
    }
    tables_.resize(columns_.size());
  }

  // Addresses of the tables of a column, each of which must have the rows that
  // the chunk needs.
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
                   " is not a C-contiguous array of the rows of its out"));
      }
      if (table->dimensions[0] < rows_needed[c]) {
        throw py::index_error(concat(
            "column ", column, " of chunk ", c, " has ", table->dimensions[0],
            " rows, but row ", rows_needed[c] - 1, " is asked for"));
      }
      tables_[c] = reinterpret_cast<const std::byte*>(table->data);
      const auto rows = static_cast<std::size_t>(table->dimensions[0]);
      check_apart({static_cast<const std::byte*>(out.data()),
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

void gather_chunks(const py::list& chunks, const Rows& numbers,
                   const Rows& offsets, const py::list& outs) {
  const auto which = numbers_of(numbers, "numbers");
  const auto where = numbers_of(offsets, "offsets");
  if (which.size() != where.size()) {
    throw py::value_error("numbers and offsets must have one length");
  }
  ChunkedColumns columns(chunks, outs);
  const auto count = static_cast<std::int64_t>(columns.count());
  if (first_outside(which, count) >= 0 ||
      first_outside(where, std::numeric_limits<std::int64_t>::max()) >= 0) {
    throw py::index_error(
        "numbers must be of chunks, and offsets not negative");
  }
  std::vector<std::int64_t> rows_needed(columns.count());
  for (std::size_t k = 0; k < which.size(); ++k) {
    auto& needed = rows_needed[static_cast<std::size_t>(which[k])];
    needed = std::max(needed, where[k] + 1);
  }
  for (std::size_t c = 0; c < columns.outs().size(); ++c) {
    auto& out = columns.outs()[c];
    check_batch(out, which.size());
    const auto tables = columns.tables(c, rows_needed);
    auto* const to = static_cast<std::byte*>(out.mutable_data());
    const std::size_t row_bytes = row_bytes_of(out);
    unlocked_from(kUnlockBytes, which.size() * row_bytes, [&] {
      gristmill::gather_chunks(tables, which, where, row_bytes, to);
    });
  }
}

}  // namespace

void chunks(py::module_& m) {
  m.def(
      "find_chunks", &find_chunks, "bounds"_a.noconvert(), "rows"_a.noconvert(),
      "Returns the chunks that rows are in, and for each row the number of its "
      "chunk among them and its place in the chunk.");
  m.def(
      "gather_chunks", &gather_chunks, "chunks"_a, "numbers"_a.noconvert(),
      "offsets"_a.noconvert(), "outs"_a,
      "Writes row offsets[k] of chunk numbers[k], each a tuple of columns, to "
      "row k of the columns `outs`.");
}

}  // namespace gristmill::bind
