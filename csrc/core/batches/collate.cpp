#include "core/batches/collate.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/base/stream_copy.hpp"

namespace gristmill {
namespace {

// Rows of a larger table are rarely in the cache, so they are prefetched.
constexpr std::size_t kPrefetchTableBytes = std::size_t{1} << 20;
constexpr std::size_t kPrefetchRows = 24;
// After the first lines, the processor's own prefetcher follows the row.
constexpr std::size_t kPrefetchRowBytes = 256;
constexpr std::size_t kCacheLine = 64;

// Rows that are interleaved or split together.  They fit into the first-level
// cache together with the prefetched rows.
constexpr std::size_t kBlockRows = 16;

// Minimum row size for streaming copies.  Shorter rows have too many cache
// lines that they fill only partially.
constexpr std::size_t kStreamRowBytes = std::size_t{4} << 10;

// If there are at most this many chunks per row, an array with a number for
// each chunk is cheaper than a hash table of the chunks that contain rows.
constexpr std::size_t kMaxChunksPerRow = 4;

// Calls `rows` with a function that copies one row.  Common sizes become
// constants, so that memcpy compiles to a few moves.
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

std::size_t sum(std::span<const std::size_t> sizes) noexcept {
  return std::reduce(sizes.begin(), sizes.end());
}

// Finds the chunk of a row: the last bound that is not above the row.
class ChunkFinder {
 public:
  explicit ChunkFinder(std::span<const std::int64_t> bounds)
      : bounds_(bounds),
        last_(static_cast<std::int64_t>(bounds.size()) - 2),
        chunks_per_row_(static_cast<double>(bounds.size() - 1) /
                        static_cast<double>(bounds.back())) {}

  [[nodiscard]] std::size_t find(std::int64_t row) const noexcept {
    // Correct if all chunks have the same size, as they almost always do.
    const auto guess = static_cast<std::size_t>(std::min(
        static_cast<std::int64_t>(static_cast<double>(row) * chunks_per_row_),
        last_));
    if (bounds_[guess] <= row && row < bounds_[guess + 1]) return guess;
    // Search without branches: rows come in any order, so half of the branches
    // would be mispredicted.
    std::size_t chunk = 0;
    for (std::size_t count = bounds_.size(); count > 1; count -= count / 2) {
      const std::size_t half = count / 2;
      chunk += static_cast<std::size_t>(bounds_[chunk + half] <= row) * half;
    }
    return chunk;
  }

 private:
  const std::span<const std::int64_t> bounds_;
  const std::int64_t last_;
  const double chunks_per_row_;
};

// A hash table from chunks to their numbers.  It uses open addressing and is at
// most half full.
class ChunkNumbers {
 public:
  explicit ChunkNumbers(std::size_t max_chunks)
      : entries_(std::bit_ceil(2 * max_chunks + 1), {-1, 0}) {}

  // Returns the number of a chunk.  Assigns `next` if the chunk has none.
  std::int64_t find_or_add(std::int64_t chunk, std::int64_t next) {
    // Consecutive chunks, the usual case, never collide.
    auto slot = static_cast<std::size_t>(chunk);
    for (;; ++slot) {
      auto& [entry_chunk, number] = entries_[slot & (entries_.size() - 1)];
      if (entry_chunk == chunk) return number;
      if (entry_chunk < 0) {
        entry_chunk = chunk;
        number = next;
        return next;
      }
    }
  }

 private:
  std::vector<std::pair<std::int64_t, std::int64_t>> entries_;
};

}  // namespace

std::ptrdiff_t first_bad_row(std::span<const std::int64_t> rows,
                             std::int64_t table_rows) noexcept {
  const auto limit = static_cast<std::uint64_t>(table_rows);
  // A row is bad if the sign bit of the row, or of its distance to the last
  // row, is set.  This loop is vectorized.
  std::uint64_t signs = 0;
  for (const auto signed_row : rows) {
    const auto row = static_cast<std::uint64_t>(signed_row);
    signs |= row | (limit - 1 - row);
  }
  if (static_cast<std::int64_t>(signs) >= 0) return -1;
  const auto bad = std::ranges::find_if(rows, [limit](std::int64_t row) {
    return static_cast<std::uint64_t>(row) >= limit;
  });
  return bad - rows.begin();
}

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
      const auto prefetch_bytes = std::min(row_bytes, kPrefetchRowBytes);
      for (; k < rows.size() - kPrefetchRows; ++k, to += row_bytes) {
        const auto* next = from(k + kPrefetchRows);
        for (std::size_t line = 0; line < prefetch_bytes; line += kCacheLine) {
          __builtin_prefetch(next + line);
        }
        copy(to, from(k));
      }
    }
    for (; k < rows.size(); ++k, to += row_bytes) copy(to, from(k));
  });
  return -1;
}

