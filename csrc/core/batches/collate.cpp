#include "core/batches/collate.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/stream_copy.hpp"

namespace gristmill {
namespace {

// Rows of a table larger than this are rarely in the cache, so they are asked
// for ahead of their use.
constexpr std::size_t kPrefetchTableBytes = std::size_t{1} << 20;
constexpr std::size_t kPrefetchRows = 24;
// The processor itself follows a row beyond its first lines.
constexpr std::size_t kPrefetchRowBytes = 256;
constexpr std::size_t kCacheLine = 64;

// Shorter rows have too many lines that they fill only in part.
constexpr std::size_t kStreamRowBytes = std::size_t{4} << 10;

// Calls `rows` with a function that copies one row.  The usual sizes become
// constants, which turns memcpy into a few moves.
template <class Rows>
void with_row_copy(std::size_t row_bytes, const Rows& rows) {
  const auto fixed = [&]<std::size_t kBytes>() {
    if (row_bytes != kBytes) return false;
    rows([](std::byte* to, const std::byte* from) {
      std::memcpy(to, from, kBytes);
    });
    return true;
  };
  const auto usual =
      [&]<std::size_t... kBytes>(std::index_sequence<kBytes...>) {
        return (fixed.template operator()<kBytes>() || ...);
      };
  if (usual(std::index_sequence<1, 2, 4, 8, 16, 32, 64>())) return;
  rows([row_bytes](std::byte* to, const std::byte* from) {
    std::memcpy(to, from, row_bytes);
  });
}

std::ptrdiff_t first_bad_row(std::span<const std::int64_t> rows,
                             std::int64_t table_rows) noexcept {
  // A negative row is a huge one when read as unsigned.
  const auto bad =
      [limit = static_cast<std::uint64_t>(table_rows)](std::int64_t row) {
        return static_cast<std::uint64_t>(row) >= limit;
      };
  bool any = false;
  for (const auto row : rows) any |= bad(row);  // No branch: vectorized.
  if (!any) return -1;
  return std::find_if(rows.begin(), rows.end(), bad) - rows.begin();
}

}  // namespace

std::ptrdiff_t gather(std::span<const std::byte> table, std::int64_t table_rows,
                      std::span<const std::int64_t> rows, std::size_t row_bytes,
                      std::span<std::byte> out) noexcept {
  const auto bad = first_bad_row(rows, table_rows);
  if (bad >= 0 || row_bytes == 0) return bad;
  const auto from = [&](std::size_t k) {
    return table.data() + static_cast<std::size_t>(rows[k]) * row_bytes;
  };
  with_row_copy(row_bytes, [&](const auto& copy) {
    std::size_t k = 0;
    auto* to = out.data();
    if (table.size() > kPrefetchTableBytes && rows.size() > kPrefetchRows) {
      const auto ahead = std::min(row_bytes, kPrefetchRowBytes);
      for (; k < rows.size() - kPrefetchRows; ++k, to += row_bytes) {
        const auto* next = from(k + kPrefetchRows);
        for (std::size_t line = 0; line < ahead; line += kCacheLine) {
          __builtin_prefetch(next + line);
        }
        copy(to, from(k));
      }
    }
    for (; k < rows.size(); ++k, to += row_bytes) copy(to, from(k));
  });
  return -1;
}

void stack(std::span<const std::byte* const> parts, std::size_t row_bytes,
           std::byte* out, bool streaming) noexcept {
  if (row_bytes == 0) return;
  if (streaming && row_bytes >= kStreamRowBytes) {
    for (const auto* part : parts) {
      stream_copy(out, part, row_bytes);
      out += row_bytes;
    }
    return;
  }
  with_row_copy(row_bytes, [&](const auto& copy) {
    for (const auto* part : parts) {
      copy(out, part);
      out += row_bytes;
    }
  });
}

}  // namespace gristmill
