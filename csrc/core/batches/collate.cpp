#include "core/batches/collate.hpp"

#include <algorithm>
#include <cstring>

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
    rows([](std::byte* to, const std::byte* from) {
      std::memcpy(to, from, kBytes);
    });
  };
  switch (row_bytes) {
    case 1:
      return fixed.template operator()<1>();
    case 2:
      return fixed.template operator()<2>();
    case 4:
      return fixed.template operator()<4>();
    case 8:
      return fixed.template operator()<8>();
    case 16:
      return fixed.template operator()<16>();
    case 32:
      return fixed.template operator()<32>();
    case 64:
      return fixed.template operator()<64>();
    default:
      return rows([row_bytes](std::byte* to, const std::byte* from) {
        std::memcpy(to, from, row_bytes);
      });
  }
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

// Sets `to` to copies of `value`, by copying what is already there, twice as
// much each time.
void repeat_value(std::span<const std::byte> value,
                  std::span<std::byte> to) noexcept {
  if (to.empty()) return;
  if (value.size() == 1) {
    std::memset(to.data(), std::to_integer<int>(value[0]), to.size());
    return;
  }
  std::memcpy(to.data(), value.data(), value.size());
  for (auto done = value.size(); done < to.size();) {
    const auto more = std::min(done, to.size() - done);
    std::memcpy(to.data() + done, to.data(), more);
    done += more;
  }
}

std::size_t product(std::span<const std::ptrdiff_t> shape) noexcept {
  std::size_t items = 1;
  for (const auto extent : shape) items *= static_cast<std::size_t>(extent);
  return items;
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

void pad(std::span<const std::ptrdiff_t> from_shape, const std::byte* from,
         std::span<const std::ptrdiff_t> to_shape,
         std::span<const std::byte> value, std::byte* to) noexcept {
  // Everything from `inner` on has one shape in both arrays, so that it is
  // contiguous in both.
  auto inner = from_shape.size();
  while (inner > 0 && from_shape[inner - 1] == to_shape[inner - 1]) --inner;
  const auto from_bytes =
      product(from_shape.subspan(inner > 0 ? 1 : 0)) * value.size();
  const auto to_bytes =
      product(to_shape.subspan(inner > 0 ? 1 : 0)) * value.size();
  if (inner == 0) {
    if (from_bytes > 0) std::memcpy(to, from, from_bytes);
    return;
  }
  const auto kept = static_cast<std::size_t>(from_shape[0]);
  const auto rows = static_cast<std::size_t>(to_shape[0]);
  if (inner == 1) {
    if (kept * from_bytes > 0) std::memcpy(to, from, kept * from_bytes);
  } else {
    for (std::size_t row = 0; row < kept; ++row) {
      pad(from_shape.subspan(1), from + row * from_bytes, to_shape.subspan(1),
          value, to + row * to_bytes);
    }
  }
  repeat_value(value, {to + kept * to_bytes, (rows - kept) * to_bytes});
}

}  // namespace gristmill
