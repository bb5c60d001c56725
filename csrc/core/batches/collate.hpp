// Gather and stack copy the leaves of many elements into one batch.
//
// They move bytes and do not depend on dtypes: a row is row_bytes bytes that
// can be copied with memcpy.  Sources and destination must not overlap.
//
// Thread safety: plain functions; the caller keeps the memory alive and
// unchanged during a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gristmill {

// Returns the smallest k for which rows[k] is not in [0, table_rows), or -1.
[[nodiscard]] std::ptrdiff_t first_bad_row(std::span<const std::int64_t> rows,
                                           std::int64_t table_rows) noexcept;

// Copies row rows[k] of `table` to row k of `out`.  Returns -1.  If any rows[k]
// is not a row of the table, returns the smallest such k and writes nothing.
// REQUIRES: table.size() == table_rows * row_bytes and out.size() ==
// rows.size() * row_bytes.
[[nodiscard]] std::ptrdiff_t gather(std::span<const std::byte> table,
                                    std::int64_t table_rows,
                                    std::span<const std::int64_t> rows,
                                    std::size_t row_bytes,
                                    std::span<std::byte> out) noexcept;

// Finds the chunk of each row of a table that is split into chunks.  Chunk c
// holds the rows bounds[c] to bounds[c + 1] - 1.  Returns the chunks that
// contain `rows`, in the order of their first rows.  Sets chunks[k] to the
// index of the chunk of row k in the result, and offsets[k] to the offset of
// row k in that chunk.
// REQUIRES: bounds start with 0, ascend, and have more than one element; rows
// are in [0, bounds.back()); chunks.size() == offsets.size() == rows.size().
[[nodiscard]] std::vector<std::int64_t> find_chunks(
    std::span<const std::int64_t> bounds, std::span<const std::int64_t> rows,
    std::span<std::int64_t> chunks, std::span<std::int64_t> offsets);

// Copies row offsets[k] of chunk chunks[k] to row k of `out`.
// REQUIRES: the chunks have these rows, each of row_bytes bytes, and `out` has
// chunks.size() * row_bytes bytes.
void gather_chunks(std::span<const std::byte* const> tables,
                   std::span<const std::int64_t> chunks,
                   std::span<const std::int64_t> offsets, std::size_t row_bytes,
                   std::byte* out) noexcept;

// Writes columns row by row: row k of `out` is the concatenation of item k of
// all columns.  Items of column c have item_bytes[c] bytes.
// REQUIRES: columns[c] has `rows` items, and `out` has room for all of them.
void interleave(std::span<const std::byte* const> columns,
                std::span<const std::size_t> item_bytes, std::size_t rows,
                std::byte* out) noexcept;

// Like gather_chunks(), but for all columns at once, from chunks made by
// interleave().  A row then takes two or three cache lines, instead of one for
// each column.
// REQUIRES: outs[c] has room for chunks.size() items.
void gather_interleaved(std::span<const std::byte* const> tables,
                        std::span<const std::int64_t> chunks,
                        std::span<const std::int64_t> offsets,
                        std::span<const std::size_t> item_bytes,
                        std::span<std::byte* const> outs) noexcept;

// Copies row_bytes bytes from parts[k] to row k of `out`.  With `streaming`,
// long rows bypass the caches; use it if `out` will not be read soon.
// REQUIRES: `out` has parts.size() * row_bytes bytes.
void stack(std::span<const std::byte* const> parts, std::size_t row_bytes,
           std::byte* out, bool streaming) noexcept;

}  // namespace gristmill
