#include "core/tokens/document_lengths.hpp"

#include <algorithm>
#include <array>

#include "core/base/highway_hash.hpp"
#include "core/base/pool.hpp"

namespace gristmill {
namespace {

// The key of the hash of lengths.
constexpr HighwayHash::Key kLengthsKey{0x31736e656c, 0, 0, 0};  // "lens1"

constexpr std::size_t kBlockLengths = 2048;

// Hashing fewer bytes takes less time than starting a thread.
constexpr std::size_t kMinThreadBytes = std::size_t{1} << 20;

// The sum of a block of lengths below this limit fits.
constexpr std::uint64_t kMaxLength = std::uint64_t{1} << 51;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 62;

Status sum_overflow() {
  return {Code::kOverflow, "the sum of lengths must be less than 2**62"};
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

// Adds the totals of a block, apart from the hash.  Returns all bits of its
// lengths.
[[gnu::always_inline]] inline std::uint64_t add_block(
    std::span<const std::int64_t> block, std::uint64_t limit,
    LengthTotals& totals) {
  // With shifts in place of comparisons, for which baseline x86 has no vector
  // instructions.
  std::uint64_t all_bits = 0;
  std::uint64_t tokens = 0;
  std::uint64_t not_empty = 0;
  std::uint64_t not_long = 0;
  std::uint64_t long_tokens = 0;
  std::int64_t longest = totals.longest;
  for (const auto number : block) {
    const auto length = static_cast<std::uint64_t>(number);
    // 1 if the length is at most the capacity.
    const auto fits = ~(limit - length) >> 63;
    all_bits |= length;
    longest = std::max(longest, number);
    tokens += length;
    not_empty += (std::uint64_t{0} - length) >> 63;
    not_long += fits;
    long_tokens += length & (fits - 1);
  }
  totals.longest = longest;
  // Without a sign, because unchecked lengths may overflow.
  const auto add = [](std::int64_t& total, std::uint64_t number) {
    total =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(total) + number);
  };
  add(totals.tokens, tokens);
  add(totals.long_tokens, long_tokens);
  const auto size = static_cast<std::int64_t>(block.size());
  totals.empty_documents += size - static_cast<std::int64_t>(not_empty);
  totals.long_documents += size - static_cast<std::int64_t>(not_long);
  return all_bits;
}

std::uint64_t add_block_portable(std::span<const std::int64_t> block,
                                 std::uint64_t limit, LengthTotals& totals) {
  return add_block(block, limit, totals);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) std::uint64_t add_block_avx2(
    std::span<const std::int64_t> block, std::uint64_t limit,
    LengthTotals& totals) {
  return add_block(block, limit, totals);
}
#endif

auto pick_add_block() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return add_block_avx2;
#endif
  return add_block_portable;
}

// Adds the totals of all lengths, apart from the hash.
Status add_all(const DocumentLengths& lengths, std::uint64_t limit,
               LengthTotals& totals) {
  const auto add = pick_add_block();
  std::array<std::int64_t, kBlockLengths> numbers;
  for (std::int64_t first = 0; first < lengths.size();) {
    const auto left = static_cast<std::uint64_t>(lengths.size() - first);
    const auto block = std::span(numbers).first(std::min(left, kBlockLengths));
    lengths.copy(first, block);
    TRY(check_block(first, block, add(block, limit, totals)));
    if (totals.tokens >= kMaxTokens) return sum_overflow();
    first += static_cast<std::int64_t>(block.size());
  }
  return {};
}

}  // namespace

Result<LengthTotals> total_lengths(const DocumentLengths& lengths,
                                   std::int64_t capacity) {
  LengthTotals totals{.documents = lengths.size()};
  std::uint64_t hash = 0;
  const auto find_hash = [&] {
    hash = HighwayHash::of(kLengthsKey, lengths.bytes());
  };
  const auto limit = static_cast<std::uint64_t>(capacity);
  if (lengths.bytes().size() < kMinThreadBytes) {
    find_hash();
    TRY(add_all(lengths, limit, totals));
  } else {
    Pool pool(1);
    TaskGroup group;
    pool.run(group, find_hash);
    const Status status = add_all(lengths, limit, totals);
    static_cast<void>(group.wait());
    TRY(status);
  }
  totals.hash = hash;
  return totals;
}

}  // namespace gristmill
