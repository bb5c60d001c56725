// The lengths of documents, in tokens.
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "core/base/status.hpp"
#include "core/base/varint.hpp"

namespace gristmill {

// A length at any address.
template <class Integer>
struct LengthBytes {
  using Value = Integer;
  operator Integer() const noexcept { return load_le<Integer>(bytes.data()); }
  std::array<std::byte, sizeof(Integer)> bytes;
};

using DocumentLengths =
    std::variant<std::span<const LengthBytes<std::int32_t>>,
                 std::span<const LengthBytes<std::int64_t>>>;

struct LengthSummary {
  std::int64_t tokens = 0;   // The sum of the lengths.
  std::int64_t longest = 0;  // The largest length.
  std::uint64_t hash = 0;    // A hash of all lengths.
};

// Summarizes the lengths in one pass.  Fails if one is negative, or if the sum
// is 2**62 or more.
Result<LengthSummary> summarize(const DocumentLengths& lengths);

}  // namespace gristmill
