// The lengths of documents, in tokens.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "core/base/status.hpp"

namespace gristmill {

using DocumentLengths =
    std::variant<std::span<const std::int32_t>, std::span<const std::int64_t>>;

struct LengthSummary {
  std::int64_t tokens = 0;   // The sum of the lengths.
  std::int64_t longest = 0;  // The largest length.
  std::uint64_t hash = 0;    // Of all lengths.
};

// Summarizes the lengths in one pass.  Fails if one is negative, or if the sum
// is 2**62 or more.
Result<LengthSummary> summarize(const DocumentLengths& lengths);

}  // namespace gristmill
