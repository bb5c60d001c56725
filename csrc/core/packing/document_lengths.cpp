#include "core/packing/document_lengths.hpp"

#include <algorithm>
#include <array>

#include "core/base/highway_hash.hpp"

namespace gristmill {
namespace {

// The key of the hash of lengths.
constexpr HighwayHash::Key kLengthsKey{0x31736e656c, 0, 0, 0};  // "lens1"

constexpr std::size_t kBlockLengths = 2048;

// The sum of a block of lengths below this limit fits.
constexpr std::uint64_t kMaxLength = std::uint64_t{1} << 51;

Status sum_overflow() {
  return {Code::kOverflow, "the sum of lengths must be less than 2**63"};
}

// Checks the lengths of a block, all of whose bits are in `all_bits`.
Status check_block(std::int64_t first, std::span<const std::int64_t> block,
                   std::uint64_t all_bits) {
  if (all_bits < kMaxLength) return {};
  for (const auto length : block) {
    if (length < 0) {
      return {Code::kInvalidArgument, "lengths must be at least 0, got ",
              length, " for document ", first};
    }
    if (static_cast<std::uint64_t>(length) >= kMaxLength) {
      return {Code::kOverflow, "lengths must be less than 2**51, got ", length,
              " for document ", first};
    }
    ++first;
  }
  return {};
}

}  // namespace

Result<LengthTotals> total_lengths(const DocumentLengths& lengths,
                                   std::int64_t capacity) {
  LengthTotals totals{.documents = lengths.size()};
  HighwayHash hash(kLengthsKey);
  const auto limit = static_cast<std::uint64_t>(capacity);
  std::array<std::int64_t, kBlockLengths> numbers;
  for (std::int64_t first = 0; first < lengths.size();) {
    const auto left = static_cast<std::uint64_t>(lengths.size() - first);
    const auto block = std::span(numbers).first(std::min(left, kBlockLengths));
    lengths.copy(first, block);
    hash.append(std::as_bytes(block));
    // With shifts in place of comparisons, for which baseline x86 has no vector
    // instructions.
    std::uint64_t all_bits = 0;
    std::uint64_t tokens = 0;
    std::uint64_t not_empty = 0;
    std::uint64_t not_long = 0;
    std::uint64_t long_tokens = 0;
    for (const auto number : block) {
      const auto length = static_cast<std::uint64_t>(number);
      // 1 if the length is at most the capacity.
      const auto fits = ~(limit - length) >> 63;
      all_bits |= length;
      tokens += length;
      not_empty += (std::uint64_t{0} - length) >> 63;
      not_long += fits;
      long_tokens += length & (fits - 1);
    }
    TRY(check_block(first, block, all_bits));
    const auto size = static_cast<std::int64_t>(block.size());
    totals.empty_documents += size - static_cast<std::int64_t>(not_empty);
    totals.long_documents += size - static_cast<std::int64_t>(not_long);
    totals.long_tokens += static_cast<std::int64_t>(long_tokens);
    if (__builtin_add_overflow(totals.tokens, tokens, &totals.tokens)) {
      return sum_overflow();
    }
    first += static_cast<std::int64_t>(block.size());
  }
  totals.hash = hash.value();
  return totals;
}

}  // namespace gristmill
