// Gather and stack copy the leaves of many elements into one batch.
//
// They move bytes and know nothing of dtypes: a row is row_bytes bytes that
// may be copied with memcpy.  Sources and destination must not overlap.
//
// Thread safety: plain functions; the caller keeps the memory alive and
// unchanged during a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gristmill {

// Finds the smallest k for which rows[k] is not in [0, table_rows), or returns
// -1.
[[nodiscard]] std::ptrdiff_t first_bad_row(std::span<const std::int64_t> rows,
                                           std::int64_t table_rows) noexcept;

// Copies row rows[k] of `table` to row k of `out`.  Returns -1, or the
// smallest k for which rows[k] is not a row of the table; nothing is written
// then.
// REQUIRES: table.size() == table_rows * row_bytes and
// out.size() == rows.size() * row_bytes.
[[nodiscard]] std::ptrdiff_t gather(std::span<const std::byte> table,
                                    std::int64_t table_rows,
                                    std::span<const std::int64_t> rows,
                                    std::size_t row_bytes,
                                    std::span<std::byte> out) noexcept;

// Finds the chunk of each row of a table that lies in chunks, rows bounds[c] to
// bounds[c + 1] - 1 in chunk c.  `chunks` gets the number of each chunk in the
// result, and `offsets` the rows' places in their chunks.  Returns the chunks
// that the rows are in, in the order of their first rows.
// REQUIRES: bounds ascend from 0, and have more than one; rows are in
// [0, bounds.back()); chunks.size() == offsets.size() == rows.size().
[[nodiscard]] std::vector<std::int64_t> find_chunks(
    std::span<const std::int64_t> bounds, std::span<const std::int64_t> rows,
    std::span<std::int64_t> chunks, std::span<std::int64_t> offsets);

// Copies row offsets[k] of chunk chunks[k] to row k of `out`.
// REQUIRES: the chunks have these rows, each of row_bytes bytes, and
// out is of chunks.size() * row_bytes bytes.
void gather_chunks(std::span<const std::byte* const> tables,
                   std::span<const std::int64_t> chunks,
                   std::span<const std::int64_t> offsets, std::size_t row_bytes,
                   std::byte* out) noexcept;

// Lays the items of columns, of item_bytes[c] bytes each, row by row: item k of
// all columns, one behind the other, is row k of `out`.
// REQUIRES: columns[c] has `rows` items, and `out` room for all of them.
void interleave(std::span<const std::byte* const> columns,
                std::span<const std::size_t> item_bytes, std::size_t rows,
                std::byte* out) noexcept;

// As gather_chunks() for all columns at once, of chunks made by interleave():
// a row is in two or three cache lines, not in one for each column.
// REQUIRES: outs[c] has room for chunks.size() items.
void gather_interleaved(std::span<const std::byte* const> tables,
                        std::span<const std::int64_t> chunks,
                        std::span<const std::int64_t> offsets,
                        std::span<const std::size_t> item_bytes,
                        std::span<std::byte* const> outs) noexcept;

// Copies row_bytes bytes from parts[k] to row k of `out`: long rows past the
// caches, if `streaming` says that nobody reads them soon.
// REQUIRES: out.size() == parts.size() * row_bytes.
void stack(std::span<const std::byte* const> parts, std::size_t row_bytes,
           std::byte* out, bool streaming) noexcept;

}  // namespace gristmill