std::vector<std::int64_t> find_chunks(std::span<const std::int64_t> bounds,
                                      std::span<const std::int64_t> rows,
                                      std::span<std::int64_t> chunks,
                                      std::span<std::int64_t> offsets) {
  std::vector<std::int64_t> used_chunks;
  if (rows.empty()) return used_chunks;
  const ChunkFinder finder(bounds);
  const auto find_all = [&](const auto& find_or_add) {
    for (std::size_t k = 0; k < rows.size(); ++k) {
      const std::size_t chunk_index = finder.find(rows[k]);
      offsets[k] = rows[k] - bounds[chunk_index];
      const auto next = static_cast<std::int64_t>(used_chunks.size());
      chunks[k] = find_or_add(chunk_index, next);
      if (chunks[k] == next) {
        used_chunks.push_back(static_cast<std::int64_t>(chunk_index));
      }
    }
  };
  if (bounds.size() <= kMaxChunksPerRow * rows.size()) {
    std::vector<std::int64_t> numbers(bounds.size(), -1);
    find_all([&](std::size_t chunk, std::int64_t next) {
      auto& number = numbers[chunk];
      if (number < 0) number = next;
      return number;
    });
  } else {
    ChunkNumbers numbers(rows.size());
    find_all([&](std::size_t chunk, std::int64_t next) {
      return numbers.find_or_add(static_cast<std::int64_t>(chunk), next);
    });
  }
  return used_chunks;
}

void gather_chunks(std::span<const std::byte* const> tables,
                   std::span<const std::int64_t> chunks,
                   std::span<const std::int64_t> offsets, std::size_t row_bytes,
                   std::byte* out) noexcept {
  if (row_bytes == 0) return;
  const auto from = [&](std::size_t k) {
    return tables[static_cast<std::size_t>(chunks[k])] +
           static_cast<std::size_t>(offsets[k]) * row_bytes;
  };
  with_row_copy(row_bytes, [&](const auto& copy) {
    std::size_t k = 0;
    for (; k + kPrefetchRows < chunks.size(); ++k, out += row_bytes) {
      __builtin_prefetch(from(k + kPrefetchRows));
      copy(out, from(k));
    }
    for (; k < chunks.size(); ++k, out += row_bytes) copy(out, from(k));
  });
}

void interleave(std::span<const std::byte* const> columns,
                std::span<const std::size_t> item_bytes, std::size_t rows,
                std::byte* out) noexcept {
  const std::size_t row_bytes = sum(item_bytes);
  for (std::size_t first = 0; first < rows; first += kBlockRows) {
    const std::size_t count = std::min(kBlockRows, rows - first);
    auto* column_out = out + first * row_bytes;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const std::size_t bytes = item_bytes[c];
      with_row_copy(bytes, [&](const auto& copy) {
        const auto* from = columns[c] + first * bytes;
        auto* to = column_out;
        for (std::size_t k = 0; k < count; ++k) {
          copy(to, from);
          from += bytes;
          to += row_bytes;
        }
      });
      column_out += bytes;
    }
  }
}

void gather_interleaved(std::span<const std::byte* const> tables,
                        std::span<const std::int64_t> chunks,
                        std::span<const std::int64_t> offsets,
                        std::span<const std::size_t> item_bytes,
                        std::span<std::byte* const> outs) noexcept {
  const std::size_t row_bytes = sum(item_bytes);
  using Addresses = std::array<const std::byte*, kBlockRows>;
  const auto find_block = [&](std::size_t first, Addresses& addresses) {
    const std::size_t count = std::min(kBlockRows, chunks.size() - first);
    for (std::size_t k = 0; k < count; ++k) {
      addresses[k] = tables[static_cast<std::size_t>(chunks[first + k])] +
                     static_cast<std::size_t>(offsets[first + k]) * row_bytes;
      for (std::size_t line = 0; line < row_bytes; line += kCacheLine) {
        __builtin_prefetch(addresses[k] + line);
      }
      // Rows may start anywhere in a line, so they may end one line later.
      __builtin_prefetch(addresses[k] + row_bytes - 1);
    }
    return count;
  };
  Addresses block;
  Addresses next_block;
  std::size_t first = 0;
  std::size_t count = chunks.empty() || outs.empty() ? 0 : find_block(0, block);
  while (count > 0) {
    const std::size_t next_first = first + count;
    const std::size_t next_count =
        next_first < chunks.size() ? find_block(next_first, next_block) : 0;
    std::size_t column_offset = 0;
    for (std::size_t c = 0; c < outs.size(); ++c) {
      const std::size_t bytes = item_bytes[c];
      with_row_copy(bytes, [&](const auto& copy) {
        auto* to = outs[c] + first * bytes;
        for (std::size_t k = 0; k < count; ++k, to += bytes) {
          copy(to, block[k] + column_offset);
        }
      });
      column_offset += bytes;
    }
    std::swap(block, next_block);
    first = next_first;
    count = next_count;
  }
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
