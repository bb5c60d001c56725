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

namespace gristmill {

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

// Copies row_bytes bytes from parts[k] to row k of `out`: long rows past the
// caches, if `streaming` says that nobody reads them soon.
// REQUIRES: out.size() == parts.size() * row_bytes.
void stack(std::span<const std::byte* const> parts, std::size_t row_bytes,
           std::byte* out, bool streaming) noexcept;

}  // namespace gristmill
